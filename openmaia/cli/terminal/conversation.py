"""Prints the conversation of an investigation: replies with their code, and what the experiments showed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from openmaia.cli.terminal.output import console
from openmaia.core.images import EncodedImage
from openmaia.core.text import printable
from openmaia.runs.files import Files
from openmaia.runs.records import GivenImage, Turn

_FOLDER = "pictures"
"""Folder of the run directory that holds the displayed images as files."""

SHOWN_LINES = 40
"""Largest number of lines that are shown of a turn's code, and of its observation. If there are more, the first and the
last ones are shown."""

INDENT = 2

SHOWN_CHARACTERS = 20_000
"""Largest number of characters that are shown of one text."""

LineT = TypeVar("LineT")


class ConversationView:
    """Prints turns of an investigation, and writes the images that they display as files.

    Args:
        files: The run directory, into which the images are written.
    """

    def __init__(self, files: Files):
        self._files = files
        self._seen: dict[str, str] = {}
        """Paths of the images that were displayed before, by digest."""

    def show(self, turn: Turn) -> None:
        """Prints one turn: the reply, in which the code is highlighted, and the output of the experiment."""
        console.print(Rule(Text(f"turn {turn.index + 1}"), align="left", style="cyan"))
        if turn.reasoning:
            lines = turn.reasoning.count("\n") + 1
            console.print(
                Text(f"reasoning of {lines} {'line' if lines == 1 else 'lines'}, which the report shows", style="dim")
            )
        for part in _reply(turn):
            console.print(part)
        if turn.observation:
            console.print(Text(f"observed ({turn.status or 'no experiment'}):", style="dim"))
            console.print(Padding(Text("\n".join(self._observation(turn))), (0, 0, 0, INDENT)))

    def show_all(self, turns: Iterable[Turn]) -> None:
        """Prints several turns."""
        for turn in turns:
            self.show(turn)

    def _observation(self, turn: Turn) -> list[str]:
        lines: list[str | tuple[str, EncodedImage]] = []
        displayed = iter(turn.displayed)
        for part in turn.observation:
            if isinstance(part, str):
                lines += _clean(part).rstrip("\n").split("\n")
            else:
                label = next(displayed, GivenImage(id="")).label
                if label and lines and lines[-1] == label:
                    lines.pop()
                lines.append((label or "[image]", part))
        return [
            line if isinstance(line, str) else f"{line[0]} {self._path(turn, line[1])}" for line in shortened(lines)
        ]

    def _path(self, turn: Turn, image: EncodedImage) -> str:
        """Returns the path of a displayed image, which is written as a file if it is new."""
        if image.digest not in self._seen:
            name = f"{_FOLDER}/turn-{turn.index + 1}-{image.digest[:8]}.png"
            self._files.write(name, image.png)
            self._seen[image.digest] = self._files.inside(name).root
        return self._seen[image.digest]


def shortened(lines: Sequence[LineT]) -> list[LineT | str]:
    """Returns the lines of a text, shortened if there are more than the constant SHOWN_LINES allows.

    Of a longer text the first and the last lines remain, and between them a line with the number of those left out.
    """
    left_out = len(lines) - SHOWN_LINES
    if left_out <= 0:
        return list(lines)
    end = SHOWN_LINES // 4
    return [*lines[: SHOWN_LINES - end], f"… {left_out} lines more in the report …", *lines[-end:]]


def _reply(turn: Turn) -> Iterator[RenderableType]:
    """Yields the reply. Its code is highlighted in the place where it stands."""
    before, code, after = turn.reply.partition(turn.code) if turn.code else (turn.reply, "", "")
    if not code:  # the parser repaired the code, so that the reply does not hold it as it was run
        yield Text(_clean(before.strip()))
        if turn.code:
            yield Text("run as:", style="dim")
            yield _highlighted(turn.code)
        return
    if text := _clean(before.strip()):
        yield Text(text)
    yield _highlighted(code)
    if text := _clean(after.strip()):
        yield Text(text)


def _clean(text: str) -> str:
    """Returns at most SHOWN_CHARACTERS of a text, in which characters that would control the terminal are replaced."""
    more = len(text) - SHOWN_CHARACTERS
    end = f"\n… {more} characters more in the report" if more > 0 else ""
    return printable(text[:SHOWN_CHARACTERS], keep="\n\t", replacement="�") + end


def _highlighted(code: str) -> RenderableType:
    return Padding(
        Syntax(
            "\n".join(shortened(_clean(code).strip("\n").split("\n"))),
            "python",
            word_wrap=True,
            background_color="default",
        ),
        (0, 0, 0, INDENT),
    )
