"""Renders conversations with the chat template of a model in vLLM, and counts their tokens."""

import asyncio
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from vllm.exceptions import VLLMClientError, VLLMError, VLLMValidationError
from vllm.inputs import EngineInput
from vllm.renderers import BaseRenderer, ChatParams
from vllm.renderers.hf import resolve_chat_template, resolve_chat_template_kwargs
from vllm.utils.mistral import is_mistral_tokenizer

from openmaia.agent.tasks.reasoning import ends_inside, has_mark
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Message, Part, Role, assistant, system, user
from openmaia.models.backbones.chat_format import alternate, base64_png

# Joined texts may have more tokens than separate ones.
_MARGIN = 32

TAIL = 16  # tokens at the end of a prompt that may hold the opening mark of reasoning

# The whole conversation is counted in each turn.
KNOWN_TEXTS = 16384

# Variables of a chat template that are set here, or by vLLM.
_OWN = (
    "add_generation_prompt",
    "continue_final_message",
    "tokenize",
    "chat_template",
    "messages",
    "tools",
    "documents",
)


class TooLong(Exception):
    """The texts of a prompt do not fit into the context."""


class PromptRenderer:
    """Converts conversations to prompts of a vLLM engine, and counts their tokens.

    Coroutines run blocking functions in asyncio's thread pool. Such a function must not wait for the event loop: with
    many conversations, waiting functions could occupy all threads of the pool.
    """

    opening: int
    """Number of tokens of every prompt beside those of its messages."""
    hides_reasoning: bool
    """Whether the marks around reasoning are special tokens, which the engine leaves out of its text by default."""
    closing: list[int]
    """Id of the special token with which the chat template ends a reply, if there is one."""

    def __init__(self, renderer: BaseRenderer, template: Mapping[str, Any]):
        """Use `measured`, which also measures the chat template."""
        self._renderer = renderer
        self._tokenizer = renderer.get_tokenizer()
        self._mistral = is_mistral_tokenizer(self._tokenizer)
        self.hides_reasoning = has_mark(self._tokenizer.all_special_tokens)
        self._chat = ChatParams(
            chat_template_kwargs={
                **template,
                "add_generation_prompt": True,
                "continue_final_message": False,
                "tokenize": self._mistral,
            }
        )
        # The template writes the special tokens; the tokenizer must not add them a second time.
        self._tokenize = renderer.default_chat_tok_params.with_kwargs(add_special_tokens=False)
        self._keeps_system = True
        self._turn = 0
        self._image_tokens = dict[tuple[int, ...], int]()
        self.text_tokens = lru_cache(KNOWN_TEXTS)(self._text_tokens)

    @classmethod
    async def measured(cls, renderer: BaseRenderer, template: Mapping[str, Any]) -> "PromptRenderer":
        """Measures a chat template.

        Args:
            renderer: That of the model.
            template: Variables of the chat template.

        Raises:
            UsageError: The model has no chat template, or its template has none of these variables.
        """
        _check_variables(renderer, template)
        prompts = cls(renderer, template)
        try:
            await prompts._measure()
        except (VLLMError, ValueError) as error:
            raise UsageError(
                f"backbone.model={renderer.model_config.model!r} cannot render a conversation ({error}); expected a model "
                "with a chat template, that is one tuned to follow instructions"
            ) from error
        return prompts

    async def render(self, messages: Sequence[Message], *, counting: bool = False) -> EngineInput:
        """Converts a conversation to a prompt.

        Args:
            counting: Whether the engine will not receive it.

        Raises:
            TooLong: The texts do not fit into the context.
            VLLMClientError: The chat template refuses the messages.
        """
        conversation = await asyncio.to_thread(self._conversation, messages)
        try:
            _, (prompt,) = await self._renderer.render_chat_async(
                [conversation],
                self._chat,
                self._tokenize,
                # The engine mirrors this cache, so that an image which it never receives must not enter it.
                skip_mm_cache=counting,
            )
        except VLLMValidationError as error:
            if error.parameter in ("input_tokens", "input_text"):
                raise TooLong from error
            raise
        return prompt

    async def learn(self, messages: Sequence[Message]) -> None:
        """Measures the tokens of images in a conversation, once for each size, so that `counted` can count them."""
        for size, image in (await asyncio.to_thread(_sizes, messages)).items():
            if size not in self._image_tokens:
                without = await self._ids([user("x")])
                self._image_tokens[size] = len(await self._ids([user(image, "x")])) - len(without)

    def opens_reasoning(self, prompt: EngineInput) -> bool:
        """Returns whether a prompt ends with the opening mark of reasoning, as some chat templates write it."""
        return ends_inside(self._tokenizer.decode(prompt_ids(prompt)[-TAIL:], skip_special_tokens=False))

    def counted(self, messages: Sequence[Message]) -> int:
        """Estimates the tokens of a conversation without rendering it. Needs `learn` for the sizes of its images."""
        parts = [part for message in messages for part in message.parts]
        return self.opening + sum(
            self.image_tokens(part) if isinstance(part, EncodedImage) else self.text_tokens(part) for part in parts
        )

    def image_tokens(self, image: EncodedImage) -> int:
        """Returns the tokens of an image and its delimiters. Needs `learn` for its size."""
        return self._image_tokens[image.pixels.shape]

    def _text_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False)) + self._turn

    async def _measure(self) -> None:
        """Measures what the template adds to the messages, and whether it keeps system messages at the start."""
        first = await self._ids([user("x")])
        later = await self._ids([user("x"), assistant("x"), user("x")])
        letter = self._tokenizer.encode("x", add_special_tokens=False)
        self._turn = max((len(later) - len(first)) // 2 - len(letter), 0)
        self.opening = max(len(first) - len(letter) - self._turn, 0) + _MARGIN
        # Only the token directly after the reply ends it: some templates write special tokens before the reply as well.
        # Two replies show where that is, since a prompt may end with an empty thought that an earlier turn does not have.
        other = await self._ids([user("x"), assistant("y"), user("x")])
        after = _common_end(later, other)[:1]
        self.closing = [token for token in after if token in self._tokenizer.all_special_ids]
        self._keeps_system = await self._has_system(first, continued=later[: len(first)] == first)

    async def _has_system(self, first: list[int], *, continued: bool) -> bool:
        """Whether the template puts a system message at the start of the prompt.

        Args:
            first: Tokens of the prompt with a user message alone.
            continued: Whether the prompt of a longer conversation begins with them.
        """
        with_system = [system("x"), user("x")]
        try:
            opening = await self._ids(with_system)
            later = await self._ids([*with_system, assistant("x"), user("x")])
        except (VLLMClientError, ValueError):
            return False
        # Mistral's template puts it into the latest turn, which would invalidate the prefix cache in each turn.
        return opening != first and (not continued or later[: len(opening)] == opening)

    async def _ids(self, messages: Sequence[Message]) -> list[int]:
        return prompt_ids(await self.render(messages, counting=True))

    def _conversation(self, messages: Sequence[Message]) -> list[Any]:
        if not self._keeps_system:
            messages = [replace(m, role=Role.USER) if m.role is Role.SYSTEM else m for m in messages]
        system_text, turns = alternate(messages)
        if system_text:
            turns.insert(0, system(system_text))
        return [{"role": turn.role.value, "content": [self._content(part) for part in turn.parts]} for turn in turns]

    def _content(self, part: Part) -> dict[str, Any]:
        # The digest identifies an image, so that the caches of images and prefixes need not hash its pixels.
        if not isinstance(part, EncodedImage):
            return {"type": "text", "text": part}
        if self._mistral:
            # Mistral's tokenizer reads the message itself and knows only this form.
            url = "data:image/png;base64," + base64_png(part)
            return {"type": "image_url", "image_url": {"url": url}, "uuid": part.digest}
        return {"type": "image_pil", "image_pil": part.pil(), "uuid": part.digest}


def _check_variables(renderer: BaseRenderer, template: Mapping[str, Any]) -> None:
    """Refuses variables that vLLM would leave out, because nothing in the chat template reads them."""
    tokenizer: Any = renderer.get_tokenizer()
    model = renderer.model_config
    text, read = "", dict[str, Any]()
    if not is_mistral_tokenizer(tokenizer):
        # As vLLM finds it: that of the processor comes before that of the tokenizer.
        text = resolve_chat_template(tokenizer, None, None, model_config=model) or ""
        read = resolve_chat_template_kwargs(tokenizer, text, dict(template), raise_on_unexpected=False)
    for name in template:
        # vLLM also passes on parameters of its own, which the text need not read.
        if name in _OWN or name not in read or not re.search(rf"\b{re.escape(name)}\b", text):
            raise UsageError(
                f"backbone.template.{name}: the chat template of backbone.model={renderer.model_config.model!r} has no such "
                "variable; chat_template.jinja in its folder or on its page shows those it has, often enable_thinking"
            )


def _common_end(first: list[int], second: list[int]) -> list[int]:
    """Returns the longest end that two lists share."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)][::-1]


def _sizes(messages: Sequence[Message]) -> dict[tuple[int, ...], EncodedImage]:
    return {image.pixels.shape: image for message in messages for image in message.images}


def prompt_ids(prompt: EngineInput) -> list[int]:
    """Returns the token ids of a prompt."""
    return cast("dict[str, Any]", prompt)["prompt_token_ids"]
