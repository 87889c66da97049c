"""What a failed request to a model server means for the next one. `wordings` knows the servers' words."""

import json
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from openmaia.models.backbones import wordings
from openmaia.models.backbones.wordings import Refusal

# The server, or a proxy before it, is away or overloaded. 520 to 527 and 530 are Cloudflare's, 529 is Anthropic's.
UNAVAILABLE = frozenset((502, 503, 504, *range(520, 528), 529, 530, 598, 599))

REFUSED_ACCESS = (403, 404, 405)
"""The server does not know the key, the model or the address. Proxies also answer so in passing."""

TEXT = 10_000  # characters in which a reason is looked for

# By the type of an error in the body of a response with status 200.
_STATUSES: Mapping[str, int] = {
    "overloaded_error": 529,
    "overloaded": 529,
    "service_unavailable": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed request. Servers may repeat the API key, so that `body`, `message` and `wait` may contain it."""

    status: int
    """0 without a response. 200 if the response has another format than the API's. For an error that is stated with
    status 200, the code in the body, or 400."""
    body: str
    is_stated: bool = False
    """Whether the response had status 200."""
    tries: int = 1
    wait: str = ""
    """The header Retry-After; "" without one."""
    wait_seconds: float | None = None
    """Seconds after which the server allows another request, by headers or text. None if it does not say."""

    @property
    def refusal(self) -> Refusal | None:
        """None if the server did not refuse the request, or if its words are not understood."""
        return wordings.refusal(self._text, self.status)

    @property
    def is_outage(self) -> bool:
        """Whether the same request may succeed later, because the server is away or overloaded."""
        limited = self.status == 429 or (self.wait_seconds is not None and self.status in (408, 409, 425, 500))
        return self.status == 0 or self.status in UNAVAILABLE or (limited and self.refusal is None)

    @property
    def is_limited(self) -> bool:
        """Whether the server refuses the request for now because it limits their rate."""
        return self.status == 429 and self.refusal is None

    @property
    def is_passing(self) -> bool:
        """Whether a server reports an accident of its own with status 200, which no client library repeats."""
        return self.is_stated and self.status == 500 and self.refusal is None

    @property
    def message(self) -> str:
        """The error message, or the whole body if none is found."""
        fields = self._fields()
        message = _worded(fields.get("message") or fields.get("detail") or fields.get("error") or self.body)
        metadata = fields.get("metadata")
        raw = metadata.get("raw") if isinstance(metadata, dict) else None  # a router quotes the server behind it
        return f"{message}: {raw}" if raw else message

    def refused(self, parameters: Collection[str]) -> str | None:
        """Returns the optional parameter that the server does not support, if the request failed because of one."""
        if self.status not in (400, 403, 404, 405, 422, 500, 501) or self.refusal is not None:
            return None
        blamed, surely = self._fields().get("param"), self.status in (403, 404, 405, 500)
        return wordings.refused_parameter(self._text, blamed, parameters, surely=surely)

    @property
    def _text(self) -> str:
        fields = self._fields()
        # Not the whole body: some servers repeat the conversation in it.
        return " ".join([self.message[:TEXT], *(str(fields[name]) for name in ("code", "type") if fields.get(name))])

    def _fields(self) -> dict[str, Any]:
        # {"error": {...}}, {"error": "..."}, {"message": ...}, {"detail": ...}, or a list of one of these.
        try:
            parsed: Any = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        if isinstance(parsed, list) and parsed:
            parsed = parsed[0]
        if not isinstance(parsed, dict):
            return {}
        return parsed["error"] if isinstance(parsed.get("error"), dict) else parsed


def _worded(message: Any) -> str:
    if not isinstance(message, list):
        return str(message)
    # FastAPI's list of wrong fields.
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each.get('msg')} ({each.get('type')})"
        if isinstance(each, dict) and isinstance(each.get("loc"), list)
        else str(each)
        for each in message
    )


def response_failure(response: Any, tries: int = 1) -> Failure:
    """Reads a response with a status above 399, whose body has been read."""
    text, headers = response.text, response.headers
    wait = _retry_after(headers)
    if wait is None and response.status_code in (429, *UNAVAILABLE):
        wait = wordings.waiting_time(text)
    return Failure(
        status=response.status_code, body=text, tries=tries, wait=headers.get("retry-after", ""), wait_seconds=wait
    )


def stated_failure(error: Any, body: str) -> Failure:
    """Reads the field `error` in a body with status 200, as routers pass on errors."""
    fields = error if isinstance(error, dict) else {}
    status = 400
    for value in (fields.get(name) for name in ("type", "status", "status_code", "code")):
        number = int(value) if isinstance(value, str) and value.isdigit() else _STATUSES.get(str(value).lower(), value)
        if isinstance(number, int) and 400 <= number < 600:
            status = number
    # The body of a router may hold the error beside the beginning of a reply.
    text = json.dumps({"error": error})
    return Failure(
        status=status, body=text, is_stated=True, wait_seconds=wordings.waiting_time(body) if status == 429 else None
    )


def client_failure(sdk: Any, error: Any, timeout: float) -> Failure:
    """Reads an APIStatusError, APITimeoutError or APIConnectionError of `openai` or `anthropic`. Keeps no reference to
    it, because it may hold the API key. `timeout` is in seconds."""
    tries = int(error.request.headers.get("x-stainless-retry-count", "0")) + 1  # both libraries set this header
    if isinstance(error, sdk.APIStatusError):
        return response_failure(error.response, tries)
    if isinstance(error, sdk.APITimeoutError):
        return Failure(status=0, body=f"no answer within {timeout:g} s", tries=tries)
    return Failure(status=0, body=f"cannot be reached: {error.__cause__ or error}", tries=tries)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return None if math.isnan(seconds) else max(seconds, 0.0)
    date, now = parsedate_tz(headers.get("retry-after")), parsedate_tz(headers.get("date"))
    # Both dates are of the server's clock, which may differ from ours.
    return max(mktime_tz(date) - (mktime_tz(now) if now else time.time()), 0.0) if date else None
