"""Address, key and errors of a model server that is called by HTTP."""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from openmaia.core.checks import Check, missing, note, ok
from openmaia.core.errors import OpenMaiaError, ServiceError, ServiceUnavailable, UsageError
from openmaia.core.secrets import redacted
from openmaia.models.backbones.failures import REFUSED_ACCESS, Failure, response_failure
from openmaia.models.backbones.outage import Outage
from openmaia.models.backbones.wordings import LEFT_OUT, Refusal, key_hint

# For opening a connection: shorter than the limit for an answer, so that an unreachable server is noticed early.
CONNECT_SECONDS = 10.0

CHECK_SECONDS = 3.0  # for an answer before a run starts

_SHOWN = 300  # characters of a server's message

# For which a request itself waits. If the server wants more, the investigations wait as in an outage.
_LONGEST_PAUSE = 5.0

# Seeds are reduced modulo this number. llama.cpp uses 32 bits of a seed, and other servers reject large integers.
SEEDS = 2**31

# For private servers: the client libraries require a key.
NO_KEY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """How a server is reached. The API key is read from the environment and never pickled."""

    section: str
    """With `model` and `base_url`, for messages: `backbone`, or `generator.api`."""
    kind: str
    """The setting that selects the server, such as `backbone.kind='openai'`, for messages."""
    model: str
    base_url: str
    address: str
    """URL of the vendor's server, used if `base_url` is empty."""
    address_hint: str
    """The most frequent mistake in `base_url`, for messages."""
    key_variable: str
    keys: tuple[str, ...] = ()
    """The config keys that shape a request, for messages about refusals that nobody has met before."""

    @property
    def url(self) -> str:
        return self.base_url or self.address

    def key(self) -> str:
        """Returns NO_KEY if none is set."""
        return os.environ.get(self.key_variable, "").strip() or NO_KEY

    def check(self) -> None:
        """Checks address and key without connecting. Raises UsageError."""
        key = self.key()
        if not _is_address(self.url):
            raise UsageError(f"{self.section}.base_url={self.base_url!r} is no address; expected http://… or https://…")
        if key == NO_KEY and not self.base_url:
            raise UsageError(
                f"{self.kind} needs a key in the environment variable {self.key_variable}, or "
                f"{self.section}.base_url of a server that needs none"
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(
                f"the key in {self.key_variable} holds blanks, line breaks or characters other than ASCII; set it again"
            )

    def shown(self, text: str) -> str:
        """Returns one line of at most _SHOWN characters, without the API key if that has 8 characters or more."""
        key = self.key()
        # The key is replaced before the text is cut, because a part of a key is secret, too. Keys of private servers
        # may be as short as "x". These are not secret and occur in many words, so they are not replaced.
        # And it is replaced before other secrets, which may be a part of it.
        line = " ".join(redacted(text.replace(key, "***") if len(key) >= 8 else text).split())
        return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"

    def left_out(self, parameter: str) -> str:
        """Returns the warning that a refused parameter is left out of this and all later requests."""
        consequence = LEFT_OUT.get(parameter, "").format(section=self.section)
        refused = f"{self.shown(self.url)} refuses {parameter} for {self.model}; it is not sent again"
        return f"{refused}: {consequence}" if consequence else refused

    def error(self, failure: Failure, *, was_answered: bool = False) -> OpenMaiaError:
        """Returns the exception for a failed request.

        ServiceUnavailable if the same request may succeed later, UsageError for mistakes in the config, otherwise
        ServiceError.

        Args:
            was_answered: Whether the server has answered earlier requests of this process. If so, the key, the model
                and the address are right, so that it is unavailable if it refuses them.
        """
        url, message = self.shown(self.url), self.shown(failure.message)
        wait = f", Retry-After {self.shown(failure.wait)}" if failure.wait else ""
        said = f"{url} answered {failure.status}: {message} (tries: {failure.tries}{wait})"
        if failure.refusal is Refusal.CONTENT:
            return ServiceError(f"{url} refuses the content of this request ({failure.status}): {message}")
        if failure.refusal is Refusal.NO_CREDIT:
            reason = f"the account of the key in {self.key_variable} has no credit left at {url}: {message}"
            return ServiceUnavailable(reason) if was_answered else UsageError(reason)
        if failure.is_outage and failure.status:
            return ServiceUnavailable(said)
        if was_answered and failure.status in REFUSED_ACCESS:
            return ServiceUnavailable(f"{said}, although it has answered earlier requests")
        match failure.status:
            case 0:
                return ServiceUnavailable(f"{self.section}.base_url={url}: {message} (tries: {failure.tries})")
            case 200:
                return UsageError(
                    f"{self.section}.base_url={url} answers, but not as this API: {message}; {self.address_hint}"
                )
            case 401:
                return UsageError(f"{url} does not accept the key in {self.key_variable}; set it to a valid one")
            case 403:
                return UsageError(f"{url} does not allow this with the key in {self.key_variable}: {message}")
            case 404 | 405:
                given = f"{self.section}.model={self.model!r}, {self.section}.base_url={url}"
                return UsageError(f"{given}: the server does not know one of them: {message}; {self.address_hint}")
            case 400 | 422:
                return ServiceError(f"{said}; set what it is about: {key_hint(failure.message, self.keys)}")
            case _:
                return ServiceError(said)

    def retry(self, response: Any, outage: Outage) -> None:
        """Response hook of the HTTP clients: decides whether their library repeats a request."""
        # The libraries go by the status. They would repeat a request that was refused for good, and wait within it for
        # as long as the server says, while other investigations go on asking.
        if response.status_code < 400:
            return
        response.read()
        failure, again = response_failure(response), None
        if failure.refusal is not None or (failure.is_outage and outage.is_known):
            again = False  # one request is enough to see whether the outage is over
        elif failure.status == 429:
            again = False  # `Pace` repeats it
        elif failure.wait_seconds is not None and failure.wait_seconds > _LONGEST_PAUSE:
            again = False
        elif failure.status in REFUSED_ACCESS and outage.answered:
            again = True
        if again is not None:
            response.headers["x-should-retry"] = str(again).lower()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def server_check(library: str, access: Callable[[], ServerAccess], *, waits: bool) -> Check:
    """Asks a server for its models, and checks that the configured one is among them.

    Args:
        library: `openai` or `anthropic`.
        access: Raises UsageError if the key is missing or the address is no URL.
        waits: Whether a server that is slow or overloaded, or that does not list its models, is a note and not missing.
    """
    vendor: Any = importlib.import_module(library)
    try:
        server = access()
        server.check()
    except UsageError as error:
        return missing(error.message)
    given = f"{server.section}.base_url={server.url}"
    try:
        client = vendor.Client(api_key=server.key(), base_url=server.url, timeout=CHECK_SECONDS, max_retries=0)
        names = [model.id for model in client.models.list().data]
    except (
        vendor.APITimeoutError,
        vendor.PermissionDeniedError,
        vendor.RateLimitError,
        vendor.InternalServerError,
    ) as error:
        if waits:
            return note(f"{given} does not list its models now ({type(error).__name__})")
        if not isinstance(error, vendor.PermissionDeniedError):
            return _no_answer(given, server, error)
        return missing(f"{given} refuses the key; set {server.key_variable} to a valid one")
    except vendor.AuthenticationError:
        return missing(f"{given} refuses the key; set {server.key_variable} to a valid one")
    except vendor.NotFoundError:
        return note(f"{given} answers, but lists no models; {server.address_hint}")
    except vendor.APIError as error:
        return _no_answer(given, server, error)
    except (AttributeError, TypeError, ValueError):
        return missing(f"{given} answers, but not as this API; {server.address_hint}")
    if server.model in names:
        return ok(f"{given} serves {server.model}")
    return note(
        f"{given} does not list {server.section}.model={server.model}, but {', '.join(names[:5]) or 'no model'}"
    )


def _no_answer(given: str, server: ServerAccess, error: Exception) -> Check:
    reason = server.shown(str(error.__cause__ or error))  # Servers may repeat the key.
    return missing(f"{given} does not answer ({reason}); start the server, or see its log")
