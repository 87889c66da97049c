"""Executes tool calls. Their arguments come from code that may be hostile, so all are validated."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from openmaia.agent.context import InvestigationContext
from openmaia.agent.tools import built_in, effects
from openmaia.agent.tools.arguments import abbreviate, check_hypotheses, check_list, check_view
from openmaia.agent.tools.image_registry import ImageRegistry, RegisteredImage, describe_activation
from openmaia.agent.tools.own_time import OwnTime
from openmaia.agent.tools.seeds import seed
from openmaia.agent.tools.subjects import Subjects
from openmaia.agent.tools.user_tools import call_user_tool
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage, compute_mask, pack_mask, seen_part
from openmaia.core.messages import Chat, Part, user
from openmaia.core.services import GeneratedImage, Generation, Probe
from openmaia.runs.records import Did, GivenImage

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
    given: list[GivenImage] = field(default_factory=list[GivenImage])


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
            "layers": self._layers,
            "call_neuron": self._call_neuron,
            "responses": self._responses,
            "display": self._display,
            "pixels": self._pixels,
            "user_tool": self._user_tool,
        }
        named = {**built_in.available(self.context), **effects.available(self.context)}
        self._tools |= {name: partial(answer, self) for name, answer in named.items()}

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[Any, ToolEffect]:
        """Calls a tool and returns its result and its effect. Raises ToolError if there is no such tool or its
        arguments are invalid (none takes keyword arguments), and ServiceError.
        """
        self._effect = ToolEffect()
        tool = self._tools.get(name)
        if tool is None:
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
        named = check_hypotheses(hypothesis, len(self.check_images(images)))
        originals = [self.take(image, "original") for image in images]
        responses = self.context.services.target.probe([Probe(unit=unit, image=image) for image in originals])
        exemplars = self.subjects.exemplars(unit)
        return [
            self.register(
                image,
                Did.MEASURED,
                of=one.id,
                mask=pack_mask(compute_mask(image.size, response.map, response.box, exemplars.threshold)),
                activation=describe_activation(response.value, response.map, exemplars, response.raw),
                hypothesis=name or (self.images.get(one.id).entry.hypothesis if one.id else ""),
                seen=seen_part(image.size, response.box),
            )
            for image, one, response, name in zip(originals, self._effect.given, responses, named, strict=True)
        ]

    def _responses(self, images: Any, layer: Any) -> list[list[float]]:
        units = self.subjects.units(layer)
        given = self.check_images(images)
        if (count := len(given) * len(units)) > _MAX_RESPONSES:
            raise ToolError(
                f"responses: {len(given)} images and {len(units)} units are {count} activations; at most {_MAX_RESPONSES} are "
                "returned, so give fewer images"
            )
        originals = [self.take(image, "original") for image in given]
        probes = [Probe(unit=unit, image=image) for image in originals for unit in units]
        values = [response.value for response in self.context.services.target.probe(probes)]
        return [values[start : start + len(units)] for start in range(0, len(values), len(units))]

    def _display(self, items: Any) -> None:
        given = check_list(items)
        if len(given) > _MAX_ITEMS:
            raise ToolError(f"display: {len(given)} items in one call; at most {_MAX_ITEMS} are taken")
        items = [item for item in given if not isinstance(item, str)]
        self.check_images(items)
        taken = [self.take(item, "masked") for item in items]
        described = self._described(taken) or [""] * len(taken)
        images = iter(zip(taken, self._effect.given, described, strict=True))
        for item in given:
            if isinstance(item, str):
                self._effect.shown.append(item)
                continue
            image, one, words = next(images)
            if one.label or words:
                self._effect.shown.append(f"{one.label or '[image]'} {words}".rstrip())
            self._effect.shown.append(image)

    def _described(self, images: Sequence[EncodedImage]) -> list[str]:
        """Returns the viewer's description of each displayed image; an empty list if the backbone takes images."""
        if self.context.options.sees_images or not images:
            return []
        task = self.context.task
        questions = [
            (task.look, self.images.rendered(one.id, "original"), image) if one.is_masked else (task.describe, image)
            for image, one in zip(images, self._effect.given, strict=True)
        ]
        return self.ask_viewer(questions)

    def _pixels(self, id: Any, name: Any) -> bytes:
        return self.images.rendered(id, check_view(name)).png

    def _user_tool(self, name: Any, args: Any, kwargs: Any) -> Any:
        def resolve(image: Any) -> EncodedImage:
            return self.take(image, "original")

        def register(image: EncodedImage) -> dict[str, Any]:
            return self.register(image, Did.MADE)

        tools, call = self.context.options.user_tools, (name, args, kwargs)
        return call_user_tool(tools, call, self.check_images, resolve, register, self.own_time.user_tool)

    # -- parts of several tools --------------------------------------------------------------------------------------

    def take(self, image: Any, default: str) -> EncodedImage:
        """Returns the image that is an argument (see `ImageRegistry.resolve`), and records that it was taken."""
        taken = self.images.resolve(image, default)
        self._effect.given.append(self.images.given(image, default))
        return taken

    def generate(self, prompts: list[str]) -> list[GeneratedImage]:
        """Generates an image for each prompt. Raises ToolError if that is withheld."""
        if prompts and "text2image" in self.context.options.without:
            raise ToolError("prompts cannot be drawn here; give images")
        requests = [Generation(prompt=prompt, seed=self.derive_seed(prompt)) for prompt in prompts]
        generated = self.context.services.generator.generate(requests) if requests else []
        for prompt, image in zip(prompts, generated, strict=True):
            self.tell_missing(image, prompt)
        return generated

    def tell_missing(self, generated: GeneratedImage, prompt: str) -> None:
        """Tells the agent which words of a prompt an image lacks."""
        if generated.missing_terms:
            self.tell(f"could not draw {', '.join(map(repr, generated.missing_terms))} of {prompt!r}")

    def tell(self, note: str) -> None:
        """Adds a note to the output of the experiment."""
        self._effect.shown.append(f"note: {note}")

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

    def register_generated(self, generated: GeneratedImage, did: Did, tested: str = "", **facts: Any) -> dict[str, Any]:
        """Registers a generated image, with the hypothesis that it tests. See `register`."""
        # An image without some terms of its prompt does not test what the agent meant.
        hypothesis, missing = "" if generated.missing_terms else tested, tuple(generated.missing_terms)
        return self.register(generated.image, did, missing=missing, hypothesis=hypothesis, **facts)

    def register(self, original: EncodedImage, did: Did, **facts: Any) -> dict[str, Any]:
        """Registers an image, and returns its name and activation in the form that is sent to the agent's code.

        `facts` are further fields of its `ImageEntry`.
        """
        image = self.images.add(original, did, **facts)
        self._effect.entries.append(image)
        return {"image": image.entry.id, "activation": image.entry.activation}

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
