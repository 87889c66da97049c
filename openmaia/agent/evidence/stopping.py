"""What the next turn has to be: any, an experiment, the answer, or none."""

from collections.abc import Sequence
from itertools import takewhile

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.evidence.demands import WORDING, find_answer, find_missing_evidence
from openmaia.agent.evidence.experiments import ExperimentFacts, examine, list_words_not_drawn
from openmaia.agent.tasks.grammar import ParsedReply
from openmaia.agent.tasks.task import Task
from openmaia.core.messages import TurnKind
from openmaia.core.units import Scope
from openmaia.runs.records import ReplyNote, Turn

_STUCK = 2
"""Repeated turns in a row after which the agent is asked for its answer. Empty replies do not count."""


class Stopping:
    """Applies the stopping rule of the task and the limits of the config to the turns of an investigation.

    The caller goes on appending to `turns`. A method with an argument `count` describes the investigation as it was
    after its first `count` turns.
    """

    def __init__(self, scope: Scope, task: Task, options: InvestigationOptions, turns: Sequence[Turn]):
        self._task, self._options, self._turns = task, options, turns
        self._examined: list[ExperimentFacts] = []
        self._closed_after: int | None = None
        self.can_generate = scope is Scope.UNIT and "text2image" not in options.without

    def close(self) -> None:
        """Asks the agent for its answer in the next turn, its last one, because the budget of the run ends."""
        self._closed_after = len(self._turns)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closed_after is not None

    @property
    def is_closed(self) -> bool:
        """Whether the agent has had its last turn since `close`."""
        return self._closed_after is not None and len(self._turns) > self._closed_after

    @property
    def answer(self) -> ParsedReply | None:
        """The answer in the latest turn, if it was accepted."""
        if not self._turns or self._turns[-1].failed_test or self.refusal(len(self._turns)):
            return None
        return find_answer(self._turns[-1], self._task.answer)

    @property
    def sent_back(self) -> int:
        """The number of answers that were sent back. One in the latest turn counts, although the agent has not been
        told yet.
        """
        answers = sum(find_answer(turn, self._task.answer) is not None for turn in self._turns)
        return answers - (self.answer is not None)

    @property
    def limit(self) -> str:
        """The limits that were reached, such as "limits.turns=30"; empty if there are none."""
        return self.limit_of(self._turns)

    def limit_of(self, turns: Sequence[Turn]) -> str:
        """Returns what `limit` would be after these turns."""
        options = self._options
        reached = [f"limits.turns={options.turns}"] if len(turns) >= options.turns else []
        reached += options.time_limits(sum(turn.work_seconds for turn in turns), sum(turn.seconds for turn in turns))
        reached += [f"limits.tokens={options.tokens}"] if sum(turn.tokens for turn in turns) >= options.tokens else []
        if options.budget and _cost(turns) >= options.budget:
            reached.append(f"limits.budget={options.budget:g}")
        return ", ".join(reached)

    @property
    def left_out(self) -> list[bool]:
        """For each turn, whether the agent sees it no more, because it adds nothing new.

        This is a turn that repeats an earlier experiment (see `ExperimentFacts`), or one without an experiment whose reply
        is empty or equal to the previous one and that has no failed test. A repeated experiment beside an answer is kept: the agent has to see that
        the answer was set aside.
        """
        return [
            facts.is_repeated and ReplyNote.SET_ASIDE not in turn.notes
            if turn.code
            else _says_nothing_new(turn, before)
            for turn, before, facts in zip(self._turns, [None, *self._turns], self._facts(), strict=False)
        ]

    @property
    def left_out_in_a_row(self) -> int:
        """The number of turns at the end that are left out."""
        return sum(1 for _ in takewhile(bool, reversed(self.left_out)))

    @property
    def expected(self) -> TurnKind:
        """What the next turn has to be. The first rule that holds decides:

        1. An experiment, while there are fewer than the stopping rule demands; one that measures generated images, if
        the latest turn is left out and images can be generated.
        2. An answer, if the next turn is the last one or the agent was asked for its answer (see `wants_answer`), or at
        another limit.
        3. An experiment or an answer.
        """
        count = len(self._turns)
        if not self._has_experiments(count):
            return TurnKind.MEASUREMENT if self.can_generate and self.left_out_in_a_row else TurnKind.EXPERIMENT
        is_last = count + 1 >= self._options.turns or self._is_over(count) or bool(self.limit)
        return TurnKind.ANSWER if is_last else TurnKind.ANY

    def wants_answer(self, count: int) -> bool:
        """Returns whether the agent is asked for its answer: after `soft_turns` turns, when it repeats itself, or when the
        budget ends, but not before the demanded experiments, because its answer would be refused.
        """
        return self._is_over(count) and self._has_experiments(count)

    def refusal(self, count: int) -> str:
        """Returns the message that sends the answer in turn number `count` (from 1) back; empty if it is accepted, or
        if there is none.
        """
        turns = self._turns[:count]
        is_at_limit = count == len(self._turns) and bool(self.limit)
        # An agent that was asked for its answer is not told to go on experimenting, see `wants_answer`.
        is_due = is_at_limit or self._is_over(count) or self._is_over(count - 1)
        vocabulary = self._options.vocabulary
        checks = find_missing_evidence(self._task, turns, vocabulary, is_due=is_due, is_last=is_at_limit)
        if not checks:
            return ""
        lacks = [f"- {check.detail}" for check in checks]
        if all(check.what in WORDING for check in checks):
            return self._task.reword.replace("{missing}", "\n".join(lacks))
        if missing := list_words_not_drawn(turns):
            lacks.append(f"- words that could not be drawn do not count: {', '.join(map(repr, missing))}")
        return self._task.missing.replace("{missing}", "\n".join(lacks))

    def _is_over(self, count: int) -> bool:
        """Returns whether the agent has had `soft_turns` turns, repeats itself after the demanded experiments, or has money for
        one turn."""
        latest = list(zip(self._turns, self.left_out, strict=True))[:count][-_STUCK:]
        is_repeating = len(latest) == _STUCK and all(is_left_out and turn.reply.strip() for turn, is_left_out in latest)
        # A task that demands no experiments does not say how many are enough, so that repetition decides nothing.
        is_stuck = is_repeating and self._task.rule.experiments > 0 and self._has_experiments(count)
        return count >= self._options.soft_turns or is_stuck or self._pays_for_one_turn(count)

    def _pays_for_one_turn(self, count: int) -> bool:
        """Returns whether money is left for one more turn at most, if it costs as much as the latest one."""
        if self._closed_after is not None and count >= self._closed_after:
            return True
        turns, budget = self._turns[:count], self._options.budget
        return bool(budget and turns) and _cost(turns) + turns[-1].bill.dollars >= budget

    @property
    def could_answer(self) -> bool:
        """Whether there is a turn, and the demanded experiments, so that an answer may be accepted."""
        return bool(self._turns) and self._has_experiments(len(self._turns))

    def _has_experiments(self, count: int) -> bool:
        return sum(facts.counts for facts in self._facts()[:count]) >= self._task.rule.experiments

    def _facts(self) -> list[ExperimentFacts]:
        if len(self._examined) != len(self._turns):
            self._examined = examine(self._turns)
        return self._examined


def _cost(turns: Sequence[Turn]) -> float:
    return sum(turn.bill.dollars for turn in turns)


def _says_nothing_new(turn: Turn, before: Turn | None) -> bool:
    if turn.failed_test:
        return False
    reply = turn.reply.strip()
    return not reply or (before is not None and reply == before.reply.strip())
