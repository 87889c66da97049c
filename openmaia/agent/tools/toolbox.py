"""Executes tool calls. Their arguments come from code that may be hostile, so all are validated."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from openmaia.agent.context import InvestigationContext
from openmaia.agent.tools.arguments import abbreviate, check_hypotheses, check_list, check_text, check_texts, check_view
from openmaia.agent.tools.image_registry import ImageRegistry, RegisteredImage, describe_activation
from openmaia.agent.tools.notes import write_note
from openmaia.agent.tools.own_time import OwnTime
from openmaia.agent.tools.seeds import seed
from openmaia.agent.tools.subjects import Subjects
from openmaia.agent.tools.user_tools import call_user_tool
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage, Mask, PixelBox, compute_mask, seen_part
from openmaia.core.messages import Chat, Part, user
from openmaia.core.services import Edit, ExemplarKind, GeneratedImage, Generation, Probe
from openmaia.runs.records import PromptFault, PromptNote

_ORIGINAL, _EDITED = "Original Image", "Editing Prompt: "
"""Captions that `edit_images` returns. The published code of MAIA has the same, and experiments may search for them."""

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
            "layers": self._layers,
            "call_neuron": self._call_neuron,
            "responses": self._responses,
            "dataset_exemplars": self._dataset_exemplars,
            "text2image": self._text2image,
            "edit_images": self._edit_images,
            "describe_images": self._describe_images,
            "summarize_images": self._summarize_images,
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

    # -- the tools ---------------------------------------------------------------------------------------------------

    def _layers(self) -> dict[str, int]:
        return dict(self.subjects.layers)

    def _call_neuron(
        self, images: Any, layer: Any = None, index: Any = None, hypothesis: Any = None
    ) -> list[dict[str, Any]]:
        unit = self.subjects.unit(layer, index)
        given = self._checked(images)
        named = check_hypotheses(hypothesis, len(given))
        originals = [self.images.resolve(image, "original") for image in given]
        tested = [name or self.images.hypothesis_of(image) for image, name in zip(given, named, strict=True)]
        responses = self.context.services.target.probe([Probe(unit=unit, image=image) for image in originals])
        exemplars = self.subjects.exemplars(unit)
        return [
            self._register(
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
        given = self._checked(images)
        if (count := len(given) * len(units)) > _MAX_RESPONSES:
            raise ToolError(
                f"responses: {len(given)} images and {len(units)} units are {count} activations; at most {_MAX_RESPONSES} are "
                "returned, so give fewer images"
            )
        originals = [self.images.resolve(image, "original") for image in given]
        probes = [Probe(unit=unit, image=image) for image in originals for unit in units]
        values = [response.value for response in self.context.services.target.probe(probes)]
        return [values[start : start + len(units)] for start in range(0, len(values), len(units))]

    def _dataset_exemplars(self, kind: Any, layer: Any = None, index: Any = None) -> list[dict[str, Any]]:
        if kind not in get_args(ExemplarKind):
            raise ToolError(
                f"dataset_exemplars: kind={abbreviate(kind)}; expected one of {', '.join(get_args(ExemplarKind))}"
            )
        exemplars = self.subjects.exemplars(self.subjects.unit(layer, index))
        if not exemplars.of_kind(kind) and exemplars.exemplars:
            stored = ", ".join(dict.fromkeys(exemplar.kind for exemplar in exemplars.exemplars))
            raise ToolError(
                f"dataset_exemplars: no images of kind={kind!r} are stored for this unit; there are: {stored}"
            )
        return [
            self._register(
                exemplar.image,
                compute_mask(exemplar.image.size, exemplar.map, exemplar.box, exemplars.threshold),
                describe_activation(exemplar.activation, exemplar.map, exemplars),
                seen=seen_part(exemplar.image.size, exemplar.box),
            )
            for exemplar in exemplars.of_kind(kind)
        ]

    def _text2image(self, prompts: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
        wanted = check_texts(self._limited(prompts), "text2image")
        tested = check_hypotheses(hypothesis, len(wanted))
        generated = self._generate(wanted)
        task, is_whole = self.context.task, not self.context.options.without
        for prompt in dict.fromkeys(wanted):
            if task.has_example(prompt, is_whole=is_whole):
                self._note(PromptNote(fault=PromptFault.COPIED, prompt=prompt))
        return [self._register_generated(image, name) for image, name in zip(generated, tested, strict=True)]

    def _edit_images(self, images: Any, instructions: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
        orders = check_texts(self._limited(instructions), "edit_images")
        given = self._limited(images)
        if len(given) != len(orders):
            raise ToolError(f"edit_images: {len(given)} images but {len(orders)} instructions; give one for each")
        tested = check_hypotheses(hypothesis, len(given))
        self._checked([image for image in given if not isinstance(image, str)])
        generated = iter(self._generate([check_text(image) for image in given if isinstance(image, str)]))
        bases = [next(generated).image if isinstance(i, str) else self.images.resolve(i, "original") for i in given]
        requests = [
            Edit(image=base, instruction=order, seed=self._seed(f"{base.digest} {order}"))
            for base, order in zip(bases, orders, strict=True)
        ]
        edited = self.context.services.editor.edit(requests)
        answers: list[dict[str, Any]] = []
        for image, base, order, result, name in zip(given, bases, orders, edited, tested, strict=True):
            self._report_missing(result, order)
            caption = image if isinstance(image, str) else _ORIGINAL
            answers.append({"image": self._register(base), "caption": caption})
            answers.append({"image": self._register_generated(result, name), "caption": _EDITED + order})
        return answers

    def _describe_images(self, images: Any, titles: Any) -> str:
        given, named = self._checked(images), check_list(titles)
        if len(given) != len(named):
            raise ToolError(f"describe_images: {len(given)} images but {len(named)} titles; give one for each")
        names = check_texts(named, "describe_images")
        seen = [self.images.resolve(image, "masked") for image in given]
        replies = self._ask_viewer([(self.context.task.describe, image) for image in seen])
        return "\n".join(f"{name}: {reply}" for name, reply in zip(names, replies, strict=True))

    def _summarize_images(self, images: Any) -> str:
        given = self._checked(images)
        if not given:
            raise ToolError("summarize_images: an empty list; give at least one image")
        seen = [self.images.resolve(image, "masked") for image in given]
        return self._ask_viewer([(self.context.task.summarize, *seen)])[0]

    def _display(self, items: Any) -> None:
        given = check_list(items)
        if len(given) > _MAX_ITEMS:
            raise ToolError(f"display: {len(given)} items in one call; at most {_MAX_ITEMS} are taken")
        self._checked([item for item in given if not isinstance(item, str)])
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
        return self._ask_viewer(questions)

    def _is_masked(self, item: Any) -> bool:
        is_original = "png" in item or check_view(item.get("view")) == "original"
        return not is_original and self.images.get(item["image"]).mask is not None

    def _pixels(self, id: Any, name: Any) -> bytes:
        return self.images.rendered(id, check_view(name)).png

    def _user_tool(self, name: Any, args: Any, kwargs: Any) -> Any:
        def resolve(image: Any) -> EncodedImage:
            return self.images.resolve(image, "original")

        tools, call = self.context.options.user_tools, (name, args, kwargs)
        return call_user_tool(tools, call, self._checked, resolve, self._register, self.own_time.user_tool)

    # -- parts of several tools --------------------------------------------------------------------------------------

    def _generate(self, prompts: list[str]) -> list[GeneratedImage]:
        if prompts and "text2image" in self.context.options.without:
            raise ToolError("prompts cannot be drawn here; give images")
        requests = [Generation(prompt=prompt, seed=self._seed(prompt)) for prompt in prompts]
        generated = self.context.services.generator.generate(requests) if requests else []
        for prompt, image in zip(prompts, generated, strict=True):
            self._report_missing(image, prompt)
        return generated

    def _report_missing(self, generated: GeneratedImage, prompt: str) -> None:
        if generated.missing_terms:
            missing = tuple(generated.missing_terms)
            self._note(PromptNote(fault=PromptFault.NOT_DRAWN, prompt=prompt, words=missing))

    def _note(self, note: PromptNote) -> None:
        self._effect.notes.append(note)
        self._effect.shown.append(write_note(note))

    def _seed(self, prompt: str) -> int:
        nth = self._asked[prompt]
        self._asked[prompt] += 1
        self._effect.asked.append(prompt)
        return seed(self.context.run_seed, "explore", prompt, nth)

    def _ask_viewer(self, questions: Sequence[tuple[Part, ...]]) -> list[str]:
        """Asks the viewer each question in a conversation of its own."""
        chats = [
            Chat(
                conversation="",
                messages=(user(*question),),
                seed=self._seed(f"viewer {' '.join(p if isinstance(p, str) else p.digest for p in question)}"),
                max_tokens=self.context.options.reply_tokens,
            )
            for question in questions
        ]
        return [reply.text.strip() for reply in self.context.services.backbone.reply(chats)]

    def _register_generated(self, generated: GeneratedImage, tested: str) -> dict[str, Any]:
        # An image without some terms of its prompt does not test what the agent meant.
        return self._register(generated.image, hypothesis="" if generated.missing_terms else tested)

    def _register(
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

    def _checked(self, images: Any) -> list[Any]:
        """Checks the number of images and each of them. Nothing is decoded yet: a call that is refused costs little."""
        given = self._limited(images)
        pixels = sum(map(self.images.check, given))
        if pixels > _MAX_PIXELS:
            raise ToolError(
                f"images of {pixels} pixels in one call; at most {_MAX_PIXELS} are taken, so make them smaller"
            )
        return given

    def _limited(self, images: Any) -> list[Any]:
        given, limit = check_list(images), self.context.options.images_per_call
        if len(given) > limit:
            raise ToolError(f"{len(given)} images in one call; at most {limit} are taken")
        return given
