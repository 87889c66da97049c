"""Derives the configs of a benchmark: several agents, and units of which it is known what they respond to."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import targets
from openmaia.config.loading import given_keys, load, refuse_unused_by
from openmaia.config.named import find_config, what_to_give
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.selection import select
from openmaia.core.units import Unit

_OF_ALL = frozenset({"target", "units", "pictures", "evaluate"})
"""What is the same for all agents, so that their rows can be compared."""


def benchmark_configs(agents: Sequence[str], known: str, shared: Sequence[str], count: int) -> dict[str, Config]:
    """Returns a config for each agent, by the agent's name: that of its config.

    Args:
        agents: A config each, which says what is the agent's own.
        known: The config that names the units and their target.
        shared: Sources that hold for all agents.
        count: The number of units. More units are these and others.

    Raises:
        UsageError: Two agents have one name. Or of none of the units it is known what they respond to, or of fewer than
            `count`. Or a source is wrong.
    """
    name, names = source_name(known), [source_name(agent) for agent in agents]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise UsageError(f"{', '.join(twice)}: named twice; give each agent once, in a config of its own name")
    for agent in agents:
        if theirs := sorted({key.partition(".")[0] for key in given_keys([agent], files=True)} & _OF_ALL):
            raise UsageError(
                f"{agent} has {', '.join(theirs)}, which {known} says for all agents; leave it out, or give it with --with"
            )
    sources = {each: [known, agent, *shared, "replicates=1"] for each, agent in zip(names, agents, strict=True)}
    for each in sources.values():
        refuse_unused_by("openmaia benchmark", each)
    chosen = _choose(load([*next(iter(sources.values()))]), known, count)
    return {each: load([*own, f"name=benchmark-{name}-{each}", f"units={chosen}"]) for each, own in sources.items()}


def source_name(source: str) -> str:
    """Returns the name of a config. Raises UsageError if the source is none."""
    if find_config(source) is None:
        raise UsageError(f"{source}: expected the name or the file of a config; {what_to_give(source)}")
    return Path(source).name.removesuffix(".yaml")


def _choose(config: Config, known: str, count: int) -> str:
    """Returns `count` of the units of a config for `units`, of each layer about as many, by a hash."""
    info = targets.target(config).info()
    truths = target_class(config.target).truths(config.target, info)
    units = select(config.units, info, load_task(config.task.name).scope).units
    candidates = [unit for unit in units if truths.get(unit)]
    if len(candidates) < count:
        at_most = f", or at most --units={len(candidates)}" if candidates else ""
        raise UsageError(
            f"{known} has {len(candidates)} units of which it is known what they respond to; give another config{at_most}"
        )
    layers: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in sorted(candidates, key=lambda each: _lot(info.digest, each)):
        layers[unit.layer].append(unit)
    turns = chain.from_iterable(zip_longest(*layers.values()))
    chosen = [unit for unit in turns if unit is not None][:count]
    return ":".join(
        f"{layer}={','.join(str(index) for index in sorted(each.index for each in chosen if each.layer == layer))}"
        for layer in sorted({each.layer for each in chosen})
    )


def _lot(digest: str, unit: Unit) -> str:
    return hashlib.sha256(f"benchmark {digest} {unit.layer} {unit.index}".encode()).hexdigest()
