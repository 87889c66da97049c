"""Decides after each turn how an investigation goes on: with any turn, only with an experiment, with the answer, or not at all."""

from collections.abc import Sequence
from itertools import takewhile

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.evidence import (
    WORDING,
    answer_in,
    answers_sent_back,
    experiments_that_measured,
    missing_evidence,
    repetitions,
    words_not_drawn,
)
from openmaia.agent.tasks.grammar import ParsedReply
from openmaia.agent.tasks.task import Task
from openmaia.core.messages import TurnKind
from openmaia.core.units import Scope
from openmaia.runs.records import SET_ASIDE, Turn

STUCK = 2
"""Number of turns in a row that repeat earlier ones, after which the agent is asked for its answer. Empty replies do not
count."""


class Stopping:
    """Applies the task's stopping rule and the limits of the config to the turns of an investigation.

    Methods with an argument `count` describe the investigation as it was after its first `count` turns.
    """

    def __init__(self, scope: Scope, task: Task, options: InvestigationOptions, turns: Sequence[Turn]):
        """Keeps a reference to the list of turns, so that it sees later turns too.

        Args:
            scope: What the investigation is about.
            task: The task with its stopping rule.
            options: The settings, which include the limits.
            turns: The completed turns. The caller appends each new turn to this list.
        """
        self._task, self._options, self._turns = task, options, turns
        self._left_out: list[bool] = []
        self._measured: dict[int, int] = {}
        self.can_generate = scope is Scope.UNIT and "text2image" not in options.without
        """Whether the agent can generate images and measure them with the unit."""

    @property
    def answer(self) -> ParsedReply | None:
        """The agent's answer in the latest turn. None if this turn has no answer, or if the answer was not accepted."""
        if not self._turns or self.refusal(len(self._turns)):
            return None
        return answer_in(self._turns[-1], self._task.answer)

    @property
    def sent_back(self) -> int:
        """The number of answers that were not accepted because they lacked evidence.

        The agent is told which evidence is missing (see `refusal`). An answer in the latest turn counts even if the
        agent has not been told yet.
        """
        grammar = self._task.answer
        is_last = bool(self._turns) and self.answer is None and answer_in(self._turns[-1], grammar) is not None
        return answers_sent_back(self._turns, grammar) + is_last

    @property
    def limit(self) -> str:
        """The limits that the investigation has reached, as text such as "limits.turns=30"; empty if there are none."""
        options, turns = self._options, self._turns
        reached = [f"limits.turns={options.turns}"] if len(turns) >= options.turns else []
        reached += options.time_limits(sum(turn.work_seconds for turn in turns), sum(turn.seconds for turn in turns))
        reached += [f"limits.tokens={options.tokens}"] if sum(turn.tokens for turn in turns) >= options.tokens else []
        return ", ".join(reached)

    @property
    def left_out(self) -> list[bool]:
        """For each turn, whether it is omitted from the conversation that the agent sees, because it adds nothing new.

        A turn is omitted if its experiment repeats an earlier one (see `repetitions`). A turn without an experiment is
        omitted if its reply is empty or equal to the previous reply. If a reply has both a repeated experiment and an
        answer, the turn is kept: the answer was ignored, and the agent has to see this.
        """
        turns = self._turns
        if len(self._left_out) != len(turns):
            self._left_out = [
                is_repeated and SET_ASIDE not in turn.forgiven if turn.code else _says_nothing_new(turn, before)
                for turn, before, is_repeated in zip(turns, [None, *turns], repetitions(turns), strict=False)
            ]
        return self._left_out

    @property
    def left_out_in_a_row(self) -> int:
        """The number of consecutive omitted turns (see `left_out`) at the end of the investigation so far."""
        return sum(1 for _ in takewhile(bool, reversed(self.left_out)))

    @property
    def expected(self) -> TurnKind:
        """What the agent's next turn has to be. The first rule whose condition holds decides:

        1. If the agent has run fewer experiments than the stopping rule demands, an experiment. If the latest turn
           is omitted (see `left_out`) and the agent can generate images, this experiment has to measure generated
           images.
        2. If the next turn is the last one that `options.turns` allows, or the agent has had `options.soft_turns`
           turns, repeats itself or has reached another limit, an answer.
        3. Otherwise, an experiment or an answer.
        """
        count = len(self._turns)
        if not self._has_experiments(count):
            return TurnKind.MEASUREMENT if self.can_generate and self.left_out_in_a_row else TurnKind.EXPERIMENT
        is_last = count + 1 >= self._options.turns or self._is_over(count) or bool(self.limit)
        return TurnKind.ANSWER if is_last else TurnKind.ANY

    def wants_answer(self, count: int) -> bool:
        """Returns whether the agent is asked for its answer after its first `count` turns.

        It is asked after `options.soft_turns` turns, or if it repeats itself, but not before it has run the demanded
        number of experiments, because its answer would be refused.
        """
        return self._is_over(count) and self._has_experiments(count)

    def refusal(self, count: int) -> str:
        """Returns the message to the agent that rejects its answer in turn number `count` (from 1).

        An answer is rejected if it lacks evidence or labels that can be tested. The message says what is missing. It is empty if the answer is
        accepted or the turn has no answer.
        """
        turns = self._turns[:count]
        is_at_limit = count == len(self._turns) and bool(self.limit)
        # An agent that was asked for its answer is not told to go on experimenting, see `wants_answer`.
        is_due = is_at_limit or self._is_over(count) or self._is_over(count - 1)
        vocabulary = self._options.vocabulary
        checks = missing_evidence(self._task, turns, vocabulary, is_due=is_due, is_last=is_at_limit)
        if not checks:
            return ""
        lacks = [f"- {check.detail}" for check in checks]
        if all(check.what in WORDING for check in checks):
            return self._task.reword.replace("{missing}", "\n".join(lacks))
        if missing := words_not_drawn(turns):
            lacks.append(f"- words that could not be drawn do not count: {', '.join(missing)}")
        return self._task.missing.replace("{missing}", "\n".join(lacks))

    def _is_over(self, count: int) -> bool:
        """Returns whether the agent has had `soft_turns` turns, or repeats itself after the demanded experiments.

        If the task demands no experiments, repetition does not matter: the task does not say how many are enough.
        """
        latest = list(zip(self._turns, self.left_out, strict=True))[:count][-STUCK:]
        is_repeating = len(latest) == STUCK and all(is_left_out and turn.reply.strip() for turn, is_left_out in latest)
        is_stuck = is_repeating and self._task.rule.experiments > 0 and self._has_experiments(count)
        return count >= self._options.soft_turns or is_stuck

    def _has_experiments(self, count: int) -> bool:
        """Returns whether the first `count` turns have as many experiments as the stopping rule demands."""
        if count not in self._measured:
            self._measured[count] = experiments_that_measured(self._turns[:count])
        return self._measured[count] >= self._task.rule.experiments


def _says_nothing_new(turn: Turn, before: Turn | None) -> bool:
    reply = turn.reply.strip()
    return not reply or (before is not None and reply == before.reply.strip())
