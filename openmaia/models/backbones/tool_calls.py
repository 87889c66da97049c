"""Converts turns to function calls, one for an experiment and one for the answer, and back."""

import json
import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from openmaia.agent.tasks.grammar import parse
from openmaia.core.messages import AnswerFormat, Message, Role, TurnKind

EXPERIMENT, _ANSWER = "run_experiment", "answer"
INSTRUCTION = f"""

You do not write these messages as text. Instead of [CODE], call the function {EXPERIMENT}; instead of the answer, call
the function {_ANSWER}, once it can be called. Call one function per turn."""
OUTPUT_FOLLOWS = "The output is in the next message."
# Some models go on with empty lines after a call instead of ending their reply. A call never has so many in a row, even
# if its code is not escaped as JSON.
STOP = "\n" * 8
TRIED = 8  # opening braces from the start of a reply that may begin a call

JsonObject = dict[str, Any]


def functions(answer: AnswerFormat, expected: TurnKind = TurnKind.ANY) -> list[JsonObject]:
    """Returns the functions for the expected kinds of turns, in the format of the chat completions API."""
    names = {TurnKind.ANY: (EXPERIMENT, _ANSWER), TurnKind.ANSWER: (_ANSWER,)}.get(expected, (EXPERIMENT,))
    return [each for each in _functions(answer) if each["function"]["name"] in names]


def _functions(answer: AnswerFormat) -> list[JsonObject]:
    texts: JsonObject = {"type": "array", "items": {"type": "string"}}
    label: JsonObject = {"type": "string", "enum": list(answer.choices)} if answer.choices else {"type": "string"}
    effect: JsonObject = {"type": "string", "description": f"the text of [{answer.effect}], or an empty text"}
    return [
        _function(
            EXPERIMENT,
            "Runs one Python experiment. Its output comes back in the next message.",
            {
                "hypotheses": texts | {"description": "your hypotheses as they stand now, most likely first"},
                "code": {"type": "string", "description": "the Python code"},
            },
        ),
        _function(
            _ANSWER,
            "Ends the investigation with an answer that the outputs of the experiments support.",
            {
                answer.text.lower(): {"type": "string", "description": f"the text of [{answer.text}]; NONE to abstain"},
                "labels": {"type": "array", "items": label, "description": f"the text of each [{answer.labels}]"},
                **({answer.effect.lower(): effect} if answer.effect else {}),
            },
        ),
    ]


def _function(name: str, description: str, properties: JsonObject) -> JsonObject:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def convert_to_text(calls: Sequence[JsonObject], answer: AnswerFormat) -> str:
    """Converts the first call of a reply to the text of a turn; "" without one."""
    if not calls:
        return ""
    function: JsonObject = calls[0]["function"]
    given = _as_json(function.get("arguments"))
    try:
        arguments: Any = json.loads(given)
        if isinstance(arguments, str):  # some servers encode them twice
            arguments = json.loads(arguments)
    except (ValueError, RecursionError):
        # The agent is then told that its reply is no valid turn.
        return given
    if not isinstance(arguments, dict):
        return given
    if function.get("name") == EXPERIMENT:
        entries = "\n".join(f"{number}. {text}" for number, text in enumerate(_texts(arguments.get("hypotheses")), 1))
        listed = f"[HYPOTHESIS LIST]:\n{entries}\n\n" if entries else ""
        return f"{listed}[CODE]:\n```python\n{str(arguments.get('code', '')).strip()}\n```\n"
    numbered = not answer.choices
    labels = [
        f"[{answer.labels}{f' {number}' if numbered else ''}]: {text}"
        for number, text in enumerate(_texts(arguments.get("labels")), 1)
    ]
    effect = arguments.get(answer.effect.lower()) if answer.effect else ""
    effects = [f"[{answer.effect}]: {effect}"] if isinstance(effect, str) and effect.strip() else []
    return "\n".join([f"[{answer.text}]: {arguments.get(answer.text.lower(), '')}", *labels, *effects])


def find_calls(text: str, answer: AnswerFormat) -> list[JsonObject]:
    """Finds a call that a model wrote as text, in a form that its server does not recognise: a list of one, or none.

    It is a JSON object with the name of a function and at least one of its arguments, in an object `arguments` or
    `parameters`, or beside the name. Line breaks in strings need not be escaped.
    """
    decoder = json.JSONDecoder(strict=False)
    known = {EXPERIMENT: {"code"}, _ANSWER: {answer.text.lower(), "labels"}}
    for brace in islice(re.finditer(r"\{", text), TRIED):
        try:
            call: Any = decoder.raw_decode(text, brace.start())[0]
            arguments: Any = call.get("arguments", call.get("parameters", call))
            if isinstance(arguments, str):
                arguments = decoder.decode(arguments)
        except (ValueError, RecursionError):
            continue
        name = call.get("name")
        if isinstance(name, str) and isinstance(arguments, dict) and known.get(name, set()) & arguments.keys():
            return [{"function": {"name": name, "arguments": json.dumps(arguments)}}]
    return []


class StreamedCalls:
    """The function calls of a reply that still arrives in pieces. Only the first is kept: a turn has no others.

    A piece belongs to the call with its id; else to the one that began last among those of its index, or of all if it
    has no index. But a piece with another id and a name, or one after this call has all of its arguments, begins
    another call: some servers give all calls the same index, and others each piece another id.
    """

    def __init__(self):
        self.first: dict[str, str] = {"name": "", "arguments": ""}
        self._latest: JsonObject | None = None
        self._by_index: dict[Any, JsonObject] = {}
        self._by_id: dict[Any, JsonObject] = {}

    def extend(self, pieces: Sequence[JsonObject]) -> int:
        """Appends pieces. Returns the number of new characters in the arguments of the first call."""
        before = len(self.first["arguments"])
        for piece in pieces:
            index, function = piece.get("index"), piece.get("function") or {}
            id = piece.get("id")
            call = self._by_id.get(id) or (self._latest if index is None else self._by_index.get(index))
            if call is None or _begins_another(call, id, function):
                texts = self.first if self._latest is None else {"name": "", "arguments": ""}
                call = {"id": None, "texts": texts}
            self._latest = self._by_index[index] = call
            if id not in (None, ""):
                call["id"] = id if call["id"] is None else call["id"]
                self._by_id[id] = call
            name = function.get("name") or ""
            call["texts"]["name"] += "" if name == call["texts"]["name"] else name
            added = _as_json(function.get("arguments"))
            # Some servers send an empty object before the pieces.
            begun = "" if added and call["texts"]["arguments"] == "{}" else call["texts"]["arguments"]
            call["texts"]["arguments"] = begun + added
        return len(self.first["arguments"]) - before


def _begins_another(call: JsonObject, id: Any, function: JsonObject) -> bool:
    is_other = id not in (None, "") and call["id"] is not None and id != call["id"]
    if is_other and function.get("name"):
        return True
    if not is_other and (not function.get("name") or not function.get("arguments")):
        return False
    try:
        return isinstance(json.loads(call["texts"]["arguments"]), dict)
    except (ValueError, RecursionError):
        return False


def _as_json(arguments: Any) -> str:
    # Some servers send them as an object.
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def _texts(value: Any) -> list[str]:
    return [" ".join(str(text).split()) for text in value] if isinstance(value, list) else [str(value)] if value else []


def convert_to_calls(
    turns: Sequence[Message], answer: AnswerFormat, plain: Callable[[Message], JsonObject]
) -> list[JsonObject]:
    """Converts a conversation without its system message. `plain` converts all but the agent's turns."""
    converted: list[JsonObject] = []
    for number, message in enumerate(turns):
        # Mistral takes only ids of nine letters and digits.
        call = _call(message.text, f"call{number:05d}", answer) if message.role is Role.ASSISTANT else None
        if call is None:
            converted.append(plain(message))
        else:
            converted.append({"role": "assistant", "content": "", "tool_calls": [call]})
            # The API requires a result for each call, and a result cannot contain images.
            converted.append({"role": "tool", "tool_call_id": call["id"], "content": OUTPUT_FOLLOWS})
    return converted


def _call(text: str, id: str, answer: AnswerFormat) -> JsonObject | None:
    """None: the text holds neither an experiment nor an answer."""
    parsed = parse(text, answer)
    if parsed.code:
        name, arguments = EXPERIMENT, {"hypotheses": list(parsed.hypotheses), "code": parsed.code}
    elif parsed.description is not None:
        name = _ANSWER
        arguments = {answer.text.lower(): parsed.description or "NONE", "labels": list(parsed.labels)}
        arguments |= {answer.effect.lower(): parsed.effect} if answer.effect else {}
    else:
        return None
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
