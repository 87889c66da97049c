"""Backbones behind a chat completions API: OpenAI, and the servers that speak like it (vLLM, llama.cpp, Ollama, …)."""

import math
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import openai

from openmaia.backbones.endpoint import CONNECT_SECONDS, Endpoint
from openmaia.backbones.failures import Failure, refusal, unreachable
from openmaia.backbones.spoken import base64_of, image_tokens, text_tokens
from openmaia.images import Picture
from openmaia.messages import Chat, Message, Reply, Role
from openmaia.schema import BackboneConfig

SEEDS = 2**31
"""llama.cpp keeps 32 bits of a seed; others refuse what their integers do not hold."""

STEP = 0.25


class OpenAiBackbone(Endpoint):
    key_variable = "OPENAI_API_KEY"
    address = "https://api.openai.com/v1"
    elsewhere = "the base_url of most servers ends with /v1"

    def __init__(self, config: BackboneConfig):
        super().__init__(config)
        self._rate = ImageRate()

    @cached_property
    def _client(self) -> openai.OpenAI:
        config = self._config
        return openai.OpenAI(
            api_key=self._key(),
            base_url=self._url,
            timeout=openai.Timeout(config.timeout, connect=min(config.timeout, CONNECT_SECONDS)),
            max_retries=config.tries - 1,
        )

    def _parameters(self, chat: Chat) -> dict[str, float]:
        return {
            "max_tokens": chat.max_tokens,
            "temperature": self._config.temperature,
            "top_p": self._config.top_p,
            "seed": chat.seed % SEEDS,
        }

    def _send(self, chat: Chat, system: str, said: list[Message], parameters: dict[str, float]) -> str | Failure:
        # max_tokens first: OpenAI's newer models refuse it and say so, older servers ignore max_completion_tokens and
        # would write without end.
        limit = {} if "max_tokens" in parameters else {"max_completion_tokens": chat.max_tokens}
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages += [{"role": message.role.value, "content": _content(message)} for message in said]
        try:
            answer = self._client.chat.completions.with_raw_response.create(
                model=self._config.model, messages=messages, extra_body={**parameters, **limit}
            )
        except openai.APIStatusError as error:
            return refusal(error.status_code, error.response.text, error.request.headers, error.response.headers)
        except openai.APITimeoutError as error:
            return unreachable(f"no answer within {self._config.timeout:g} s", error.request.headers)
        except openai.APIConnectionError as error:
            return unreachable(f"cannot be reached: {error.__cause__ or error}", error.request.headers)
        return answer.http_response.text

    def _read(self, answer: Any) -> tuple[Reply, str]:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        return Reply(
            text=_text(message.get("content")) or message.get("refusal") or "",
            prompt_tokens=usage.get("prompt_tokens") or 0,
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            generated_tokens=usage.get("completion_tokens") or 0,
        ), str(choice.get("finish_reason"))

    def _image_tokens(self, picture: Picture) -> int:
        return math.ceil(image_tokens(picture) * self._rate.value)

    def _learn(self, system: str, said: Sequence[Message], reply: Reply) -> None:
        guessed = sum(image_tokens(picture) for message in said for picture in message.pictures)
        texts = [system, *(part for message in said for part in message.parts if isinstance(part, str))]
        if guessed and reply.prompt_tokens:
            self._rate.learn(reply.prompt_tokens - sum(map(text_tokens, texts)), guessed)


class ImageRate:
    """How many tokens the server's pictures have per token of our guess, over all its answers so far.

    It moves in steps: with every new value other images of a conversation fit, and the server's prefix cache holds
    nothing of what follows the first that changed.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._seen = self._guessed = 0

    @property
    def value(self) -> float:
        with self._lock:
            if not self._guessed:
                return 1.0
            return max(math.ceil(self._seen / self._guessed / STEP), 1) * STEP

    def learn(self, seen: int, guessed: int) -> None:
        with self._lock:
            self._seen += max(seen, 0)
            self._guessed += guessed


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Text alone goes as a string: some chat templates know nothing else."""
    if message.role is Role.ASSISTANT or not message.pictures:
        return message.text
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(part)}"}}
        for part in message.parts
    ]


def _text(content: Any) -> str:
    """Some servers answer in parts, of which those of type `thinking` are no part of the reply."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""
