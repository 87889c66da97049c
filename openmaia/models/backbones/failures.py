"""Interprets the error responses of model servers.

Servers have no common error codes, so most errors are recognised by the text of the response.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

OVERFLOW = re.compile(
    r"context[ _](length|window|size|limit)|maximum model length|prompt (is )?too (long|large)|too many (input )?tokens"
    r"|input token count|max_new_tokens. must be|request_too_large",
    re.IGNORECASE,
)
"""Matches the messages of vLLM, SGLang, llama.cpp, Ollama, TGI, OpenAI, Anthropic and Gemini about too long prompts."""

NO_IMAGES = re.compile(
    r"(image|multimodal|vision)[\w ]*(is|are|input) (not|n't) (supported|enabled|allowed)|mmproj"
    r"|(not|n't) support[\w ]* (image|vision|multimodal)|at most 0 image|only text (content|input)",
    re.IGNORECASE,
)
"""Matches the messages of llama.cpp, Ollama, vLLM and others that a model takes no images."""

UNSUPPORTED = re.compile(
    r"unsupported|(not|n't) (support|permit|allow)|unknown|unrecogni[sz]ed|unexpected|forbidden|deprecated|cannot",
    re.IGNORECASE,
)
"""Matches messages about parameters that a server does not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed request to a model server.

    Servers may repeat the API key in their response, so that `body`, `message` and `wait` may contain it.
    """

    status: int
    """The HTTP status. 0 if the server did not respond. 200 if the response does not have the format of the API. If a
    server reports an error with status 200, this is the error code in the body, or 400 if the body has none."""
    body: str
    """The text of the response."""
    tries: int = 1
    """Number of times that the request was sent."""
    wait: str = ""
    """The value of the header Retry-After, "" without one."""

    @property
    def overflow(self) -> bool:
        """Whether the server refused the conversation as too long, in tokens or (status 413) in bytes."""
        return self.status == 413 or (self.status >= 400 and OVERFLOW.search(self.body) is not None)

    @property
    def refuses_images(self) -> bool:
        """Whether the request failed because the model takes no images."""
        return self.status >= 400 and NO_IMAGES.search(self.body) is not None

    @property
    def message(self) -> str:
        """The error message in the response, or the whole text of the response if no message is found."""
        fields = self._fields()
        return str(fields.get("message") or fields.get("detail") or fields.get("error") or self.body)

    def refused(self, parameters: Collection[str]) -> str | None:
        """Returns the name of the request parameter that the server refused because it does not support it.

        Returns None if the request failed for another reason, or if the response names none of the parameters.

        Args:
            parameters: Names of the optional parameters in the request.
        """
        if self.status not in (400, 422) or self.overflow or not UNSUPPORTED.search(self.body):
            return None
        blamed = self._fields().get("param")
        if blamed in parameters:
            return blamed
        # Some servers refuse temperature beside top_p. In reverse order top_p is removed, and temperature stays.
        names = sorted(parameters, reverse=True)
        return next((name for name in names if re.search(rf"\b{name}\b", self.message)), None)

    def _fields(self) -> dict[str, Any]:
        """Returns the JSON object with the error message, or an empty one if the response is no JSON object.

        Servers answer {"error": {...}}, {"error": "..."}, {"message": ...} or {"detail": ...}.
        """
        try:
            parsed: Any = json.loads(self.body)
        except ValueError:
            return {}
        if not isinstance(parsed, dict):
            return {}
        return parsed["error"] if isinstance(parsed.get("error"), dict) else parsed


def client_failure(sdk: Any, error: Any, timeout: float) -> Failure:
    """Converts the exception of a client library to a `Failure`.

    The result holds no reference to the exception, because the exception may contain the API key.

    Args:
        sdk: The client library: the module `openai` or `anthropic`.
        error: Its exception: APIStatusError, APITimeoutError or APIConnectionError.
        timeout: The time limit of the request in seconds, for messages.
    """
    tries = int(error.request.headers.get("x-stainless-retry-count", "0")) + 1  # both libraries set this header
    if isinstance(error, sdk.APIStatusError):
        wait = error.response.headers.get("retry-after", "")
        return Failure(status=error.status_code, body=error.response.text, tries=tries, wait=wait)
    if isinstance(error, sdk.APITimeoutError):
        return Failure(status=0, body=f"no answer within {timeout:g} s", tries=tries)
    return Failure(status=0, body=f"cannot be reached: {error.__cause__ or error}", tries=tries)
