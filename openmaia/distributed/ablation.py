"""Runs ablations on Ray: the same units are investigated once with each of several sets of tools."""

from collections.abc import Mapping
from dataclasses import replace

from openmaia.config.schema import Config
from openmaia.distributed.assembly import Assembly, Progress
from openmaia.distributed.cluster.connection import cluster
from openmaia.distributed.cluster.preflight import preflight
from openmaia.distributed.pools.run_pools import run_pools
from openmaia.distributed.purse import shared_purse
from openmaia.distributed.sweep import (
    PREDICTIVE,
    UNTESTED,
    Sweep,
    Unscored,
    carry_out,
    compare_tested,
    is_evaluated,
    run_sweeps,
)
from openmaia.distributed.tracking import TrackedProgress
from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.evaluation.run import needs_models
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.control import obeyed
from openmaia.runs.lease import held
from openmaia.runs.run import SUMMARY, Run


def run_ablation(configs: Mapping[str, Config], assembly: Assembly, view: Progress) -> dict[str, Run]:
    """Investigates the same units once with each of several sets of tools, and evaluates the descriptions.

    What the run directories already hold is not repeated.

    Args:
        configs: The config of each tool set, by name. The generator of the first one makes all test images.
        assembly: Builds the objects that the configs describe.
        view: Receives messages and progress.

    Returns:
        The run of each tool set, by name.
    """
    first = next(iter(configs.values()))
    alike = {name: config for name, config in configs.items() if config.generator == first.generator}
    outcomes = run_sweeps(list(alike.values()), assembly, view)
    runs = {name: outcome.run for name, outcome in zip(alike, outcomes, strict=True)}
    for name in configs.keys() - alike.keys():
        outcome = run_sweeps([configs[name]], assembly, view, UNTESTED)[0]
        runs[name] = outcome.run
        evaluate_elsewhere(first, outcome.run, assembly, view)
    return {name: runs[name] for name in configs}


def evaluate_elsewhere(config: Config, run: Run, assembly: Assembly, view: Progress) -> None:
    """Evaluates the descriptions of a finished run with the generator, target and judge of another config.

    The scores are stored in the directory of the run. A run that is evaluated already is not evaluated again.
    """
    if is_evaluated(run):
        if not run.files.exists(SUMMARY):
            write_summary(run)  # the command before was interrupted just there
        return
    with held(run.investigations), obeyed(run, view.say):
        sweep = Sweep(config=config, run=run, assembly=assembly, view=TrackedProgress(view))
        unscored = _test(sweep) if needs_models(run, config) else compare_tested([sweep], view)
        unscored.score(view)
    write_summary(run)


def _test(sweep: Sweep) -> Unscored:
    config, view = sweep.config, sweep.view
    with cluster(config):
        preflight([config], [sweep.run], view.say)
        with run_pools([config], sweep.assembly) as pools:
            sweep.assembly.dataset(config, view.say)  # downloads it; other processes would not say so
            sweep.store = ExemplarStore.at(
                config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
            )
            sweep.pools = replace(pools[0], purse=shared_purse(sweep.run, config))
            return carry_out([sweep], view, PREDICTIVE, investigates=False)
