"""An investigation whose agent calls OpenMAIA, and not the other way round."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from openmaia.agent.loop import Dialogue, converse
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import backbones, datasets, generators, targets
from openmaia.assembly.evaluation import comparison
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, OutOfBudget, UsageError
from openmaia.core.messages import Chat, Message, Reply, Role, TurnKind
from openmaia.core.secrets import redacted
from openmaia.core.selection import select
from openmaia.core.services import Backbone
from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.truth import TruthMatch, match_truth
from openmaia.models.backbones.chat_format import openai_message
from openmaia.runs.lease import held
from openmaia.runs.records import Record, Turn
from openmaia.runs.run import InvestigationId, Run

if TYPE_CHECKING:
    from openmaia.assembly.single import SingleUnit
    from openmaia.exemplars.shared import ProgressCallback

MAX_REPLY = 1_000_000
"""Characters of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the agent gets at the beginning, or for a reply."""

    messages: tuple[Message, ...]
    """What is new: at the beginning the instructions and the question (with all turns, if an investigation goes on),
    then the output of the latest experiment, or what is wrong with the latest reply. Empty when it is over."""
    conversation: tuple[Message, ...]
    """All messages that a backbone would be sent now. Turns that brought nothing new are left out."""
    expected: TurnKind
    """What the next reply has to be."""
    done: bool
    """Whether the answer was accepted, or a limit was reached."""
    turn: Turn | None = None
    """The turn that the latest reply made, with its calls, activations and images."""
    record: Record | None = None
    """None until it is over."""
    path: str = ""
    """The file of the record."""
    match: TruthMatch | None = None
    """How the labels match what the unit is known to respond to. None until it is over, and if that is not known."""

    @property
    def reward(self) -> float | None:
        """1 if the answer is exact (see `TruthMatch`), otherwise 0. None where `match` is None."""
        return None if self.match is None else float(self.match.exact)

    @property
    def openai_messages(self) -> list[dict[str, Any]]:
        """`messages` for OpenAI's chat completions API, with images as `data:` URLs."""
        return [openai_message(message) for message in self.messages]


class Environment:
    """Investigations of units by an agent that gets messages and returns replies: one after the other, in this process.

    Limits, sandbox, evidence rule and records are those of an investigation by a backbone. The records are those of the
    run directory `config.name`, which nothing else can use meanwhile. A context manager, which closes it.
    """

    def __init__(
        self,
        config: Config,
        say: Callable[[str], None] = lambda line: None,
        progress: "ProgressCallback" = lambda done, total: None,
    ):
        """Creates the run directory, or opens it to add to it. Nothing is loaded yet.

        Args:
            config: Its backbone is of the kind `external`.
            say: Receives messages for the user.
            progress: Called with the number of finished images and of all images while exemplars are computed.

        Raises:
            UsageError: The run directory has another config, or another environment or command works on it.
        """
        self.config, self._say, self._progress = config, say, progress
        self.run = Run.create(config)
        # `held` takes the lease of its own process, for which two environments would be one.
        if self.run.is_driven(wait=True):
            raise UsageError(
                f"{self.run.files.root} is used by another environment or command; close it, or give this run another name "
                "(name=…)"
            )
        self._resources = ExitStack()
        self._resources.enter_context(held(self.run.files))
        self._dialogue: Dialogue | None = None
        self.investigation: InvestigationId | None = None
        """The latest one."""
        self._latest: Turn | None = None
        self._viewer = _Viewer(config)
        self._is_closed = False

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_units(self, spec: str) -> list[str]:
        """Returns the units that a text such as "layer4=1,2" names, as `reset` takes them. Raises UsageError if there is
        none.
        """
        units = select(spec, self._target.info(), load_task(self.config.task.name).scope).units
        return [f"{unit.layer}={unit.index}" for unit in units]

    def reset(self, unit: str, replicate: int | None = None) -> Step:
        """Begins an investigation. One in progress is left; its turns are kept.

        Args:
            unit: Such as "layer4=122".
            replicate: Replicates of a unit have seeds of their own. None: the first number that was not begun yet. One
                that was begun and has no record goes on after its last turn.

        Raises:
            UsageError: There is no such unit, or the replicate has a record.
            ServiceError: A model failed, or the budget of the run is spent (OutOfBudget).
        """
        if self._is_closed:
            raise UsageError(f"this environment was closed; open {self.run.files.root} again")
        self._leave()
        from openmaia.assembly.investigations import purse  # loads PyTorch, as `_prepare` does

        single = self._prepare(unit)
        number = self._free(single) if replicate is None else replicate
        self.investigation = InvestigationId(unit=single.unit, replicate=number)
        if self.run.is_done(self.investigation):
            raise UsageError(
                f"replicate {number} of {single.unit} has the record {self.run.record_path(self.investigation)}; leave "
                "replicate out to begin another one"
            )
        # The sum is that of the run directory, and an investigation that was left keeps no reserve.
        single.services.ledger.terms = purse(self.run, self.config).terms(f"{single.unit}/{number}")
        self._dialogue = converse(
            single.unit,
            single.task,
            single.services,
            single.options,
            replicate=number,
            journal=self.run.journal(self.investigation),
            observer=self._observe,
        )
        return self._advance(None)

    def step(self, reply: str | Reply) -> Step:
        """Executes the agent's reply. A `Reply` may say how many tokens it took, for `limits.tokens`.

        Raises:
            UsageError: No investigation is in progress, or the reply is no text of at most MAX_REPLY characters.
            ServiceError: A model failed. `reset` with the same replicate goes on after the last turn.
            SandboxError: The sandbox failed. As for ServiceError.
        """
        given = reply if isinstance(reply, Reply) else None
        text = _checked(reply if given is None else given.text)
        return self._advance(given or Reply(text=text))

    def stop(self) -> Step:
        """Ends the investigation in progress without an answer, with a record. Raises UsageError if there is none."""
        self._check()
        return self._advance(None)

    def close(self) -> None:
        """Leaves the investigation in progress, and gives the run directory back."""
        try:
            self._leave()
            if not self._is_closed and self.run.done():
                write_summary(self.run)
        finally:
            self._is_closed = True
            self._resources.close()

    def _check(self) -> Dialogue:
        if self._dialogue is None:
            raise UsageError("no investigation is in progress; call reset(unit)")
        return self._dialogue

    def _advance(self, reply: Reply | None) -> Step:
        dialogue, self._latest = self._check(), None
        try:
            return self._asked(dialogue.send(reply))
        except StopIteration as end:
            self._dialogue = None
            return self._finished(end.value)
        except OutOfBudget:  # no failure: a larger budget continues
            self._dialogue = None
            raise
        except Exception as error:
            self._dialogue = None
            assert self.investigation is not None
            message = error.message if isinstance(error, OpenMaiaError) else redacted(str(error))
            self.run.fail(self.investigation, f"{type(error).__name__}: {message}")
            raise
        except BaseException:  # an interrupt ended the dialogue; the journal holds the completed turns
            self._dialogue = None
            raise

    def _asked(self, chat: Chat) -> Step:
        conversation = tuple(chat.messages)
        # After a turn without a trace the investigation was restarted, and the agent has to begin again, too.
        goes_on = self._latest is not None and any(message.role is Role.ASSISTANT for message in conversation)
        return Step(
            messages=conversation[-1:] if goes_on else conversation,
            conversation=conversation,
            expected=chat.expected,
            done=False,
            turn=self._latest,
        )

    def _finished(self, record: Record) -> Step:
        path = self.run.record_path(self.run.add(record))
        claim = Claim(
            unit=record.unit, replicate=record.replicate, description=record.description, labels=record.labels
        )
        similarities, truths = self._comparison
        return Step(
            messages=(),
            conversation=(),
            expected=TurnKind.ANY,
            done=True,
            turn=self._latest,
            record=record,
            path=path,
            match=next(iter(match_truth([claim], truths, similarities[:1])), None),
        )

    def _observe(self, turn: Turn) -> None:
        self._latest = turn

    def _leave(self) -> None:
        if self._dialogue is not None:
            self._dialogue.close()
            self._dialogue = None

    def _free(self, single: "SingleUnit") -> int:
        begun = self.run.done() | set(self.run.turns_begun())
        taken = {each.replicate for each in begun if each.unit == single.unit}
        return next(number for number in count() if number not in taken)

    def _prepare(self, unit: str) -> "SingleUnit":
        from openmaia.assembly.single import prepare  # loads PyTorch, for which a client need not wait

        self.run.bind(self._target.info())
        return prepare(
            self.config,
            unit,
            self._say,
            self._progress,
            target=self._target,
            dataset=self._dataset,
            backbone=self._viewer,
            generator=self._generator,
            editor=self._editor,
        )

    # -- loaded at the first investigation ---------------------------------------------------------------------------

    @cached_property
    def _target(self) -> "targets.ReadableTarget":
        return targets.target(self.config)

    @cached_property
    def _dataset(self) -> Any:
        return datasets.image_dataset(self.config, self._say)

    @cached_property
    def _generator(self) -> Any:
        return generators.generator(self.config)

    @cached_property
    def _editor(self) -> Any:
        return generators.editor(self.config, self._generator)

    @cached_property
    def _comparison(self) -> Any:
        return comparison(self.config, None, self._target.info())


@dataclass
class _Viewer:
    """Loads the viewer of a config when something is asked about an image: an agent that sees images may never ask."""

    config: Config

    @cached_property
    def _model(self) -> Backbone:
        return backbones.viewer(self.config)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._model.reply(chats)


def _checked(reply: object) -> str:
    if not isinstance(reply, str) or len(reply) > MAX_REPLY:
        given = f"{len(reply)} characters" if isinstance(reply, str) else type(reply).__name__
        raise UsageError(f"a reply is a text of at most {MAX_REPLY} characters, not {given}")
    return reply
