"""What MAIA leaves of each unit: <path>/<agent>/<model>/<layer>/<unit>/, the agent's name of one or more folders.

history.json       the conversation: [{"role", "content": [{"type": "text" | "image_url", ...}]}]; of successes only
experiment.html    the same as a page
description.txt    the answer's first line
label.txt          a label, rarely
eval_results.json  scores of the published evaluation
"""

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from openmaia.images import Picture, decode
from openmaia.interchange import experiment_html, reading
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused
from openmaia.messages import Message, Part, Role
from openmaia.units import Unit

FILES = ("history.json", "experiment.html", "description.txt", "label.txt", "eval_results.json")
MARKS = ("history.json", "experiment.html", "description.txt")
"""A folder with one of these is a unit's."""

NOTE_BYTES = 1_000_000

_DESCRIPTION = re.compile(r"\[DESCRIPTION\][*_]*:?[*_]*", re.IGNORECASE)
_NEXT = re.compile(r"\n[ \t*_#]*\[")
_LABEL = re.compile(r"\[LABEL(?:[ \t]*\d+)?\][*_]*:?[*_]*[ \t]*\n?[ \t]*([^\n\[]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of the published evaluation. positive, negative: the unit's activations on images made from the prompts."""

    average_positive: float
    average_negative: float
    positive_prompts: tuple[str, ...]
    negative_prompts: tuple[str, ...]
    positive: tuple[float, ...]
    negative: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """description: empty where the agent came to no answer. notes: what could not be read, in words."""

    unit: Unit
    agent: str
    description: str
    labels: tuple[str, ...]
    turns: tuple[Message, ...]
    scores: Scores | None
    notes: tuple[str, ...] = ()

    def as_label(self, source: str) -> Label | None:
        said = self.labels or ((self.description,) if self.description else ())
        if not said:
            return None
        score = self.scores and self.scores.average_positive
        kind = "" if score is None else "mean activation on its own images"
        return Label(
            method=self.agent,
            target=self.unit.target,
            layer=self.unit.layer,
            unit=self.unit.index,
            labels=said,
            score=score,
            score_kind=kind,
            source=source,
        )


def read(folder: Path, root: Path, target: str = "") -> Result:
    """root: where the search began; what lies between it and the model is the agent's name. Raises Refused."""
    if not re.fullmatch(r"\d{1,9}", folder.name):
        raise Refused(f"is named {folder.name[:40]!r}; expected a unit's number, AGENT/MODEL/LAYER/UNIT")
    notes: list[str] = []
    turns = _turns(folder, notes)
    description, labels = answer(turns)
    description = description or _note(folder, "description.txt", notes)
    lone = _note(folder, "label.txt", notes)
    between = folder.relative_to(root).parts[:-3]
    layer, model = folder.parent, folder.parent.parent
    found = Result(
        unit=Unit(target=target or model.name, layer=layer.name, index=int(folder.name)),
        agent="/".join(between) or model.parent.name or "unknown",
        description=description,
        labels=labels or ((lone,) if lone else ()),
        turns=turns,
        scores=_scores(folder, notes),
        notes=tuple(notes),
    )
    if not (found.turns or found.description):
        raise Refused("; ".join(notes) or "holds neither a conversation nor an answer")
    return found


def answer(turns: tuple[Message, ...]) -> tuple[str, tuple[str, ...]]:
    """(description, labels) of the last reply that describes; of several descriptions in it the last."""
    for message in reversed(turns):
        if message.role is Role.ASSISTANT and (headings := list(_DESCRIPTION.finditer(message.text))):
            said = message.text[headings[-1].end() :]
            following = _NEXT.search(said)
            labels = [label.strip(" *_\t") for label in _LABEL.findall(message.text)]
            description = " ".join(said[: following.start() if following else None].split()).strip("*_ ")
            return description, tuple(dict.fromkeys(label for label in labels if label))
    return "", ()


def _turns(folder: Path, notes: list[str]) -> tuple[Message, ...]:
    if (folder / "history.json").is_file():
        try:
            return _history(reading.json_data(folder / "history.json"), notes)
        except Refused as error:
            notes.append(f"history.json {error.message}")
    if (folder / "experiment.html").is_file():
        try:
            page = experiment_html.parse(reading.text(folder / "experiment.html", reading.JSON_BYTES))
            return tuple(_message(Role(role), parts, notes) for role, parts in page)
        except Refused as error:
            notes.append(f"experiment.html {error.message}")
    return ()


def _history(data: Any, notes: list[str]) -> tuple[Message, ...]:
    if not isinstance(data, list):
        raise Refused("is no list of messages")
    return tuple(_entry(number, entry, notes) for number, entry in enumerate(cast(list[Any], data)))


def _entry(number: int, entry: Any, notes: list[str]) -> Message:
    fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if role not in tuple(Role) or not isinstance(content, str | list):
        raise Refused(f"has no role and content in message {number}")
    parts = [content] if isinstance(content, str) else [_said(number, part) for part in cast(list[Any], content)]
    return _message(Role(role), parts, notes)


def _said(number: int, part: Any) -> str:
    """The text or the address of a part."""
    fields = cast(dict[str, Any], part) if isinstance(part, dict) else {}
    address: Any = fields.get("image_url")
    said: Any = cast(dict[str, Any], address).get("url") if isinstance(address, dict) else fields.get("text")
    if isinstance(part, str):
        said = part
    if not isinstance(said, str):
        raise Refused(f"has a part without text and image in message {number}")
    return said


def _message(role: Role, parts: list[str], notes: list[str]) -> Message:
    return Message(role=role, parts=tuple(_part(part, notes) for part in parts))


def _part(said: str, notes: list[str]) -> Part:
    """An inline image whatever type it claims: the published code calls its PNG files JPEG. Nothing is fetched."""
    if not said.startswith("data:image/"):
        return said
    try:
        data = base64.b64decode(said.partition(",")[2], validate=True)
        decode(data)
    except (binascii.Error, ValueError) as error:
        notes.append(f"an image cannot be read ({error})")
        return "(an image that cannot be read)"
    return Picture(data=data)


def _note(folder: Path, name: str, notes: list[str]) -> str:
    if not (folder / name).is_file():
        return ""
    try:
        return " ".join(reading.text(folder / name, NOTE_BYTES).split())
    except Refused as error:
        notes.append(f"{name} {error.message}")
        return ""


def _scores(folder: Path, notes: list[str]) -> Scores | None:
    if not (folder / "eval_results.json").is_file():
        return None
    try:
        data: Any = reading.json_data(folder / "eval_results.json")
        return Scores(
            average_positive=_finite(data["average_positive_score"]),
            average_negative=_finite(data["average_negative_score"]),
            positive_prompts=tuple(map(str, data["positive_prompts"])),
            negative_prompts=tuple(map(str, data["negative_prompts"])),
            positive=tuple(map(_finite, data["positive_scores"])),
            negative=tuple(map(_finite, data["negative_scores"])),
        )
    except Refused as error:
        notes.append(f"eval_results.json {error.message}")
    except (KeyError, TypeError, ValueError) as error:
        notes.append(f"eval_results.json lacks something ({error})")
    return None


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError("a score is not finite")
    return number
