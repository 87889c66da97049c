"""The common part of the clients of model servers: concurrency, length of the prompt, retries and errors."""

import json
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import httpx2

from openmaia.agent.tasks.ending import cut
from openmaia.config.models import BackboneConfig
from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply
from openmaia.models.backbones.chat_format import alternating, image_tokens, text_tokens
from openmaia.models.backbones.context import FittedChat, fit
from openmaia.models.backbones.failures import Failure, client_failure
from openmaia.models.backbones.outage import Outage
from openmaia.models.backbones.streaming import StreamBroken, Unreadable, error_of
from openmaia.models.server_access import ServerAccess

LONGEST_PAUSE = 30.0
"""Longest pause in seconds before a request whose answer was interrupted is sent again."""

REFITS = 4
"""Largest number of times that a conversation is shortened if it is too long for the server."""

REFUSED = ("content_filter", "refusal")
"""Values of the finish reason by which servers say that the model refuses to continue the conversation."""

FAILED = ("error", "abort")
"""Values of the finish reason by which servers say that they could not complete the reply."""

UNREADABLE_TRIES = 2
"""Largest number of requests whose answers cannot be read. With the same seed, the next answer is mostly the same."""

log = logging.getLogger(__name__)


class Endpoint(ABC):
    """Base class of backbones (the models that play the agent) that run on an HTTP server. It is thread-safe.

    The API key is read from the environment of the process that sends the request. It is never pickled.
    """

    sdk: ClassVar[Any]
    """The client library: the module `openai` or `anthropic`. Both define exceptions with the same names."""
    key_variable: ClassVar[str]
    """The environment variable with the API key."""
    address: ClassVar[str]
    """The URL of the vendor's server, which is used if the config key `base_url` is empty."""
    address_hint: ClassVar[str]
    """A hint for error messages about the most frequent mistake in the config key `base_url`."""

    def __init__(self, config: BackboneConfig, section: str = "backbone"):
        """Checks the config. Does not connect to the server.

        Args:
            config: The server and the model.
            section: The config section with these settings, for error messages: `backbone`, `viewer`, `evaluate.writer`.

        Raises:
            UsageError: If the API key is missing or invalid, or if the config key `base_url` is not a URL.
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
        )
        self.access.check()
        self._url = self.access.url
        self._slots = threading.BoundedSemaphore(config.concurrency)
        self._refused: set[str] = set()
        self._outage = Outage(self._url)

    def __reduce__(self):
        return type(self), (self._config, self.access.section)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns one reply for each chat (a request to continue a conversation), in the same order.

        The requests are sent concurrently.

        Raises:
            ServiceUnavailable: If the server cannot be reached or is overloaded.
            ServiceError: If the server gave no usable reply, or one that cannot be read. An empty reply is usable only
                if the chat requests a turn (a reply of the agent in an investigation) and the model did not refuse to
                answer.
            UsageError: If the server rejects the API key, the model or the address.
        """
        if len(chats) <= 1:
            return [self._reply(chat) for chat in chats]
        with ThreadPoolExecutor(min(len(chats), self._config.concurrency)) as pool:
            return list(pool.map(self._reply, chats))

    # -- methods of the subclasses -----------------------------------------------------------------------------------

    @abstractmethod
    def _parameters(self, chat: Chat) -> dict[str, Any]:
        """Returns the request parameters that are left out if the server rejects them, by their names in the API."""

    @abstractmethod
    def _request(self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any]) -> str:
        """Sends a request and returns the body of the answer. The client library repeats failed requests itself."""

    @abstractmethod
    def _parse(self, answer: Any, chat: Chat) -> tuple[Reply, str]:
        """Returns the reply in an answer, whose text may be empty, and the finish reason that the server gives.

        `answer` is the decoded JSON body. The method may raise KeyError, TypeError, IndexError or AttributeError if the
        body does not have the format of the API.
        """

    def _image_tokens(self, image: EncodedImage) -> int:
        return image_tokens(image)

    def _learn(self, system: str, turns: Sequence[Message], reply: Reply) -> None:  # noqa: B027 - optional
        """Called after each reply. A subclass may improve its estimate of image tokens with `reply.prompt_tokens`."""

    # -- one reply ---------------------------------------------------------------------------------------------------

    def _reply(self, chat: Chat) -> Reply:
        self._outage.check()
        with self._slots:
            fitted = self._fit(chat, self._config.context_tokens - chat.max_tokens)
            answer = self._ask(chat, fitted.messages)
            for _ in range(REFITS):
                if isinstance(answer, Reply) or not answer.overflow:
                    break
                shorter = self._shorter(chat, fitted)
                if shorter is None:
                    break
                fitted, answer = shorter, self._ask(chat, shorter.messages)
        if isinstance(answer, Failure):
            error = self._error(answer)
            if isinstance(error, ServiceUnavailable):
                self._outage.begin(error.message)
            else:
                self._outage.end()
            raise error
        self._outage.end()
        return replace(answer, left_out=fitted.left_out)

    def _fit(self, chat: Chat, room: int) -> FittedChat:
        return fit(
            chat.messages,
            room=room,
            images=self._config.images_per_prompt,
            text_tokens=text_tokens,
            image_tokens=self._image_tokens,
        )

    def _shorter(self, chat: Chat, fitted: FittedChat) -> FittedChat | None:
        """Shortens a conversation to 80 % of the tokens that were sent. Returns None if it cannot be shortened.

        It is used if the context window of the server is smaller than the config says.
        """
        parts = [part for message in fitted.messages for part in message.parts]
        sent = sum(text_tokens(part) if isinstance(part, str) else self._image_tokens(part) for part in parts)
        try:
            return self._fit(chat, int(0.8 * sent))
        except ServiceError:
            return None

    def _ask(self, chat: Chat, messages: Sequence[Message]) -> Reply | Failure:
        """Sends a conversation. If the server rejects a parameter, this and later requests are sent without it."""
        system, turns = alternating(messages)
        while True:
            parameters = {name: v for name, v in self._parameters(chat).items() if name not in self._refused}
            body = self._send(chat, system, turns, parameters)
            if isinstance(body, str):
                return self._understood(body, chat, system, turns)
            refused = body.refused(parameters)
            if refused is None:
                return body
            log.warning("%s refuses %s for %s; it is not sent again", self._url, refused, self._config.model)
            self._refused.add(refused)

    def _send(self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any]) -> str | Failure:
        """Sends a request. It is repeated if the connection breaks during the answer.

        The client library only repeats requests that fail before the answer begins.
        """
        tries = self._config.tries
        for attempt in range(1, tries + 1):
            answer = self._send_once(chat, system, turns, parameters)
            if not isinstance(answer, StreamBroken | Unreadable):
                return answer
            reason = self.access.shown(str(answer))
            log.warning("%s: %s (try %d of %d)", self.access.shown(self._url), reason, attempt, tries)
            if isinstance(answer, Unreadable) and attempt >= min(UNREADABLE_TRIES, tries):
                raise self._unreadable(reason)  # the server is there, so that this is no outage
            time.sleep(min(0.5 * 2**attempt, LONGEST_PAUSE) if attempt < tries else 0)
        return Failure(status=0, body="the connection broke off in the middle of the reply", tries=tries)

    def _send_once(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any]
    ) -> str | Failure | StreamBroken | Unreadable:
        try:
            return self._request(chat, system, turns, parameters)
        except (StreamBroken, Unreadable) as error:
            return error
        except httpx2.TransportError as error:
            return StreamBroken(str(error) or type(error).__name__)
        except (self.sdk.APIStatusError, self.sdk.APIConnectionError) as error:
            return client_failure(self.sdk, error, self._config.timeout)

    def _understood(self, body: str, chat: Chat, system: str, turns: Sequence[Message]) -> Reply | Failure:
        answer: Any = None
        try:
            answer = json.loads(body)
            if error := error_of(answer):
                # Routers answer with status 200 and put the error of the server behind them into the body.
                code = str(error.get("code")) if isinstance(error, dict) else ""
                return Failure(status=int(code) if re.fullmatch("[45][0-9]{2}", code) else 400, body=body)
            reply, ended = self._parse(answer, chat)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            if isinstance(answer, dict) and answer.keys() & {"choices", "content"}:
                raise self._unreadable(f"{error!r} in {body}") from error
            return Failure(status=200, body=body)
        if ended in FAILED:
            raise self._unreadable(f"the server ended it with {ended!r}")
        if not reply.text.strip():
            if not chat.is_turn or ended in REFUSED:
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
            case _ if ended in REFUSED:
                return ServiceError(f"{message}: it refuses to continue this conversation")
            case _:
                return ServiceError(message)

    def _error(self, failure: Failure) -> OpenMaiaError:
        url, message, section = self.access.shown(self._url), self.access.shown(failure.message), self.access.section
        if failure.refuses_images:
            remedy = "set backbone.sees=text, so that a viewer describes them in words, or give a model that sees"
            remedy = remedy if section == "backbone" else "give a model that sees"
            return UsageError(f"{section}.model={self._config.model!r} at {url} takes no images ({message}); {remedy}")
        if failure.overflow:
            return ServiceError(
                f"a conversation is too long for {url}, whatever is left out of it ({message}); set "
                f"{section}.context_tokens={self._config.context_tokens} to what its model takes"
            )
        return self.access.error(failure)
