"""What an experiment showed, and what it measured without showing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from openmaia.images import Picture
from openmaia.report.captions import Captions, arguments, labels, references
from openmaia.report.thumbnails import Thumbnails
from openmaia.store.records import ImageEntry, ToolCall, Turn

LINES = 30
"""Of one text; the rest is folded away."""
FIRST = 24
"""Images of one measurement; the rest is folded away."""
SHOWN_SIDE, MEASURED_SIDE = 144, 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """note: what was printed just before the picture. name: the image's, with the rendering. activation: as the agent
    saw it."""

    uri: str
    note: str = ""
    name: str = ""
    caption: str = ""
    activation: Mapping[str, float | bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Either a text (head, and the rest of it folded away) or figures."""

    head: str = ""
    rest: str = ""
    rest_lines: int = 0
    figures: list[Figure] = field(default_factory=list[Figure])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Images of one call that were not displayed, the highest activation first."""

    tool: str
    first: tuple[Figure, ...]
    rest: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Calls of one tool in a row."""

    name: str
    calls: int
    images: int
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Viewer:
    """Turns the pictures of one record into figures."""

    pictures: Mapping[str, Picture]
    captions: Captions
    thumbnails: Thumbnails

    def blocks(self, turn: Turn) -> list[Block]:
        """The observation in its order; a line printed just before a picture becomes its note."""
        found: list[Block] = []
        announced, text = labels(turn.calls), ""
        for part in turn.observation:
            if isinstance(part, str):
                text += part
                continue
            label = next(announced, "")
            said = text.rstrip("\n").removesuffix(label).rstrip("\n")
            note, text = (said, "") if _is_line(said) else ("", "")
            if said and not note:
                found.append(folded(said))
            if not found or not found[-1].figures:
                found.append(Block())
            found[-1].figures.append(self._shown(part, label, note))
        return [*found, folded(text)] if text.strip() else found

    def measured(self, turn: Turn) -> Iterator[Measured]:
        displayed = {name for call in turn.calls if call.name == "display" for name in references(arguments(call))}
        for call in turn.calls:
            entries = [e for e in call.entries if e.id not in displayed and self._is_end(e)]
            figures = [self._thumbnail(entry) for entry in sorted(entries, key=_height, reverse=True)]
            if figures:
                yield Measured(tool=call.name, first=tuple(figures[:FIRST]), rest=tuple(figures[FIRST:]))

    def _is_end(self, entry: ImageEntry) -> bool:
        """Whether the entry itself says what became of the image; drawn ones reappear with their measurement."""
        return entry.activation is not None or entry.id not in self.captions.measured

    def _shown(self, picture: Picture, label: str, note: str) -> Figure:
        entry = self.captions.entries.get(label.strip("[]").partition(",")[0])
        return Figure(
            uri=self.thumbnails.uri(self.pictures.get(picture.digest, picture), SHOWN_SIDE),
            note=note,
            name=label.strip("[]"),
            caption=self.captions.texts.get(entry.id, "") if entry else "",
            activation=entry.activation if entry else None,
        )

    def _thumbnail(self, entry: ImageEntry) -> Figure:
        return Figure(
            uri=self.thumbnails.uri(self.pictures.get(entry.original), MEASURED_SIDE, entry.mask),
            name=entry.id,
            caption=self.captions.texts.get(entry.id, ""),
            activation=entry.activation,
        )


def used(calls: Sequence[ToolCall]) -> list[Used]:
    return [
        Used(
            name=name,
            calls=len(group),
            images=sum(_images(call) for call in group),
            seconds=sum(call.seconds for call in group),
            error=error or "",
        )
        for (name, error), group in (
            (key, list(members)) for key, members in groupby(calls, key=lambda call: (call.name, call.error))
        )
    ]


def folded(text: str) -> Block:
    lines = text.strip("\n").split("\n")
    if len(lines) <= LINES + 3:
        return Block(head="\n".join(lines))
    return Block(head="\n".join(lines[:LINES]), rest="\n".join(lines[LINES:]), rest_lines=len(lines) - LINES)


def _is_line(text: str) -> bool:
    return 0 < len(text) <= 100 and "\n" not in text


def _images(call: ToolCall) -> int:
    return len(call.entries) or sum(isinstance(part, Picture) for part in call.shown)


def _height(entry: ImageEntry) -> float:
    return float("-inf") if entry.activation is None else float(entry.activation["value"])
