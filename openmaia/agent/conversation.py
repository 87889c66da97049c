"""The messages that the backbone receives in an investigation."""

from collections.abc import Iterator, Sequence

from openmaia.agent.context import InvestigationContext
from openmaia.agent.hints import find_hint, make_repetition_hint
from openmaia.agent.stopping import Stopping
from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.vocabulary import describe_vocabulary
from openmaia.core.errors import UsageError
from openmaia.core.messages import Message, Part, assistant, system, user
from openmaia.core.services import Services
from openmaia.core.units import OUTPUT, Unit
from openmaia.runs.records import CUT, SET_ASIDE, Turn


class Conversation:
    """The instructions, the question, and the turns with the outputs of their experiments. The caller goes on appending
    to `turns`.

    Raises UsageError if the task asks about a class, and the unit does not represent one.
    """

    def __init__(self, context: InvestigationContext, turns: Sequence[Turn], stopping: Stopping):
        self._task, self._options, self._turns, self._stopping = context.task, context.options, turns, stopping
        options, unit = context.options, context.unit
        description = api_text(options.user_tools, unit.scope, options.without)
        if options.vocabulary is not None:
            description += f"\n\n{describe_vocabulary(options.vocabulary)}"
        question = self._task.question(unit, lambda: find_class_name(unit, context.services))
        self.opening = (system(self._task.instructions(description, is_whole=not options.without)), user(question))
        """The instructions and the question."""

    def messages(self) -> list[Message]:
        """Returns all messages for the next reply, without turns that bring nothing new (see `Stopping.left_out`). If
        the last turn is one, the last message says so.
        """
        stopping, left_out = self._stopping, self._stopping.left_out
        # The more often a small model sees one of its own messages, the more surely it writes it again.
        shown = [turn for turn, is_left_out in zip(self._turns, left_out, strict=True) if not is_left_out]
        exchanged = [m for turn in shown for m in (assistant(turn.reply), user(*self._feedback(turn)))]
        messages = [*self.opening, *exchanged]
        if any(left_out[-1:]):
            is_due = stopping.wants_answer(len(self._turns))
            parts = [part for part in messages[-1].parts if part != self._task.final]
            final = [self._task.final] if is_due else []
            advice = make_repetition_hint(self._turns[-1], can_generate=stopping.can_generate and not is_due)
            messages[-1] = user(*parts, advice, *final)
        return messages

    def _feedback(self, turn: Turn) -> Iterator[Part]:
        """Yields the message to the agent after a turn."""
        if refusal := self._stopping.refusal(turn.index + 1):
            yield refusal
        elif CUT in turn.forgiven and not turn.code:
            yield self._task.repeated
        elif not turn.code:
            problem = parse(turn.reply, self._task.answer).problem
            yield f"{problem}\n{self._task.no_code}" if problem else self._task.no_code
        elif not turn.observation:
            yield "The experiment printed nothing and displayed nothing. Print the activations, or call tools.display.\n"
        yield from (part for part in turn.observation if isinstance(part, str) or self._options.sees_images)
        if advice := find_hint(turn):
            yield advice
        if SET_ASIDE in turn.forgiven:
            yield self._task.set_aside
        if self._stopping.wants_answer(turn.index + 1):
            yield self._task.final


def find_class_name(unit: Unit, services: Services) -> str:
    """Returns the name of the class that an output unit represents. Raises UsageError if the unit is not in the output
    layer, or the name is unknown.
    """
    classes = services.target.info().classes
    if unit.layer != OUTPUT or not 0 <= unit.index < len(classes):
        raise UsageError(
            f"the task asks about a class, and {unit} is none that has a name; give classes of a classifier as "
            f"units={OUTPUT}=NAME,NAME with {OUTPUT} among target.layers"
        )
    return classes[unit.index]
