"""The messages that the backbone receives in an investigation."""

from collections.abc import Iterator, Sequence

from openmaia.agent.context import InvestigationContext
from openmaia.agent.evidence.hints import find_hint, make_repetition_hint
from openmaia.agent.evidence.states import describe_standings
from openmaia.agent.evidence.stopping import Stopping
from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tools import built_in, effects
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.vocabulary import describe_vocabulary
from openmaia.core.errors import UsageError
from openmaia.core.messages import Message, Part, assistant, system, user
from openmaia.core.services import Services
from openmaia.core.units import OUTPUT, Unit
from openmaia.runs.records import ReplyNote, Turn


class Conversation:
    """The instructions, the question, and the turns with the outputs of their experiments. The caller goes on appending
    to `turns`.

    Raises UsageError if the task asks about a class, and the unit does not represent one.
    """

    def __init__(self, context: InvestigationContext, turns: Sequence[Turn], stopping: Stopping):
        self._task, self._options, self._turns, self._stopping = context.task, context.options, turns, stopping
        options, unit = context.options, context.unit
        available = {*built_in.available(context), *effects.available(context)}
        description = api_text(options.user_tools, unit.scope, options.without, available)
        if options.vocabulary is not None:
            description += f"\n\n{describe_vocabulary(options.vocabulary)}"
        question = self._task.question(unit, lambda: find_class_name(unit, context.services), states=options.states)
        instructions = self._task.instructions(description, is_whole=not options.without)
        self.opening = (system(instructions), user(question, *built_in.opening(context)))
        """The instructions and the question."""

    def messages(self) -> list[Message]:
        """Returns all messages for the next reply, without turns that bring nothing new (see `Stopping.left_out`). If
        the last turn is one, the last message says so.
        """
        stopping, left_out, count = self._stopping, self._stopping.left_out, len(self._turns)
        # The more often a small model sees one of its own messages, the more surely it writes it again.
        shown = [turn for turn, is_left_out in zip(self._turns, left_out, strict=True) if not is_left_out]
        is_repeated = any(left_out[-1:])
        messages = [*self.opening]
        for turn in shown:
            # After a message that is left out, the answer is asked for below.
            final = () if is_repeated and turn is shown[-1] else self._final(turn.index + 1)
            messages += [assistant(turn.reply), user(*self._feedback(turn), *final)]
        if is_repeated:
            final = self._final(count)
            advice = make_repetition_hint(self._turns[-1], can_generate=stopping.can_generate and not final)
            messages[-1] = user(*messages[-1].parts, advice, *final)
        return messages

    def _final(self, count: int) -> tuple[Part, ...]:
        """Returns what asks for the answer after so many turns; empty if it is not asked for."""
        return (self._task.final,) if self._stopping.wants_answer(count) else ()

    def _feedback(self, turn: Turn) -> Iterator[Part]:
        """Yields the message to the agent after a turn, without the request for its answer."""
        if turn.failed_test:
            pass  # the observation says it
        elif refusal := self._stopping.refusal(turn.index + 1):
            yield refusal
        elif ReplyNote.CUT in turn.notes and not turn.code:
            yield self._task.repeated
        elif not turn.code:
            problem = parse(turn.reply, self._task.answer).problem
            yield f"{problem}\n{self._task.no_code}" if problem else self._task.no_code
        elif not turn.observation:
            yield "The experiment printed nothing and displayed nothing. Print the activations, or call tools.display.\n"
        yield from (part for part in turn.observation if isinstance(part, str) or self._options.sees_images)
        if advice := find_hint(turn):
            yield advice
        if self._options.states:
            yield from filter(None, [describe_standings(self._turns[: turn.index + 1])])
        if ReplyNote.SET_ASIDE in turn.notes:
            yield self._task.set_aside


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
