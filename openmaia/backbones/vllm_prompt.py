"""Conversations as vLLM takes them: rendered by the model's own chat template, and counted in its own tokens."""

import asyncio
import base64
from collections.abc import Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from vllm.exceptions import VLLMClientError, VLLMValidationError
from vllm.inputs import EngineInput
from vllm.renderers import BaseRenderer, ChatParams
from vllm.utils.mistral import is_mistral_tokenizer

from openmaia.images import Picture
from openmaia.messages import Message, Part, Role, assistant, system, user

T = TypeVar("T")

MARGIN = 32
"""Tokens left free for what joining texts adds."""

KNOWN_TEXTS = 16384
"""A conversation is counted anew at each turn; so many of its texts are remembered."""


class TooLong(Exception):
    """The texts alone exceed the context."""


class Prompts:
    """opening: tokens that every prompt has besides its messages. closing: the tokens that end a turn of the template."""

    def __init__(self, renderer: BaseRenderer, loop: asyncio.AbstractEventLoop):
        """loop: the one that the renderer's engine runs in; this constructor and the counting wait for it from other threads."""
        self._renderer, self.loop = renderer, loop
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
        self.text_tokens = lru_cache(KNOWN_TEXTS)(self._text_tokens)
        self._image_tokens = dict[tuple[int, ...], int]()
        self._measure()

    async def render(self, messages: Sequence[Message], *, counting: bool = False) -> EngineInput:
        """counting: only to be measured; the engine never gets to see it.

        Raises TooLong, and VLLMClientError where the template refuses them.
        """
        try:
            _, (prompt,) = await self._renderer.render_chat_async(
                [self._conversation(messages)],
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

    def counted(self, messages: Sequence[Message]) -> int:
        """Tokens of the prompt as they are counted before it is rendered."""
        parts = [part for message in messages for part in message.parts]
        return self.opening + sum(
            self.image_tokens(part) if isinstance(part, Picture) else self.text_tokens(part) for part in parts
        )

    def image_tokens(self, picture: Picture) -> int:
        """Of the prompt, whatever surrounds the image included; depends on its width and height only."""
        size = picture.pixels.shape
        if size not in self._image_tokens:
            self._image_tokens[size] = self._count([user(picture, "x")]) - self._count([user("x")])
        return self._image_tokens[size]

    def _text_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False)) + self._turn

    def _measure(self) -> None:
        """Asks the template what it does rather than knowing templates."""
        first = self._ids([user("x")])
        later = self._ids([user("x"), assistant("x"), user("x")])
        letter = len(self._tokenizer.encode("x", add_special_tokens=False))
        self._turn = max((len(later) - len(first)) // 2 - letter, 0)
        self.opening = max(len(first) - letter - self._turn, 0) + MARGIN
        continued = later[: len(first)] == first
        special = set(self._tokenizer.all_special_ids)
        self.closing = [token for token in later[len(first) :] if token in special][:1] if continued else []
        self._keeps_system = self._has_system(first, continued)

    def _has_system(self, first: list[int], continued: bool) -> bool:
        """Whether the template has a place of its own for the system message. Mistral's moves it along to the latest
        turn, and with it what a prefix cache could keep: that is no such place."""
        told = [system("x"), user("x")]
        try:
            opening = self._ids(told)
            later = self._ids([*told, assistant("x"), user("x")])
        except (VLLMClientError, ValueError):
            return False
        return opening != first and (not continued or later[: len(opening)] == opening)

    def _count(self, messages: Sequence[Message]) -> int:
        return len(self._ids(messages))

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        return prompt_ids(self._await(self.render(messages, counting=True)))

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

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
            url = "data:image/png;base64," + base64.b64encode(picture.data).decode()
            return {"type": "image_url", "image_url": {"url": url}, "uuid": picture.digest}
        return {"type": "image_pil", "image_pil": picture.pil(), "uuid": picture.digest}


def prompt_ids(prompt: EngineInput) -> list[int]:
    return cast("dict[str, Any]", prompt)["prompt_token_ids"]
