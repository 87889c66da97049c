"""A vision-language model served by vLLM in this process's own engine.

One engine answers all the threads that call; it batches what they ask for token by token, and keeps the prefixes of
conversations, so that a turn costs what is new in it.
"""

import asyncio
import itertools
import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any

from openmaia.backbones.context import Fitted, fit
from openmaia.errors import HostDead, ServiceError, UsageError
from openmaia.messages import Chat, Reply
from openmaia.schema import BackboneConfig

try:
    from vllm import RequestOutput, SamplingParams
    from vllm.config import VllmConfig
    from vllm.exceptions import VLLMError
    from vllm.inputs import EngineInput
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError
except ImportError as error:
    raise UsageError(
        f"backbone.kind=vllm needs vLLM, which cannot be imported here ({error}); on a machine with a GPU: "
        'pip install -e ".[gpu]", without one: pip install -e ".[cpu]"'
    ) from error

from openmaia.backbones.vllm_prompt import Prompts, TooLong, prompt_ids
from openmaia.backbones.vllm_start import engine_config, start

TRIES = 4
"""Of one chat: its prompt may turn out too long, and the engine may ask for images that it has dropped."""


class VllmBackbone:
    """`reply` may be called from many threads at once. A `Backbone`."""

    def __init__(self, config: BackboneConfig, gpu_share: float):
        """gpu_share: GPUs that this host is given, less than 1 for a part of one, 0 for none.

        Raises UsageError for what cannot be loaded.
        """
        self._config = config
        made = engine_config(config, gpu_share)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._engine: AsyncLLM | None = None
        self._closed = threading.Event()
        with ExitStack() as undo:
            undo.callback(self.close)
            self._prompts = asyncio.run_coroutine_threadsafe(self._start(made), self._loop).result()
            undo.pop_all()
        # What the model's makers recommend besides temperature and top_p, as vLLM's own server has it.
        self._sampling: dict[str, Any] = made.model_config.get_diff_sampling_param()
        self._requests = itertools.count()
        self._uncounted = 0
        """Tokens by which a prompt has turned out longer than counted."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Raises HostDead where the engine has died, ServiceError for a chat that cannot be answered."""
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
        """Ends the engine's processes; may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        multiprocessing.active_children()  # Reaps those that have ended.

    async def _start(self, made: VllmConfig) -> Prompts:
        self._engine = await start(made, self._config)
        return await Prompts.measured(self._engine.renderer)

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
        for _ in range(TRIES):
            fitted = await asyncio.to_thread(self._fit, chat, self._uncounted)
            prompt = await self._prompt(fitted, chat)
            if prompt is None:
                reason = "its prompt is too long for backbone.context_tokens"
                continue
            output = await self._generate(prompt, chat)
            if output.outputs[0].finish_reason in ("stop", "length"):
                return self._reply(output, fitted)
            # It does when it no longer holds an image that it was believed to hold; the next try sends it again.
            reason = f"its engine ended the answer with {output.outputs[0].finish_reason!r}"
        raise ServiceError(f"{self._name} could not answer after {TRIES} tries: {reason}")

    async def _prompt(self, fitted: Fitted, chat: Chat) -> EngineInput | None:
        """None where it leaves too little room for the answer, after which less will be fitted. That is kept for later
        turns as well: a conversation is to be cut at the same place in each of them."""
        try:
            prompt = await self._prompts.render(fitted.messages)
        except TooLong:
            self._uncounted += self._config.context_tokens // 16
            return None
        except (VLLMError, ValueError) as error:
            raise ServiceError(f"{self._name} does not take this conversation: {error}") from error
        tokens = len(prompt_ids(prompt))
        if tokens + chat.max_tokens <= self._config.context_tokens:
            return prompt
        self._uncounted = max(self._uncounted, tokens - self._prompts.counted(fitted.messages))
        return None

    def _fit(self, chat: Chat, uncounted: int) -> Fitted:
        return fit(
            chat.messages,
            room=self._config.context_tokens - chat.max_tokens - self._prompts.opening - uncounted,
            images=self._config.images_per_prompt,
            text_tokens=self._prompts.text_tokens,
            image_tokens=self._prompts.image_tokens,
        )

    async def _generate(self, prompt: EngineInput, chat: Chat) -> RequestOutput:
        if self._engine is None:
            raise HostDead(f"{self._name}: its engine was closed")
        parameters = SamplingParams(
            **{
                **self._sampling,
                "temperature": self._config.temperature,
                "top_p": self._config.top_p,
                "max_tokens": chat.max_tokens,
                # What torch takes as a seed.
                "seed": chat.seed % 2**63,
                "stop_token_ids": self._prompts.closing,
                "output_kind": RequestOutputKind.FINAL_ONLY,
            }
        )
        try:
            async for output in self._engine.generate(prompt, parameters, f"chat-{next(self._requests)}"):
                if output.finished:
                    return output
        except EngineDeadError as error:
            raise HostDead(f"{self._name}: its engine has died; the reason stands in its log") from error
        except VLLMError as error:
            raise ServiceError(f"{self._name} could not answer: {error}") from error
        raise ServiceError(f"{self._name} ended an answer without finishing it")

    def _reply(self, output: RequestOutput, fitted: Fitted) -> Reply:
        (answer,) = output.outputs
        if not answer.text.strip():
            raise ServiceError(
                f"{self._name} gave an empty answer ({len(answer.token_ids)} tokens, none of them text); a model that does "
                "so often is not fit for this, or its chat template does not belong to it"
            )
        return Reply(
            text=answer.text,
            prompt_tokens=len(output.prompt_token_ids or ()),
            cached_tokens=output.num_cached_tokens or 0,
            generated_tokens=len(answer.token_ids),
            left_out=fitted.left_out,
        )

    @property
    def _name(self) -> str:
        return f"backbone.model={self._config.model!r}"
