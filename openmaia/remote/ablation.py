"""Runs one sweep for each tool set of an ablation, and tests all their descriptions with the same images."""

from collections.abc import Mapping
from functools import partial

from openmaia import build
from openmaia.remote.cluster import cluster
from openmaia.remote.investigator import Job
from openmaia.remote.services import shared
from openmaia.remote.sweep import UNTESTED, evaluate_job, held, sweeps
from openmaia.remote.view import View
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.run import Run


def ablation(configs: Mapping[str, Config], view: View) -> dict[str, Run]:
    """configs: by tool set, the first one's generator makes the images of all tests. What is done is not done again."""
    full = next(iter(configs.values()))
    alike = {name: config for name, config in configs.items() if config.generator == full.generator}
    outcomes = sweeps(list(alike.values()), view)
    runs = {name: outcome.run for name, outcome in zip(alike, outcomes, strict=True)}
    for name in configs.keys() - alike.keys():
        outcome = sweeps([configs[name]], view, UNTESTED)[0]
        runs[name] = outcome.run
        _evaluate(full, outcome.run, view)
    return {name: runs[name] for name in configs}


def _evaluate(config: Config, run: Run, view: View) -> None:
    """A finished run, with the generator, target and judge of this config."""
    if run.done() <= run.evaluated():
        return
    store = ExemplarStore.at(
        config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
    )
    with held(run), cluster(config), shared([config]) as pools:
        job = Job(config=config, run=run, pools=pools[0], exemplars=store)
        evaluate_job(job, store, build.library(config, view.say), partial(view.progress, "evaluation"))
    run.write_summary()
