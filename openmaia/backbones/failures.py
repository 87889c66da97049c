"""What servers say instead of a reply, and what it means; there is no common code for most of it."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

OVERFLOW = re.compile(
    r"context[ _](length|window|size|limit)|maximum model length|prompt (is )?too (long|large)|too many (input )?tokens"
    r"|input token count|max_new_tokens. must be|request_too_large",
    re.IGNORECASE,
)
"""In the words of vLLM, SGLang, llama.cpp, Ollama, TGI, OpenAI, Anthropic and Gemini."""

REFUSING = re.compile(
    r"unsupported|(not|n't) (support|permit|allow)|unknown|unrecogni[sz]ed|unexpected|forbidden|deprecated|cannot",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No reply. It may hold the key, where the server repeats it.

    status: of HTTP; 0 where nobody answered, 200 where the answer was none of the API's. body: all that was said.
    tries: how often the request was sent. wait: the server's Retry-After.
    """

    status: int
    body: str
    tries: int = 1
    wait: str = ""

    @property
    def overflow(self) -> bool:
        """The conversation was too long, in tokens or (413) in bytes."""
        return self.status == 413 or (self.status >= 400 and OVERFLOW.search(self.body) is not None)

    @property
    def message(self) -> str:
        fields = self._fields()
        return str(fields.get("message") or fields.get("detail") or fields.get("error") or self.body)

    def refused(self, parameters: Collection[str]) -> str | None:
        """Which of the parameters the server does not take."""
        if self.status not in (400, 422) or self.overflow or not REFUSING.search(self.body):
            return None
        blamed = self._fields().get("param")
        if blamed in parameters:
            return blamed
        # Some servers do not take temperature beside top_p: backwards in the alphabet, temperature stays.
        names = sorted(parameters, reverse=True)
        return next((name for name in names if re.search(rf"\b{name}\b", self.message)), None)

    def _fields(self) -> dict[str, Any]:
        """{"error": {...}}, {"error": "..."}, {"message": ...} and {"detail": ...} are all in use."""
        try:
            parsed: Any = json.loads(self.body)
        except ValueError:
            return {}
        if not isinstance(parsed, dict):
            return {}
        return parsed["error"] if isinstance(parsed.get("error"), dict) else parsed


def refusal(status: int, body: str, asked: Mapping[str, str], answered: Mapping[str, str]) -> Failure:
    """An HTTP error, with the headers of the request and of the answer."""
    return Failure(status=status, body=body, tries=tries(asked), wait=answered.get("retry-after", ""))


def unreachable(reason: str, asked: Mapping[str, str]) -> Failure:
    return Failure(status=0, body=reason, tries=tries(asked))


def tries(asked: Mapping[str, str]) -> int:
    """How often a request was sent: both clients count it in a header."""
    return int(asked.get("x-stainless-retry-count", "0")) + 1
