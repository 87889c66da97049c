"""Answers the calls of an experiment. Everything that arrives here was written by hostile code until validated."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np
from PIL import Image

from openmaia.errors import ToolError
from openmaia.images import Picture, Rendering, upsample
from openmaia.messages import Chat, Part, user
from openmaia.services import (
    Activation,
    Drawn,
    Edit,
    Exemplar,
    ExemplarKind,
    Generation,
    Map,
    Probe,
    Services,
    UnitExemplars,
)
from openmaia.tools.album import Album, Entry, Mask
from openmaia.tools.arguments import brief, hypotheses, list_of, named_values, own_picture, text, texts, view
from openmaia.tools.seeds import seed
from openmaia.tools.subjects import Subjects
from openmaia.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the toolbox of one investigation is made from. unit: a whole layer or network where the task is about one.
    without: tools that there are not."""

    unit: Unit
    services: Services
    conversation: str
    run_seed: int
    images_per_call: int
    reply_tokens: int
    describe_prompt: str
    summarize_prompt: str
    user_tools: Mapping[str, Callable[..., Any]]
    without: tuple[str, ...] = ()
    rendering: Rendering = Rendering.DARKEN


@dataclass(slots=True)
class Effect:
    """What a call did besides returning a value; enough to do it again in a replay without any service."""

    entries: list[Entry] = field(default_factory=list[Entry])
    shown: list[Part] = field(default_factory=list[Part])
    asked: list[str] = field(default_factory=list[str])


class Toolbox:
    def __init__(self, surroundings: Surroundings):
        self.around = surroundings
        self.album = Album(surroundings.rendering)
        self.subjects = Subjects(surroundings.unit, surroundings.services)
        self._asked: Counter[str] = Counter()
        self._effect = Effect()
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

    def call(self, name: str, args: Sequence[Any]) -> tuple[Any, Effect]:
        """One tool call: its result and its effect. Raises ToolError for what the agent did wrong."""
        tool = self._tools.get(name)
        if tool is None or name in self.around.without:
            raise ToolError(f"there is no tool {brief(name)}")
        self._effect = Effect()
        try:
            return tool(*args), self._effect
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise ToolError(f"{name}: wrong number of arguments") from error

    def replay(self, effect: Effect) -> None:
        self.album.restore(tuple(effect.entries))
        self._asked.update(effect.asked)

    # -- the tools ---------------------------------------------------------------------------------------------------

    def _layers(self) -> dict[str, int]:
        return dict(self.subjects.layers)

    def _call_neuron(
        self, images: Any, layer: Any = None, index: Any = None, hypothesis: Any = None
    ) -> list[dict[str, Any]]:
        unit = self.subjects.unit(layer, index)
        given = self._images(images)
        pictures = [self._picture(image, "original") for image in given]
        tests = [
            named or self._tested(image) for image, named in zip(given, hypotheses(hypothesis, len(given)), strict=True)
        ]
        answers = self.around.services.target.probe([Probe(unit=unit, picture=p) for p in pictures])
        known = self.subjects.exemplars(unit)
        return [
            self._answer(self._seen(picture, answer, known, tested))
            for picture, answer, tested in zip(pictures, answers, tests, strict=True)
        ]

    def _tested(self, image: Any) -> str:
        """What an image was drawn for."""
        return "" if "png" in image else self.album.get(image.get("image")).hypothesis

    def _responses(self, images: Any, layer: Any) -> list[list[float]]:
        units = self.subjects.units(layer)
        pictures = [self._picture(image, "original") for image in self._images(images)]
        probes = [Probe(unit=unit, picture=picture) for picture in pictures for unit in units]
        values = [answer.value for answer in self.around.services.target.probe(probes)]
        return [values[at : at + len(units)] for at in range(0, len(values), len(units))]

    def _dataset_exemplars(self, kind: Any, layer: Any = None, index: Any = None) -> list[dict[str, Any]]:
        if kind not in get_args(ExemplarKind):
            raise ToolError(
                f"dataset_exemplars: kind={brief(kind)}; expected one of {', '.join(get_args(ExemplarKind))}"
            )
        known = self.subjects.exemplars(self.subjects.unit(layer, index))
        return [self._answer(self._exemplar(exemplar, known)) for exemplar in known.of_kind(kind)]

    def _text2image(self, prompts: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
        wanted = texts(self._images(prompts), "text2image")
        tests = hypotheses(hypothesis, len(wanted))
        drawn = self._draw(wanted)
        return [self._answer(self._drawn(one, tested)) for one, tested in zip(drawn, tests, strict=True)]

    def _edit_images(self, images: Any, instructions: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
        orders = texts(self._images(instructions), "edit_images")
        wanted = self._images(images)
        if len(wanted) != len(orders):
            raise ToolError(f"edit_images: {len(wanted)} images but {len(orders)} instructions; give one for each")
        tests = hypotheses(hypothesis, len(wanted))
        drawn = iter(self._draw([text(image) for image in wanted if isinstance(image, str)]))
        bases = [next(drawn).picture if isinstance(i, str) else self._picture(i, "original") for i in wanted]
        requests = [
            Edit(picture=base, instruction=order, seed=self._seed(f"{base.digest} {order}"))
            for base, order in zip(bases, orders, strict=True)
        ]
        edited = self.around.services.editor.edit(requests)
        answers: list[dict[str, Any]] = []
        for image, base, order, result, tested in zip(wanted, bases, orders, edited, tests, strict=True):
            self._report(result, order)
            caption = image if isinstance(image, str) else "original"
            answers.append({"image": self._answer(self._add(base)), "caption": caption})
            answers.append({"image": self._answer(self._drawn(result, tested)), "caption": order})
        return answers

    def _describe_images(self, images: Any, titles: Any) -> str:
        pictures = [self._picture(image, "masked") for image in self._images(images)]
        names = texts(list_of(titles), "describe_images")
        if len(pictures) != len(names):
            raise ToolError(f"describe_images: {len(pictures)} images but {len(names)} titles; give one for each")
        replies = self._ask([(self.around.describe_prompt, picture) for picture in pictures])
        return "\n".join(f"{name}: {reply}" for name, reply in zip(names, replies, strict=True))

    def _summarize_images(self, images: Any) -> str:
        pictures = [self._picture(image, "masked") for image in self._images(images)]
        if not pictures:
            raise ToolError("summarize_images: an empty list; give at least one image")
        return self._ask([(self.around.summarize_prompt, *pictures)])[0]

    def _display(self, items: Any) -> None:
        for item in list_of(items):
            if isinstance(item, str):
                self._effect.shown.append(item)
                continue
            picture = self._picture(item, "masked")
            if "png" not in item:
                is_masked = item["view"] != "original" and self.album.get(item["image"]).mask is not None
                self._effect.shown.append(f"[{item['image']}, {'masked' if is_masked else 'original'}]")
            self._effect.shown.append(picture)

    def _pixels(self, id: Any, name: Any) -> bytes:
        return self.album.view(id, view(name)).png

    def _user_tool(self, name: Any, args: Any, kwargs: Any) -> Any:
        tool = self.around.user_tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ToolError(f"there is no tool {brief(name)}")
        given = [self._given(argument) for argument in list_of(args)]
        named = {key: self._given(argument) for key, argument in named_values(kwargs).items()}
        try:
            inspect.signature(tool).bind(*given, **named)
        except TypeError as error:
            raise ToolError(f"{name}: {error}") from error
        try:
            return self._returned(tool(*given, **named))
        except Exception as error:  # code of the user's, called with what the agent chose: the agent gets to see it
            raise ToolError(f"{name}: {type(error).__name__}: {error}") from error

    def _given(self, argument: Any) -> Any:
        """What the agent handed to a user's tool: texts, numbers and Pillow images, in lists of any depth."""
        if isinstance(argument, list):
            return [self._given(part) for part in cast(list[Any], argument)]
        if argument is None or isinstance(argument, (str, bool, int, float)):
            return argument
        return self._picture(argument, "original").pil()

    # -- help for them -----------------------------------------------------------------------------------------------

    def _draw(self, prompts: list[str]) -> list[Drawn]:
        if prompts and "text2image" in self.around.without:
            raise ToolError("prompts cannot be drawn here; give images")
        requests = [Generation(prompt=prompt, seed=self._seed(prompt)) for prompt in prompts]
        drawn = self.around.services.generator.generate(requests) if requests else []
        for prompt, one in zip(prompts, drawn, strict=True):
            self._report(one, prompt)
        return drawn

    def _report(self, drawn: Drawn, prompt: str) -> None:
        if drawn.undrawn:
            words = ", ".join(repr(word) for word in drawn.undrawn)
            self._effect.shown.append(f"note: could not draw {words} of {prompt!r}")

    def _seed(self, prompt: str) -> int:
        nth = self._asked[prompt]
        self._asked[prompt] += 1
        self._effect.asked.append(prompt)
        return seed(self.around.run_seed, "explore", prompt, nth)

    def _ask(self, questions: Sequence[tuple[Part, ...]]) -> list[str]:
        chats = [
            Chat(
                conversation="",
                messages=(user(*question),),
                seed=self._seed(f"viewer {' '.join(p if isinstance(p, str) else p.digest for p in question)}"),
                max_tokens=self.around.reply_tokens,
            )
            for question in questions
        ]
        return [reply.text.strip() for reply in self.around.services.backbone.reply(chats)]

    def _seen(self, picture: Picture, answer: Activation, known: UnitExemplars, tested: str) -> Entry:
        mask = _mask(picture, answer.map, answer.box, known.threshold)
        height = _height(answer.value, answer.map, known)
        return self._add(picture, mask, height if answer.raw is None else height | {"raw": answer.raw}, tested)

    def _drawn(self, drawn: Drawn, tested: str) -> Entry:
        """A picture that lacks what was asked for tests nothing."""
        return self._add(drawn.picture, hypothesis="" if drawn.undrawn else tested)

    def _exemplar(self, exemplar: Exemplar, known: UnitExemplars) -> Entry:
        width, height = exemplar.picture.size
        mask = _mask(exemplar.picture, exemplar.map, (0, 0, width, height), known.threshold)
        return self._add(exemplar.picture, mask, _height(exemplar.activation, exemplar.map, known))

    def _add(
        self,
        original: Picture,
        mask: Mask | None = None,
        activation: dict[str, float | bool] | None = None,
        hypothesis: str = "",
    ) -> Entry:
        added = self.album.add(original, mask, activation, hypothesis)
        self._effect.entries.append(added)
        return added

    @staticmethod
    def _answer(entry: Entry) -> dict[str, Any]:
        return {"image": entry.id, "activation": entry.activation}

    def _returned(self, value: Any) -> Any:
        """What a user's tool returned, as it travels to the agent."""
        if isinstance(value, Image.Image):
            pixels = np.asarray(value.convert("RGB"))
            return {"$image": self._answer(self._add(Picture.of(pixels)))}
        if isinstance(value, (list, tuple)):
            return [self._returned(item) for item in cast(Sequence[Any], value)]
        if isinstance(value, dict):
            return {str(key): self._returned(item) for key, item in cast(dict[Any, Any], value).items()}
        return value if value is None or isinstance(value, (bool, int, float)) else str(value)

    def _picture(self, image: Any, default: str) -> Picture:
        if not isinstance(image, dict):
            raise ToolError(f"expected an image, not {type(image).__name__} ({brief(image)})")
        given = cast(dict[str, Any], image)
        if "png" in given:
            return own_picture(given["png"])
        return self.album.view(given.get("image"), view(given.get("view")) or default)

    def _images(self, images: Any) -> list[Any]:
        listed = list_of(images)
        if len(listed) > self.around.images_per_call:
            raise ToolError(f"{len(listed)} images in one call; at most {self.around.images_per_call} are taken")
        return listed


def _mask(picture: Picture, small: Map | None, box: tuple[float, ...], threshold: float) -> Mask | None:
    if small is None:
        return None
    left, top, right, bottom = (round(edge) for edge in box)
    mask = np.zeros(picture.pixels.shape[:2], dtype=np.bool_)
    mask[top:bottom, left:right] = upsample(small, bottom - top, right - left) > threshold
    return mask


def _height(value: float, small: Map | None, known: UnitExemplars) -> dict[str, float | bool]:
    percentile, z = round(known.percentile(value), 1), float(f"{known.z_score(value):.3g}")
    top = value if small is None else float(small.max())
    return {"value": value, "percentile": percentile, "z": z, "fired": top > known.threshold}
