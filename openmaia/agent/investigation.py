"""The state of one investigation, and what one turn of it is."""

import dataclasses
import inspect
import time
from collections.abc import Iterator
from functools import cache

from openmaia.agent.bench import Bench, Experiment
from openmaia.agent.confirm import confirm, is_due
from openmaia.agent.evidence import assess, refused, said, sent_back
from openmaia.agent.options import Options
from openmaia.errors import UsageError
from openmaia.messages import Chat, Message, Part, Reply, assistant, system, user
from openmaia.sandbox.spares import Spares
from openmaia.services import Services
from openmaia.store.evidence import Confirmation
from openmaia.store.journal import Journal
from openmaia.store.records import Record, Stop, Turn
from openmaia.tasks.grammar import Parsed, parse
from openmaia.tasks.task import Task
from openmaia.tools import api
from openmaia.tools.api_text import api_text
from openmaia.tools.seeds import seed
from openmaia.tools.toolbox import Surroundings, Toolbox
from openmaia.units import OUTPUT, Unit


class Investigation:
    """The state of one investigation. notes: what a reader of the record must know."""

    def __init__(
        self,
        unit: Unit,
        task: Task,
        services: Services,
        options: Options,
        replicate: int,
        journal: Journal,
        notes: tuple[str, ...] = (),
        spares: Spares | None = None,
    ):
        self.unit, self.task, self.services, self.options = unit, task, services, options
        self.replicate, self.journal = replicate, journal
        self.rule = task.rule.overridden(options.evidence)
        self.conversation = f"{unit}/{replicate}"
        self.run_seed = (
            seed(options.run_seed, "explore", f"replicate {replicate}", 0) if replicate else options.run_seed
        )
        instructions = task.instructions(api_text(options.user_tools, unit.scope, options.without))
        question = task.question(unit, self.rule, lambda: class_of(unit, services))
        self.opening = (system(instructions), user(question))
        # Last: whatever fails before this leaves no sandbox behind.
        self.spares = spares or Spares()
        self.sandbox = self.spares.take(
            api_source=api_source(),
            manifest={
                "tools": {name: tool.__doc__ or "" for name, tool in options.user_tools.items()},
                "scope": unit.scope.value,
            },
            limits=options.sandbox,
            allow_none=options.allow_none,
        )
        self.bench = Bench(
            self.sandbox, Toolbox(surroundings(unit, task, services, options, self.conversation, self.run_seed))
        )
        self.turns: list[Turn] = []
        self.notes = notes
        self.started = time.time()
        self.last: Parsed | None = None
        self.confirmation: Confirmation | None = None

    def __enter__(self) -> "Investigation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.spares.give_back(self.sandbox)

    def resume(self) -> None:
        done = self.journal.turns()
        self.bench.resume(done)
        self.turns.extend(done)
        if done:
            self.last = parse(done[-1].reply, self.task.answer)

    def turn(self) -> Turn:
        """One reply of the backbone and the experiment in it."""
        asked, before = time.monotonic(), self.services.ledger.spent()
        reply = self._ask()
        seconds = time.monotonic() - asked
        self.last = parse(reply.text, self.task.answer)
        experiment = self.bench.run(self.last.code) if self.last.code else None
        turn = self._turn(reply, self.last, experiment, seconds)
        turn = dataclasses.replace(turn, spent=self.services.ledger.since(before))
        self.turns.append(turn)
        self.bench.completed(turn)
        # The last turn is in the record a moment later, unless its answer is tested before.
        if not self.ended or is_due(self.unit, self.last, self.rule, self.task.answer):
            self.journal.append(turn)
        return turn

    def confirm(self) -> None:
        """The loop's own test of the answer. Where it fails the answer is in the journal."""
        self.confirmation = confirm(
            self.unit, self.last, self.turns, self.services, self.run_seed, self.rule, self.task.answer
        )

    @property
    def ended(self) -> bool:
        return self._answered or bool(self._limit)

    @property
    def _answered(self) -> bool:
        return self.last is not None and self.last.description is not None and not self._refused(len(self.turns))

    def _refused(self, count: int) -> str:
        """What is said to an answer in the last of so many turns that comes too early; "" where it is taken."""
        wanting = refused(self.rule, self.turns[:count], self.task.answer, self.options.soft_turns)
        return self.task.missing.replace("{missing}", said(wanting)) if wanting else ""

    @property
    def _limit(self) -> str:
        options = self.options
        reached = {
            f"limits.turns={options.turns}": len(self.turns) >= options.turns,
            f"limits.minutes={options.minutes:g}": sum(t.seconds for t in self.turns) >= options.minutes * 60,
            f"limits.tokens={options.tokens}": sum(t.tokens for t in self.turns) >= options.tokens,
        }
        return ", ".join(name for name, is_reached in reached.items() if is_reached)

    def record(self) -> Record:
        last = self.last
        stop = Stop.LIMIT
        if last is not None and last.description is not None:
            stop = Stop.ANSWER if last.description else Stop.ABSTAIN
        return Record(
            unit=self.unit,
            replicate=self.replicate,
            stop=stop,
            cause=self._limit if stop is Stop.LIMIT else "",
            description=(last.description or "") if last else "",
            labels=last.labels if last else (),
            backbone=self.options.backbone,
            task=self.task.name,
            sandbox=self.sandbox.level.value,
            prompts=tuple(message.text for message in self.opening),
            turns=tuple(self.turns),
            config=self.options.config,
            started=self.started,
            notes=self.notes,
            evidence=assess(self.rule, self.turns, self.task.answer, sent_back(self.turns, self.task.answer)),
            confirmation=self.confirmation,
        )

    def messages(self) -> list[Message]:
        """The conversation so far, as the backbone sees it."""
        said = [m for turn in self.turns for m in (assistant(turn.reply), user(*self._shown(turn)))]
        return [*self.opening, *said]

    # -- parts -------------------------------------------------------------------------------------------------------

    def _ask(self) -> Reply:
        chat = Chat(
            conversation=self.conversation,
            messages=self.messages(),
            seed=seed(self.run_seed, "explore", self.conversation, len(self.turns)),
            max_tokens=self.options.reply_tokens,
        )
        return self.services.backbone.reply([chat])[0]

    def _shown(self, turn: Turn) -> Iterator[Part]:
        if refusal := self._refused(turn.index + 1):
            yield refusal
        elif not turn.code:
            problem = parse(turn.reply, self.task.answer).problem
            yield f"{problem}\n{self.task.no_code}" if problem else self.task.no_code
        elif not turn.observation:
            yield "The experiment printed nothing and displayed nothing.\n"
        yield from turn.observation
        if turn.index + 1 >= self.options.soft_turns:
            yield self.task.final

    def _turn(self, reply: Reply, parsed: Parsed, experiment: Experiment | None, seconds: float) -> Turn:
        turn = Turn(
            index=len(self.turns),
            reply=reply.text,
            code=parsed.code,
            hypotheses=parsed.hypotheses,
            forgiven=parsed.forgiven,
            status="",
            calls=(),
            observation=(),
            output_digest="",
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            generated_tokens=reply.generated_tokens,
            left_out=reply.left_out,
            backbone_seconds=seconds,
            experiment_seconds=0.0,
        )
        if experiment is None:
            return turn
        return dataclasses.replace(
            turn,
            status=experiment.status,
            calls=experiment.calls,
            observation=experiment.observation,
            output_digest=experiment.output_digest,
            experiment_seconds=experiment.seconds,
            pictures=experiment.pictures,
        )


def class_of(unit: Unit, services: Services) -> str:
    """Raises UsageError for a unit that is no class, or none that has a name."""
    classes = services.target.info().classes
    if unit.layer != OUTPUT or not 0 <= unit.index < len(classes):
        raise UsageError(
            f"the task asks about a class, and {unit} is none that has a name; give classes of a classifier as "
            f"units={OUTPUT}=NAME,NAME with {OUTPUT} among target.layers"
        )
    return classes[unit.index]


def surroundings(
    unit: Unit, task: Task, services: Services, options: Options, conversation: str, run_seed: int
) -> Surroundings:
    return Surroundings(
        unit=unit,
        services=services,
        conversation=conversation,
        run_seed=run_seed,
        images_per_call=options.images_per_call,
        reply_tokens=options.reply_tokens,
        describe_prompt=task.describe,
        summarize_prompt=task.summarize,
        user_tools=options.user_tools,
        without=options.without,
        rendering=task.rendering,
    )


@cache
def api_source() -> str:
    return inspect.getsource(api)
