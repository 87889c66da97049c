"""Determines how investigations use the services, from the records of a run or from rates in a YAML file."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmaia.agent.tasks.task import evidence_values
from openmaia.agent.tasks.task import load as load_task
from openmaia.analysis.costs.rates import CoreRates, core_rates, find_rates, services_of
from openmaia.config.loading import differing_keys, to_dict
from openmaia.config.machine import POOLS, TEST_GENERATOR
from openmaia.config.schema import Config
from openmaia.config.sections import site
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.selection import count
from openmaia.core.services import ServiceUsage
from openmaia.runs.files import Files
from openmaia.runs.records import Record, Turn
from openmaia.runs.run import EXTENSIBLE, Run

_LARGEST = 2000
"""Maximum number of records that are read."""

_TOOLS = ("generator", "editor", "target", "backbone")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPool:
    """A pool in which a batch of n requests takes `fixed` + n * `per_item` seconds."""

    fixed: float
    per_item: float
    replicas: int = 1
    max_batch: int = 1
    gpus: float = 0.0
    """Number of GPUs of each replica."""

    @property
    def per_request(self) -> float:
        """Replica-seconds per request in a full batch, which is the smallest possible value."""
        return self.fixed / self.max_batch + self.per_item


class Asked(NamedTuple):
    """What one investigation asks of a service: calls, and the requests in them."""

    calls: float
    requests: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What an investigation asks of the services on average, and how long these take."""

    asked: Mapping[str, Asked]
    experiments: float
    """Seconds of an investigation's experiments in which no service works."""
    tokens: npt.NDArray[np.float64]
    """(3,): numbers of prompt tokens, cached prompt tokens and generated tokens of an investigation."""
    timed: Mapping[str, TimedPool]
    """For each service whose times are known, a pool of one replica. Its `gpus` is that of the replica that was timed; 0
    if unknown."""
    source: str
    """The origin of the numbers, in words."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each service of `timed` with a time of its own, where that was measured, in words."""
    unrated: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each service whose time is not known, what is not, in words."""
    cores: CoreRates | None = None
    """For a run without GPUs whose components were measured, what a whole run takes."""


def join_edits(work: Workload) -> Workload:
    """Returns a copy in which the generator has the requests of the editor, too, and the mean times of both; the workload itself if
    it lacks one of them."""
    if not {"generator", "editor"} <= work.timed.keys() & work.asked.keys():
        return work
    draws, edits = work.asked["generator"], work.asked["editor"]
    drawing, editing = work.timed["generator"], work.timed["editor"]
    share = edits.requests / max(draws.requests + edits.requests, 1e-9)
    both = replace(
        drawing,
        fixed=(1 - share) * drawing.fixed + share * editing.fixed,
        per_item=(1 - share) * drawing.per_item + share * editing.per_item,
    )
    joined = Asked(draws.calls + edits.calls, draws.requests + edits.requests)
    return replace(
        work,
        asked={role: joined if role == "generator" else each for role, each in work.asked.items() if role != "editor"},
        timed={role: both if role == "generator" else each for role, each in work.timed.items() if role != "editor"},
    )


def from_rates(config: Config, path: str = "", card: str = "", *, is_on_gpus: bool = False) -> Workload:
    """Reads the workload of a config from measured rates (`find_rates`, with its arguments and errors).

    The rounds of its stopping rule are all counted, as if every answer failed. Each takes one reply, and the images of one
    test.
    """
    rates, cores = find_rates(config, path, card, is_on_gpus=is_on_gpus), core_rates(config)
    if cores and not (path or card or is_on_gpus):
        return Workload(
            asked={service: Asked(*figures) for service, figures in cores.asked.items()},
            experiments=0.0,
            tokens=np.array(cores.tokens, float),
            timed={},
            source=f"CPU time of all processes, {cores.source}",
            cores=cores,
        )
    rule = load_task(config.task.name).under(evidence_values(config)).rule
    per_turn, turns, rounds = rates.per_turn, rates.turns, rule.rounds
    asked = {
        service: Asked(turns * call["share"], turns * call["share"] * call["requests"])
        for service, call in per_turn["calls"].items()
    }
    images = 2 * rule.confirm * rounds
    more = {"backbone": Asked(turns + rounds, turns + rounds)} | dict.fromkeys(
        ("generator", "target"), Asked(rounds, images)
    )
    for service, (calls, requests) in more.items():
        asked[service] = Asked(asked[service].calls + calls, asked[service].requests + requests)
    said = f"; with all of {rounds} rounds, which few answers need" if rounds else ""
    return Workload(
        asked=asked | ({TEST_GENERATOR: Asked(0, 0)} if TEST_GENERATOR in services_of(config) else {}),
        experiments=turns * per_turn["sandbox_seconds"],
        tokens=(turns + rounds)
        * np.array([per_turn["tokens"][name] for name in ("prompt", "cached", "generated")], float),
        timed={role: TimedPool(**times) for role, times in rates.services.items()},
        source=f"{rates.about}{said}",
        sources=rates.sources,
        unrated=rates.unrated,
        cores=cores,
    )


def from_run(run: Run) -> Workload:
    """Reads a workload from at most _LARGEST records of a run, chosen at random with a fixed seed.

    The time of a request is its mean over the batches of that run, because records do not tell how it depends on the
    size of a batch.

    Raises:
        UsageError: The records contain no service times.
    """
    done = sorted(run.done())
    chosen = np.random.default_rng(0).permutation(len(done))[:_LARGEST]
    records = list(run.records(done[int(index)] for index in chosen))
    totals = {role: sum((r.spent.get(role, ServiceUsage()) for r in records), ServiceUsage()) for role in POOLS}
    timed = {role: TimedPool(fixed=0, per_item=t.seconds / t.requests) for role, t in totals.items() if t.requests}
    if not timed:
        raise UsageError(f"{run.files.root} has no records with service times; give --rates FILE, or leave it out")
    turns, calls = [turn for record in records for turn in record.turns], Counter[str]()
    for record in records:
        calls += sum(map(_calls, record.turns), _tests(record))
    tokens = [(turn.prompt_tokens, turn.cached_tokens, turn.generated_tokens) for turn in turns]
    return Workload(
        asked={role: Asked(calls[role] / len(records), totals[role].requests / len(records)) for role in timed},
        experiments=math.fsum(map(_own_seconds, turns)) / len(records),
        tokens=np.array(tokens, float).reshape(-1, 3).sum(axis=0) / len(records),
        timed=timed,
        source=f"measured: {len(records)} records of {run.files.root}",
    )


def _calls(turn: Turn) -> Counter[str]:
    """Counts the calls of a turn: its reply, and one for each service that its experiment used."""
    requests = Counter({service: used.requests for service, used in turn.spent.items()})
    reply = min(requests["backbone"], 1)
    requests["backbone"] -= reply
    return Counter(service for service in _TOOLS if requests[service] > 0) + Counter(backbone=reply)


def _tests(record: Record) -> Counter[str]:
    """Counts the calls of the contrasts that tested answers: one for each service and answer."""
    return sum((Counter(test.spent.keys()) for test in record.tests), Counter[str]())


def _own_seconds(turn: Turn) -> float:
    return max(turn.experiment_seconds - math.fsum(call.seconds for call in turn.calls), 0.0)


def count_pending(config: Config) -> tuple[int, str]:
    """Returns the number of unfinished investigations of a config's run, and words that say where it comes from.

    Raises:
        UsageError: The number depends on the size of a layer, which is unknown until the target is loaded.
    """
    run = _begun(config)
    is_extended = run is not None and bool(differing_keys(run.config(), to_dict(config)))
    if run is not None and not is_extended and (planned := len(run.plan())):
        left = len(run.pending())
        return left, f"{left} of {planned} investigations are pending in {run.files.root}"
    named = _count_units(config)
    times = f" times {config.replicates} replicates" if config.replicates > 1 else ""
    wanted, done = named * config.replicates, len(run.done()) if run is not None else 0
    said = f", without {done} that are done" if done else ""
    return max(wanted - done, 0), f"{named} units{times}, from units={config.units[:60]}{said}"


def _count_units(config: Config) -> int:
    target = target_class(config.target)
    named = count(config.units, dict.fromkeys(target.layers(config.target)), config.target.name)
    # A layer may have fewer units than are to be drawn.
    if (named is None or "random:" in config.units) and (
        outline := target.outline(config.target, site(config, "target"))
    ):
        named = count(config.units, outline.layers, config.target.name)
    if named is None:
        raise UsageError(
            f"units={config.units!r}: how many units that are is only known once the target is loaded, and an estimate "
            "loads nothing; give --units NUMBER, or name units of the layers in target.layers, such as units=layer4=0-2047"
        )
    return named


def find_workload(config: Config, source: str, card: str = "", *, is_on_gpus: bool = False) -> Workload:
    """Reads the workload of a sweep.

    Args:
        config: The config of the sweep.
        source: A run directory, whose records are used, or a YAML file with rates. If it is empty, the records of the
            config's own run are used, or the built-in rates if there are no records.
        card: See `find_rates`, as `is_on_gpus`.

    Raises:
        UsageError: The source cannot be used.
    """
    if source and Files(source).read("config.yaml") is not None:
        if card:
            raise UsageError(
                f"--card {card} chooses among measured rates, but --rates {source} is a run; leave one out"
            )
        return replace(from_run(Run.open(source)), cores=core_rates(config))
    run = None if source or card else _begun(config)
    if run is not None and run.done():
        return replace(from_run(run), cores=core_rates(config))
    return from_rates(config, source, card, is_on_gpus=is_on_gpus)


def _begun(config: Config) -> Run | None:
    """Returns the run whose directory the config names, if the config is the same or extends it; otherwise None."""
    run = Run.of(config)
    if run.files.read("config.yaml") is None or set(differing_keys(run.config(), to_dict(config))) - set(EXTENSIBLE):
        return None
    return run
