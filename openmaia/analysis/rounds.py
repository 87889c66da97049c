"""What the rounds of an investigation changed."""

from dataclasses import dataclass
from enum import StrEnum

from openmaia.runs.evidence import Confirmation, Fault
from openmaia.runs.records import Record, Stop


class Change(StrEnum):
    """What the agent did after a failed test. The values are words for the reader."""

    OTHER = "another answer"
    SAME = "the same labels again"
    ABSTAINED = "an abstention"
    NONE = "no further answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """An answer that failed its test, and what came after it."""

    turn: int
    """Number of the turn with the answer, from 1."""
    test: Confirmation
    faults: dict[str, Fault]
    change: Change
    labels: tuple[str, ...]
    """The labels of the next answer; none unless `change` is OTHER or SAME."""


def list_rounds(record: Record) -> list[Round]:
    """Returns the rounds of an investigation in order."""
    failed = [(turn.index + 1, turn.failed_test) for turn in record.turns if turn.failed_test]
    answers: list[tuple[str, ...]] = [test.confirmation.labels for _, test in failed[1:]]
    answers.append(record.labels if record.stop is Stop.ANSWER else ())
    return [
        Round(
            turn=turn,
            test=test.confirmation,
            faults=test.faults,
            change=_change(test.confirmation.labels, labels, record.stop),
            labels=labels,
        )
        for (turn, test), labels in zip(failed, answers, strict=False)
    ]


def _change(before: tuple[str, ...], after: tuple[str, ...], stop: Stop) -> Change:
    if after:
        return Change.SAME if set(before) == set(after) else Change.OTHER
    # An answer may have a description and no label.
    return {Stop.ANSWER: Change.OTHER, Stop.ABSTAIN: Change.ABSTAINED}.get(stop, Change.NONE)
