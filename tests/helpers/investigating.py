"""Investigations of a closed-form unit, in which recorded replies play the agent."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.evidence.hints import OTHERWISE, REPEATED
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.units import Unit
from openmaia.offline.collage import paint
from openmaia.runs.records import Record
from tests.conftest import REPOSITORY

UNIT = Unit(target="closed_form", layer="mono", index=0)
"""Responds to red."""
ANSWER = "[DESCRIPTION]: red things\n[LABEL 1]: red"
TESTED = """[HYPOTHESIS LIST]:
1. H1: red
2. H2: round things

[CODE]:
```python
own = tools.text2image(["a red circle"] * 3, hypothesis="H1")
controls = tools.text2image(["a blue circle", "a green circle"], hypothesis="not H1")
print(system.call_neuron(own + controls)[0])
```"""
LISTED = f"[HYPOTHESIS LIST]:\n1. H1: red\n\n{ANSWER}"


def code(text: str) -> str:
    """A reply with an experiment."""
    return f"[HYPOTHESIS LIST]:\n1. red\n\n[CODE]:\n```python\n{text}\n```"


def said(record: Record, turn: int) -> str:
    """The text that the experiment of a turn printed."""
    return "".join(part for part in record.turns[turn].observation if isinstance(part, str))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of drawn images, so that these tests need no package."""
    folder = tmp_path_factory.mktemp("drawn")
    random = np.random.default_rng(0)
    names = sorted(paint.PAINTS)
    for index in range(40):
        ground = paint.plain(paint.PAINTS[names[index % len(names)]], 224, random)
        fill = paint.plain(paint.PAINTS[names[index * 7 % len(names)]], 90, random)
        stamp = paint.shape(("circle", "square", "star")[index % 3], fill, 90, random)
        ground.paste(stamp, (index * 3, 40), stamp)
        ground.save(folder / f"{index}.png")
    return folder


def history(folder: Path, replies: tuple[str, ...]) -> Path:
    """A recording that the replay backbone plays."""
    path = folder / "history.json"
    path.write_text(json.dumps([{"role": "assistant", "content": reply} for reply in replies]))
    return path


def sources(pictures: Path, exemplars: Path) -> list[str]:
    """Closed-form units, with images in a folder. Nothing is demanded of an answer."""
    return [
        str(REPOSITORY / "configs/closed-form.yaml"),
        "pictures.kind=folder",
        "generator.parts=pictures",
        "editor.parts=pictures",
        f"pictures.folder={pictures}",
        f"paths.exemplars={exemplars}",
        "task.evidence.experiments=0",
        "task.evidence.labels=0",
        "task.evidence.words=0",
        "task.evidence.drawable=0",
    ]


def configured(
    pictures: Path, exemplars: Path, tmp_path: Path, replies: tuple[str, ...], more: tuple[str, ...]
) -> Config:
    """A config whose backbone gives these replies. Nothing is demanded of an answer unless `more`, overrides, say so."""
    replayed = ["backbone.kind=replay", f"backbone.record={history(tmp_path, replies)}"]
    return load([*sources(pictures, exemplars), *replayed, *more])


def heard_more(record: Record, turn: int) -> int:
    """The number of words that the agent hears after a turn, besides its own reply and the output of its experiment."""
    heard = record.turns[turn + 1].prompt_tokens - record.turns[turn].prompt_tokens
    return heard - len(record.turns[turn].reply.split()) - len(said(record, turn).split())


def repeated(*, can_generate: bool) -> str:
    """What the agent is told after a turn that repeats another."""
    return f"Hint: {REPEATED}{OTHERWISE if can_generate else ''}"


def heard(record: Record) -> list[int]:
    """The number of words that the conversation grows by with each turn but the last."""
    tokens = [turn.prompt_tokens for turn in record.turns]
    return [after - before for before, after in pairwise(tokens)]
