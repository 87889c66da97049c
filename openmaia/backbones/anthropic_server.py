"""Backbones behind Anthropic's messages API, with its prompt caching."""

import time
from collections.abc import Mapping, Sequence
from email.utils import mktime_tz, parsedate_tz
from functools import cached_property
from typing import Any

import anthropic

from openmaia.backbones.endpoint import CONNECT_SECONDS, Endpoint
from openmaia.backbones.failures import Failure, refusal, unreachable
from openmaia.backbones.spoken import base64_of
from openmaia.messages import Chat, Message, Part, Reply

LONGEST_WAIT = 120.0
"""Seconds of Retry-After beyond which a request is given up, as OpenAI's client does it; the unit stays owed."""

CACHED = {"type": "ephemeral"}


class AnthropicBackbone(Endpoint):
    key_variable = "ANTHROPIC_API_KEY"
    address = "https://api.anthropic.com"
    elsewhere = "the base_url of this API ends without /v1"

    @cached_property
    def _client(self) -> anthropic.Anthropic:
        config = self._config
        return anthropic.Anthropic(
            api_key=self._key(),
            base_url=self._url,
            timeout=anthropic.Timeout(config.timeout, connect=min(config.timeout, CONNECT_SECONDS)),
            max_retries=config.tries - 1,
            http_client=anthropic.DefaultHttpxClient(event_hooks={"response": [_give_up_long_waits]}),
        )

    def _parameters(self, chat: Chat) -> dict[str, float]:
        """No top_p: newer models refuse it beside temperature. The API has no seed."""
        return {"temperature": self._config.temperature}

    def _send(self, chat: Chat, system: str, said: list[Message], parameters: dict[str, float]) -> str | Failure:
        told: Any = [{"type": "text", "text": system, "cache_control": CACHED}] if system else anthropic.omit
        # A question outside of any conversation is asked once; to write it to the cache would cost, and help nobody.
        turns = _turns(said, cached=bool(system) or len(said) > 1)
        try:
            # temperature is no argument of newer clients, which does not keep the API from taking it.
            answer = self._client.messages.with_raw_response.create(
                model=self._config.model,
                max_tokens=chat.max_tokens,
                system=told,
                messages=turns,
                extra_body=parameters,
            )
        except anthropic.APIStatusError as error:
            return refusal(error.status_code, error.response.text, error.request.headers, error.response.headers)
        except anthropic.APITimeoutError as error:
            return unreachable(f"no answer within {self._config.timeout:g} s", error.request.headers)
        except anthropic.APIConnectionError as error:
            return unreachable(f"cannot be reached: {error.__cause__ or error}", error.request.headers)
        return answer.http_response.text

    def _read(self, answer: Any) -> tuple[Reply, str]:
        usage = answer.get("usage") or {}
        cached = usage.get("cache_read_input_tokens") or 0
        return Reply(
            text="".join(block["text"] for block in answer["content"] if block["type"] == "text"),
            prompt_tokens=(usage.get("input_tokens") or 0) + cached + (usage.get("cache_creation_input_tokens") or 0),
            cached_tokens=cached,
            generated_tokens=usage.get("output_tokens") or 0,
        ), str(answer.get("stop_reason"))

    def _learn(self, system: str, said: Sequence[Message], reply: Reply) -> None:
        """Nothing: what a picture takes is documented for this API."""


def _turns(said: list[Message], *, cached: bool) -> list[Any]:
    """With breakpoints of the cache at the end and at the end of the turn before.

    The API looks for an earlier entry in the 20 blocks before a breakpoint only, and one experiment may show more
    images than that: without the second breakpoint such a turn would read nothing.
    """
    turns = [{"role": message.role.value, "content": [_block(part) for part in message.parts]} for message in said]
    for turn in turns[-1:-4:-2] if cached else ():
        turn["content"][-1]["cache_control"] = CACHED
    return turns


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64_of(part)}}


def _give_up_long_waits(response: Any) -> None:
    """Anthropic's client sleeps for as long as Retry-After says, be it days, and a pool would count its caller as dead."""
    if not _asked_to_wait(response.headers) <= LONGEST_WAIT:
        response.headers["x-should-retry"] = "false"


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    """Seconds; 0 where nothing readable is asked for."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
    date = parsedate_tz(headers.get("retry-after"))
    return mktime_tz(date) - time.time() if date else 0.0
