"""The client of Anthropic's messages API, with prompt caching."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice, takewhile
from typing import Any

from openmaia.agent.tasks.reasoning import separate
from openmaia.core.errors import ServiceUnavailable, UsageError
from openmaia.core.messages import Chat, Message, Part, Reply
from openmaia.core.shipped import install_command
from openmaia.models.backbones.anthropic_api import Anthropic
from openmaia.models.backbones.batches import CLOCKS_DIFFER, MOST_LISTED, BatchState, Unanswered
from openmaia.models.backbones.chat_format import ACCEPTED_TEMPERATURE, base64_png, temperature
from openmaia.models.backbones.endpoint import Endpoint
from openmaia.models.backbones.failures import Failure
from openmaia.models.server_access import CONNECT_SECONDS

try:
    import anthropic
except ImportError as error:
    raise UsageError(
        f"kind: anthropic needs Anthropic's package, which cannot be imported here ({error}); {install_command('api')}"
    ) from error

CACHED = {"type": "ephemeral"}  # a breakpoint of the API's prompt cache


class AnthropicBackbone(Endpoint):
    """A backbone behind Anthropic's messages API."""

    sdk = anthropic
    key_variable = "ANTHROPIC_API_KEY"
    address = Anthropic.address
    address_hint = "the base_url of this API ends without /v1"

    @cached_property
    def _client(self) -> anthropic.Anthropic:
        config = self._config
        return anthropic.Anthropic(
            api_key=self.access.key(),
            base_url=self._url,
            timeout=anthropic.Timeout(config.timeout, connect=min(config.timeout, CONNECT_SECONDS)),
            max_retries=config.tries - 1,
            http_client=anthropic.DefaultHttpxClient(
                event_hooks={"response": [partial(self.access.retry, outage=self._outage)]}
            ),
        )

    def _parameters(self, chat: Chat) -> dict[str, Any]:
        # No top_p, which newer models refuse beside temperature, and no seed, which the API does not have.
        return {"temperature": temperature(self._config.temperature, chat, ACCEPTED_TEMPERATURE)}

    def _body(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> dict[str, Any]:
        blocks = {"system": [{"type": "text", "text": system, "cache_control": CACHED}]} if system else {}
        # A single question is never continued, so that writing it to the cache would cost money without any use.
        conversation = bool(system) or len(turns) > 1
        messages = _messages(turns, cached=conversation)
        return {
            "model": self._config.model,
            "max_tokens": chat.max_tokens,
            **blocks,
            "messages": messages,
            **parameters,
        }

    def _request(
        self, chat: Chat, system: str, turns: list[Message], parameters: dict[str, Any], forms: frozenset[str]
    ) -> str:
        body = self._body(chat, system, turns, parameters, forms)
        # Newer clients have no argument temperature, but the API accepts it.
        answer = self._client.messages.with_raw_response.create(
            model=body.pop("model"),
            max_tokens=body.pop("max_tokens"),
            system=body.pop("system", anthropic.omit),
            messages=body.pop("messages"),
            extra_body=body,
        )
        return answer.http_response.text

    def submit_batch(self, name: str, bodies: Mapping[str, dict[str, Any]]) -> str:
        requests: Any = [{"custom_id": key, "params": body} for key, body in bodies.items()]
        # Without the library's repetitions: each could be a batch of its own.
        client = self._client.with_options(max_retries=0)
        return self._asked_of(lambda: client.messages.batches.create(requests=requests)).id

    def find_batch(self, name: str, requests: Sequence[str], since: float, known: Collection[str]) -> str:
        # The API keeps no name for a batch. The ids of its requests are in its results, so that it has to have ended.
        oldest = since - CLOCKS_DIFFER

        def listed() -> list[Any]:
            # The newest first, by the API's documentation. Further pages are asked for as they are read.
            batches = islice(self._client.messages.batches.list(limit=100), MOST_LISTED)
            return list(takewhile(lambda batch: batch.created_at.timestamp() >= oldest, batches))

        for batch in self._asked_of(listed):
            # All counts together are the number of requests, from the beginning on.
            count = sum(value for _, value in batch.request_counts)
            if batch.id in known or count != len(requests):
                continue
            if not self.batch_state(batch.id).is_over:
                raise ServiceUnavailable(
                    f"{self.access.shown(self._url)} works on the batch {batch.id}, which may be one whose id was lost; "
                    "it is waited for, so that nothing is paid twice"
                )
            if any(key in requests for key, _ in self.batch_answers(batch.id)):
                return batch.id
        return ""

    def batch_state(self, batch: str) -> BatchState:
        found = self._asked_of(lambda: self._client.messages.batches.retrieve(batch))
        return BatchState(is_over=found.processing_status == "ended")

    def batch_answers(self, batch: str) -> Iterator[tuple[str, str | Failure | Unanswered]]:
        for line in self._asked_of(lambda: list(self._client.messages.batches.results(batch))):
            result = line.result
            if result.type == "succeeded":
                yield line.custom_id, result.message.model_dump_json()
            elif result.type == "errored":
                yield line.custom_id, Failure(status=400, body=result.error.model_dump_json())
            else:
                yield line.custom_id, Unanswered.EXPIRED if result.type == "expired" else Unanswered.CANCELLED

    def _parse(self, answer: Any, chat: Chat) -> tuple[Reply, str]:
        usage = answer.get("usage") or {}
        cached, written = (usage.get(f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation"))
        blocks = answer["content"]
        # Servers of others with this API may leave both in one text.
        found = separate("".join(block["text"] for block in blocks if block["type"] == "text"))
        thoughts = [block.get("thinking") or "" for block in blocks if block["type"] == "thinking"]
        return Reply(
            text=found.text,
            reasoning="\n\n".join(filter(None, [*thoughts, found.reasoning])),
            prompt_tokens=(usage.get("input_tokens") or 0) + cached + written,
            cached_tokens=cached,
            written_tokens=written,
            generated_tokens=usage.get("output_tokens") or 0,
        ), str(answer.get("stop_reason"))


def _messages(turns: list[Message], *, cached: bool) -> list[Any]:
    # Two breakpoints, at the ends of the last two user turns: the API looks for an earlier entry only in the 20 blocks
    # before a breakpoint, and one experiment may show more images than that.
    messages = [{"role": turn.role.value, "content": [_block(part) for part in turn.parts]} for turn in turns]
    for message in messages[-1:-4:-2] if cached else ():
        message["content"][-1]["cache_control"] = CACHED
    return messages


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64_png(part)}}
