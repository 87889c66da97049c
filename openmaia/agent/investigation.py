"""The state of one investigation, and its turns."""

import inspect
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from openmaia.agent.confirm import confirm, count_pairs, list_failed
from openmaia.agent.context import InvestigationContext
from openmaia.agent.conversation import Conversation
from openmaia.agent.evidence.demands import assess
from openmaia.agent.evidence.stopping import Stopping
from openmaia.agent.experiments import ExperimentResult, ExperimentRunner
from openmaia.agent.rounds import find_faults, make_feedback
from openmaia.agent.sandbox import Json, Sandbox
from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.reasoning import separate
from openmaia.agent.tools import api, built_in, values
from openmaia.agent.tools.effects import find_classes
from openmaia.agent.tools.seeds import seed
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.core.errors import OutOfBudget, ServiceError
from openmaia.core.messages import Chat, Cut, Reply
from openmaia.core.services import ServiceUsage
from openmaia.runs.evidence import Confirmation, FailedTest
from openmaia.runs.journal import Journal
from openmaia.runs.records import Record, ReplyNote, Stop, Turn

_EMPTY_REPLIES = 3
"""Empty replies in a row after which the investigation fails."""


class Investigation:
    """One investigation in progress. A context manager, which ends the sandbox."""

    def __init__(self, context: InvestigationContext, replicate: int, journal: Journal, notes: tuple[str, ...] = ()):
        """Writes the opening messages and starts the sandbox, without waiting for it. Raises UsageError if the task
        asks about a class, and the unit does not represent one.
        """
        self.context, self.replicate, self.journal = context, replicate, journal
        self.notes = (*notes, *built_in.notes(context))
        self.unit, self.task, self.options = context.unit, context.task, context.options
        self.turns: list[Turn] = []
        self._stopping = Stopping(self.unit.scope, self.task, self.options, self.turns)
        self._conversation = Conversation(context, self.turns, self._stopping)
        self.started = time.time()
        self.confirmation: Confirmation | None = None
        toolbox = Toolbox(context)
        tools: dict[str, Json] = {name: tool.__doc__ or "" for name, tool in self.options.user_tools.items()}
        # The sandbox is started last, so that an exception above leaves no process behind.
        self.sandbox = Sandbox(
            api_source=read_api_source(),
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
        """Loads the turns of the journal and restores the variables of their experiments. Raises ReplayDiverged."""
        self.turns.extend(self.journal.turns())
        if damage := self.journal.damage(len(self.turns)):
            self.notes += (damage,)
        self.experiments.resume(self.turns)

    def ask_for_money(self) -> None:
        """Call before each turn. At the end of the run's budget the agent is asked for its answer.

        Raises OutOfBudget if it has been, or if an answer would not be accepted yet. The journal holds the completed turns.
        """
        reserve = self.turns[-1].bill.dollars if self.turns else 0.0
        if not self._stopping.is_closing and self.context.services.ledger.terms.account.may_go_on(reserve):
            return
        if self._stopping.is_closed or not self._stopping.could_answer:
            raise OutOfBudget(f"the budget of the run ends after {len(self.turns)} turns, before an answer")
        self._stopping.close()

    def turn(self, reply: Reply, backbone_seconds: float, spent_before: Mapping[str, ServiceUsage]) -> Turn:
        """Executes one turn and appends it to the journal.

        Args:
            reply: The reply to `request`.
            backbone_seconds: How long it took.
            spent_before: What the services had cost before it was asked for.

        Raises ServiceError, also for one empty reply too many, SandboxError, and ReplayDiverged if experiments had to be
        replayed and behaved differently.
        """
        reply = self._checked(reply)
        parsed = parse(reply.text, self.task.answer)
        code, decided = self._experiment_in(parsed)
        experiment = self.experiments.run(code) if code else ExperimentResult()
        turn = Turn(
            index=len(self.turns),
            reply=reply.text,
            reasoning=reply.reasoning,
            code=code,
            hypotheses=parsed.hypotheses,
            forgiven=parsed.forgiven,
            notes=(*decided, *([ReplyNote.CUT] if reply.cut is Cut.REPETITION else [])),
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

    def request(self) -> Chat:
        """Returns what the agent is asked next."""
        name = f"{self.unit}/{self.replicate}"
        return Chat(
            conversation=name,
            messages=self._conversation.messages(),
            seed=seed(self.context.run_seed, "explore", name, len(self.turns)),
            max_tokens=self.options.reply_tokens,
            answer=self.task.answer,
            expected=self._stopping.expected,
            left_out=sum(self._stopping.left_out),
            repetitions=self._stopping.left_out_in_a_row,
        )

    def _checked(self, reply: Reply) -> Reply:
        """Returns a reply with its reasoning apart. Raises ServiceError if it is one empty reply too many."""
        # Backbones of users and recordings of other programs may hold reasoning in their text.
        found = separate(reply.text)
        reply = replace(reply, text=found.text, reasoning=reply.reasoning or found.reasoning)
        reasoned = ", after reasoning" if reply.reasoning else ""
        before = [turn.reply for turn in self.turns[1 - _EMPTY_REPLIES :]]
        if len(before) == _EMPTY_REPLIES - 1 and not any(text.strip() for text in (*before, reply.text)):
            raise ServiceError(
                f"{self.options.backbone} gave {_EMPTY_REPLIES} empty replies in a row, the last with "
                f"{reply.generated_tokens} tokens{reasoned}; if limits.reply_tokens={self.options.reply_tokens} were used up before the first word, raise "
                "it, otherwise use another model, or check that its chat template belongs to it"
            )
        return reply

    def _experiment_in(self, parsed: ParsedReply) -> tuple[str, tuple[ReplyNote, ...]]:
        """Returns the code to run, and notes for the record about a reply with both an experiment and an answer."""
        if not parsed.code or parsed.description is None:
            return parsed.code, ()
        # The answer was written without the output of the experiment, so the experiment counts, unless it comes too
        # late.
        if self._stopping.wants_answer(len(self.turns)):
            return "", (ReplyNote.NOT_RUN,)
        return parsed.code, (ReplyNote.SET_ASIDE,)

    def confirm(self) -> None:
        """Measures the contrasts of an accepted answer, if there is one and the task demands it. An answer that fails is
        sent back if a round and a turn are left: then the investigation has not `ended`.

        Raises ServiceError; the answer is in the journal.
        """
        answer = self.answer
        if answer is None or not (due := count_pairs(self.context, answer)):
            return
        started = time.monotonic()
        test = confirm(self.context, answer, self.turns)
        if (sent_back := self._sent_back(test, started)) is not None:
            self.turns[-1] = sent_back
            self.experiments.replace_latest(sent_back)
            self.journal.append(sent_back)
            return
        self.confirmation = test
        pairs = len(test.samples) // 2
        if pairs < due:
            self.notes += (f"the answer was tested with {pairs} of {due} pairs: no more usable near misses were found",)

    def _sent_back(self, test: Confirmation, started: float) -> Turn | None:
        """Returns the latest turn with a test that sends its answer back; None if the answer passes, or if it is the
        last one that the rounds and limits permit.
        """
        failed = list_failed(self.turns)
        faults = find_faults([*failed, test])
        if not faults or len(failed) >= self.task.rule.rounds or self._stopping.limit or self._stopping.is_closing:
            return None
        spent_before = self.context.services.ledger.spent()
        observation = make_feedback(self.context, test, faults, len(failed))
        described = self.context.services.ledger.since(spent_before)
        spent = {
            service: test.spent.get(service, ServiceUsage()) + described.get(service, ServiceUsage())
            for service in test.spent | described
        }
        test = replace(test, spent=spent)
        turn = replace(
            self.turns[-1],
            failed_test=FailedTest(confirmation=test, faults=faults, seconds=time.monotonic() - started),
            observation=observation,
            images=self.turns[-1].images | test.images,
        )
        # The test itself may use up the time: then this answer remains the last one.
        return None if self._stopping.limit_of([*self.turns[:-1], turn]) else turn

    @property
    def answer(self) -> ParsedReply | None:
        """The answer in the latest reply, if it was accepted."""
        return self._stopping.answer

    @property
    def ended(self) -> bool:
        """Whether the agent has answered or reached a limit."""
        return self.answer is not None or bool(self._stopping.limit)

    def record(self) -> Record:
        """Returns the record of the investigation so far."""
        answer = self.answer
        named, unknown = self._effects(answer)
        if answer is None:
            stop = Stop.LIMIT if self._stopping.limit else Stop.STOPPED
        else:
            stop = Stop.ANSWER if answer.description else Stop.ABSTAIN
        return Record(
            unit=self.unit,
            replicate=self.replicate,
            stop=stop,
            cause=self._stopping.limit if stop is Stop.LIMIT else "",
            description=(answer.description or "") if answer else "",
            labels=answer.labels if answer else (),
            effects=named,
            backbone=self.options.backbone,
            task=self.task.name,
            sandbox=self.sandbox.level.value,
            prompts=tuple(message.text for message in self._conversation.opening),
            turns=tuple(self.turns),
            config=self.options.config,
            preprocessing=self.options.preprocessing,
            started=self.started,
            notes=self.notes + tuple(f"[EFFECT] names {each!r}, which is no class of the network" for each in unknown),
            evidence=assess(
                self.task.rule, self.turns, self.task.answer, self.options.vocabulary, self._stopping.sent_back
            ),
            confirmation=self.confirmation,
        )

    def _effects(self, answer: ParsedReply | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The classes that an answer names, and what it names that is none."""
        if answer is None or self.options.effects is None:
            return (), ()
        return find_classes(answer.effect, self.options.effects.classes)


@cache
def read_api_source() -> str:
    """Returns the source of what the agent's code can call, as one module, without imports of this package."""
    own_imports = re.compile(r"^from openmaia\.[\w.]+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)
    tools = "\n\n".join(inspect.getsource(stub) for stub in built_in.stubs().values())
    listing = "".join(f"{name!r}: {name}, " for name in built_in.stubs())
    made = f"def stubs():\n    return {{{listing}}}\n"
    return "\n\n".join([inspect.getsource(values), tools, made, own_imports.sub("", inspect.getsource(api))])
