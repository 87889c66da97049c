"""What the clients of model servers share: how many requests are under way, what is sent, and what a failure means."""

import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from openmaia.backbones.context import Fitted, fit
from openmaia.backbones.failures import Failure
from openmaia.backbones.spoken import image_tokens, spoken, text_tokens
from openmaia.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.images import Picture
from openmaia.messages import Chat, Message, Reply
from openmaia.schema import BackboneConfig

CONNECT_SECONDS = 10.0
"""To open a connection: a server that is away is noticed long before backbone.timeout, which is for a reply."""

REFITS = 4
SHOWN = 300
"""Characters of a server's message that are repeated in ours."""

NO_KEY = "none"
"""What a server of one's own gets where no key is set: the clients insist on one."""

log = logging.getLogger(__name__)


class Endpoint(ABC):
    """A backbone behind HTTP. `reply` may be called from many threads, each of which waits for its own answers.

    The key is read from the environment of the process that sends; it travels in no pickle.
    """

    key_variable: ClassVar[str]
    address: ClassVar[str]
    """The maker's own server."""
    elsewhere: ClassVar[str]
    """What is usually wrong with a base_url that leads to something else."""

    def __init__(self, config: BackboneConfig):
        """Raises UsageError for a missing key or model, and for a base_url that is no URL. Connects to nothing."""
        self._config = config
        self._url = config.base_url or self.address
        self._check()
        self._slots = threading.BoundedSemaphore(config.concurrency)
        self._refused: set[str] = set()

    def __reduce__(self):
        return type(self), (self._config,)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """In order. Raises ServiceError where a reply could not be had, UsageError for a wrong key, model or address."""
        if len(chats) <= 1:
            return [self._reply(chat) for chat in chats]
        with ThreadPoolExecutor(min(len(chats), self._config.concurrency)) as pool:
            return list(pool.map(self._reply, chats))

    # -- what differs between the APIs -------------------------------------------------------------------------------

    @abstractmethod
    def _parameters(self, chat: Chat) -> dict[str, float]:
        """All that the API may refuse, by its names; those in `self._refused` are left out by the caller."""

    @abstractmethod
    def _send(self, chat: Chat, system: str, said: list[Message], parameters: dict[str, float]) -> str | Failure:
        """The body of the answer. The client tries again by itself what may be tried again."""

    @abstractmethod
    def _read(self, answer: Any) -> tuple[Reply, str]:
        """The reply, whose text may be empty, and why it ended. Raises KeyError, TypeError, IndexError or AttributeError
        for what is no answer of the API."""

    def _image_tokens(self, picture: Picture) -> int:
        return image_tokens(picture)

    @abstractmethod
    def _learn(self, system: str, said: Sequence[Message], reply: Reply) -> None:
        """From what a reply says that its prompt took."""

    # -- one reply ---------------------------------------------------------------------------------------------------

    def _reply(self, chat: Chat) -> Reply:
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
            raise self._error(answer)
        return replace(answer, left_out=fitted.left_out)

    def _fit(self, chat: Chat, room: int) -> Fitted:
        return fit(
            chat.messages,
            room=room,
            images=self._config.images_per_prompt,
            text_tokens=text_tokens,
            image_tokens=self._image_tokens,
        )

    def _shorter(self, chat: Chat, fitted: Fitted) -> Fitted | None:
        """To 80 % of what was sent, not of the config's room: the server may have far less than that."""
        parts = [part for message in fitted.messages for part in message.parts]
        sent = sum(text_tokens(part) if isinstance(part, str) else self._image_tokens(part) for part in parts)
        try:
            return self._fit(chat, int(0.8 * sent))
        except ServiceError:
            return None

    def _ask(self, chat: Chat, messages: Sequence[Message]) -> Reply | Failure:
        """Parameters that the server refuses are not sent to it again; which model takes which is nowhere listed."""
        system, said = spoken(messages)
        while True:
            wanted = self._parameters(chat)
            sent = {name: value for name, value in wanted.items() if name not in self._refused}
            body = self._send(chat, system, said, sent)
            if isinstance(body, str):
                return self._understood(body, system, said)
            refused = body.refused(sent)
            if refused is None:
                return body
            log.warning("%s takes no %s for %s: it is not sent again", self._url, refused, self._config.model)
            self._refused.add(refused)

    def _understood(self, body: str, system: str, said: Sequence[Message]) -> Reply | Failure:
        try:
            answer: Any = json.loads(body)
            if error := answer.get("error"):
                # Routers answer 200 and put into the body what the server behind them answered.
                code = error.get("code") if isinstance(error, dict) else None
                return Failure(status=code if isinstance(code, int) and code >= 400 else 400, body=body)
            reply, ended = self._read(answer)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return Failure(status=200, body=body)
        if not reply.text.strip():
            raise self._silence(ended)
        self._learn(system, said, reply)
        return reply

    # -- errors ------------------------------------------------------------------------------------------------------

    def _silence(self, ended: str) -> ServiceError:
        said = f"backbone.model={self._config.model!r} gave an empty answer (it ended with {ended!r})"
        match ended:
            case "length" | "max_tokens":
                return ServiceError(f"{said}: limits.reply_tokens were spent before its first word; raise them")
            case "content_filter" | "refusal":
                return ServiceError(f"{said}: it refuses to go on with this conversation")
            case _:
                return ServiceError(said)

    def _error(self, failed: Failure) -> OpenMaiaError:
        url, said = self._shown(self._url), self._shown(failed.message)
        if failed.overflow:
            return ServiceError(
                f"a conversation is too long for {url}, whatever is left out of it ({said}); set "
                f"backbone.context_tokens={self._config.context_tokens} to what its model takes"
            )
        match failed.status:
            case 0:
                return ServiceError(f"backbone.base_url={url}: {said} (tries: {failed.tries})")
            case 200:
                return UsageError(f"backbone.base_url={url} answers, but not as this API: {said}; {self.elsewhere}")
            case 401:
                return UsageError(f"{url} does not accept the key in {self.key_variable}; set it to a valid one")
            case 403:
                return UsageError(f"{url} does not allow this with the key in {self.key_variable}: {said}")
            case 404 | 405:
                asked = f"backbone.model={self._config.model!r}, backbone.base_url={url}"
                return UsageError(f"{asked}: the server does not know one of them: {said}; {self.elsewhere}")
            case status:
                wait = f", Retry-After {self._shown(failed.wait)}" if failed.wait else ""
                return ServiceError(f"{url} answered {status}: {said} (tries: {failed.tries}{wait})")

    def _shown(self, text: str) -> str:
        """One short line without the key."""
        key = self._key()
        # Redacted before it is cut: half of a key is still half of a key. Local servers get keys as short as "x", which
        # are no secret and stand in every word.
        line = " ".join((text.replace(key, "***") if len(key) >= 8 else text).split())
        return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"

    # -- what the user gave ------------------------------------------------------------------------------------------

    def _key(self) -> str:
        return os.environ.get(self.key_variable, "").strip() or NO_KEY

    def _check(self) -> None:
        config, key = self._config, self._key()
        if not config.model:
            raise UsageError("backbone.model is empty; give the name that the server knows the model by")
        if not _is_address(self._url):
            raise UsageError(f"backbone.base_url={config.base_url!r} is no address; expected http://… or https://…")
        if key == NO_KEY and not config.base_url:
            raise UsageError(
                f"backbone.kind={config.kind!r} needs a key in the environment variable {self.key_variable}, or "
                "backbone.base_url of a server that needs none"
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(f"the key in {self.key_variable} holds blanks, line breaks or other than ASCII characters")
        for name in ("concurrency", "tries", "timeout", "context_tokens"):
            if getattr(config, name) <= 0:
                raise UsageError(f"backbone.{name}={getattr(config, name)} has to be more than 0")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
