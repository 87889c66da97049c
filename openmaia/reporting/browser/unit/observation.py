"""Prepares the output of an agent's experiments for the page of a unit: texts, displayed images and measured images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.unit.captions import Captions, arguments, labels, references
from openmaia.reporting.browser.unit.pictures import PagePictures, Picture
from openmaia.runs.records import ImageEntry, ToolCall, Turn

LINES = 30
"""Number of lines of a printed text that the page of a unit shows. The rest is collapsed."""
DISPLAYED, MEASURED = 16, 8
"""Number of displayed images of a turn, and of measured images of a call, that are shown. Of the others only the prompts
and activations are listed, so that a page stays small however many images an experiment makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """An image on the page of a unit: one that an experiment displayed, or one that its tool calls returned."""

    picture: Picture
    note: str = ""
    """The line that was printed immediately before the image."""
    name: str = ""
    """The image's name in the agent's code. For a displayed image, ", original" or ", masked" follows."""
    caption: str = ""
    """The prompt or the editing instruction; empty if there is none."""
    activation: Mapping[str, float | bool] | None = None
    """What the agent was told about the unit's activation on the image: the activation under the key `value`, and if
    known `percentile` and others (`openmaia.agent.tools.image_registry.describe_activation`). None if not measured."""

    @property
    def seen(self) -> str:
        """The caption or name of the image and its activation, as a text for screen readers."""
        value = f", activation {self.activation['value']:.3g}" if self.activation else ""
        return f"{self.caption or self.name or 'image'}{value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an observation (the output of an experiment): either a text or successive images."""

    head: str = ""
    """The lines of the text that are shown."""
    rest: str = ""
    """The further lines, which are collapsed."""
    rest_lines: int = 0
    """Number of lines in `rest`."""
    images: list[ImageView] = field(default_factory=list[ImageView])
    more: str = ""
    """The displayed images that the page does not show, with a line of text for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredImages:
    """The images that a tool call made or measured and that were not displayed, in descending order of activation."""

    tool: str
    """The name of the tool that was called."""
    first: tuple[ImageView, ...]
    """The images that are shown."""
    rest: str
    """The further images, a line with activation and prompt for each."""
    count: int
    """The number of images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Successive calls of one tool in a turn, all with the same outcome (success or the same error)."""

    name: str
    """The name of the tool."""
    calls: int
    """Number of calls."""
    images: int
    """Number of images that the calls returned or displayed."""
    seconds: float
    """Duration of all these calls together."""
    error: str
    """The error message that all of these calls returned; empty if they succeeded."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Converts the turns of one investigation to the texts and images that the page of its unit shows."""

    images: Mapping[str, EncodedImage]
    """The images of the investigation's record, by digest."""
    captions: Captions
    """The prompts and measurements of these images."""
    pictures: PagePictures
    """Embeds the images in the page."""

    def blocks(self, turn: Turn) -> list[Block]:
        """Returns the texts and images of a turn's observation (the output that the agent received), in order.

        A single line of at most 100 characters that was printed immediately before an image becomes the image's note.
        An image that was displayed plain and then with its mask is shown once, with an outline that can be hidden.
        """
        blocks: list[Block] = []
        announced, text, shown = labels(turn.calls), "", 0
        for part in turn.observation:
            if isinstance(part, str):
                text += part
                continue
            label = next(announced, "")
            printed = text.rstrip("\n").removesuffix(label).rstrip("\n")
            note, text = (printed, "") if _is_line(printed) else ("", "")
            if printed and not note:
                blocks.append(folded(printed))
            if not blocks or not (blocks[-1].images or blocks[-1].more):
                blocks.append(Block())
            if shown >= DISPLAYED and not _is_again(blocks[-1].images, label):
                blocks[-1] = replace(blocks[-1], more=f"{blocks[-1].more}{note}  {label}\n")
                continue
            before = len(blocks[-1].images)
            _append(blocks[-1].images, self._displayed(part, label, note))
            shown += len(blocks[-1].images) - before
        return [*blocks, folded(text)] if text.strip() else blocks

    def measured(self, turn: Turn) -> Iterator[MeasuredImages]:
        """Yields for each tool call of a turn the images that it made or measured but that were not displayed."""
        displayed = {name for call in turn.calls if call.name == "display" for name in references(arguments(call))}
        for call in turn.calls:
            entries = [entry for entry in call.entries if entry.id not in displayed and self._is_final(entry)]
            ordered = sorted(entries, key=_activation, reverse=True)
            if ordered:
                yield MeasuredImages(
                    tool=call.name,
                    first=tuple(self.measured_image(entry, with_mask=False) for entry in ordered[:MEASURED]),
                    rest="\n".join(map(self._line, ordered[MEASURED:])),
                    count=len(ordered),
                )

    def _line(self, entry: ImageEntry) -> str:
        value = "" if entry.activation is None else f"{entry.activation['value']:.4g}"
        return f"{value:>9}  {self.captions.texts.get(entry.id, '') or entry.id}"

    def measured_image(self, entry: ImageEntry, *, with_mask: bool = True) -> ImageView:
        """Prepares an image from the record of the investigation for the page of the unit.

        Args:
            entry: The record's entry for the image.
            with_mask: Whether to outline the mask, the area where the unit responds.

        Returns:
            The image with its caption and the unit's activation on it.
        """
        return ImageView(
            picture=self._picture(entry, with_mask=with_mask),
            name=entry.id,
            caption=self.captions.texts.get(entry.id, ""),
            activation=entry.activation,
        )

    def _picture(self, entry: ImageEntry, *, with_mask: bool = True) -> Picture:
        image = self.images.get(entry.original)
        mask, seen = (entry.mask, entry.seen) if with_mask else (None, None)
        return self.pictures.picture(entry.original, image.data if image else b"", mask, seen)

    def _is_final(self, entry: ImageEntry) -> bool:
        """Returns whether the entry is the last one of its image. A call that measures an image adds a later entry."""
        return entry.activation is not None or entry.id not in self.captions.measured

    def _displayed(self, image: EncodedImage, label: str, note: str) -> ImageView:
        name, _, view = label.strip("[]").partition(", ")
        entry = self.captions.entries.get(name)
        if entry and entry.original in self.images:
            picture = self._picture(entry, with_mask=view == "masked")
        else:
            picture = self.pictures.picture(image.digest, self.images.get(image.digest, image).data)
        return ImageView(
            picture=picture,
            note=note,
            name=label.strip("[]"),
            caption=self.captions.texts.get(entry.id, "") if entry else "",
            activation=entry.activation if entry else None,
        )


def _is_again(images: list[ImageView], label: str) -> bool:
    """Returns whether a label names the image that was displayed last."""
    return bool(images) and images[-1].name.partition(",")[0] == label.strip("[]").partition(",")[0]


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


def tool_uses(calls: Sequence[ToolCall]) -> list[ToolUse]:
    """Groups successive calls of the same tool that all succeeded, or all failed with the same error."""
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


def folded(text: str) -> Block:
    """Converts a text to a block of which only the first LINES lines are shown. The other lines are collapsed.

    If there are at most three other lines, they are shown as well.
    """
    lines = text.strip("\n").split("\n")
    if len(lines) <= LINES + 3:
        return Block(head="\n".join(lines))
    return Block(head="\n".join(lines[:LINES]), rest="\n".join(lines[LINES:]), rest_lines=len(lines) - LINES)


def _is_line(text: str) -> bool:
    return 0 < len(text) <= 100 and "\n" not in text


def _image_count(call: ToolCall) -> int:
    return len(call.entries) or sum(isinstance(part, EncodedImage) for part in call.shown)


def _activation(entry: ImageEntry) -> float:
    return float("-inf") if entry.activation is None else float(entry.activation["value"])
