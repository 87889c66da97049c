"""Counts malformed replies, failed experiments, tokens and more of a run's agents, to compare language models."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openmaia.agent.evidence.demands import find_answer
from openmaia.agent.evidence.experiments import examine
from openmaia.analysis.rounds import list_rounds
from openmaia.core.images import EncodedImage
from openmaia.core.messages import AnswerFormat
from openmaia.runs.records import ExperimentStatus, Record, ReplyNote, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConduct:
    """How the agents of a run worked. All numbers are totals over its finished investigations."""

    investigations: int
    ended: Mapping[str, int]
    """By the value of `Stop`."""
    unmeasured: int
    """Investigations without an experiment that counts as evidence."""
    turns: int
    empty: int
    """Turns with neither an experiment nor an answer."""
    cut: int
    """Turns whose reply repeated itself and was cut off."""
    set_aside: int
    """Turns whose answer was set aside."""
    sent_back: int
    """Answers that were sent back, also those in `rounds`."""
    rounds: Mapping[str, int]
    """Answers that failed the loop's own test, by what came next (the values of `Change`)."""
    forgiven: Mapping[str, int]
    """How often each deviation from the format was tolerated, the most frequent first, with the other remarks about
    a reply."""
    experiments: int
    """Turns with an experiment."""
    repeated: int
    """Experiments that repeat an earlier one, or copy the example."""
    tracebacks: int
    stopped: int
    """Experiments that ended by a timeout, too much memory, or a lost process."""
    images: int
    """In the outputs of the experiments."""
    prompt_tokens: int
    generated_tokens: int
    seconds: float
    """Duration of all turns, including waiting times."""


def conduct(records: Iterable[Record], answer: AnswerFormat) -> AgentConduct:
    """Counts over records, which are read one at a time. `answer` is the format of the task."""
    total: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    forgiven: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    seconds = 0.0
    for record in records:
        ended[record.stop.value] += 1
        experiments = examine(record.turns)
        total["unmeasured"] += not any(facts.counts for facts in experiments)
        total["repeated"] += sum(facts.is_repeated for facts in experiments)
        total["sent_back"] += record.evidence.sent_back
        rounds.update(each.change.value for each in list_rounds(record))
        for turn in record.turns:
            total.update(_counts(turn, answer))
            forgiven.update(turn.remarks)
            seconds += turn.seconds
    names = (
        "unmeasured turns empty cut set_aside sent_back experiments repeated tracebacks stopped images prompt_tokens "
        "generated_tokens"
    ).split()
    return AgentConduct(
        investigations=ended.total(),
        ended=dict(ended),
        rounds=dict(rounds.most_common()),
        forgiven=dict(forgiven.most_common()),
        seconds=seconds,
        **{name: total[name] for name in names},
    )


def _counts(turn: Turn, answer: AnswerFormat) -> dict[str, int]:
    return {
        "turns": 1,
        "empty": not turn.code and find_answer(turn, answer) is None,
        "cut": ReplyNote.CUT in turn.notes,
        "set_aside": ReplyNote.SET_ASIDE in turn.notes,
        "experiments": bool(turn.code),
        "tracebacks": turn.raised,
        "stopped": bool(turn.code) and turn.status is not ExperimentStatus.OK and not turn.raised,
        "images": sum(isinstance(part, EncodedImage) for part in turn.observation),
        "prompt_tokens": turn.prompt_tokens,
        "generated_tokens": turn.generated_tokens,
    }
