"""One conversation with the unit of a config over the Model Context Protocol: every tool call is a turn."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ValidationError

from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import Task
from openmaia.agent.tasks.task import load as load_task
from openmaia.config.schema import Config
from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part, TurnKind
from openmaia.core.tools import BANK, BUILT_IN
from openmaia.models.backbones.chat_format import base64_png
from openmaia.runs.records import ImageEntry, Turn
from openmaia.serving.environment import Environment, Step
from openmaia.serving.mcp_tools import TOOLS, Answer, Arguments, Experiment, Hypotheses, Instructions, RunCode

_INSTRUCTIONS = (
    "A laboratory for one unit (neuron) of a vision network. Find out what it responds to: call `instructions` first, look at "
    "`dataset_exemplars`, test hypotheses with `text2image` and `edit_images`, measure images with `call_neuron`, and end with "
    "`answer`. Every call but `instructions` and `hypotheses` is a turn, and turns, time and images are limited."
)
_ASKED = "The experiments are used up: call `answer` now, based on what you have seen."


class SeenImage(BaseModel):
    """An image that a call returned."""

    id: str
    did: str
    """How the call came to it: drew, measured, …"""
    digest: str
    """Digest of its pixels."""
    prompt: str
    of: str
    missing: list[str]
    """Words of the prompt that could not be drawn."""
    activation: dict[str, float | bool] | None


class Outcome(BaseModel):
    """What a call did, beside its texts and images."""

    images: list[SeenImage] = []
    turn: int = 0
    """Turns so far."""
    turns: int
    """The limit."""
    expected: str
    """What the next call has to be: any, an experiment, a measurement or an answer."""
    done: bool = False
    record: str = ""
    """The file of the record, when the conversation has ended."""
    description: str = ""
    labels: list[str] = []


class RefusedCall(Exception):
    """A call that is answered with an error, and is no turn."""


def serve(config: Config, unit: str, say: Callable[[str], None] = lambda line: None) -> None:
    """Serves one conversation about a unit over stdin and stdout, until the client leaves. A conversation that has begun and
    has no answer then ends without one, with a record.

    Args:
        config: Its backbone is of the kind `external`, and its task about a unit, without choices.
        unit: Such as "layer4=122".
        say: Receives messages for the user, and must not write to stdout.

    Raises:
        UsageError: The run directory cannot be used.
    """
    # One thread: the sandbox ends with the thread that started it.
    with Environment(config, say) as environment, ThreadPoolExecutor(1, "laboratory") as thread:
        conversation = McpConversation(environment, unit, load_task(config.task.name))
        try:
            asyncio.run(_serve(conversation, thread))
        finally:
            thread.submit(conversation.leave).result()


async def _serve(conversation: "McpConversation", thread: ThreadPoolExecutor) -> None:
    async def list_tools(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(each) for each in conversation.tools.values()])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, conversation.call, params.name, params.arguments or {})

    server = Server("openmaia", instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _tool(arguments: type[Arguments]) -> types.Tool:
    schema = arguments.model_json_schema()
    return types.Tool(
        name=arguments.tool,
        description=" ".join((arguments.__doc__ or "").split()),
        input_schema={key: value for key, value in schema.items() if key != "description"},
        output_schema=Outcome.model_json_schema(),
    )


class McpConversation:
    """Turns tool calls into replies of the agent, and steps of the environment into results. Not thread-safe."""

    def __init__(self, environment: Environment, unit: str, task: Task):
        self._environment, self._unit, self._task = environment, unit, task
        config = environment.config
        has_bank = bool(config.bank.images or config.bank.folder)
        hidden = {*config.without, *(() if has_bank else (BANK,))} & set(BUILT_IN)
        self.tools = {name: each for name, each in TOOLS.items() if name not in hidden}
        self._step: Step | None = None
        self._replicate: int | None = None
        self._opening: Step | None = None
        self._count, self._known = 0, set[str]()
        self._hypotheses: Sequence[str] = ()
        self._ended = ""

    def call(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Answers a call. Never raises: what went wrong is the result."""
        try:
            return self._answered(self._parsed(name, arguments))
        except (RefusedCall, OpenMaiaError) as error:
            return _error(str(error))

    def leave(self) -> None:
        """Ends the conversation, with a record if it has turns, and closes the environment."""
        try:
            if self._step is not None and not self._step.done and self._count:
                self._environment.stop()
        finally:
            self._environment.close()

    def _parsed(self, name: str, arguments: dict[str, Any]) -> Arguments:
        kind = self.tools.get(name)
        if kind is None:
            raise RefusedCall(f"there is no tool {name[:60]!r}; there are {', '.join(self.tools)}")
        try:
            return kind.model_validate(arguments)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, each['loc']))[:60]}: {each['msg']}" for each in error.errors()[:5])
            raise RefusedCall(f"{name}: {'; '.join(faults)}") from None

    def _answered(self, arguments: Arguments) -> types.CallToolResult:
        step = self._begun()
        if self._ended:
            raise RefusedCall(f"{self._ended}; start the server again for another conversation")
        match arguments:
            case Instructions():
                opening = self._opening or step
                return self._result(step, [part for message in opening.messages for part in message.parts])
            case Hypotheses(hypotheses=hypotheses):
                self._hypotheses = self._checked(hypotheses)
                return self._result(step, [f"{len(hypotheses)} hypotheses are listed."])
            case Answer():
                return self._turn(self._answer(arguments))
            case RunCode():
                return self._turn(self._experiment(arguments))
            case Experiment():
                return self._turn(self._experiment(arguments), is_one_call=True)
            case _:
                raise AssertionError(arguments.tool)

    def _begun(self) -> Step:
        if self._step is None:
            self._step = self._environment.reset(self._unit, self._replicate)
            self._opening = self._opening or self._step
            self._replicate = self._environment.investigation.replicate if self._environment.investigation else None
            self._note_end(self._step)  # the journal may end with an answer whose test a service interrupted
        return self._step

    def _note_end(self, step: Step) -> None:
        if step.record is not None:
            cause = step.record.cause
            how = f"a limit was reached ({cause})" if cause else "the answer was accepted"
            self._ended = f"this conversation has ended: {how}; its record is {step.path}"

    # -- replies -----------------------------------------------------------------------------------------------------

    def _experiment(self, arguments: Experiment) -> str:
        if unknown := [each for each in arguments.ids() if each not in self._known]:
            raise RefusedCall(
                f"{arguments.tool}: there is no image {unknown[0][:60]!r}; use the ids that the tools returned"
            )
        code = arguments.code()
        reply = f"{self._listed()}[CODE]:\n{_fence(code)}python\n{code}\n{_fence(code)}"
        if parse(reply, self._task.answer).code != code.strip("\n"):
            raise RefusedCall(
                f"{arguments.tool}: this code cannot be told from the text around it; write it without fences"
            )
        return reply

    def _answer(self, given: Answer) -> str:
        form = self._task.answer
        if given.effects and not form.effect:
            raise RefusedCall("answer: the question does not ask for effects; leave them out")
        labels = "".join(f"\n[{form.labels} {n}]: {label}" for n, label in enumerate(given.labels, start=1))
        effects = "; ".join(given.effects)
        named = f"\n[{form.effect}]: {effects}" if effects else ""
        reply = f"{self._listed()}[{form.text}]: {given.description or 'NONE'}{labels}{named}"
        parsed = parse(reply, form)
        expected = " ".join(given.description.split())
        if (
            parsed.code
            or (parsed.description, parsed.effect) != (expected, effects)
            or (given.labels and list(parsed.labels) != given.labels)
        ):
            raise RefusedCall(
                "answer: the description has to be one paragraph, and each label one line of its own, different from the others, "
                "without placeholders, headings and code"
            )
        return reply

    def _listed(self) -> str:
        lines = "".join(f"{n}. {each}\n" for n, each in enumerate(self._hypotheses, start=1))
        return f"[HYPOTHESIS LIST]:\n{lines}\n" if lines else ""

    def _checked(self, hypotheses: Sequence[str]) -> Sequence[str]:
        before, self._hypotheses = self._hypotheses, hypotheses
        parsed = parse(self._listed(), self._task.answer)
        if list(parsed.hypotheses) != list(hypotheses) or parsed.code or parsed.description is not None:
            self._hypotheses = before
            raise RefusedCall("hypotheses: each has to be one line, such as 'H1: dogs', without headings and code")
        return hypotheses

    # -- results -----------------------------------------------------------------------------------------------------

    def _turn(self, reply: str, *, is_one_call: bool = False) -> types.CallToolResult:
        try:
            step = self._step = self._environment.step(reply)
        except UsageError:
            raise
        except Exception:
            self._step = None  # the next call goes on from the journal
            raise
        turn = step.turn
        if turn is None:
            self._count = 0
            self._known.clear()
            raise RefusedCall(
                "the process of the experiments was lost, and the conversation begins again: no image and no turn of it is left"
            )
        self._count += 1
        self._known.update(entry.id for call in turn.calls for entry in call.entries)
        self._note_end(step)
        failed = next((call.error for call in reversed(turn.calls) if call.error), None)
        # The traceback of code that the caller did not write says less than the tool.
        parts = [failed] if is_one_call and turn.raised and failed else self._parts(step, turn)
        return self._result(step, [*parts, *([self._ended] if self._ended else [])], turn)

    def _parts(self, step: Step, turn: Turn) -> list[Part]:
        """Returns what a backbone would be told after a turn. Of a repeated experiment, which it would not be shown again,
        the output.
        """
        is_shown = len(step.conversation) > 1 and step.conversation[-2].text == turn.reply
        if step.messages and (is_shown or not turn.code):
            parts = list(step.messages[-1].parts)
        else:
            sees = self._environment.config.backbone.sees == "images"
            parts = [part for part in turn.observation if sees or isinstance(part, str)]
        return [*parts, *([_ASKED] if step.expected is TurnKind.ANSWER else [])]

    def _result(self, step: Step, parts: Sequence[Part], turn: Turn | None = None) -> types.CallToolResult:
        record = step.record
        outcome = Outcome(
            images=[_seen(entry) for call in turn.calls for entry in call.entries] if turn else [],
            turn=self._count,
            turns=self._environment.config.limits.turns,
            expected=step.expected.value,
            done=step.done,
            record=step.path,
            description=record.description if record else "",
            labels=list(record.labels) if record else [],
        )
        is_error = turn is not None and bool(turn.code) and not turn.completed
        return types.CallToolResult(
            content=[_content(part) for part in parts], structured_content=outcome.model_dump(), is_error=is_error
        )


def _seen(entry: ImageEntry) -> SeenImage:
    return SeenImage(
        id=entry.id,
        did=entry.did.value,
        digest=entry.original,
        prompt=entry.prompt,
        of=entry.of,
        missing=list(entry.missing),
        activation=entry.activation,
    )


def _content(part: Part) -> types.TextContent | types.ImageContent:
    if isinstance(part, EncodedImage):
        return types.ImageContent(data=base64_png(part), mime_type="image/png")
    return types.TextContent(text=part.encode(errors="replace").decode())


def _error(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def _fence(code: str) -> str:
    """Returns a fence that is longer than any in the code; the usual one if there is none of less than 100 characters."""
    return next((fence for n in range(3, 100) if (fence := "`" * n) not in code), "```")
