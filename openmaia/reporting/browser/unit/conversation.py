"""The turns of an investigation on the page of its unit."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from openmaia.agent.tasks.grammar import DESCRIBED, FENCE, headings
from openmaia.reporting.browser.unit.observation import Block, MeasuredImages, ToolUse, Viewer, group_calls
from openmaia.reporting.browser.unit.story import HypothesisChanges, Story, compare_hypotheses, tell_turn
from openmaia.runs.records import Record, Stop, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """What the page shows of one turn."""

    turn: Turn
    prose: tuple[tuple[str, str], ...]
    """The reply without code and list of hypotheses, as pairs of section name and text."""
    code_lines: int
    hypotheses: HypothesisChanges
    blocks: tuple[Block, ...]
    measured: tuple[MeasuredImages, ...]
    used: tuple[ToolUse, ...]
    story: Story


def make_turn_views(record: Record, viewer: Viewer) -> Iterator[TurnView]:
    """Prepares the turns of an investigation."""
    changes = list(_changes(record.turns))
    stops: list[Stop | None] = [*(None for _ in record.turns[1:]), record.stop]
    # All lines first: their pictures matter more than those inside the turns, if not all fit.
    stories = [tell_turn(*each, viewer) for each in zip(record.turns, changes, stops, strict=False)]
    for turn, change, story in zip(record.turns, changes, stories, strict=True):
        yield TurnView(
            story=story,
            turn=turn,
            prose=tuple(_sections(turn)),
            code_lines=turn.code.count("\n") + 1,
            hypotheses=change,
            blocks=tuple(viewer.blocks(turn)),
            measured=tuple(viewer.measured(turn)),
            used=tuple(group_calls(turn.calls)),
        )


def _changes(turns: Sequence[Turn]) -> Iterator[HypothesisChanges]:
    before: tuple[str, ...] = ()
    for turn in turns:
        yield compare_hypotheses(before, turn.hypotheses)
        before = turn.hypotheses or before


def _sections(turn: Turn) -> Iterator[tuple[str, str]]:
    prose = _prose(turn)
    marks = list(headings(DESCRIBED).finditer(prose))
    start = prose[: marks[0].start()] if marks else prose
    if start.strip():
        yield "", start.strip()
    for mark, following in zip_longest(marks, marks[1:]):
        text = prose[mark.end() : following.start() if following else None].strip()
        is_listed = mark["name"].upper().startswith("HYPOTHES") and turn.hypotheses
        if text and not is_listed:
            yield mark["name"].lower(), text


def _prose(turn: Turn) -> str:
    before, code, after = turn.reply.partition(turn.code) if turn.code else (turn.reply, "", "")
    if not code:
        return turn.reply
    fences = list(FENCE.finditer(before))
    if fences and not before[fences[-1].end() :].strip():
        before = before[: fences[-1].start()]
        after = re.sub(r"^\s*(```+|~~~+)[ \t]*(\n|$)", "", after)
    return f"{before.rstrip()}\n\n{after.lstrip()}"
