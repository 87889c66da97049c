"""Trials and evaluations as Parquet: a row per image with the responses of all units of its layer (float16)."""

import base64
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from openmaia.errors import StoreError
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.scores import Evaluation
from openmaia.evaluate.statistics import Values
from openmaia.evaluate.trials import Stimulus, Trial
from openmaia.store import tables
from openmaia.units import Unit

VERSION = 2

_COLUMNS = [
    ("role", pa.string()),
    ("label", pa.string()),
    ("prompt", pa.string()),
    ("digest", pa.string()),
    ("sources", pa.list_(pa.string())),
    ("undrawn", pa.list_(pa.string())),
    ("shows", pa.bool_()),
    ("verified_by", pa.string()),
    ("activation", pa.float64()),
    ("responses", pa.binary()),
    ("data", pa.binary()),
]
_SCHEMA = pa.schema(_COLUMNS)

LIGHT = tuple(name for name, _ in _COLUMNS if name != "data")
"""Everything but the images."""


def to_parquet(found: Trial | Evaluation) -> bytes:
    """responses: float16, one per unit of the layer, in deviations (see Trial.matrix)."""
    trial = found.trial if isinstance(found, Evaluation) else found
    rows = [
        {name: getattr(stimulus, name) for name in _SCHEMA.names if name != "responses"}
        | {"responses": response.tobytes()}
        for stimulus, response in zip(trial.stimuli, trial.matrix, strict=True)
    ]
    header: dict[str, Any] = {
        "version": VERSION,
        "claim": asdict(trial.claim),
        "trial": {name: getattr(trial, name) for name in ("outcome", "cause", "writer", "protocol", "standard")},
        "location": _packed(trial.location),
        "scale": _packed(trial.scale),
        "detection": dict(trial.detection),
    }
    if isinstance(found, Evaluation):
        header["scores"] = found.scores
        header["others"] = [
            [other.claim.unit.index, other.claim.replicate, other.claim.method] for other in found.others
        ]
    return tables.dump(rows, _SCHEMA, header)


def read_trial(data: bytes, *, light: bool = False) -> Trial:
    """light: without images. Raises StoreError for what is no evaluation."""
    rows, header = tables.load(data, "an evaluation", LIGHT if light else None)
    if header.get("version") != VERSION:
        raise StoreError(
            f"an evaluation of version {header.get('version')}; this OpenMAIA reads version "
            f"{VERSION}; remove the run's folder evaluation/ and evaluate it again"
        )
    try:
        matrix = [np.frombuffer(row.pop("responses"), np.float16) for row in rows]
        claim = header["claim"]
        return Trial(
            claim=Claim(**claim | {"unit": Unit(**claim["unit"]), "labels": tuple(claim["labels"])}),
            stimuli=tuple(_stimulus(row) for row in rows),
            matrix=np.stack(matrix) if matrix else np.zeros((0, 0), np.float16),
            location=_unpacked(header["location"]),
            scale=_unpacked(header["scale"]),
            detection=header["detection"],
            **header["trial"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"an evaluation that lacks something: {error!r}") from error


def _stimulus(row: tables.Row) -> Stimulus:
    values: tables.Row = row | {"sources": tuple(row["sources"]), "undrawn": tuple(row["undrawn"])}
    return Stimulus(**values)


def _packed(values: Values) -> str:
    return base64.b64encode(values.astype(np.float32).tobytes()).decode()


def _unpacked(text: str) -> Values:
    return np.frombuffer(base64.b64decode(text), np.float32).astype(np.float64)
