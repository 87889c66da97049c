"""The turns of a record as a page shows them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.report.highlight import Piece, python
from openmaia.report.observation import Block, Measured, Used, Viewer, used
from openmaia.store.records import Turn
from openmaia.tasks.grammar import DESCRIBED, FENCE, headings


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypotheses:
    """current: (text, whether the turn before did not have it). dropped: what the turn before had."""

    current: tuple[tuple[str, bool], ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A turn. said: (section, text) outside of the code; the hypotheses are told apart from it."""

    turn: Turn
    said: tuple[tuple[str, str], ...]
    code: tuple[Piece, ...]
    code_lines: int
    hypotheses: Hypotheses
    blocks: tuple[Block, ...]
    measured: tuple[Measured, ...]
    used: tuple[Used, ...]

    @property
    def images(self) -> int:
        return sum(one.images for one in self.used)


def conversation(turns: Sequence[Turn], viewer: Viewer) -> Iterator[Shown]:
    before: tuple[str, ...] = ()
    for turn in turns:
        yield Shown(
            turn=turn,
            said=tuple(_said(turn)),
            code=python(turn.code),
            code_lines=turn.code.count("\n") + 1,
            hypotheses=_compared(before, turn.hypotheses),
            blocks=tuple(viewer.blocks(turn)),
            measured=tuple(viewer.measured(turn)),
            used=tuple(used(turn.calls)),
        )
        before = turn.hypotheses or before


def _compared(before: Sequence[str], now: Sequence[str]) -> Hypotheses:
    """Equal but for blanks and case is equal. A turn that lists none has dropped none."""
    known, kept = ({_plain(text) for text in texts} for texts in (before, now))
    return Hypotheses(
        current=tuple((text, _plain(text) not in known) for text in now),
        dropped=tuple(text for text in before if _plain(text) not in kept) if now else (),
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _said(turn: Turn) -> Iterator[tuple[str, str]]:
    """The prose by section. The list of hypotheses is left out where the turn has it as a list, and so is the code
    that was run; nothing else is."""
    prose = _prose(turn)
    found = list(headings(DESCRIBED).finditer(prose))
    start = prose[: found[0].start()] if found else prose
    if start.strip():
        yield "", start.strip()
    for heading, following in zip(found, [*found[1:], None], strict=True):
        text = prose[heading.end() : following.start() if following else None].strip()
        is_told = heading["name"].upper().startswith("HYPOTHES") and turn.hypotheses
        if text and not is_told:
            yield heading["name"].lower(), text


def _prose(turn: Turn) -> str:
    before, found, after = turn.reply.partition(turn.code) if turn.code else (turn.reply, "", "")
    if not found:
        return turn.reply
    opening = list(FENCE.finditer(before))
    if opening and not before[opening[-1].end() :].strip():
        before = before[: opening[-1].start()]
        after = re.sub(r"^\s*(```+|~~~+)[ \t]*(\n|$)", "", after)
    return f"{before.rstrip()}\n\n{after.lstrip()}"
