"""The plain predictive protocol: each description on its own images and on those of another unit of its layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from openmaia.evaluate.prompts import write
from openmaia.evaluate.statistics import CHANCE, auc
from openmaia.images import Picture
from openmaia.services import Generation, Generator, Probe, Target
from openmaia.store import tables
from openmaia.tools.seeds import seed
from openmaia.units import Unit

ROLES = ("positive", "neutral")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an investigation answered. labels: empty for an abstention."""

    unit: Unit
    replicate: int
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """An image made for a test. undrawn: words of the prompt that it lacks."""

    role: str
    label: str
    prompt: str
    picture: Picture
    undrawn: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """activations: one per stimulus; other_*: the same unit on the stimuli of another unit's description.

    A description that could not be drawn, and an abstention, count as failures: they score what chance scores.
    """

    unit: Unit
    replicate: int
    outcome: str
    stimuli: tuple[Stimulus, ...]
    activations: tuple[float, ...]
    other: Unit | None
    other_roles: tuple[str, ...]
    other_activations: tuple[float, ...]

    def _of(self, role: str) -> list[float]:
        return [a for s, a in zip(self.stimuli, self.activations, strict=True) if s.role == role]

    @property
    def scores(self) -> dict[str, Any]:
        positive, neutral = (self._of(role) for role in ROLES)
        others = [
            [a for r, a in zip(self.other_roles, self.other_activations, strict=True) if r == role] for role in ROLES
        ]
        return {
            "outcome": self.outcome,
            "positive": _mean(positive),
            "neutral": _mean(neutral),
            "auc": auc(positive, neutral) if self.outcome == "tested" else CHANCE,
            "auc_other": auc(*others) if self.other else None,
            "other": None if self.other is None else self.other.index,
        }


def stimuli(claim: Claim, generator: Generator, n: int, run_seed: int) -> tuple[Stimulus, ...]:
    """n positive and n neutral images from the `test` half, with seeds of their own. Empty for an abstention."""
    if not claim.labels:
        return ()
    pairs = write(claim.labels, n)
    shots = [(role, pair.label, getattr(pair, role), i) for role in ROLES for i, pair in enumerate(pairs)]
    requests = [
        Generation(prompt=prompt, seed=seed(run_seed, "evaluate", f"{claim.unit} pair {i}", 0), half="test")
        for _, _, prompt, i in shots
    ]
    drawn = generator.generate(requests)
    return tuple(
        Stimulus(role=role, label=label, prompt=prompt, picture=one.picture, undrawn=one.undrawn)
        for (role, label, prompt, _), one in zip(shots, drawn, strict=True)
    )


def is_drawn(made: Sequence[Stimulus]) -> bool:
    """Whether most of the positive images show what was asked."""
    positive = [not stimulus.undrawn for stimulus in made if stimulus.role == "positive"]
    return bool(positive) and sum(positive) * 2 > len(positive)


def score(
    claim: Claim, made: Sequence[Stimulus], other: tuple[Unit, Sequence[Stimulus]] | None, target: Target
) -> Evaluation:
    """other: another unit of the layer and the images of its description, as the control."""
    foreign = other[1] if other else ()
    pictures = [s.picture for s in (*made, *foreign)]
    answers = target.probe([Probe(unit=claim.unit, picture=p) for p in pictures]) if pictures else []
    values = [answer.value for answer in answers]
    outcome = "abstained" if not claim.labels else "tested" if is_drawn(made) else "undrawable"
    return Evaluation(
        unit=claim.unit,
        replicate=claim.replicate,
        outcome=outcome,
        stimuli=tuple(made),
        activations=tuple(values[: len(made)]),
        other=other[0] if other else None,
        other_roles=tuple(s.role for s in foreign),
        other_activations=tuple(values[len(made) :]),
    )


def partner(unit: Unit, drawn: Sequence[Unit]) -> Unit | None:
    """The unit whose images serve as the control: the next one of the same layer that has any, in the order of
    indices, starting over at the end."""
    layer = sorted(u for u in drawn if (u.target, u.layer) == (unit.target, unit.layer) and u != unit)
    return next((u for u in layer if u > unit), layer[0] if layer else None)


def to_parquet(evaluation: Evaluation) -> bytes:
    rows: list[dict[str, Any]] = [
        {
            "role": s.role,
            "label": s.label,
            "prompt": s.prompt,
            "activation": a,
            "undrawn": list(s.undrawn),
            "digest": s.picture.digest,
            "sources": list(s.picture.sources),
            "data": s.picture.webp(),
        }
        for s, a in zip(evaluation.stimuli, evaluation.activations, strict=True)
    ]
    rows += [
        {"role": f"other {role}", "activation": a}
        for role, a in zip(evaluation.other_roles, evaluation.other_activations, strict=True)
    ]
    schema = pa.schema(
        [
            ("role", pa.string()),
            ("label", pa.string()),
            ("prompt", pa.string()),
            ("activation", pa.float64()),
            ("undrawn", pa.list_(pa.string())),
            ("digest", pa.string()),
            ("sources", pa.list_(pa.string())),
            ("data", pa.binary()),
        ]
    )
    return tables.dump(rows, schema, {"version": 1, "scores": evaluation.scores})


def _mean(values: Sequence[float]) -> float | None:
    return float(f"{sum(values) / len(values):.5g}") if values else None
