"""Conversations as vLLM takes them: rendered by the model's own chat template, and counted in its own tokens."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from vllm.exceptions import VLLMClientError, VLLMError, VLLMValidationError
from vllm.inputs import EngineInput
from vllm.renderers import BaseRenderer, ChatParams
from vllm.utils.mistral import is_mistral_tokenizer

from openmaia.backbones.spoken import base64_of
from openmaia.errors import UsageError
from openmaia.images import Picture
from openmaia.messages import Message, Part, Role, assistant, system, user

MARGIN = 32
"""Tokens left free for what joining texts adds."""

KNOWN_TEXTS = 16384
"""A conversation is counted anew at each turn; so many of its texts are remembered."""


class TooLong(Exception):
    """The texts alone exceed the context."""


class Prompts:
    """opening: tokens that every prompt has besides its messages. closing: the token that ends a reply in the template;
    empty where it has none of its own.

    What is awaited here never waits in another thread for this loop: with many conversations at once, all threads would.
    """

    opening: int
    closing: list[int]

    def __init__(self, renderer: BaseRenderer):
        """Counts after `measured`."""
        self._renderer = renderer
        self._tokenizer = renderer.get_tokenizer()
        self._mistral = is_mistral_tokenizer(self._tokenizer)
        self._chat = ChatParams(
            chat_template_kwargs={
                "add_generation_prompt": True,
                "continue_final_message": False,
                "tokenize": self._mistral,
            }
        )
        # The template writes the special tokens; a tokenizer that added its own would write them twice.
        self._tokenize = renderer.default_chat_tok_params.with_kwargs(add_special_tokens=False)
        self._keeps_system = True
        self._turn = 0
        self._image_tokens = dict[tuple[int, ...], int]()
        self.text_tokens = lru_cache(KNOWN_TEXTS)(self._text_tokens)

    @classmethod
    async def measured(cls, renderer: BaseRenderer) -> "Prompts":
        """Raises UsageError for a model without a chat template."""
        prompts = cls(renderer)
        try:
            await prompts._measure()
        except (VLLMError, ValueError) as error:
            raise UsageError(
                f"backbone.model={renderer.model_config.model!r} cannot render a conversation ({error}); expected a model "
                "with a chat template, that is one tuned to follow instructions"
            ) from error
        return prompts

    async def render(self, messages: Sequence[Message], *, counting: bool = False) -> EngineInput:
        """counting: only to be measured; the engine never gets to see it.

        Raises TooLong, and VLLMClientError where the template refuses the messages.
        """
        conversation = await asyncio.to_thread(self._conversation, messages)
        try:
            _, (prompt,) = await self._renderer.render_chat_async(
                [conversation],
                self._chat,
                self._tokenize,
                # The engine mirrors this cache: what it never receives must not enter it.
                skip_mm_cache=counting,
            )
        except VLLMValidationError as error:
            if error.parameter in ("input_tokens", "input_text"):
                raise TooLong from error
            raise
        return prompt

    async def learn(self, messages: Sequence[Message]) -> None:
        """Finds out what their images cost: as many tokens as any other of that width and height."""
        for size, picture in (await asyncio.to_thread(_sizes, messages)).items():
            if size not in self._image_tokens:
                without = await self._ids([user("x")])
                self._image_tokens[size] = len(await self._ids([user(picture, "x")])) - len(without)

    def counted(self, messages: Sequence[Message]) -> int:
        """Tokens of the prompt as they are counted before it is rendered."""
        parts = [part for message in messages for part in message.parts]
        return self.opening + sum(
            self.image_tokens(part) if isinstance(part, Picture) else self.text_tokens(part) for part in parts
        )

    def image_tokens(self, picture: Picture) -> int:
        """Of the prompt, whatever surrounds the image included. Only after `learn`."""
        return self._image_tokens[picture.pixels.shape]

    def _text_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False)) + self._turn

    async def _measure(self) -> None:
        """Asks the template what it does rather than knowing templates."""
        first = await self._ids([user("x")])
        later = await self._ids([user("x"), assistant("x"), user("x")])
        letter = self._tokenizer.encode("x", add_special_tokens=False)
        self._turn = max((len(later) - len(first)) // 2 - len(letter), 0)
        self.opening = max(len(first) - len(letter) - self._turn, 0) + MARGIN
        # Only what directly follows the reply: some templates write special tokens before it as well.
        reply = [*first, *letter]
        after = later[len(reply) : len(reply) + 1] if later[: len(reply)] == reply else []
        self.closing = [token for token in after if token in self._tokenizer.all_special_ids]
        self._keeps_system = await self._has_system(first, continued=later[: len(first)] == first)

    async def _has_system(self, first: list[int], *, continued: bool) -> bool:
        """Whether the template has a place of its own for the system message. Mistral's moves it along to the latest
        turn, and with it what a prefix cache could keep: that is no such place."""
        told = [system("x"), user("x")]
        try:
            opening = await self._ids(told)
            later = await self._ids([*told, assistant("x"), user("x")])
        except (VLLMClientError, ValueError):
            return False
        return opening != first and (not continued or later[: len(opening)] == opening)

    async def _ids(self, messages: Sequence[Message]) -> list[int]:
        return prompt_ids(await self.render(messages, counting=True))

    def _conversation(self, messages: Sequence[Message]) -> list[Any]:
        turns = list[tuple[Role, list[Part]]]()
        for message in messages:
            role = message.role if self._keeps_system or message.role is not Role.SYSTEM else Role.USER
            # Many templates demand that roles alternate.
            if turns and turns[-1][0] is role:
                turns[-1][1].extend(message.parts)
            else:
                turns.append((role, list(message.parts)))
        return [{"role": role.value, "content": self._content(parts)} for role, parts in turns]

    def _content(self, parts: Iterable[Part]) -> list[dict[str, Any]]:
        content = list[dict[str, Any]]()
        for part in parts:
            if isinstance(part, Picture):
                content.append(self._image(part))
            elif content and content[-1]["type"] == "text":
                content[-1]["text"] += "\n" + part
            else:
                content.append({"type": "text", "text": part})
        return content

    def _image(self, picture: Picture) -> dict[str, Any]:
        """Known by its digest: the caches of images and of prefixes then need not hash its pixels again."""
        if self._mistral:
            # Mistral's own tokenizer reads the message itself and knows no other form.
            url = "data:image/png;base64," + base64_of(picture)
            return {"type": "image_url", "image_url": {"url": url}, "uuid": picture.digest}
        return {"type": "image_pil", "image_pil": picture.pil(), "uuid": picture.digest}


def _sizes(messages: Sequence[Message]) -> dict[tuple[int, ...], Picture]:
    return {picture.pixels.shape: picture for message in messages for picture in message.pictures}


def prompt_ids(prompt: EngineInput) -> list[int]:
    return cast("dict[str, Any]", prompt)["prompt_token_ids"]
