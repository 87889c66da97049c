"""Records and what they are made of, for tests: small, but with every field in use."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.runs import evidence, tables
from openmaia.runs.records import Did, ExperimentStatus, GivenImage, ImageEntry, Record, ReplyNote, Stop, ToolCall, Turn
from openmaia.runs.results import basis
from openmaia.runs.run import EVALUATION, InvestigationId, Run

UNIT = Unit(target="net", layer="layer4", index=7)

HOSTILE_NAMES = [
    "../../x", "a/b", "..", ".", ".hidden", "…/☃", "日本", "a b", "a%2Fb", "~", "-rf", "x\ny", "x\0y", "C:\\x", "*", "a.b",
    "/etc/passwd", "%2E%2E",
]  # fmt: skip
"""Names of targets and layers that must not become paths."""


def noise(seed: int, height: int = 24, width: int = 32) -> EncodedImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return EncodedImage.of(pixels, [f"source-{seed}", "source"], recipe=f"recipe {seed}")


def turn(index: int = 0, **changes: Any) -> Turn:
    """One experiment that showed an image of its own and, from the second turn on, that of the turn before."""
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
                did=Did.EDITED,
                prompt="a ’wug’",
                of="image-b",
                missing=("wug", "ü"),
                mask=bytes(range(12)),
                activation={"value": 1.5, "percentile": 99.1, "z": 2.0, "fired": True},
                seen=(4, 0, 28, 24),
            ),
            ImageEntry(id="image-b", original=own.digest, did=Did.BASE),
        ),
        shown=("note: ’quoted’", *seen),
        asked=("a dog", "a dog"),
        given=(GivenImage(id="image-b", is_masked=True), GivenImage(id="")),
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
        "reasoning": f"a draft {index} ☃",
        "code": "tools.display(1)",
        "hypotheses": ("dogs", "grass"),
        "forgiven": ("a missing colon",),
        "notes": (ReplyNote.SET_ASIDE,),
        "status": ExperimentStatus.OK,
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
            "backbone": ServiceUsage(requests=1, seconds=1.25, gpu_seconds=2.5),
            "target": ServiceUsage(requests=2, seconds=0.125, gpu_seconds=0.0625),
        },
        "images": {own.digest: own},
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


def plain(value: Turn) -> dict[str, Any]:
    """A turn as plain data that can be compared, with images by digest, sources and recipe."""
    return {
        **{key: field for key, field in asdict(value).items() if key not in ("images", "calls", "observation")},
        "calls": [asdict(replace(call, shown=())) for call in value.calls],
        "shown": [[getattr(part, "digest", part) for part in call.shown] for call in value.calls],
        "observation": [getattr(part, "digest", part) for part in value.observation],
        "images": {digest: (image.digest, image.sources, image.recipe) for digest, image in value.images.items()},
    }


def comparable(record: Record) -> dict[str, Any]:
    """Returns what two equal investigations have in common: everything but times and the machine's config sections."""

    def part(value: Part) -> str:
        return value if isinstance(value, str) else f"image {value.digest}"

    def call(made: ToolCall) -> tuple[Any, ...]:
        shown = [part(value) for value in made.shown]
        return made.name, made.arguments, made.result, made.error, shown, [entry.original for entry in made.entries]

    return {
        "unit": str(record.unit),
        "replicate": record.replicate,
        "answer": (record.stop.value, record.cause, record.description, list(record.labels)),
        "prompts": list(record.prompts),
        "evidence": evidence.to_json(record.evidence),
        "confirmation": (evidence.to_json(record.confirmation) or {}).get("samples"),
        "turns": [
            {
                "reply": turn.reply,
                "reasoning": turn.reasoning,
                "status": turn.status,
                "observation": [part(value) for value in turn.observation],
                "calls": [call(made) for made in turn.calls],
                "tokens": turn.tokens,
                "failed_test": turn.failed_test and (turn.failed_test.faults, turn.failed_test.confirmation.samples),
            }
            for turn in record.turns
        ],
    }


def bound(run: Run, investigation: InvestigationId, data: bytes) -> bytes:
    """The file of an evaluation as one of the answer that the run's record of an investigation holds."""
    rows, header = tables.load(data)
    row = run.summary(investigation)
    assert row is not None
    unit = {key: row[key] for key in ("target", "layer", "index")}
    answer = {key: row[key] for key in ("replicate", "description", "labels")}
    header["claim"] |= {"unit": unit, "basis": basis(row, run.identity())} | answer
    return tables.dump(rows, pq.read_schema(pa.BufferReader(data)).remove_metadata(), header)


def store_evaluation(run: Run, investigation: InvestigationId, data: bytes) -> None:
    """Stores an evaluation as that of the answer in the run's record, which is written if the run has none."""
    if not run.is_done(investigation):
        run.publish(record(investigation.unit, replicate=investigation.replicate, turns=()))
    run.write_artifact(EVALUATION, investigation, bound(run, investigation, data))
