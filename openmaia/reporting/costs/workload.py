"""Determines how investigations use the services, from the records of a run or from rates in a YAML file."""

import importlib.resources
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config.loading import UNREADABLE, differing_keys, read_yaml, to_dict
from openmaia.config.machine import POOLS
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.selection import count
from openmaia.core.services import ServiceUsage
from openmaia.reporting.costs.simulation import SimulatedPool, Trace
from openmaia.runs.files import Files
from openmaia.runs.records import Record, Turn
from openmaia.runs.run import EXTENSIBLE, Run

LARGEST = 2000
"""Number of investigations that are drawn from rates, and maximum number that are read from records."""

TOOLS = ("generator", "editor", "target", "backbone")
"""The services of tools in the assumed order of their calls: images are generated, edited, measured, and described."""


RATED = {"backbone": "vllm", "generator": "diffusers", "editor": "diffusers", "target": "network"}
"""For each service, the kind of the component whose times the built-in table holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A sample of investigations, from which a sweep (all investigations of a run) is simulated."""

    traces: Sequence[Trace]
    """The steps of each investigation."""
    tokens: npt.NDArray[np.float64]
    """(n, 3): numbers of prompt tokens, cached prompt tokens and generated tokens of each investigation."""
    timed: Mapping[str, SimulatedPool]
    """For each service whose times are known, a pool of one replica with these times. Its `gpus` is the number of GPUs
    of the replica that was timed; 0 if unknown."""
    source: str
    """The origin of the numbers, in words."""
    seconds: Mapping[str, Sequence[float]]
    """For each service the recorded replica-seconds of each investigation; no services if there are only rates."""
    built_in: frozenset[str] = frozenset()
    """The services whose times come from the built-in table, which holds those of RATED components on a GPU only."""


def from_rates(path: str = "", seed: int = 0) -> Workload:
    """Draws LARGEST random investigations from assumed statistics ("rates") instead of records.

    The rates are the distribution of the number of turns, the calls of services per turn, and the time that each
    service takes.

    Args:
        path: The path of a YAML file with rates, whose keys replace those of the built-in table `rates.yaml`. If it
            is empty, only the built-in table is used.
        seed: The seed of the draws.

    Raises:
        UsageError: The file cannot be read, or contains an unknown key or an invalid value.
    """
    table: Any = OmegaConf.create((importlib.resources.files(__package__ or "") / "rates.yaml").read_text("utf-8"))
    OmegaConf.set_struct(table, True)
    try:
        own: Any = read_yaml(Path(path))[0] if path else {"about": table.about}
        if "about" not in own:
            raise ValueError("about is missing; say where the figures come from")
        rates: Any = OmegaConf.to_container(OmegaConf.merge(table, own))
        figures = yaml.safe_dump({name: rates[name] for name in rates if name != "about"})
        if wrong := re.search(r"^ *(?:\w+:|-) +(?!\d).*", figures, re.MULTILINE):
            raise ValueError(f"{wrong[0].strip()!r}; expected a number of 0 or more")
        counts = [call["requests"] for call in rates["per_turn"]["calls"].values()]
        if any(type(number) is not int for number in counts):
            raise ValueError(f"requests: {counts}; expected whole numbers")
        batches = [service["max_batch"] for service in rates["services"].values() if "max_batch" in service]
        if any(type(number) is not int or number < 1 for number in batches):
            raise ValueError(f"max_batch: {batches}; expected whole numbers above 0")
        given: Mapping[str, Any] = own.get("services") or {}
        return replace(_drawn(rates, np.random.default_rng(seed)), built_in=frozenset(POOLS) - given.keys())
    except (*UNREADABLE, OmegaConfBaseException) as error:
        raise UsageError(f"--rates {path} cannot be used: {' '.join(str(error).split())}") from error


def _drawn(rates: Any, random: np.random.Generator) -> Workload:
    per_turn, weights = rates["per_turn"], np.array(rates["turns"]["weights"], float)
    lengths = random.choice(rates["turns"]["lengths"], size=LARGEST, p=weights / weights.sum())

    def trace(turns: int) -> Trace:
        steps: list[tuple[str, float]] = []
        for _ in range(turns):
            steps += [("backbone", 1), ("", per_turn["sandbox_seconds"])]
            calls = [(service, per_turn["calls"][service]) for service in TOOLS]
            steps += [(service, call["requests"]) for service, call in calls if random.random() < call["share"]]
        return steps

    per_reply = [per_turn["tokens"][name] for name in ("prompt", "cached", "generated")]
    return Workload(
        traces=[trace(length) for length in lengths],
        tokens=np.outer(lengths, per_reply).astype(float),
        timed={role: SimulatedPool(**rates["services"][role]) for role in POOLS},
        source=rates["about"],
        seconds={},
    )


def from_run(run: Run, seed: int = 0) -> Workload:
    """Reads from the records of a run the steps of its investigations and the times of its services.

    The time of a request is its mean over the batches of that run, because records do not tell how it depends on the
    size of a batch.

    Args:
        run: The run.
        seed: The seed of the random sample. If the run has more than LARGEST records, only a sample of them is read.

    Raises:
        UsageError: The records contain no service times.
    """
    done = sorted(run.done())
    chosen = np.random.default_rng(seed).permutation(len(done))[:LARGEST]
    records = list(run.records(done[int(index)] for index in chosen))
    totals = {role: sum((r.spent.get(role, ServiceUsage()) for r in records), ServiceUsage()) for role in POOLS}
    timed = {role: SimulatedPool(fixed=0, per_item=t.seconds / t.requests) for role, t in totals.items() if t.requests}
    if not timed:
        raise UsageError(f"{run.files.root} has no records with service times; give --rates FILE, or leave it out")
    counts = [[(turn.prompt_tokens, turn.cached_tokens, turn.generated_tokens) for turn in r.turns] for r in records]
    return Workload(
        traces=[[*(step for turn in r.turns for step in _steps(turn)), *_confirmation(r)] for r in records],
        tokens=np.array([np.sum(turns, axis=0) for turns in counts], float),
        timed=timed,
        source=f"measured: {len(records)} records of {run.files.root}",
        seconds={role: [record.spent.get(role, ServiceUsage()).seconds for record in records] for role in timed},
    )


def _confirmation(record: Record) -> list[tuple[str, float]]:
    """Returns the requests of the test of an answer in the investigation."""
    spent = record.confirmation.spent if record.confirmation else {}
    return [(service, float(spent[service].requests)) for service in TOOLS if service in spent]


def _steps(turn: Turn) -> Trace:
    """Returns the steps of a turn: the reply, the experiment's time without calls, and one call for each service."""
    requests = {service: float(used.requests) for service, used in turn.spent.items()}
    own = turn.experiment_seconds - math.fsum(call.seconds for call in turn.calls)
    reply = [("backbone", 1.0)] if requests.get("backbone") else []
    requests["backbone"] = requests.get("backbone", 0) - 1
    calls = [(service, requests[service]) for service in TOOLS if requests.get(service, 0) > 0]
    return [*reply, *([("", own)] if own > 0 else []), *calls]


def pending_units(config: Config) -> tuple[int, str]:
    """Counts the unfinished investigations of the run that a config describes, without loading any model.

    Returns:
        Their number, and a text for the user that explains how it was determined.

    Raises:
        UsageError: The number depends on the size of a layer, which is unknown until the target network is loaded.
    """
    run = _begun(config)
    is_extended = run is not None and bool(differing_keys(run.config(), to_dict(config)))
    if run is not None and not is_extended and (planned := len(run.plan())):
        left = len(run.pending())
        return left, f"{left} of {planned} investigations are pending in {run.files.root}"
    named = count(config.units, target_class(config.target).layers(config.target), config.target.name)
    if named is None:
        raise UsageError(
            f"units={config.units!r}: how many units that are is only known once the target is loaded, and an estimate "
            "loads nothing; give --units NUMBER, or name units of the layers in target.layers, such as units=layer4=0-2047"
        )
    times = f" times {config.replicates} replicates" if config.replicates > 1 else ""
    wanted, done = named * config.replicates, len(run.done()) if run is not None else 0
    said = f", without {done} that are done" if done else ""
    return max(wanted - done, 0), f"{named} units{times}, from units={config.units[:60]}{said}"


def find_workload(config: Config, source: str) -> Workload:
    """Returns a sample of investigations: their requests to each service, and how long the services take.

    The services are the models, such as the image generator.

    Args:
        config: The config of the sweep (all investigations of a run) that is to be predicted.
        source: A run directory, whose records are used, or a YAML file with rates (see `from_rates`). If it is empty,
            the records of the config's own run are used, or the built-in rates if there are no records.

    Raises:
        UsageError: The source cannot be used.
    """
    if source and Files(source).read("config.yaml") is not None:
        return from_run(Run.open(source))
    run = None if source else _begun(config)
    return from_run(run) if run is not None and run.done() else from_rates(source)


def without_rates(config: Config, work: Workload, *, is_on_gpus: bool) -> list[str]:
    """Returns the settings of a config that choose components whose service times are not known.

    Args:
        config: The config of the sweep.
        work: The workload with the service times.
        is_on_gpus: Whether all models are put on GPUs, whatever the config says (`--gpus`).
    """
    found: list[str] = []
    for role in (role for role in RATED if role in work.built_in):
        kind, key = getattr(config, role).kind, f"pools.{role}.num_gpus"
        if kind != RATED[role]:
            found.append(f"{role}.kind={kind}")
        elif not (is_on_gpus or getattr(config.pools, role).num_gpus):
            found.append(f"{role}.kind={kind} without a GPU ({key}=0)")
    other = config.evaluate.generator
    if "generator" in work.built_in and other and other.kind != RATED["generator"]:
        found.append(f"evaluate.generator.kind={other.kind}")
    return found


def _begun(config: Config) -> Run | None:
    """Returns the run whose directory the config names, if the config is the same or extends it; otherwise None."""
    run = Run.of(config)
    if run.files.read("config.yaml") is None or set(differing_keys(run.config(), to_dict(config))) - set(EXTENSIBLE):
        return None
    return run
