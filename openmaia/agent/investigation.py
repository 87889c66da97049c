"""Holds the state of one investigation and executes its turns."""

import inspect
import re
import time
from collections.abc import Iterator
from functools import cache
from itertools import takewhile

from openmaia.agent.confirm import confirm, pairs_due
from openmaia.agent.context import InvestigationContext
from openmaia.agent.evidence import (
    answer_in,
    answers_sent_back,
    assess,
    experiments_that_measured,
    missing_evidence,
    repetitions,
    words_not_drawn,
)
from openmaia.agent.experiments import ExperimentResult, ExperimentRunner
from openmaia.agent.hints import hint, repeated
from openmaia.agent.sandbox import Json, Sandbox
from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tools import api, values
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.tools.seeds import seed
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.core.errors import UsageError
from openmaia.core.messages import Chat, Cut, Message, Part, TurnKind, assistant, system, user
from openmaia.core.services import Services
from openmaia.core.units import OUTPUT, Scope, Unit
from openmaia.runs.evidence import Confirmation
from openmaia.runs.journal import Journal
from openmaia.runs.records import Record, Stop, Turn

SET_ASIDE = "an answer beside an experiment: the experiment was run, and the answer was set aside"
CUT = "the reply repeated itself and was cut"
STUCK = 2
"""Number of turns in a row that bring nothing new, after which the agent is asked for its answer."""


class Investigation:
    """A running investigation: its conversation, its experiments and its limits.

    It is a context manager that ends the sandbox when it exits.
    """

    def __init__(self, context: InvestigationContext, replicate: int, journal: Journal, notes: tuple[str, ...] = ()):
        """Writes the opening messages and starts the sandbox. Does not wait until the sandbox is ready.

        Args:
            context: The inputs of the investigation.
            replicate: The number of the investigation among those of the same unit.
            journal: Stores the completed turns.
            notes: Remarks for the record, for example that the investigation was restarted.

        Raises:
            UsageError: If the task asks about a class and the unit is none.
        """
        self.context, self.replicate, self.journal, self.notes = context, replicate, journal, notes
        self.unit, self.task, self.options = context.unit, context.task, context.options
        self.conversation = f"{self.unit}/{replicate}"
        description = api_text(self.options.user_tools, self.unit.scope, self.options.without)
        if self.options.generator_note and "text2image" not in self.options.without:
            description += f"\n\n{self.options.generator_note}"
        question = self.task.question(self.unit, lambda: class_of(self.unit, context.services))
        self.opening = (system(self.task.instructions(description, is_whole=not self.options.without)), user(question))
        self.turns: list[Turn] = []
        self._repeats: list[bool] = []
        self._measured: dict[int, int] = {}
        self.started = time.time()
        self.confirmation: Confirmation | None = None
        toolbox = Toolbox(context)
        tools: dict[str, Json] = {name: tool.__doc__ or "" for name, tool in self.options.user_tools.items()}
        # The sandbox is started last, so that an exception above leaves no process behind.
        self.sandbox = Sandbox(
            api_source=api_source(),
            manifest={"tools": tools, "scope": self.unit.scope.value},
            limits=self.options.sandbox,
            allow_none=self.options.allow_none,
        )
        self.experiments = ExperimentRunner(self.sandbox, toolbox)

    def __enter__(self) -> "Investigation":
        return self

    def __exit__(self, *_: object) -> None:
        self.sandbox.close()

    def resume(self) -> None:
        """Restores the state after the completed turns of the journal.

        Raises:
            ReplayDiverged: If a replayed experiment behaved differently.
        """
        self.turns.extend(self.journal.turns())
        if damage := self.journal.damage(len(self.turns)):
            self.notes += (damage,)
        self.experiments.resume(self.turns)

    def turn(self) -> Turn:
        """Executes one turn: gets a reply of the backbone, runs its experiment, and appends the turn to the journal.

        Raises:
            ServiceError: If a service failed.
            SandboxError: If the sandbox failed.
            ReplayDiverged: If experiments had to be replayed and behaved differently.
        """
        started, spent_before = time.monotonic(), self.context.services.ledger.spent()
        chat = Chat(
            conversation=self.conversation,
            messages=self.messages(),
            seed=seed(self.context.run_seed, "explore", self.conversation, len(self.turns)),
            max_tokens=self.options.reply_tokens,
            answer=self.task.answer,
            expected=self._expected(),
            left_out=sum(self._left_out),
            repetitions=sum(1 for _ in takewhile(bool, reversed(self._left_out))),
        )
        reply = self.context.services.backbone.reply([chat])[0]
        backbone_seconds = time.monotonic() - started
        parsed = parse(reply.text, self.task.answer)
        code, decided = self._experiment_in(parsed)
        experiment = self.experiments.run(code) if code else ExperimentResult()
        turn = Turn(
            index=len(self.turns),
            reply=reply.text,
            code=code,
            hypotheses=parsed.hypotheses,
            forgiven=(*parsed.forgiven, *decided, *([CUT] if reply.cut is Cut.REPETITION else [])),
            status=experiment.status,
            calls=experiment.calls,
            observation=experiment.observation,
            output_digest=experiment.output_digest,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            generated_tokens=reply.generated_tokens,
            left_out=reply.left_out,
            backbone_seconds=backbone_seconds,
            experiment_seconds=experiment.seconds,
            spent=self.context.services.ledger.since(spent_before),
            images=experiment.images,
        )
        self.turns.append(turn)
        self.experiments.completed(turn)
        self.journal.append(turn)
        return turn

    def _expected(self) -> TurnKind:
        """Returns what the next turn may be, as far as an answer would not be accepted yet, or has to come now."""
        count = len(self.turns)
        if not self._has_experiments(count):
            is_stuck = any(self._left_out[-1:])
            return TurnKind.MEASUREMENT if self._can_generate and is_stuck else TurnKind.EXPERIMENT
        is_last = count + 1 >= self.options.turns or self._is_due(count)
        return TurnKind.ANSWER if is_last else TurnKind.ANY

    @property
    def _can_generate(self) -> bool:
        """Whether the agent can generate images and measure them with the unit."""
        return self.unit.scope is Scope.UNIT and "text2image" not in self.options.without

    def _experiment_in(self, parsed: ParsedReply) -> tuple[str, tuple[str, ...]]:
        """Returns the code to run, and notes for the record about a reply with both an experiment and an answer.

        In such a reply, the answer was written without the output of the experiment. Therefore the code is run and the
        answer is ignored. If the agent may run no more experiments and has run enough, the answer counts and the code
        is ignored.
        """
        if not parsed.code or parsed.description is None:
            return parsed.code, ()
        if self._is_due(len(self.turns)) and self._has_experiments(len(self.turns)):
            return "", ("an experiment beside the answer that was asked for: it was not run",)
        return parsed.code, (SET_ASIDE,)

    def confirm(self) -> None:
        """Tests the labels of the answer with pairs of images, if there is an answer and the task demands the test.

        Raises:
            ServiceError: If a service failed. The answer remains in the journal.
        """
        answer = self.answer
        if answer is None or not (due := pairs_due(self.context, answer)):
            return
        self.confirmation = confirm(self.context, answer, self.turns)
        pairs = len(self.confirmation.samples) // 2
        if pairs < due:
            self.notes += (f"the answer was tested with {pairs} of {due} pairs: no more usable near misses were found",)

    @property
    def answer(self) -> ParsedReply | None:
        """The answer in the last turn if it was accepted, otherwise None."""
        if not self.turns or self._refusal(len(self.turns)):
            return None
        return answer_in(self.turns[-1], self.task.answer)

    @property
    def ended(self) -> bool:
        """Whether the agent has answered or reached a limit."""
        return self.answer is not None or bool(self._limit)

    def _is_due(self, count: int) -> bool:
        """Returns whether the agent may run no more experiments after `count` turns."""
        return self._is_over(count) or (count == len(self.turns) and bool(self._limit))

    def _is_over(self, count: int) -> bool:
        """Returns whether the agent has had its turns after `count` of them, or repeats itself although it has measured enough.

        A task that demands no experiments does not say what is enough.
        """
        is_repeating = self._left_out[:count][-STUCK:] == [True] * STUCK
        is_stuck = is_repeating and self.task.rule.experiments > 0 and self._has_experiments(count)
        return count >= self.options.soft_turns or is_stuck

    def _has_experiments(self, count: int) -> bool:
        """Returns whether the first `count` turns have as many experiments as the stopping rule demands."""
        if count not in self._measured:
            self._measured[count] = experiments_that_measured(self.turns[:count])
        return self._measured[count] >= self.task.rule.experiments

    def _refusal(self, count: int) -> str:
        """Returns the message that sends back the answer in turn number `count` (from 1) because it lacks evidence.

        Returns an empty string if the answer is accepted or the turn has none.
        """
        turns = self.turns[:count]
        # An agent that was asked for its answer is not told to go on experimenting, see `_wants_answer`.
        checks = missing_evidence(self.task, turns, self._is_due(count) or self._is_over(count - 1))
        if not checks:
            return ""
        lacks = [f"- {check.detail}" for check in checks]
        if missing := words_not_drawn(turns):
            lacks.append(f"- words that could not be drawn do not count: {', '.join(missing)}")
            lacks += [self.options.generator_note] if self.options.generator_note else []
        return self.task.missing.replace("{missing}", "\n".join(lacks))

    @property
    def _limit(self) -> str:
        options = self.options
        wall = options.wall_minutes or float("inf")
        reached = {
            f"limits.turns={options.turns}": len(self.turns) >= options.turns,
            f"limits.minutes={options.minutes:g}": sum(t.work_seconds for t in self.turns) >= options.minutes * 60,
            f"limits.wall_minutes={wall:g}": sum(t.seconds for t in self.turns) >= wall * 60,
            f"limits.tokens={options.tokens}": sum(t.tokens for t in self.turns) >= options.tokens,
        }
        return ", ".join(name for name, is_reached in reached.items() if is_reached)

    def record(self) -> Record:
        """Returns the record of the investigation so far."""
        answer, grammar = self.answer, self.task.answer
        stop = Stop.LIMIT if answer is None else Stop.ANSWER if answer.description else Stop.ABSTAIN
        return Record(
            unit=self.unit,
            replicate=self.replicate,
            stop=stop,
            cause=self._limit if stop is Stop.LIMIT else "",
            description=(answer.description or "") if answer else "",
            labels=answer.labels if answer else (),
            backbone=self.options.backbone,
            task=self.task.name,
            sandbox=self.sandbox.level.value,
            prompts=tuple(message.text for message in self.opening),
            turns=tuple(self.turns),
            config=self.options.config,
            preprocessing=self.options.preprocessing,
            started=self.started,
            notes=self.notes,
            evidence=assess(self.task.rule, self.turns, grammar, self._sent_back()),
            confirmation=self.confirmation,
        )

    def _sent_back(self) -> int:
        """Returns the number of answers that were sent back, including one in the last turn."""
        grammar = self.task.answer
        is_last = bool(self.turns) and self.answer is None and answer_in(self.turns[-1], grammar) is not None
        return answers_sent_back(self.turns, grammar) + is_last

    def messages(self) -> list[Message]:
        """Returns the messages of the conversation for the next call of the backbone.

        Turns that repeat an earlier one are left out: the more often a small model sees a message of its own, the more
        surely it writes it again. The last message says so if the last turn is left out.
        """
        shown = [turn for turn, is_left_out in zip(self.turns, self._left_out, strict=True) if not is_left_out]
        exchanged = [m for turn in shown for m in (assistant(turn.reply), user(*self._feedback(turn)))]
        messages = [*self.opening, *exchanged]
        if any(self._left_out[-1:]):
            is_due = self._wants_answer(len(self.turns))
            parts = [part for part in messages[-1].parts if part != self.task.final]
            final = [self.task.final] if is_due else []
            messages[-1] = user(*parts, repeated(can_generate=self._can_generate and not is_due), *final)
        return messages

    @property
    def _left_out(self) -> list[bool]:
        """For each turn whether it repeats an earlier experiment, or is the same reply without experiment as before.

        An answer beside a repeated experiment is not left out, because the agent is told about it.
        """
        if len(self._repeats) != len(self.turns):
            self._repeats = [
                is_repeated and SET_ASIDE not in turn.forgiven if turn.code else _is_same_reply(turn, before)
                for turn, before, is_repeated in zip(
                    self.turns, [None, *self.turns], repetitions(self.turns), strict=False
                )
            ]
        return self._repeats

    def _wants_answer(self, count: int) -> bool:
        """Returns whether the agent is asked for its answer after `count` turns.

        Without the demanded experiments, the answer would be sent back.
        """
        return self._is_over(count) and self._has_experiments(count)

    def _feedback(self, turn: Turn) -> Iterator[Part]:
        """Yields the texts and images of the message to the agent after a turn."""
        if refusal := self._refusal(turn.index + 1):
            yield refusal
        elif CUT in turn.forgiven and not turn.code:
            yield self.task.repeated
        elif not turn.code:
            problem = parse(turn.reply, self.task.answer).problem
            yield f"{problem}\n{self.task.no_code}" if problem else self.task.no_code
        elif not turn.observation:
            yield "The experiment printed nothing and displayed nothing. Print the activations, or call tools.display.\n"
        yield from (part for part in turn.observation if isinstance(part, str) or self.options.sees_images)
        if advice := hint(turn):
            yield advice
        if SET_ASIDE in turn.forgiven:
            yield self.task.set_aside
        if self._wants_answer(turn.index + 1):
            yield self.task.final


def _is_same_reply(turn: Turn, before: Turn | None) -> bool:
    return before is not None and turn.reply.strip() == before.reply.strip()


def class_of(unit: Unit, services: Services) -> str:
    """Returns the name of the class that an output unit represents. Raises UsageError if the unit is not a class."""
    classes = services.target.info().classes
    if unit.layer != OUTPUT or not 0 <= unit.index < len(classes):
        raise UsageError(
            f"the task asks about a class, and {unit} is none that has a name; give classes of a classifier as "
            f"units={OUTPUT}=NAME,NAME with {OUTPUT} among target.layers"
        )
    return classes[unit.index]


@cache
def api_source() -> str:
    """Returns the source code of the tools in the sandbox as a single module.

    The sandbox cannot import this package, so the imports between its modules are removed.
    """
    own_imports = re.compile(r"^from openmaia\.[\w.]+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)
    return inspect.getsource(values) + own_imports.sub("", inspect.getsource(api))
