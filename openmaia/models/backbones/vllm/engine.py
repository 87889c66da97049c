"""Runs a language model with one vLLM engine for all threads, with continuous batching and a prefix cache."""

import asyncio
import itertools
import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any

from openmaia.agent.tasks.ending import cut, ending
from openmaia.agent.tasks.reasoning import separate
from openmaia.core.errors import HostDead, ServiceError, UsageError
from openmaia.core.messages import Chat, Reply
from openmaia.core.shipped import install_command
from openmaia.models.backbones.chat_format import HIGHEST_TEMPERATURE, temperature
from openmaia.models.backbones.context import FittedChat, fit
from openmaia.models.backbones.streaming import CHECKED
from openmaia.models.backbones.turn_grammar import turn_grammar
from openmaia.models.backbones.vllm.component import VllmBackboneConfig

try:
    from vllm import RequestOutput, SamplingParams
    from vllm.config import VllmConfig
    from vllm.exceptions import VLLMError
    from vllm.inputs import EngineInput
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError
except ImportError as error:
    raise UsageError(
        f"backbone.kind=vllm needs vLLM, which cannot be imported here ({error}); on a machine with a GPU: "
        f"{install_command('gpu')}, without one: {install_command('cpu')}"
    ) from error

from openmaia.models.backbones.vllm.prompt import PromptRenderer, TooLong, prompt_ids
from openmaia.models.backbones.vllm.start import engine_config, start

# An attempt fails if the prompt is too long, or the engine has evicted a cached image.
_TRIES = 4


class VllmBackbone:
    """A backbone on a vLLM engine. `reply` is thread-safe."""

    def __init__(self, config: VllmBackboneConfig, gpu_share: float):
        """Loads the model. `gpu_share` may be a fraction of a GPU; 0 means a CPU. Raises UsageError if the model cannot
        be loaded, or the config does not fit it."""
        self._config = config
        vllm_config = engine_config(config, gpu_share)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._engine: AsyncLLM | None = None
        self._closed = threading.Event()
        with ExitStack() as undo:
            undo.callback(self.close)
            self._prompts = asyncio.run_coroutine_threadsafe(self._start(vllm_config), self._loop).result()
            undo.pop_all()
        # The model's recommended sampling parameters. As in vLLM's server, the config overrides temperature and top_p.
        self._sampling: dict[str, Any] = vllm_config.model_config.get_diff_sampling_param()
        self._requests = itertools.count()
        self._uncounted = 0  # largest excess of a prompt over its estimate, in tokens

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Raises HostDead if the engine has died or was closed, and ServiceError if a chat cannot be answered."""
        if self._closed.is_set():
            raise HostDead(f"{self._name}: its engine was closed")
        answers = [asyncio.run_coroutine_threadsafe(self._answer(chat), self._loop) for chat in chats]
        try:
            return [answer.result() for answer in answers]
        except CancelledError as error:
            raise HostDead(f"{self._name}: its engine was closed") from error
        finally:
            for answer in answers:
                answer.cancel()

    def close(self) -> None:
        """Ends the processes of the engine. A second call has no effect."""
        if self._closed.is_set():
            return
        self._closed.set()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        multiprocessing.active_children()  # This call reaps the ended processes.

    async def _start(self, vllm_config: VllmConfig) -> PromptRenderer:
        self._engine = await start(vllm_config, self._config)
        return await PromptRenderer.measured(self._engine.renderer, self._config.template)

    async def _end(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _answer(self, chat: Chat) -> Reply:
        await self._prompts.learn(chat.messages)
        reason = ""
        for _ in range(_TRIES):
            fitted = await asyncio.to_thread(self._fit, chat, self._uncounted)
            prompt = await self._prompt(fitted, chat)
            if prompt is None:
                reason = "its prompt is too long for backbone.context_tokens"
                continue
            # A grammar leaves no room for reasoning, unless vLLM's own parser tells it where the reasoning ends.
            reasons = self._constraint(chat) is None or "reasoning_parser" in self._config.arguments
            is_open = reasons and self._prompts.opens_reasoning(prompt)
            output = await self._generate(prompt, chat, is_open=is_open)
            if not output.finished or output.outputs[0].finish_reason in ("stop", "length"):
                return self._reply(output, fitted, chat, is_open=is_open)
            # The engine no longer holds an image that the renderer believed cached; the next try sends it again.
            reason = f"its engine ended the answer with {output.outputs[0].finish_reason!r}"
        raise ServiceError(f"{self._name} could not answer after {_TRIES} tries: {reason}")

    async def _prompt(self, fitted: FittedChat, chat: Chat) -> EngineInput | None:
        """None if the prompt leaves too little room for the answer."""
        try:
            prompt = await self._prompts.render(fitted.messages)
        except TooLong:
            self._uncounted += self._config.context_tokens // 16
            return None
        except (VLLMError, ValueError) as error:
            raise ServiceError(f"{self._name} does not accept this conversation: {error}") from error
        tokens = len(prompt_ids(prompt))
        if tokens + chat.max_tokens <= self._config.context_tokens:
            return prompt
        # Kept, so that the conversation is shortened at the same place in each turn.
        self._uncounted = max(self._uncounted, tokens - self._prompts.counted(fitted.messages))
        return None

    def _fit(self, chat: Chat, uncounted: int) -> FittedChat:
        return fit(
            chat.messages,
            room=self._config.context_tokens - chat.max_tokens - self._prompts.opening - uncounted,
            images=self._config.images_per_prompt,
            text_tokens=self._prompts.text_tokens,
            image_tokens=self._prompts.image_tokens,
        )

    async def _generate(self, prompt: EngineInput, chat: Chat, *, is_open: bool) -> RequestOutput:
        if self._engine is None:
            raise HostDead(f"{self._name}: its engine was closed")
        parameters = SamplingParams(
            **{
                **self._sampling,
                "temperature": temperature(self._config.temperature, chat, HIGHEST_TEMPERATURE),
                "top_p": self._config.top_p,
                "max_tokens": chat.max_tokens,
                "seed": chat.seed % 2**63,  # the range that torch accepts
                "stop_token_ids": self._prompts.closing,
                "skip_special_tokens": not self._prompts.hides_reasoning,
                "output_kind": RequestOutputKind.CUMULATIVE,
                "structured_outputs": self._constraint(chat),
            }
        )
        try:
            checked = 0
            # If the loop is left, vLLM aborts the generation.
            async for output in self._engine.generate(prompt, parameters, f"chat-{next(self._requests)}"):
                text = output.outputs[0].text
                if output.finished:
                    return output
                if len(text) >= checked + CHECKED and ending(separate(text, is_open=is_open).text, chat.is_turn):
                    return output
                checked = len(text) if len(text) >= checked + CHECKED else checked
        except EngineDeadError as error:
            raise HostDead(f"{self._name}: its engine has died; its log has the reason") from error
        except VLLMError as error:
            raise ServiceError(f"{self._name} could not answer: {error}") from error
        raise ServiceError(f"{self._name} ended an answer without finishing it")

    def _constraint(self, chat: Chat) -> StructuredOutputsParams | None:
        if chat.answer is None or self._config.protocol != "grammar":
            return None
        return StructuredOutputsParams(grammar=turn_grammar(chat.answer, chat.expected))

    def _reply(self, output: RequestOutput, fitted: FittedChat, chat: Chat, *, is_open: bool) -> Reply:
        (answer,) = output.outputs
        found = separate(answer.text, is_open=is_open)
        if not found.text.strip() and not chat.is_turn:
            written = "only reasoning" if found.reasoning else "none of them text"
            raise ServiceError(
                f"{self._name} gave an empty answer ({len(answer.token_ids)} tokens, {written}); if this is frequent, "
                "use another model, or check that its chat template belongs to it"
            )
        text, reason = cut(found.text.strip() and found.text, chat.is_turn)
        return Reply(
            text=text,
            reasoning=found.reasoning,
            cut=reason,
            prompt_tokens=len(output.prompt_token_ids or ()),
            cached_tokens=output.num_cached_tokens or 0,
            generated_tokens=len(answer.token_ids),
            left_out=fitted.left_out,
        )

    @property
    def _name(self) -> str:
        return f"backbone.model={self._config.model!r}"
