"""The client of servers with the chat completions API: OpenAI and compatible servers (vLLM, llama.cpp, Ollama, …)."""

import math
import threading
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Any

import openai

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply, Role
from openmaia.models.backbones.chat_format import (
    ACCEPTED_TEMPERATURE,
    HIGHEST_TEMPERATURE,
    base64_png,
    image_tokens,
    opened,
    temperature,
    text_tokens,
)
from openmaia.models.backbones.endpoint import BRIDGED, FOLDED, Endpoint
from openmaia.models.backbones.failures import Failure
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.reasoning import ReasoningStart
from openmaia.models.backbones.streaming import read_stream, reasoning_content, text_content
from openmaia.models.backbones.tool_calls import INSTRUCTION, STOP, functions, turn_text, with_calls, written_calls
from openmaia.models.backbones.turn_grammar import turn_grammar
from openmaia.models.server_access import CONNECT_SECONDS, SEEDS

ACKNOWLEDGED = "I read the output."
"""The message of the assistant between the result of a call and the output, for servers that demand one."""

STEP = 0.25
"""Step size of `ImageCost.factor`, the ratio of the tokens of images on the server to our estimate."""


class OpenAiBackbone(Endpoint):
    """A backbone (the model that plays the agent) on a server with the chat completions API."""

    sdk = openai
    key_variable = "OPENAI_API_KEY"
    address = "https://api.openai.com/v1"
    address_hint = "the base_url of most servers ends with /v1"
    _config: OpenAiConfig

    def __init__(self, config: OpenAiConfig, section: str = "backbone"):
        """Checks the config, see `Endpoint`."""
        super().__init__(config, section)
        self._image_cost = ImageCost()
        self._reasoning = ReasoningStart()

    @cached_property
    def _client(self) -> openai.OpenAI:
        config = self._config
        return openai.OpenAI(
            api_key=self.access.key(),
            base_url=self._url,
            timeout=openai.Timeout(config.timeout, connect=min(config.timeout, CONNECT_SECONDS)),
            max_retries=config.tries - 1,
            http_client=openai.DefaultHttpxClient(
                event_hooks={"response": [partial(self.access.retry, outage=self._outage)]}
            ),
        )

    def _parameters(self, chat: Chat) -> dict[str, Any]:
        # A grammar is only read by llama.cpp, vLLM and SGLang, which accept the highest temperature.
        highest = HIGHEST_TEMPERATURE if self._config.protocol == "grammar" else ACCEPTED_TEMPERATURE
        return {
            "max_tokens": chat.max_tokens,
            "temperature": temperature(self._config.temperature, chat, highest),
            "top_p": self._config.top_p,
            "seed": chat.seed % SEEDS,
            "stream": True,
            **({} if "stream" in self._refused else {"stream_options": {"include_usage": True}}),
            **self._constraints(chat),
        }

    def _constraints(self, chat: Chat) -> dict[str, Any]:
        """Returns the request parameters that force the reply to have the form of the expected kind of turn.

        They are a grammar or the definitions of functions. They are empty if no turn is requested, or if the config
        demands neither a grammar nor functions.
        """
        if chat.answer is None or self._config.protocol == "text":
            return {}
        if self._config.protocol == "tools":
            return {"tools": functions(chat.answer, chat.expected), "tool_choice": "required"}
        # The first is read by llama.cpp, the second by vLLM. Both ignore the other.
        grammar = turn_grammar(chat.answer, chat.expected)
        return {"grammar": grammar, "structured_outputs": {"grammar": grammar}}

    def _demanded(self, failure: Failure, chat: Chat, forms: frozenset[str]) -> str | None:
        calls = self._config.protocol == "tools" and chat.answer is not None
        has_system = calls or any(message.role is Role.SYSTEM for message in chat.messages)
        possible = [form for form, is_used in ((FOLDED, has_system), (BRIDGED, calls)) if is_used]
        if "tool" in failure.message:
            possible.reverse()
        return next((form for form in possible if form not in forms), None)

    def _depends_on(self, parameter: str, parameters: Collection[str]) -> str:
        # llama.cpp reads one of the two fields with a grammar, vLLM and SGLang the other.
        grammars = {"grammar", "structured_outputs"}
        is_last = parameter in grammars and not (grammars - {parameter}) & set(parameters)
        return f"{self.access.section}.protocol={self._config.protocol}" if is_last or parameter == "tools" else ""

    def _request(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str:
        # max_tokens is tried first. OpenAI's newer models reject it with an error, whereas older servers ignore
        # max_completion_tokens without an error and would generate without a limit.
        limit = {} if "max_tokens" in parameters else {"max_completion_tokens": chat.max_tokens}
        if "tools" in parameters and chat.answer is not None:
            system += INSTRUCTION
        if FOLDED in forms:
            system, turns = "", opened(system, turns)
        if "tools" in parameters and chat.answer is not None:
            messages: list[Any] = with_calls(turns, chat.answer, _message)
            messages = _bridged(messages) if BRIDGED in forms else messages
        else:
            messages = [_message(message) for message in turns]
        messages = [{"role": "system", "content": system}, *messages] if system else messages
        body = {**parameters, **limit}
        with self._client.chat.completions.with_streaming_response.create(
            model=self._config.model,
            messages=messages,
            extra_body=body,
        ) as answer:
            sent = [Message(role=Role.SYSTEM, parts=(system,)), *turns]
            stop = STOP if self._config.protocol == "tools" else ""
            return read_stream(answer.iter_bytes(), chat, sent, self._reasoning, stop)

    def _parse(self, answer: Any, chat: Chat) -> tuple[Reply, str]:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        ended = str(choice.get("finish_reason"))
        found = self._reasoning.separate(text_content(message.get("content")), ended)
        text, calls = found.text, message.get("tool_calls") or ()
        if self._config.protocol == "tools" and chat.answer:
            calls = calls or written_calls(text, chat.answer)
        called = turn_text(calls, chat.answer) if chat.answer else ""
        return Reply(
            text=called or text or message.get("refusal") or "",
            reasoning=reasoning_content(message) or found.reasoning,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            generated_tokens=usage.get("completion_tokens") or 0,
        ), ended

    def _image_tokens(self, image: EncodedImage) -> int:
        return math.ceil(image_tokens(image) * self._image_cost.factor)

    def _learn(self, system: str, turns: Sequence[Message], reply: Reply) -> None:
        estimated = sum(image_tokens(image) for message in turns for image in message.images)
        texts = [system, *(part for message in turns for part in message.parts if isinstance(part, str))]
        if estimated and reply.prompt_tokens:
            self._image_cost.learn(reply.prompt_tokens - sum(map(text_tokens, texts)), estimated)


class ImageCost:
    """Learns from the server's answers how far the number of tokens of an image differs from our own estimate.

    Our estimate, `chat_format.image_tokens`, depends on the area of the image alone. The ratio `factor` corrects it and
    changes in coarse steps only. Each change may alter which images of a conversation are sent, and this invalidates
    the server's prefix cache from the first changed image on.
    """

    def __init__(self):
        """Starts with a `factor` of 1."""
        self._lock = threading.Lock()
        self._counted = self._estimated = 0

    @property
    def factor(self) -> float:
        """The ratio by which the estimated number of tokens of an image is multiplied.

        It is the number of image tokens that the server counted in all prompts so far, divided by our estimate for the
        same images, and rounded up to a multiple of `STEP`. It is 1 until the server has answered a prompt with images.
        """
        with self._lock:
            if not self._estimated:
                return 1.0
            return max(math.ceil(self._counted / self._estimated / STEP), 1) * STEP

    def learn(self, counted: int, estimated: int) -> None:
        """Updates `factor` with the images of one prompt.

        Args:
            counted: The number of image tokens that the server counted.
            estimated: Our estimate of this number.
        """
        with self._lock:
            self._counted += max(counted, 0)
            self._estimated += estimated


def _bridged(messages: list[Any]) -> list[Any]:
    """Inserts a message of the assistant between the result of a call and the next turn, as Mistral demands it."""
    roles = [message["role"] for message in messages]
    bridge = {"role": "assistant", "content": ACKNOWLEDGED}
    pairs = zip(messages, roles, ["", *roles], strict=False)
    return [
        each
        for message, role, last in pairs
        for each in ([bridge, message] if (last, role) == ("tool", "user") else [message])
    ]


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role.value, "content": _content(message)}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Converts a message to the format of the API.

    A message without images becomes a string, because some chat templates accept only strings.
    """
    if message.role is Role.ASSISTANT or not message.images:
        return message.text
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_png(part)}"}}
        for part in message.parts
    ]
