"""Turns records into pandas data frames."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from openmaia.reporting.browser.unit.captions import Captions
from openmaia.runs.records import Record

_IMAGES = ("turn", "call", "image", "prompt", "hypothesis", "activation", "percentile", "picture")
_TURNS = (
    "turn", "status", "hypotheses", "code", "reply", "reasoning", "observation", "calls", "images", "prompt_tokens", "generated_tokens",
    "seconds",
)  # fmt: skip


def images(record: Record) -> pd.DataFrame:
    """Returns a data frame with one row per image of an investigation on which the unit's activation is known.

    The images are those that the agent measured, and the exemplars that it asked for, in the order of the tool calls.
    An image that was measured again has another row.

    The columns are:

    - `turn`: number of the turn, from 0
    - `call`: number of the tool call in it, from 0
    - `image`: name of the image in the agent's code
    - `prompt`: the prompt, and the instruction if the image was edited; for an exemplar a text such as `top 1`
    - `hypothesis`: the hypothesis that the image tests, in the agent's words; empty if the agent named none
    - `activation`: the unit's activation on the image
    - `percentile`: percentage of dataset images with a lower activation; missing if unknown
    - `picture`: the image as a Pillow image

    Args:
        record: The record of the investigation.
    """
    return pd.DataFrame(list(_images(record)), columns=list(_IMAGES))


def turns(record: Record) -> pd.DataFrame:
    """Returns a data frame with one row per turn of an investigation.

    The columns are:

    - `turn`: number of the turn, from 0
    - `status`: how its experiment ended, as in `Turn.status`; empty if there is none
    - `hypotheses`: the hypotheses that the reply lists
    - `code`: the code of the experiment
    - `reply`: the whole text of the reply
    - `reasoning`: what the model wrote before the reply to reason about it, as far as it is known
    - `observation`: the text that the experiment printed and displayed
    - `calls`: the names of the tools that the code called
    - `images`: number of images for which these calls returned an activation
    - `prompt_tokens`, `generated_tokens`: numbers of tokens that the model received and generated
    - `seconds`: wall-clock time of the reply and the experiment

    Args:
        record: The record of the investigation.
    """
    rows = [
        {
            "turn": turn.index,
            "status": turn.status.value,
            "hypotheses": list(turn.hypotheses),
            "code": turn.code,
            "reply": turn.reply,
            "reasoning": turn.reasoning,
            "observation": "".join(part for part in turn.observation if isinstance(part, str)),
            "calls": [call.name for call in turn.calls],
            "images": sum(len(call.activations) for call in turn.calls),
            "prompt_tokens": turn.prompt_tokens,
            "generated_tokens": turn.generated_tokens,
            "seconds": turn.seconds,
        }
        for turn in record.turns
    ]
    return pd.DataFrame(rows, columns=list(_TURNS))


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
