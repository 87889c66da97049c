"""What investigations ask of the services: from the records of a run, or drawn from stated rates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from openmaia.costs.rates import Rates, ServiceRates
from openmaia.costs.simulation import Step, Trace
from openmaia.errors import UsageError
from openmaia.schema import POOLS
from openmaia.services import Spent
from openmaia.store.records import Record, Turn
from openmaia.store.run import Run

DRAWN = 2000
"""Investigations drawn from rates."""
MOST = 2000
"""Records that an estimate reads; of more, a sample."""
TOOLS = ("generator", "editor", "target", "backbone")
"""In this order a turn asks them: pictures are made before they are shown to the unit, and described after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of one service: a batch of n takes fixed + n * per_item seconds. max_batch, gpus: None where the source says
    nothing of them."""

    fixed: float
    per_item: float
    max_batch: int | None = None
    gpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """traces: one per investigation. tokens: (prompt, cached, generated) of each. source: where all of it comes from,
    in words. seconds: replica-seconds that each investigation took, by service; None where the traces are no sample of
    real investigations, and a bootstrap over them would say nothing."""

    traces: tuple[Trace, ...]
    tokens: tuple[tuple[int, int, int], ...]
    times: Mapping[str, Times]
    source: str
    seconds: Mapping[str, Sequence[float]] | None = None


def from_rates(rates: Rates, seed: int = 0) -> Workload:
    """Investigations drawn from the rates, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    weights = np.asarray([rates.turns.weights[turns] for turns in sorted(rates.turns.weights)], dtype=np.float64)
    lengths = random.choice(sorted(rates.turns.weights), size=DRAWN, p=weights / weights.sum())
    traces = tuple(_drawn(int(turns), rates, random) for turns in lengths)
    each = rates.per_turn.tokens
    return Workload(
        traces=traces,
        tokens=tuple((int(n) * each.prompt, int(n) * each.cached, int(n) * each.generated) for n in lengths),
        times={role: _times(getattr(rates.services, role)) for role in POOLS},
        source=rates.about,
    )


def _times(service: ServiceRates) -> Times:
    return Times(fixed=service.fixed, per_item=service.per_item, max_batch=service.max_batch, gpus=service.gpus)


def _drawn(turns: int, rates: Rates, random: np.random.Generator) -> Trace:
    steps: list[Step] = []
    for _ in range(turns):
        steps += [("backbone", 1), ("", rates.per_turn.sandbox_seconds)]
        for service in TOOLS:
            call = getattr(rates.per_turn.calls, service)
            if random.random() < call.share and call.requests:
                steps.append((service, call.requests))
    return steps


def from_records(run: Run, seed: int = 0) -> Workload:
    """What the finished investigations of a run asked and took. A request costs what it cost there on average, in the
    batches that it rode in there; how that would change with fuller ones cannot be told. Raises UsageError where
    there are no records."""
    done = sorted(run.done())
    if not done:
        raise UsageError(
            f"{run.files.root} has no records to take service times from; give --rates FILE, or leave it out"
        )
    chosen = np.random.default_rng(seed).permutation(len(done))[:MOST]
    records = [run.record(done[n]) for n in sorted(chosen)]
    return of(records, f"measured: {len(records)} records of {run.files.root}")


def of(records: Sequence[Record], source: str) -> Workload:
    requests: dict[str, int] = dict.fromkeys(POOLS, 0)
    seconds: dict[str, float] = dict.fromkeys(POOLS, 0.0)
    for record in records:
        for service, spent in record.spent.items():
            requests[service] += spent.requests
            seconds[service] += spent.seconds
    if not any(requests.values()):
        raise UsageError(f"{source}: these records hold no service times; give --rates FILE, or leave it out")
    return Workload(
        traces=tuple([step for turn in record.turns for step in _steps(turn)] for record in records),
        tokens=tuple(
            (
                sum(turn.prompt_tokens for turn in record.turns),
                sum(turn.cached_tokens for turn in record.turns),
                sum(turn.generated_tokens for turn in record.turns),
            )
            for record in records
        ),
        times={s: Times(fixed=0.0, per_item=seconds[s] / requests[s]) for s in POOLS if requests[s]},
        source=source,
        seconds={s: [r.spent.get(s, Spent()).seconds for r in records] for s in POOLS if requests[s]},
    )


def _steps(turn: Turn) -> list[Step]:
    """The reply, the experiment's own time, and all requests of the turn to each service as one call."""
    asked = {service: spent.requests for service, spent in turn.spent.items()}
    asked["backbone"] = asked.get("backbone", 0) - 1
    own = turn.experiment_seconds - math.fsum(call.seconds for call in turn.calls)
    steps: list[Step] = [("backbone", 1)] if turn.spent.get("backbone") else []
    if own > 0:
        steps.append(("", own))
    return steps + [(service, asked[service]) for service in TOOLS if asked.get(service, 0) > 0]
