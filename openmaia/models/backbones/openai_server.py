"""The client of OpenAI's chat completions API and of servers with it (vLLM, llama.cpp, Ollama, …)."""

import json
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import openai

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply, Role
from openmaia.models.backbones.batches import MOST_LISTED, BatchState, Unanswered
from openmaia.models.backbones.chat_format import (
    ACCEPTED_TEMPERATURE,
    HIGHEST_TEMPERATURE,
    fold_system,
    image_tokens,
    openai_message,
    temperature,
    text_tokens,
)
from openmaia.models.backbones.endpoint import BRIDGED, FOLDED, Endpoint
from openmaia.models.backbones.failures import Failure
from openmaia.models.backbones.openai_api import OpenAi, OpenAiConfig
from openmaia.models.backbones.reasoning import ReasoningStart
from openmaia.models.backbones.streaming import read_stream, reasoning_content, text_content
from openmaia.models.backbones.tool_calls import (
    INSTRUCTION,
    STOP,
    convert_to_calls,
    convert_to_text,
    find_calls,
    functions,
)
from openmaia.models.backbones.turn_grammar import turn_grammar
from openmaia.models.server_access import CONNECT_SECONDS, SEEDS

ACKNOWLEDGED = "I read the output."  # for servers that demand a message between the result of a call and the output

BATCH_URL, BATCH_NAME = "/v1/chat/completions", "openmaia"
"""Where a batch sends its requests, and the key of its metadata by which it is found again."""

STEP = 0.25


class OpenAiBackbone(Endpoint):
    """A backbone on a server with the chat completions API."""

    sdk = openai
    key_variable = "OPENAI_API_KEY"
    address = OpenAi.address
    address_hint = "the base_url of most servers ends with /v1"
    _config: OpenAiConfig

    def __init__(self, config: OpenAiConfig, section: str = "backbone"):
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
        """What forces a reply into the form of a turn: a grammar or functions."""
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

    def _body(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> dict[str, Any]:
        # max_tokens is tried first. OpenAI's newer models reject it with an error, whereas older servers ignore
        # max_completion_tokens without an error and would generate without a limit.
        limit = {} if "max_tokens" in parameters else {"max_completion_tokens": chat.max_tokens}
        if "tools" in parameters and chat.answer is not None:
            system += INSTRUCTION
        if FOLDED in forms:
            system, turns = "", fold_system(system, turns)
        if "tools" in parameters and chat.answer is not None:
            messages: list[Any] = convert_to_calls(turns, chat.answer, openai_message)
            messages = _bridged(messages) if BRIDGED in forms else messages
        else:
            messages = [openai_message(message) for message in turns]
        messages = [{"role": "system", "content": system}, *messages] if system else messages
        return {"model": self._config.model, "messages": messages, **parameters, **limit}

    def _request(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str:
        body = self._body(chat, system, turns, parameters, forms)
        with self._client.chat.completions.with_streaming_response.create(
            model=body.pop("model"),
            messages=body.pop("messages"),
            extra_body=body,
        ) as answer:
            sent = [Message(role=Role.SYSTEM, parts=(system,)), *turns]
            stop = STOP if self._config.protocol == "tools" else ""
            return read_stream(answer.iter_bytes(), chat, sent, self._reasoning, stop)

    def submit_batch(self, name: str, bodies: Mapping[str, dict[str, Any]]) -> str:
        lines = (
            json.dumps({"custom_id": key, "method": "POST", "url": BATCH_URL, "body": body})
            for key, body in bodies.items()
        )
        file = (f"{name}.jsonl", "\n".join(lines).encode(errors="replace"))
        sent = self._asked_of(lambda: self._client.files.create(file=file, purpose="batch"))
        batch = self._asked_of(
            # Without the library's repetitions: each could be a batch of its own.
            lambda: self._client.with_options(max_retries=0).batches.create(
                input_file_id=sent.id, endpoint=BATCH_URL, completion_window="24h", metadata={BATCH_NAME: name}
            )
        )
        return batch.id

    def find_batch(self, name: str, requests: Sequence[str], since: float, known: Collection[str]) -> str:
        def find() -> str:
            # Further pages are asked for as they are read. The API promises no order.
            batches = islice(self._client.batches.list(limit=100), MOST_LISTED)
            return next((batch.id for batch in batches if (batch.metadata or {}).get(BATCH_NAME) == name), "")

        return self._asked_of(find)

    def batch_state(self, batch: str) -> BatchState:
        found = self._asked_of(lambda: self._client.batches.retrieve(batch))
        if found.status == "failed":
            errors = [each.message or "" for each in (found.errors.data if found.errors else None) or ()]
            return BatchState(is_over=True, problem=self.access.shown("; ".join(errors) or "it failed"))
        return BatchState(is_over=found.status in ("completed", "expired", "cancelled"))

    def batch_answers(self, batch: str) -> Iterator[tuple[str, str | Failure | Unanswered]]:
        found = self._asked_of(lambda: self._client.batches.retrieve(batch))
        missing = Unanswered.CANCELLED if found.status == "cancelled" else Unanswered.EXPIRED
        for file in filter(None, (found.output_file_id, found.error_file_id)):
            for line in self._asked_of(partial(self._client.files.content, file)).text.splitlines():
                if read := _batch_line(line, missing):
                    yield read

    def _parse(self, answer: Any, chat: Chat) -> tuple[Reply, str]:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        ended = str(choice.get("finish_reason"))
        found = self._reasoning.separate(text_content(message.get("content")), ended)
        text, calls = found.text, message.get("tool_calls") or ()
        if self._config.protocol == "tools" and chat.answer:
            calls = calls or find_calls(text, chat.answer)
        called = convert_to_text(calls, chat.answer) if chat.answer else ""
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
    """Learns how far the server's tokens of an image differ from `chat_format.image_tokens`, which knows its area only.

    Thread-safe.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._counted = self._estimated = 0

    @property
    def factor(self) -> float:
        """The server's image tokens by our estimates, rounded up to a multiple of `STEP`. 1 at first."""
        with self._lock:
            if not self._estimated:
                return 1.0
            # Coarse steps: each change may alter which images are sent, and this invalidates the server's prefix cache
            # from the first changed image on.
            return max(math.ceil(self._counted / self._estimated / STEP), 1) * STEP

    def learn(self, counted: int, estimated: int) -> None:
        """Adds the image tokens of one prompt: what the server counted, and our estimate."""
        with self._lock:
            self._counted += max(counted, 0)
            self._estimated += estimated


def _batch_line(line: str, missing: Unanswered) -> tuple[str, str | Failure | Unanswered] | None:
    """Returns the id and the answer in a line of a file of results; None for a line that is none."""
    try:
        found = json.loads(line)
        key, error, response = str(found["custom_id"]), found.get("error"), found.get("response")
        if response is None:
            code = str((error or {}).get("code"))
            is_late = code in ("batch_expired", "batch_cancelled")
            return key, missing if is_late else Failure(status=500, body=json.dumps({"error": error}))
        body, status = json.dumps(response["body"]), int(response["status_code"])
        return key, body if status == 200 else Failure(status=status, body=body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _bridged(messages: list[Any]) -> list[Any]:
    # Mistral demands it.
    roles = [message["role"] for message in messages]
    bridge = {"role": "assistant", "content": ACKNOWLEDGED}
    pairs = zip(messages, roles, ["", *roles], strict=False)
    return [
        each
        for message, role, last in pairs
        for each in ([bridge, message] if (last, role) == ("tool", "user") else [message])
    ]
