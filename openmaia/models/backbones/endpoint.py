"""What the clients of model servers have in common: concurrency, length of the prompt, retries and errors."""

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import httpx2

from openmaia.agent.tasks.ending import cut
from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply
from openmaia.models.backbones.billing import CallBill
from openmaia.models.backbones.chat_format import alternate, image_tokens, text_tokens
from openmaia.models.backbones.context import FittedChat, fit
from openmaia.models.backbones.failures import REFUSED_ACCESS, Failure, client_failure, stated_failure
from openmaia.models.backbones.limits import Bounds
from openmaia.models.backbones.outage import Outage
from openmaia.models.backbones.served import ChatServerConfig
from openmaia.models.backbones.streaming import StreamBroken, Unreadable, error_of
from openmaia.models.backbones.wordings import Refusal
from openmaia.models.pace import CALL_SECONDS, pace_of
from openmaia.models.server_access import ServerAccess
from openmaia.models.settling import settle

SdkAnswerT = TypeVar("SdkAnswerT")

_LONGEST_PAUSE = 30.0  # seconds before an interrupted request is sent again

# To these shares of its tokens a conversation is shortened, one after the other, if a server that refuses it as too
# long does not say what it takes.
REFITS = (0.8, 0.8, 0.6, 0.4)

_SHAPING = ("model", "context_tokens", "images_per_prompt", "temperature", "top_p", "protocol")  # shape a request

FOLDED, BRIDGED = "no system role", "no user after tool"
"""Forms of a conversation that a server may demand: the system prompt is part of the first turn; an assistant's message
stands between the result of a call and the next turn."""

# Finish reasons: the model refuses to go on, or the server could not complete the reply.
_REFUSED = ("content_filter", "refusal")

FAILED = ("error", "abort")

# With the same seed, the next answer is mostly the same.
UNREADABLE_TRIES = 2

log = logging.getLogger(__name__)


class Endpoint(ABC):
    """The base of backbones on an HTTP server. Thread-safe. The API key is never pickled."""

    sdk: ClassVar[Any]
    """`openai` or `anthropic`: both define exceptions with the same names."""
    key_variable: ClassVar[str]
    address: ClassVar[str]
    """URL of the vendor's server, used if `base_url` is empty."""
    address_hint: ClassVar[str]
    """The most frequent mistake in `base_url`, for messages."""

    def __init__(self, config: ChatServerConfig, section: str = "backbone"):
        """Checks the config. Does not connect.

        Args:
            section: The config section with these settings, for messages.

        Raises:
            UsageError: The API key is missing or invalid, or `base_url` is no URL.
        """
        self._config = config
        self.access = ServerAccess(
            section=section,
            kind=f"{section}.kind={config.kind!r}",
            model=config.model,
            base_url=config.base_url,
            address=self.address,
            address_hint=self.address_hint,
            key_variable=self.key_variable,
            keys=(*(f"{section}.{key}" for key in _SHAPING), "limits.reply_tokens"),
        )
        self.access.check()
        self._url = self.access.url
        self._slots = threading.BoundedSemaphore(config.concurrency)
        self._refused: set[str] = set()
        self._forms: frozenset[str] = frozenset()
        self._bounds = Bounds(tokens=config.context_tokens, images=config.images_per_prompt)
        self._refusals: dict[str, float] = {}
        self._took_images = False
        self._outage = Outage(self.access.shown(self._url))
        self._bill = CallBill(config)
        self._pace = pace_of(self._url, self.access.shown(self._url))

    def __reduce__(self):
        return type(self), (self._config, self.access.section)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Sends the requests concurrently.

        Raises:
            ServiceUnavailable: The server cannot be reached or is overloaded.
            ServiceError: It gave no usable reply. An empty one is usable only as a turn that the model did not refuse.
            UsageError: It rejects the API key, the model or the address.
        """
        if len(chats) <= 1:
            return [self._reply(chat) for chat in chats]
        with ThreadPoolExecutor(min(len(chats), self._config.concurrency)) as pool:
            return settle([pool.submit(self._reply, chat) for chat in chats])

    # -- methods of the subclasses -----------------------------------------------------------------------------------

    @abstractmethod
    def _parameters(self, chat: Chat) -> dict[str, Any]:
        """Returns what is left out of requests if the server rejects it, by its name in the API."""

    @abstractmethod
    def _body(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> dict[str, Any]:
        """Returns a request. `forms` are those of FOLDED and BRIDGED that the server demands."""

    @abstractmethod
    def _request(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str:
        """Returns the body of the answer. `forms` are those of FOLDED and BRIDGED that the server demands."""

    @abstractmethod
    def _parse(self, answer: Any, chat: Chat) -> tuple[Reply, str]:
        """Returns (the reply, whose text may be empty, the finish reason) of a decoded JSON body. May raise KeyError,
        TypeError, IndexError or AttributeError for another format."""

    def _demanded(self, failure: Failure, chat: Chat, forms: frozenset[str]) -> str | None:
        """Returns the form that a server most likely demands which refused the roles of a conversation in `forms`."""
        return None

    def _depends_on(self, parameter: str, parameters: Collection[str]) -> str:
        """Returns the config value that a server contradicts if it refuses a parameter. Empty: the run can do without."""
        return ""

    def _image_tokens(self, image: EncodedImage) -> int:
        return image_tokens(image)

    def _learn(self, system: str, turns: Sequence[Message], reply: Reply) -> None:  # noqa: B027 - optional
        """Called after each reply. A subclass may improve its estimate of image tokens with `reply.prompt_tokens`."""

    # -- batches, see `BatchServer` ----------------------------------------------------------------------------------

    @property
    def batch_model(self) -> str:
        return f"{self._url} {self._config.model} {self._config.temperature:g}"

    def batch_body(self, chat: Chat) -> dict[str, Any]:
        """Raises ServiceError if the conversation is too long."""
        system, turns = alternate(self._fit(chat, self._bounds).messages)
        parameters = {name: v for name, v in self._parameters(chat).items() if name not in self._refused}
        body = self._body(chat, system, turns, parameters, self._forms)
        return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}

    def batch_reply(self, chat: Chat, body: str) -> Reply | Failure:
        """Raises ServiceError as `reply`."""
        self._bill.begin()
        try:
            answer = self._understood(body, chat, *alternate(chat.messages))
        except OpenMaiaError as error:
            error.bill += self._bill.total
            raise
        return answer if isinstance(answer, Failure) else replace(answer, bill=self._bill.total)

    def _asked_of(self, call: Callable[[], SdkAnswerT]) -> SdkAnswerT:
        """Calls a method of the client library. Raises what its exceptions mean."""
        try:
            return call()
        except (self.sdk.APIStatusError, self.sdk.APIConnectionError) as error:
            failure = client_failure(self.sdk, error, self._config.timeout)
        except httpx2.TransportError as error:
            failure = Failure(status=0, body=str(error) or type(error).__name__)
        raise self.access.error(failure, was_answered=self._outage.answered > 0)

    # -- one reply ---------------------------------------------------------------------------------------------------

    def _reply(self, chat: Chat) -> Reply:
        self._outage.check()
        self._bill.begin()
        try:
            waited = self._pace.waited
            with self._slots:
                sent = time.monotonic()
                answer, left_out = self._fitted_answer(chat)
            waited = self._pace.waited - waited
            if isinstance(answer, Failure):
                raise self._raised(answer, chat)
        except OpenMaiaError as error:
            error.bill += self._bill.total
            raise
        self._outage.end(sent)
        self._refusals.pop(_key(chat), None)
        return replace(answer, left_out=left_out, bill=self._bill.total, waited=waited)

    def _fitted_answer(self, chat: Chat) -> tuple[Reply | Failure, str]:
        """Shortens a conversation until the server takes it. Returns the answer and what was left out."""
        bounds = self._bounds
        fitted = self._fit(chat, bounds)
        answer = self._ask(chat, fitted.messages)
        for share in REFITS:
            if isinstance(answer, Reply):
                break
            shorter = self._shorter(chat, fitted, bounds, answer, share)
            if shorter is None:
                break
            fitted, bounds = shorter
            answer = self._ask(chat, fitted.messages)
        self._took_images |= isinstance(answer, Reply) and any(message.images for message in fitted.messages)
        if isinstance(answer, Reply) and (lower := self._bounds.lower(bounds)) != self._bounds:
            self._bounds = lower
            log.warning("%s: %s", self.access.shown(self._url), lower.difference(self._config, self.access.section))
        return answer, fitted.left_out

    def _fit(self, chat: Chat, bounds: Bounds) -> FittedChat:
        return fit(
            chat.messages,
            room=bounds.tokens - chat.max_tokens,
            images=bounds.images,
            text_tokens=text_tokens,
            image_tokens=self._image_tokens,
        )

    def _shorter(
        self, chat: Chat, fitted: FittedChat, bounds: Bounds, failure: Failure, share: float
    ) -> tuple[FittedChat, Bounds] | None:
        """Shortens a conversation that was refused as too long, to the bounds that it now meets, if that is possible."""
        parts = [part for message in fitted.messages for part in message.parts]
        shown = sum(isinstance(part, EncodedImage) for part in parts)
        sent = sum(text_tokens(part) if isinstance(part, str) else self._image_tokens(part) for part in parts)
        text = failure.message.replace(self._config.model, "")
        # The status 413 is about bytes, most of which are those of images.
        is_large = failure.status == 413 and "token" not in text
        if shown and (failure.refusal is Refusal.IMAGES or is_large):
            smaller = bounds.with_images("" if is_large else text, shown)
        elif failure.refusal in (Refusal.IMAGES, Refusal.CONTEXT):
            smaller = bounds.with_tokens(text, sent, chat.max_tokens, share)
        else:
            return None
        for each in smaller:
            try:
                return self._fit(chat, each), each
            except ServiceError:
                continue
        return None

    def _ask(self, chat: Chat, messages: Sequence[Message]) -> Reply | Failure:
        """Sends a conversation. What the server refuses of form and parameters is left out from then on."""
        system, turns = alternate(messages)
        attempt = 0
        while True:
            attempt += 1
            forms = self._forms
            parameters = {name: v for name, v in self._parameters(chat).items() if name not in self._refused}
            body = self._send(chat, system, turns, parameters, forms)
            answer = body if isinstance(body, Failure) else self._understood(body, chat, system, turns)
            if isinstance(answer, Reply):
                return answer
            if answer.is_passing and attempt < self._config.tries:
                time.sleep(min(0.5 * 2**attempt, _LONGEST_PAUSE))
            elif not self._adapts(answer, chat, parameters, forms):
                return replace(answer, tries=attempt) if answer.is_passing else answer

    def _adapts(self, failure: Failure, chat: Chat, parameters: Mapping[str, Any], forms: frozenset[str]) -> bool:
        """Changes the form of later requests if it was refused; returns whether. Raises UsageError if the run needs it."""
        refused, form = failure.refused(parameters), None
        if refused is not None:
            if given := self._depends_on(refused, parameters):
                url, message = self.access.shown(self._url), self.access.shown(failure.message)
                raise UsageError(
                    f"{given}: {url} takes no {refused} ({message}); set {self.access.section}.protocol=text"
                )
            if refused not in self._refused:
                self._refused.add(refused)
                log.warning("%s", self.access.left_out(refused))
        elif failure.refusal is Refusal.ROLES:
            form = self._demanded(failure, chat, forms)
            if form is not None and form not in self._forms:
                self._forms |= {form}
                log.warning("%s demands another form of conversations: %s", self.access.shown(self._url), form)
        return refused is not None or form is not None

    def _send(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str | Failure:
        # The client library repeats only requests that fail before the answer begins.
        tries = self._config.tries
        for attempt in range(1, tries + 1):
            answer = self._pace.call(lambda: self._send_once(chat, system, turns, parameters, forms), repeats=tries > 1)
            if not isinstance(answer, StreamBroken | Unreadable):
                return answer
            self._bill.add_unknown()  # the reply had begun
            reason = self.access.shown(str(answer))
            log.warning("%s: %s (try %d of %d)", self.access.shown(self._url), reason, attempt, tries)
            if isinstance(answer, Unreadable) and attempt >= min(UNREADABLE_TRIES, tries):
                raise self._unreadable(reason)  # the server is there, so that this is no outage
            time.sleep(min(0.5 * 2**attempt, _LONGEST_PAUSE) if attempt < tries else 0)
        return Failure(status=0, body="the connection broke off in the middle of the reply", tries=tries)

    def _send_once(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str | Failure | StreamBroken | Unreadable:
        try:
            return self._request(chat, system, turns, parameters, forms)
        except (StreamBroken, Unreadable) as error:
            return error
        except httpx2.TransportError as error:
            return StreamBroken(str(error) or type(error).__name__)
        except (self.sdk.APIStatusError, self.sdk.APIConnectionError) as error:
            if isinstance(error, self.sdk.APITimeoutError):
                self._bill.add_unknown()
            return client_failure(self.sdk, error, self._config.timeout)

    def _understood(self, body: str, chat: Chat, system: str, turns: Sequence[Message]) -> Reply | Failure:
        answer: Any = None
        try:
            answer = json.loads(body)
            if error := error_of(answer):
                # Routers answer with status 200 and put the error of the server behind them into the body.
                return stated_failure(error, body)
            reply, ended = self._parse(answer, chat)
            self._bill.add(reply)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            if isinstance(answer, dict) and answer.keys() & {"choices", "content"}:
                self._bill.add_unknown()
                raise self._unreadable(f"{error!r} in {body}") from error
            return Failure(status=200, body=body)
        if ended in FAILED:
            raise self._unreadable(f"the server ended it with {ended!r}")
        if not reply.text.strip():
            if not chat.is_turn or ended in _REFUSED:
                self._outage.end()
                raise self._empty(ended)
            return replace(reply, text="")
        self._learn(system, turns, reply)
        text, reason = cut(reply.text, chat.is_turn)
        return replace(reply, text=text, cut=reason)

    # -- errors ------------------------------------------------------------------------------------------------------

    def _unreadable(self, reason: str) -> ServiceError:
        self._outage.end()
        section, url = self.access.section, self.access.shown(self._url)
        model = f"{section}.model={self._config.model!r}"
        return ServiceError(f"{model} at {url} gave a reply that cannot be read: {self.access.shown(reason)}")

    def _empty(self, ended: str) -> ServiceError:
        message = f"{self.access.section}.model={self._config.model!r} gave an empty answer (it ended with {ended!r})"
        match ended:
            case "length" | "max_tokens":
                return ServiceError(f"{message}: limits.reply_tokens were used up before its first word; raise them")
            case _ if ended in _REFUSED:
                return ServiceError(f"{message}: it refuses to continue this conversation")
            case _:
                return ServiceError(message)

    def _raised(self, failure: Failure, chat: Chat) -> OpenMaiaError:
        error = self._error(failure, chat)
        if isinstance(error, ServiceUnavailable) and failure.status in REFUSED_ACCESS and self._is_refused_alone(chat):
            error = ServiceError(f"{error.message}, and others since")
        if isinstance(error, ServiceUnavailable):
            # A server that limits the rate is there. A limit that is stated with status 200 has not been waited for.
            if failure.is_stated or not failure.is_limited or (failure.wait_seconds or 0.0) > CALL_SECONDS:
                self._outage.begin(error.message, failure.wait_seconds)
        else:
            self._outage.end()
        return error

    def _is_refused_alone(self, chat: Chat) -> bool:
        """Notes that a request was refused access. Returns whether it was before, and others were answered in between."""
        since = self._refusals.setdefault(_key(chat), time.monotonic())
        is_alone = self._outage.answered > since
        if is_alone:
            del self._refusals[_key(chat)]
        return is_alone

    def _error(self, failure: Failure, chat: Chat) -> OpenMaiaError:
        url, message, section = self.access.shown(self._url), self.access.shown(failure.message), self.access.section
        match failure.refusal:
            case Refusal.NO_IMAGES if any(each.images for each in chat.messages) and not self._took_images:
                remedy = "set backbone.sees=text, so that a viewer describes them in words, or give a model that sees"
                remedy = remedy if section == "backbone" else "give a model that sees"
                given = f"{section}.model={self._config.model!r}"
                return UsageError(f"{given} at {url} takes no images ({message}); {remedy}")
            case Refusal.IMAGES:
                return ServiceError(
                    f"a conversation has too many images for {url} ({message}); set "
                    f"{section}.images_per_prompt={self._config.images_per_prompt} to what its model takes"
                )
            case Refusal.CONTEXT:
                return ServiceError(
                    f"a conversation is too long for {url}, whatever is left out of it ({message}); set "
                    f"{section}.context_tokens={self._config.context_tokens} to what its model takes, and "
                    "limits.reply_tokens to less"
                )
            case Refusal.REPLY:
                return UsageError(
                    f"{url} writes no replies of {chat.max_tokens} tokens ({message}); lower limits.reply_tokens"
                )
            case Refusal.ROLES:
                return ServiceError(
                    f"{url} refuses the roles of a conversation in every form ({message}); set {section}.protocol=text, "
                    f"or give another {section}.model"
                )
            case _:
                return self.access.error(failure, was_answered=self._outage.answered > 0)


def _key(chat: Chat) -> str:
    return chat.conversation or chat.messages[-1].text
