"""Reads answers of agents as the published MAIA code stores them, from folders <path>/<agent>/<model>/<layer>/<unit>/.

    history.json       the conversation: [{"role", "content": [{"type": "text" | "image_url", ...}]}];
                       missing if the investigation ended without an answer
    experiment.html    the same conversation as a page
    description.txt    the first line of the answer
    label.txt          a label; rarely present
    eval_results.json  the MAIA code's test of the labels: prompts, activations and mean activations

The part <agent> may consist of several nested folders.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import load as load_task
from openmaia.interop import reading
from openmaia.interop.labels import Label, TestedPrompts
from openmaia.interop.reading import Refused
from openmaia.runs.files import unsafe

ANSWER_FILES = ("history.json", "experiment.html", "description.txt", "label.txt", "eval_results.json")
MARKS = ANSWER_FILES[:3]
"""A folder that contains one of these files counts as the folder of an investigated unit."""

_NOTE_BYTES = 1_000_000
"""Maximum size of description.txt and label.txt."""

SCORE_KIND = "mean activation on its own images"

_T = TypeVar("_T")


def read(folder: Path, root: Path, target: str = "") -> tuple[Label, list[str]]:
    """Reads the answer about one unit from a folder <root>/<agent>/<model>/<layer>/<unit>.

    Args:
        folder: The folder of the unit.
        root: The imported folder.
        target: Empty for the name of the model's folder.

    Returns:
        The answer, whose score is the mean activation on images that show the labels, and one message for each file that
        could not be read.

    Raises:
        Refused: The folder's name is not the number of a unit, or the folder holds no answer.
    """
    if not re.fullmatch(r"\d{1,9}", folder.name):
        raise Refused(f"is named {folder.name[:40]!r}; expected a unit's number, AGENT/MODEL/LAYER/UNIT")
    problems: list[str] = []

    def attempt(name: str, parser: Callable[[Path], _T], default: _T) -> _T:
        try:
            return parser(folder / name) if (folder / name).is_file() else default
        except Refused as error:
            problems.append(f"{name} {error.message}")
            return default

    replies = attempt("history.json", _history_replies, []) or attempt("experiment.html", _page_replies, [])
    description, labels = find_answer(replies)
    if not labels:
        description = attempt("description.txt", _line, "")
        labels = tuple(filter(None, (attempt("label.txt", _line, ""), description)))[:1]
    if not labels:
        raise Refused("; ".join(problems) or "holds no answer")
    score, positive, negative = attempt("eval_results.json", _evaluation, (None, (), ()))
    layer, model = folder.parent, folder.parent.parent
    label = Label(
        method="/".join(map(unsafe, folder.relative_to(root).parts[:-3])) or unsafe(model.parent.name) or "unknown",
        target=target or unsafe(model.name),
        layer=unsafe(layer.name),
        unit=int(folder.name),
        labels=labels,
        description=description,
        score=score,
        score_kind="" if score is None else SCORE_KIND,
        positive=positive,
        negative=negative,
        source=str(folder.relative_to(root)),
    )
    return label, problems


def find_answer(replies: list[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the description and the labels in the last reply with a description. Both are empty if there is none.

    Without labels, the description is the only label.
    """
    format = load_task("description").answer
    for reply in reversed(replies):
        if (parsed := parse(reply, format)).description:
            return parsed.description or "", tuple(dict.fromkeys(parsed.labels))
    return "", ()


def _history_replies(path: Path) -> list[str]:
    data = reading.read_json(path)
    if not isinstance(data, list):
        raise Refused("is no list of messages")
    try:
        return [_text(message["content"]) for message in cast(list[Any], data) if message["role"] == "assistant"]
    except (KeyError, TypeError) as error:
        raise Refused(f"has messages without role and content ({error})") from error


def _text(content: Any) -> str:
    """Returns the text of a message, whose content is a string or a list of parts. Parts without text are ignored."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return "\n".join(str(part["text"]) for part in parts if part["type"] == "text")


def _page_replies(path: Path) -> list[str]:
    """Returns the agent's replies in experiment.html."""
    # Texts are not escaped in it, so that it cannot be parsed as HTML.
    parts = [
        part.partition("<pre>")[2].partition("</pre>") for part in reading.read_text(path).split("<h2>MAIA</h2>")[1:]
    ]
    return [reply for reply, closing, _ in parts if closing]


def _line(path: Path) -> str:
    return " ".join(reading.read_text(path, _NOTE_BYTES).split())


def _evaluation(path: Path) -> tuple[float | None, TestedPrompts, TestedPrompts]:
    """Returns the mean activation on the images of the labels, and the prompts with their activations: those of the labels, and
    neutral ones.
    """
    data = reading.read_json(path)
    try:
        score = float(data["average_positive_score"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"has no average_positive_score ({error})") from error
    if not math.isfinite(score):
        raise Refused("has an average_positive_score that is not finite")
    return score, _tested(data, "positive"), _tested(data, "negative")


def _tested(data: dict[str, Any], side: str) -> TestedPrompts:
    prompts, scores = data.get(f"{side}_prompts", []), data.get(f"{side}_scores", [])
    try:
        tested = tuple((str(prompt), float(score)) for prompt, score in zip(prompts, scores, strict=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(f"has {side}_prompts and {side}_scores that do not match ({error})") from error
    if not all(math.isfinite(activation) for _, activation in tested):
        raise Refused(f"has a score in {side}_scores that is not finite")
    return tested
