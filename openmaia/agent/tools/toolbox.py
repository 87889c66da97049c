"""Executes tool calls. Their arguments come from code that may be hostile, so all are validated."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from openmaia.agent.context import InvestigationContext
from openmaia.agent.tools import built_in
from openmaia.agent.tools.arguments import abbreviate, check_hypotheses, check_list, check_view
from openmaia.agent.tools.image_registry import ImageRegistry, RegisteredImage, describe_activation
from openmaia.agent.tools.notes import write_note
from openmaia.agent.tools.own_time import OwnTime
from openmaia.agent.tools.seeds import seed
from openmaia.agent.tools.subjects import Subjects
from openmaia.agent.tools.user_tools import call_user_tool
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage, Mask, PixelBox, compute_mask, seen_part
from openmaia.core.messages import Chat, Part, user
from openmaia.core.services import GeneratedImage, Generation, Probe
from openmaia.runs.records import PromptFault, PromptNote

_MAX_ITEMS = 10_000
"""Texts and images in one call of `display`."""

_MAX_PIXELS = 32 << 20
"""Pixels of the images in one call that the agent's code made, as 32 images of 1024 x 1024."""

_MAX_RESPONSES = 400_000
"""Activations in one result of `responses`. A message could not hold many more."""


@dataclass(slots=True)
class ToolEffect:
    """What a tool call did besides returning a value: recorded, so that a replay can restore it without a service."""

    entries: list[RegisteredImage] = field(default_factory=list[RegisteredImage])
    """The images that the call registered."""
    shown: list[Part] = field(default_factory=list[Part])
    asked: list[str] = field(default_factory=list[str])
    """The texts from which the call derived seeds. They are counted, because a repeated text gets another seed."""
    notes: list[PromptNote] = field(default_factory=list[PromptNote])


class Toolbox:
    """The tools of one investigation, with their images and counts of repeated requests."""

    def __init__(self, context: InvestigationContext):
        self.own_time = OwnTime()
        self.context = replace(context, services=self.own_time.without(context.services))
        self.images = ImageRegistry(context.task.rendering)
        self.subjects = Subjects(context.unit, self.context.services)
        self._asked: Counter[str] = Counter()
        self._effect = ToolEffect()
        self._tools: dict[str, Callable[..., Any]] = {
            **{name: partial(answer, self) for name, answer in built_in.answers().items()},
            "layers": self._layers,
            "call_neuron": self._call_neuron,
            "responses": self._responses,
            "display": self._display,
            "pixels": self._pixels,
            "user_tool": self._user_tool,
        }

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[Any, ToolEffect]:
        """Calls a tool and returns its result and its effect. Raises ToolError if there is no such tool or its
        arguments are invalid (none takes keyword arguments), and ServiceError.
        """
        self._effect = ToolEffect()
        tool = self._tools.get(name)
        if tool is None or name in self.context.options.without:
            raise ToolError(f"there is no tool {abbreviate(name)}")
        if kwargs:
            raise ToolError(f"{name}: unexpected keyword arguments {abbreviate(sorted(kwargs))}")
        try:
            return tool(*args), self._effect
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise ToolError(f"{name}: wrong number of arguments") from error

    @property
    def effect(self) -> ToolEffect:
        """The effect of the latest call, which may have failed."""
        return self._effect

    def replay(self, effect: ToolEffect) -> None:
        """Restores the effect of a recorded call."""
        self.images.restore(effect.entries)
        self._asked.update(effect.asked)

    # -- the tools that are no file of their own ---------------------------------------------------------------------

    def _layers(self) -> dict[str, int]:
        return dict(self.subjects.layers)

    def _call_neuron(
        self, images: Any, layer: Any = None, index: Any = None, hypothesis: Any = None
    ) -> list[dict[str, Any]]:
        unit = self.subjects.unit(layer, index)
        given = self.check_images(images)
        named = check_hypotheses(hypothesis, len(given))
        originals = [self.images.resolve(image, "original") for image in given]
        tested = [name or self.images.hypothesis_of(image) for image, name in zip(given, named, strict=True)]
        responses = self.context.services.target.probe([Probe(unit=unit, image=image) for image in originals])
        exemplars = self.subjects.exemplars(unit)
        return [
            self.register(
                image,
                compute_mask(image.size, response.map, response.box, exemplars.threshold),
                describe_activation(response.value, response.map, exemplars, response.raw),
                name,
                seen_part(image.size, response.box),
            )
            for image, response, name in zip(originals, responses, tested, strict=True)
        ]

    def _responses(self, images: Any, layer: Any) -> list[list[float]]:
        units = self.subjects.units(layer)
        given = self.check_images(images)
        if (count := len(given) * len(units)) > _MAX_RESPONSES:
            raise ToolError(
                f"responses: {len(given)} images and {len(units)} units are {count} activations; at most {_MAX_RESPONSES} are "
                "returned, so give fewer images"
            )
        originals = [self.images.resolve(image, "original") for image in given]
        probes = [Probe(unit=unit, image=image) for image in originals for unit in units]
        values = [response.value for response in self.context.services.target.probe(probes)]
        return [values[start : start + len(units)] for start in range(0, len(values), len(units))]

    def _display(self, items: Any) -> None:
        given = check_list(items)
        if len(given) > _MAX_ITEMS:
            raise ToolError(f"display: {len(given)} items in one call; at most {_MAX_ITEMS} are taken")
        self.check_images([item for item in given if not isinstance(item, str)])
        images = [None if isinstance(item, str) else self.images.resolve(item, "masked") for item in given]
        described = iter(self._described([item for item in given if not isinstance(item, str)]))
        for item, image in zip(given, images, strict=True):
            if image is None:
                self._effect.shown.append(item)
                continue
            if "png" not in item:
                name = f"[{item['image']}, {'masked' if self._is_masked(item) else 'original'}]"
                self._effect.shown.append(f"{name} {next(described, '')}".rstrip())
            elif words := next(described, ""):
                self._effect.shown.append(f"[image] {words}")
            self._effect.shown.append(image)

    def _described(self, items: Sequence[Any]) -> list[str]:
        """Returns the viewer's description of each displayed image (see `values.wire`); an empty list if the backbone
        takes images.
        """
        if self.context.options.sees_images or not items:
            return []
        questions = [
            (
                self.context.task.look,
                self.images.rendered(item["image"], "original"),
                self.images.resolve(item, "masked"),
            )
            if self._is_masked(item)
            else (self.context.task.describe, self.images.resolve(item, "masked"))
            for item in items
        ]
        return self.ask_viewer(questions)

    def _is_masked(self, item: Any) -> bool:
        is_original = "png" in item or check_view(item.get("view")) == "original"
        return not is_original and self.images.get(item["image"]).mask is not None

    def _pixels(self, id: Any, name: Any) -> bytes:
        return self.images.rendered(id, check_view(name)).png

    def _user_tool(self, name: Any, args: Any, kwargs: Any) -> Any:
        def resolve(image: Any) -> EncodedImage:
            return self.images.resolve(image, "original")

        tools, call = self.context.options.user_tools, (name, args, kwargs)
        return call_user_tool(tools, call, self.check_images, resolve, self.register, self.own_time.user_tool)

    # -- parts of several tools --------------------------------------------------------------------------------------

    def generate(self, prompts: list[str]) -> list[GeneratedImage]:
        """Generates an image for each prompt, and notes what could not be drawn. Raises ToolError if that is withheld."""
        if prompts and "text2image" in self.context.options.without:
            raise ToolError("prompts cannot be drawn here; give images")
        requests = [Generation(prompt=prompt, seed=self.derive_seed(prompt)) for prompt in prompts]
        generated = self.context.services.generator.generate(requests) if requests else []
        for prompt, image in zip(prompts, generated, strict=True):
            self.report_missing(image, prompt)
        return generated

    def report_missing(self, generated: GeneratedImage, prompt: str) -> None:
        """Notes the words of a prompt that an image lacks."""
        if generated.missing_terms:
            missing = tuple(generated.missing_terms)
            self.note(PromptNote(fault=PromptFault.NOT_DRAWN, prompt=prompt, words=missing))

    def note(self, note: PromptNote) -> None:
        """Records a fault of a prompt, and tells the agent."""
        self._effect.notes.append(note)
        self._effect.shown.append(write_note(note))

    def derive_seed(self, prompt: str) -> int:
        """Returns a seed for a text, another one each time."""
        nth = self._asked[prompt]
        self._asked[prompt] += 1
        self._effect.asked.append(prompt)
        return seed(self.context.run_seed, "explore", prompt, nth)

    def ask_viewer(self, questions: Sequence[tuple[Part, ...]]) -> list[str]:
        """Asks the viewer each question in a conversation of its own."""
        chats = [
            Chat(
                conversation="",
                messages=(user(*question),),
                seed=self.derive_seed(f"viewer {' '.join(p if isinstance(p, str) else p.digest for p in question)}"),
                max_tokens=self.context.options.reply_tokens,
            )
            for question in questions
        ]
        return [reply.text.strip() for reply in self.context.services.backbone.reply(chats)]

    def register_generated(self, generated: GeneratedImage, tested: str) -> dict[str, Any]:
        """Registers an image, with the hypothesis that it tests."""
        # An image without some terms of its prompt does not test what the agent meant.
        return self.register(generated.image, hypothesis="" if generated.missing_terms else tested)

    def register(
        self,
        original: EncodedImage,
        mask: Mask | None = None,
        activation: dict[str, float | bool] | None = None,
        hypothesis: str = "",
        seen: PixelBox | None = None,
    ) -> dict[str, Any]:
        """Registers an image, and returns its name and activation in the form that is sent to the agent's code."""
        entry = self.images.add(original, mask, activation, hypothesis, seen)
        self._effect.entries.append(entry)
        return {"image": entry.id, "activation": entry.activation}

    def check_images(self, images: Any) -> list[Any]:
        """Checks the number of images and each of them. Nothing is decoded yet: a call that is refused costs little."""
        given = self.check_count(images)
        pixels = sum(map(self.images.check, given))
        if pixels > _MAX_PIXELS:
            raise ToolError(
                f"images of {pixels} pixels in one call; at most {_MAX_PIXELS} are taken, so make them smaller"
            )
        return given

    def check_count(self, images: Any) -> list[Any]:
        """Returns the value if it is a list of no more items than one call takes."""
        given, limit = check_list(images), self.context.options.images_per_call
        if len(given) > limit:
            raise ToolError(f"{len(given)} images in one call; at most {limit} are taken")
        return given
