"""Runs sweeps on Ray with the objects that their configs describe."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from openmaia import distributed
from openmaia.assembly import ConfigAssembly
from openmaia.config.loading import differing_keys, to_dict
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.runs.run import SUMMARY, Run

if TYPE_CHECKING:
    from openmaia.assembly.models import Models
    from openmaia.distributed.assembly import Progress
    from openmaia.distributed.sweep import Sweep, SweepOutcome
    from openmaia.exemplars.shared import ProgressCallback
    from openmaia.exemplars.store import ExemplarStore


def run_sweeps(configs: Sequence[Config], view: "Progress") -> "list[SweepOutcome]":
    """Runs the pending investigations of several configs together, and tests. Outcomes have the configs' order."""
    _require(configs)
    distributed.prepare(configs[0].ray.address)
    from openmaia.distributed.sweep import run_sweeps

    return run_sweeps(configs, ConfigAssembly(), view)


def _require(configs: Sequence[Config]) -> None:
    """Makes the checks of runs that have not finished. What a new run reads is not looked at if there is its plan, and
    nothing of a run that only has to be scored.
    """
    from openmaia.checks import stages
    from openmaia.evaluation.run import needs_models

    new, pending = list[Config](), list[Config]()
    for config in configs:
        if getattr(config.evaluate.writer, "batch", False):
            raise UsageError(
                "evaluate.writer.batch=true: the tests of a run that goes on cannot wait for batches; leave it out, and give it to "
                "openmaia evaluate RUN --as NAME"
            )
        run = Run.of(config)
        is_planned = run.files.exists("config.yaml") and run.files.exists("plan.json")
        if not is_planned or differing_keys(run.config(), to_dict(config)):
            new.append(config)
            is_planned = False
        is_finished = next(run.iter_pending(), None) is None and run.files.exists(SUMMARY)
        if not is_planned or (not is_finished and needs_models(run, config)):
            pending.append(config)
    stages.require(*stages.of_run(pending, new))


def run_ablation(configs: Mapping[str, Config], view: "Progress") -> dict[str, Run]:
    """Investigates the same units with several sets of tools. Configs and runs are by the name of the set."""
    _require(list(configs.values()))
    distributed.prepare(next(iter(configs.values())).ray.address)
    from openmaia.distributed.ablation import run_ablation

    return run_ablation(configs, ConfigAssembly(), view)


def run_tested(
    config: Config,
    view: "Progress",
    is_done: Callable[[Run], bool],
    test: "Callable[[Run, Models, ProgressCallback], None]",
) -> "SweepOutcome":
    """Runs all investigations of a config, and tests the answers with `test` in place of generated images.

    Args:
        is_done: Returns whether the answers in all records of a run have been tested.
        test: Called after the last investigation, unless that is so, with the pools of the sweep.
    """
    _require([config])
    distributed.prepare(config.ray.address)
    from openmaia.distributed.sweep import Testing, run_sweep

    def put(sweep: "Sweep") -> None:
        if not is_done(sweep.run):
            test(sweep.run, _models(sweep), partial(sweep.view.progress, sweep.stage("evaluation")))

    return run_sweep(config, ConfigAssembly(), view, Testing(test=put, is_done=is_done))


def _models(sweep: "Sweep") -> "Models":
    from openmaia.assembly.models import Models

    pools = sweep.pools.services(sweep.store, "test")
    pooled = {name: getattr(pools, name) for name in ("target", "generator", "backbone")}
    return Models(sweep.config, pooled | {TEST_GENERATOR: sweep.pools.generator("test", TEST_GENERATOR)})


def compute_exemplars(
    config: Config, progress: "ProgressCallback", say: Callable[[str], None] = lambda line: None
) -> "ExemplarStore":
    """Computes the missing exemplars of all layers on Ray, and returns the store."""
    distributed.prepare(config.ray.address)
    from openmaia.distributed.cluster.connection import cluster
    from openmaia.distributed.exemplars import team

    with cluster(config), team(config, ConfigAssembly(), say) as workers:
        info = workers.info()
        for sentence in info.understood:
            say(f"{info.name}, {sentence}")
        for remark in workers.remarks():
            say(remark)
        return workers.compute(list(info.layers), progress)
