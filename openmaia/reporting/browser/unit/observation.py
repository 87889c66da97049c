"""The output of experiments on the page of a unit: texts, displayed and measured images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.reporting.browser.unit.pictures import Origin, PagePictures, Picture
from openmaia.runs.records import GivenImage, ImageEntry, ToolCall, Turn

_LINES = 30
"""Number of lines of a printed text that are not collapsed."""
DISPLAYED, _MEASURED = 16, 8
"""Numbers of images shown: of the displayed ones of a turn, and the measured ones of a call. The others are listed in
words, so that a page stays small however many images an experiment makes."""


_SIDE = 140
"""Longest side in pixels of the copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """An image that an experiment displayed, or that its tool calls returned."""

    picture: Picture
    note: str = ""
    """The line that was printed immediately before it."""
    name: str = ""
    """Its name in the agent's code, for a displayed image with ", original" or ", masked"."""
    caption: str = ""
    activation: Mapping[str, float | bool] | None = None
    """As the agent was told (`openmaia.agent.tools.image_registry.describe_activation`); None if not measured."""

    @property
    def seen(self) -> str:
        """Caption or name with the activation, for screen readers."""
        value = f", activation {self.activation['value']:.3g}" if self.activation else ""
        return f"{self.caption or self.name or 'image'}{value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an observation: either a text or successive images."""

    head: str = ""
    """The lines that are shown."""
    rest: str = ""
    """The further lines, which are collapsed."""
    rest_lines: int = 0
    """Number of lines in `rest`."""
    images: list[ImageView] = field(default_factory=list[ImageView])
    more: str = ""
    """A line for each displayed image that is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredImages:
    """The images that a tool call made or measured and that were not displayed, in descending order of activation."""

    tool: str
    first: tuple[ImageView, ...]
    rest: str
    """A line for each image that is not shown."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Successive calls of one tool in a turn with the same outcome."""

    name: str
    calls: int
    images: int
    """Number of images that they returned or displayed."""
    seconds: float
    error: str
    """Empty if they succeeded."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Converts turns of one investigation to texts and images of its page."""

    images: Mapping[str, EncodedImage]
    """By digest."""
    captions: Captions
    pictures: PagePictures

    def blocks(self, turn: Turn) -> list[Block]:
        """Returns the parts of a turn's observation.

        A single line of at most 100 characters that was printed immediately before an image becomes the image's note.
        An image that was displayed plain and then with its mask is shown once, with an outline that can be hidden.
        """
        blocks: list[Block] = []
        displayed, text, shown = iter(turn.displayed), "", 0
        for part in turn.observation:
            if isinstance(part, str):
                text += part
                continue
            given = next(displayed, GivenImage(id=""))
            printed = text.rstrip("\n").removesuffix(given.label).rstrip("\n")
            note, text = (printed, "") if _is_line(printed) else ("", "")
            if printed and not note:
                blocks.append(fold(printed))
            if not blocks or not (blocks[-1].images or blocks[-1].more):
                blocks.append(Block())
            if shown >= DISPLAYED and not _is_again(blocks[-1].images, given):
                blocks[-1] = replace(blocks[-1], more=f"{blocks[-1].more}{note}  {given.label}\n")
                continue
            before = len(blocks[-1].images)
            _append(blocks[-1].images, self._displayed(part, given, note))
            shown += len(blocks[-1].images) - before
        return [*blocks, fold(text)] if text.strip() else blocks

    def measured(self, turn: Turn) -> Iterator[MeasuredImages]:
        """Yields for each tool call of a turn the images that it made or measured but that were not displayed."""
        displayed = {image.id for image in turn.displayed}
        for call in turn.calls:
            entries = [entry for entry in call.entries if entry.id not in displayed and self._is_final(entry)]
            ordered = sorted(entries, key=_activation, reverse=True)
            if ordered:
                yield MeasuredImages(
                    tool=call.name,
                    first=tuple(self.measured_image(entry, with_mask=False) for entry in ordered[:_MEASURED]),
                    rest="\n".join(map(self._line, ordered[_MEASURED:])),
                    count=len(ordered),
                )

    def _line(self, entry: ImageEntry) -> str:
        value = "" if entry.activation is None else f"{entry.activation['value']:.4g}"
        return f"{value:>9}  {self.captions.texts.get(entry.id, '') or entry.id}"

    def measured_image(self, entry: ImageEntry, *, with_mask: bool = True) -> ImageView:
        """Prepares an image of the record, with the outline of its mask if `with_mask`."""
        return ImageView(
            picture=self._picture(entry, with_mask=with_mask),
            name=entry.id,
            caption=self.captions.texts.get(entry.id, ""),
            activation=entry.activation,
        )

    def _picture(self, entry: ImageEntry, *, with_mask: bool = True) -> Picture:
        image = self.images.get(entry.original)
        mask, seen = (entry.mask, entry.seen) if with_mask else (None, None)
        origin = Origin.DRAWN if self.captions.is_drawn(entry) else Origin.DATASET
        return self.pictures.picture(
            entry.original, image.data if image else b"", mask, seen, side=_SIDE, origin=origin
        )

    def _is_final(self, entry: ImageEntry) -> bool:
        """Returns whether the entry is the last one of its image. A call that measures an image adds a later entry."""
        return entry.activation is not None or entry.id not in self.captions.measured

    def _displayed(self, image: EncodedImage, given: GivenImage, note: str) -> ImageView:
        entry = self.captions.entries.get(given.id)
        if entry and entry.original in self.images:
            picture = self._picture(entry, with_mask=given.is_masked)
        else:
            data = self.images.get(image.digest, image).data
            picture = self.pictures.picture(image.digest, data, side=_SIDE)
        return ImageView(
            picture=picture,
            note=note,
            name=given.name,
            caption=self.captions.texts.get(entry.id, "") if entry else "",
            activation=entry.activation if entry else None,
        )


def _is_again(images: list[ImageView], given: GivenImage) -> bool:
    return bool(images) and images[-1].name.partition(",")[0] == given.id


def _append(images: list[ImageView], image: ImageView) -> None:
    """Appends an image, or outlines the previous one if it is the same image without its mask."""
    before = images[-1] if images else None
    if (
        before
        and not image.note
        and before.picture.number is not None
        and before.picture.number == image.picture.number
    ):
        images[-1] = replace(
            before,
            picture=replace(before.picture, outline=image.picture.outline, frame=image.picture.frame),
            name=image.name,
        )
    else:
        images.append(image)


def group_calls(calls: Sequence[ToolCall]) -> list[ToolUse]:
    """Groups successive calls of the same tool with the same outcome."""
    groups = [(key, list(members)) for key, members in groupby(calls, key=lambda call: (call.name, call.error))]
    return [
        ToolUse(
            name=name,
            calls=len(members),
            images=sum(_image_count(call) for call in members),
            seconds=sum(call.seconds for call in members),
            error=error or "",
        )
        for (name, error), members in groups
    ]


def fold(text: str) -> Block:
    """Converts a text to a block. At most three lines more than _LINES are shown as well."""
    lines = text.strip("\n").split("\n")
    if len(lines) <= _LINES + 3:
        return Block(head="\n".join(lines))
    return Block(head="\n".join(lines[:_LINES]), rest="\n".join(lines[_LINES:]), rest_lines=len(lines) - _LINES)


def _is_line(text: str) -> bool:
    return 0 < len(text) <= 100 and "\n" not in text


def _image_count(call: ToolCall) -> int:
    return len(call.entries) or sum(isinstance(part, EncodedImage) for part in call.shown)


def _activation(entry: ImageEntry) -> float:
    return float("-inf") if entry.activation is None else float(entry.activation["value"])
