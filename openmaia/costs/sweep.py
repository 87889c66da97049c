"""From a config to what is estimated: the units that are owed, the pools that serve them, and where figures come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from openmaia.config import SERVED, differing_keys, to_dict
from openmaia.costs.balance import balanced
from openmaia.costs.estimate import Prediction, at_once_for, demand, predict
from openmaia.costs.rates import assumed, read
from openmaia.costs.simulation import Pool
from openmaia.costs.workload import Times, Workload, from_rates, from_records
from openmaia.errors import UsageError
from openmaia.schema import POOLS, Config
from openmaia.store.files import Files
from openmaia.store.run import Run
from openmaia.units import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """units: investigations still to be done, replicates included. about: how that is known, in words."""

    units: int
    about: str


def owed(config: Config) -> Owed:
    """Without loading anything: from the run's own plan, or from `units` and `replicates`. Raises UsageError where the
    number of units depends on how many a layer has."""
    run = begun(config)
    if run is not None and run.plan():
        left = len(run.owed())
        return Owed(units=left, about=f"{left} of {len(run.plan())} investigations are owed by {run.files.root}")
    named = count(config.units, config.target.layers)
    if named is None:
        raise UsageError(
            f"units={config.units!r}: how many units that are is only known once the target is loaded, and an estimate "
            "loads nothing; give --units NUMBER, or name units of the layers in target.layers, such as units=layer4=0-2047"
        )
    times = f" times {config.replicates} replicates" if config.replicates > 1 else ""
    return Owed(units=named * config.replicates, about=f"{named} units{times}, from units={config.units[:60]}")


def begun(config: Config) -> Run | None:
    """The run's directory, where it holds something of this very config."""
    run = Run(Files(f"{config.paths.runs}/{config.name}"))
    if run.files.read("config.yaml") is None or differing_keys(run.config(), to_dict(config)):
        return None
    return run


def workload(config: Config, rates: str) -> Workload:
    """rates: a run directory, a YAML file, or "" for the run's own records and, without any, the built-in table."""
    if rates and Files(rates).read("config.yaml") is not None:
        return from_records(Run.open(rates))
    if rates:
        return from_rates(read(rates))
    run = begun(config)
    return from_records(run) if run is not None and run.done() else from_rates(assumed())


def pools(config: Config, times: Mapping[str, Times]) -> dict[str, Pool]:
    """As the config has them; the services that the source has no times of are left out."""
    return {role: _pool(config, role, times[role]) for role in POOLS if role in times}


def on_gpus(config: Config, found: Workload, gpus: float) -> dict[str, Pool]:
    """The pools that make the most of so many GPUs. A replica has the GPUs that the config gives it, otherwise those
    that the source says. Raises UsageError where nothing says how many."""
    made = {role: pool for role, pool in _sized(config, found.times).items() if pool.gpus}
    if not made:
        raise UsageError(
            "--gpus: neither the config nor the source of service times says how many GPUs a replica has; give "
            "pools.<service>.num_gpus, such as in configs/machine/eight-gpus.yaml"
        )
    return balanced(demand(found, config.evaluate.n), _sized(config, found.times), gpus)


def estimate(config: Config, found: Workload, units: int, gpus: float | None) -> Prediction:
    """gpus: None for the config's own pools and investigations at once."""
    made = pools(config, found.times) if gpus is None else on_gpus(config, found, gpus)
    at_once = min(units, config.ray.investigations) if gpus is None else at_once_for(found, made, units)
    return predict(found, made, units=units, at_once=at_once, tested=config.evaluate.n)


def _pool(config: Config, role: str, times: Times) -> Pool:
    settings = getattr(config.pools, role)
    served = role == "backbone" and config.backbone.kind in SERVED
    return Pool(
        replicas=settings.replicas,
        max_batch=config.backbone.concurrency if served else settings.max_batch,
        fixed=times.fixed,
        per_item=times.per_item,
        gpus=settings.num_gpus,
    )


def _sized(config: Config, times: Mapping[str, Times]) -> dict[str, Pool]:
    """The config's pools; where it gives a service no GPUs, the source's GPUs and batches."""
    found: dict[str, Pool] = {}
    for role, pool in pools(config, times).items():
        stated = times[role]
        if pool.gpus or not stated.gpus:
            found[role] = pool
        else:
            found[role] = Pool(
                replicas=pool.replicas,
                max_batch=stated.max_batch or pool.max_batch,
                fixed=pool.fixed,
                per_item=pool.per_item,
                gpus=stated.gpus,
            )
    return found
