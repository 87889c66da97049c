"""Prepares the output of an agent's experiments for the HTML page of a unit.

The output of an experiment is called the observation. The page also shows the images that were not displayed in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from openmaia.core.images import EncodedImage
from openmaia.reporting.browser.captions import Captions, arguments, labels, references
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.runs.records import ImageEntry, ToolCall, Turn

LINES = 30
"""Number of lines of a text that are shown. The rest is collapsed."""
FIRST = 24
"""Number of images of a tool call that are shown. The rest is collapsed."""
SHOWN_SIDE, MEASURED_SIDE = 144, 72


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """An image on the page: one that an experiment displayed, or one that its tool calls returned."""

    uri: str
    """A data URI; empty if the image is not available or the page would become too large."""
    note: str = ""
    """The line that was printed immediately before the image."""
    name: str = ""
    """The image's name in the agent's code. For a displayed image, ", original" or ", masked" follows."""
    caption: str = ""
    """The prompt or the editing instruction; empty if there is none."""
    activation: Mapping[str, float | bool] | None = None
    """The measurement of the image, as the agent saw it; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an observation: either a text or successive images."""

    head: str = ""
    """The lines of the text that are shown."""
    rest: str = ""
    """The further lines, which are collapsed."""
    rest_lines: int = 0
    """Number of lines in `rest`."""
    images: list[ImageView] = field(default_factory=list[ImageView])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredImages:
    """The images that a tool call made or measured and that were not displayed, in descending order of activation."""

    tool: str
    """The name of the tool that was called."""
    first: tuple[ImageView, ...]
    """The images that are shown."""
    rest: tuple[ImageView, ...]
    """The further images, which are collapsed."""


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
    """Converts the turns of one investigation to the texts and images that the page of its unit shows.

    Its methods take a turn. `blocks` returns the output of the turn's experiment, and `measured` the images of its tool
    calls that were not displayed.
    """

    images: Mapping[str, EncodedImage]
    """The images of the investigation's record, by digest."""
    captions: Captions
    """The prompts and measurements of these images."""
    thumbnails: Thumbnails
    """Makes the data URIs of the page."""

    def blocks(self, turn: Turn) -> list[Block]:
        """Returns the texts and images of a turn's observation, in order.

        A single line of at most 100 characters that was printed immediately before an image becomes the image's note.
        """
        blocks: list[Block] = []
        announced, text = labels(turn.calls), ""
        for part in turn.observation:
            if isinstance(part, str):
                text += part
                continue
            label = next(announced, "")
            printed = text.rstrip("\n").removesuffix(label).rstrip("\n")
            note, text = (printed, "") if _is_line(printed) else ("", "")
            if printed and not note:
                blocks.append(folded(printed))
            if not blocks or not blocks[-1].images:
                blocks.append(Block())
            blocks[-1].images.append(self._displayed(part, label, note))
        return [*blocks, folded(text)] if text.strip() else blocks

    def measured(self, turn: Turn) -> Iterator[MeasuredImages]:
        """Yields for each tool call of a turn the images that it made or measured but that were not displayed."""
        displayed = {name for call in turn.calls if call.name == "display" for name in references(arguments(call))}
        for call in turn.calls:
            entries = [entry for entry in call.entries if entry.id not in displayed and self._is_final(entry)]
            images = [self._thumbnail(entry) for entry in sorted(entries, key=_activation, reverse=True)]
            if images:
                yield MeasuredImages(tool=call.name, first=tuple(images[:FIRST]), rest=tuple(images[FIRST:]))

    def _is_final(self, entry: ImageEntry) -> bool:
        """Returns whether the entry is the last one of its image. A call that measures an image adds a later entry."""
        return entry.activation is not None or entry.id not in self.captions.measured

    def _displayed(self, image: EncodedImage, label: str, note: str) -> ImageView:
        entry = self.captions.entries.get(label.strip("[]").partition(",")[0])
        return ImageView(
            uri=self.thumbnails.uri(self.images.get(image.digest, image), SHOWN_SIDE),
            note=note,
            name=label.strip("[]"),
            caption=self.captions.texts.get(entry.id, "") if entry else "",
            activation=entry.activation if entry else None,
        )

    def _thumbnail(self, entry: ImageEntry) -> ImageView:
        return ImageView(
            uri=self.thumbnails.uri(self.images.get(entry.original), MEASURED_SIDE, entry.mask),
            name=entry.id,
            caption=self.captions.texts.get(entry.id, ""),
            activation=entry.activation,
        )


def tool_uses(calls: Sequence[ToolCall]) -> list[ToolUse]:
    """Groups successive calls of the same tool with the same error."""
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
    """Returns a text as a block. Lines after the first LINES are collapsed if they are more than 3."""
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
