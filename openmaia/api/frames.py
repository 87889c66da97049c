"""Turns records into pandas data frames."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from openmaia.reporting.browser.unit.captions import Captions
from openmaia.runs.records import Record

IMAGES = ("turn", "call", "image", "prompt", "hypothesis", "activation", "percentile", "picture")
TURNS = (
    "turn", "status", "hypotheses", "code", "reply", "observation", "calls", "images", "prompt_tokens", "generated_tokens",
    "seconds",
)  # fmt: skip


def images(record: Record) -> pd.DataFrame:
    """Returns a row for each image of an investigation with a known activation, in the order of the tool calls.

    Exemplars, which are dataset images, are among them. The columns are `turn` (the agent's reply) and `call` (the tool
    call in it), both numbered from 0, `image` (its name in the agent's code), `prompt` (or what was done to it),
    `hypothesis`, `activation`, `percentile` among the dataset images (missing if unknown) and `picture` (a Pillow
    image).
    """
    return pd.DataFrame(list(_images(record)), columns=list(IMAGES))


def turns(record: Record) -> pd.DataFrame:
    """Returns a row for each reply of the agent in an investigation.

    The columns are `turn` (from 0), `status` of the experiment (empty without one), `hypotheses`, `code`, `reply`,
    `observation` (the text that the experiment showed), `calls` (the names of the called tools), `images` (the number
    of measured images), `prompt_tokens`, `generated_tokens` and `seconds`.
    """
    rows = [
        {
            "turn": turn.index,
            "status": turn.status,
            "hypotheses": list(turn.hypotheses),
            "code": turn.code,
            "reply": turn.reply,
            "observation": "".join(part for part in turn.observation if isinstance(part, str)),
            "calls": [call.name for call in turn.calls],
            "images": sum(len(call.activations) for call in turn.calls),
            "prompt_tokens": turn.prompt_tokens,
            "generated_tokens": turn.generated_tokens,
            "seconds": turn.seconds,
        }
        for turn in record.turns
    ]
    return pd.DataFrame(rows, columns=list(TURNS))


def _images(record: Record) -> Iterator[dict[str, Any]]:
    captions, pictures = Captions.of(record), record.images
    for turn in record.turns:
        for call in turn.calls:
            for entry in call.entries:
                if entry.activation is None:
                    continue
                picture = pictures.get(entry.original)
                yield {
                    "turn": turn.index,
                    "call": call.ordinal,
                    "image": entry.id,
                    "prompt": captions.texts.get(entry.id, ""),
                    "hypothesis": entry.hypothesis,
                    "activation": float(entry.activation["value"]),
                    "percentile": entry.activation.get("percentile"),
                    "picture": picture.pil() if picture is not None and picture.data else None,
                }
