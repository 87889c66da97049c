"""Records and what they are made of, for tests: small, but with every field in use."""

from typing import Any

import numpy as np

from openmaia.images import Picture
from openmaia.services import Spent
from openmaia.store.records import ImageEntry, Record, Stop, ToolCall, Turn
from openmaia.units import Unit

UNIT = Unit(target="net", layer="layer4", index=7)


def noise(seed: int, height: int = 24, width: int = 32) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture.of(pixels, [f"source-{seed}", "source"], recipe=f"recipe {seed}")


def turn(index: int = 0, **changes: Any) -> Turn:
    """One experiment that showed a picture of its own and, from the second turn on, the one of the turn before."""
    own = noise(index)
    seen = [own] if index == 0 else [own, noise(index - 1)]
    call = ToolCall(
        ordinal=0,
        name="call_neuron",
        arguments='["ü"]',
        arguments_digest="ab",
        result="[1.5]",
        error=None,
        entries=(
            ImageEntry(
                id=f"image-{index}",
                original=own.digest,
                mask=bytes(range(12)),
                activation={"value": 1.5, "percentile": 99.1, "z": 2.0, "fired": True},
            ),
            ImageEntry(id="image-b", original=own.digest, mask=None, activation=None),
        ),
        shown=("note: ’quoted’", *seen),
        asked=("a dog", "a dog"),
        seconds=0.25,
    )
    failed = ToolCall(
        ordinal=1,
        name="text2image",
        arguments="[]",
        arguments_digest="cd",
        result=None,
        error="an empty list",
        entries=(),
        shown=(),
        asked=(),
        seconds=0.5,
    )
    values: dict[str, Any] = {
        "index": index,
        "reply": f"[CODE]: reply {index} ☃",
        "code": "tools.display(1)",
        "hypotheses": ("dogs", "grass"),
        "forgiven": ("a missing colon",),
        "status": "ok",
        "calls": (call, failed),
        "observation": ("text", *seen),
        "output_digest": f"digest {index}",
        "prompt_tokens": 100,
        "cached_tokens": 10,
        "generated_tokens": 20,
        "left_out": "its oldest 2 images",
        "backbone_seconds": 1.5,
        "experiment_seconds": 0.5,
        "spent": {
            "backbone": Spent(requests=1, seconds=1.25, gpu_seconds=2.5),
            "target": Spent(requests=2, seconds=0.125, gpu_seconds=0.0625),
        },
        "pictures": {own.digest: own},
    }
    return Turn(**(values | changes))


def record(unit: Unit = UNIT, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "unit": unit,
        "replicate": 0,
        "stop": Stop.ANSWER,
        "cause": "",
        "description": "Dogs, “mostly”.",
        "labels": ("dog", "ünïcode ☃"),
        "backbone": "scripted",
        "task": "description",
        "sandbox": "full",
        "prompts": ("system", "user"),
        "turns": (turn(0), turn(1)),
        "config": {"name": "x", "target": {"layers": ["a", "b"]}, "tools": [], "limits": {"minutes": 0.1}},
        "started": 1234.5,
        "notes": ("restarted",),
    }
    return Record(**(values | changes))
