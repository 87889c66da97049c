"""Writes investigations as the published MAIA code does, to folders <to>/<agent>/<model>/<layer>/<unit>/.

    history.json       the conversation: [{"role", "content": [{"type": "text" | "image_url", ...}]}]
    experiment.html    the same conversation as a page
    description.txt    the description, on one line
    label.txt          the first label
    eval_results.json  prompts and activations of the test of the labels, if there was one
    positive_images/   and negative_images/: the images of that test

As in that code, only investigations that ended with an answer may be written. Any other conversation may contain an
answer that was refused. This answer would look like the result of the investigation. `answers.py` reads the same
folders.
"""

import base64
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Message, Part, Role, assistant, system, user
from openmaia.core.units import Unit
from openmaia.runs.files import safe
from openmaia.runs.records import Record

_HEADINGS = {Role.SYSTEM: "System", Role.USER: "Experiment", Role.ASSISTANT: "MAIA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedImage:
    """An image with which the labels of a unit were tested."""

    prompt: str
    activation: float
    image: EncodedImage | None
    """None if the image was not kept."""


def locate_folder(to: Path, agent: str, unit: Unit) -> Path:
    """Returns the folder below `to` for an agent's investigation of a unit. Slashes in the agent's name separate folders."""
    return Path(to, *map(safe, agent.split("/")), safe(unit.target), safe(unit.layer), str(unit.index))


def rebuild_conversation(record: Record) -> list[Message]:
    """Returns the messages of an investigation: instructions, question, replies, and results of experiments."""
    opening = [user(text) if number else system(text) for number, text in enumerate(record.prompts)]
    exchanged = [m for turn in record.turns for m in (assistant(turn.reply), user(*turn.observation))]
    return [message for message in [*opening, *exchanged] if message.parts]


def render_history(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the content of history.json."""
    return [{"role": message.role.value, "content": [_content(part) for part in message.parts]} for message in messages]


def render_page(title: str, messages: Sequence[Message]) -> str:
    """Returns the content of experiment.html. All texts are escaped."""
    return "".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head><body>\n',
            f"<h1>{html.escape(title)}</h1>\n",
            *(line for message in messages for line in _lines(message)),
            "</body></html>\n",
        ]
    )


def render_evaluation(positive: Sequence[TestedImage], negative: Sequence[TestedImage]) -> dict[str, Any]:
    """Returns the content of eval_results.json from images that show the labels, and from neutral ones. Neither may be empty."""
    sides = {"positive": positive, "negative": negative}
    return {
        **{f"average_{name}_score": sum(one.activation for one in side) / len(side) for name, side in sides.items()},
        **{f"{name}_prompts": [one.prompt for one in side] for name, side in sides.items()},
        **{f"{name}_scores": [one.activation for one in side] for name, side in sides.items()},
    }


def write(
    folder: Path, record: Record, tested: tuple[Sequence[TestedImage], Sequence[TestedImage]] | None = None
) -> None:
    """Writes the files of an investigation that ended with an answer.

    Args:
        folder: The folder of the unit, which must not exist.
        record: The investigation.
        tested: Images that show the labels, and neutral images. None if the labels were not tested.

    Raises:
        FileExistsError: The folder exists.
    """
    folder.mkdir(parents=True)
    messages = rebuild_conversation(record)
    _write(folder / "experiment.html", render_page(str(record.unit), messages))
    _write(folder / "history.json", json.dumps(render_history(messages), ensure_ascii=False, indent=1))
    _write(folder / "description.txt", f"{record.description}\n")
    if record.labels:
        _write(folder / "label.txt", f"{record.labels[0]}\n")
    if tested and all(tested):
        _write(folder / "eval_results.json", json.dumps(render_evaluation(*tested), ensure_ascii=False, indent=1))
        for name, side in zip(("positive_images", "negative_images"), tested, strict=True):
            (folder / name).mkdir()
            for number, one in enumerate(side):
                if one.image is not None:
                    (folder / name / f"img_{number}.png").write_bytes(one.image.png)


def _write(path: Path, text: str) -> None:
    # A reply that was cut off inside an emoji ends with half of a surrogate pair, which UTF-8 cannot encode.
    path.write_bytes(text.encode(errors="replace"))


def _content(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": _data_url(part)}}


def _data_url(image: EncodedImage) -> str:
    return f"data:image/png;base64,{base64.b64encode(image.png).decode()}"


def _lines(message: Message) -> Iterator[str]:
    yield f"<h2>{_HEADINGS[message.role]}</h2>\n"
    for part in message.parts:
        if isinstance(part, str):
            yield f"<pre>{html.escape(part)}</pre>\n"
        else:
            yield f'<img alt="" src="{_data_url(part)}">\n'
