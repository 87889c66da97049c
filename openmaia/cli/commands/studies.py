"""`openmaia study`: runs that answer one question each."""

from typing import Annotated

import typer

from openmaia.cli.commands.common import (
    UNPAID,
    ConfigSources,
    fail,
    print_failures,
    print_left,
    print_report,
    stoppable,
)
from openmaia.cli.commands.help import Command, Group

study = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Studies what tools add, biases, or spurious features.\n\nExample: openmaia study ablate configs/demo.yaml",
)

OtherOption = Annotated[
    list[str] | None,
    typer.Option(help="YAML file or key=value that makes the other generator, such as configs/models/sd15.yaml."),
]
SetsOption = Annotated[str, typer.Option(help="Tool sets, separated by commas. Empty: all that can be run.")]


@study.command(cls=Command)
@stoppable()
def ablate(config: ConfigSources, other: OtherOption = None, sets: SetsOption = "") -> None:
    """Measures what each tool of the agent adds.

    The same units are investigated with several sets of tools: full, exemplars-only, generation-only, no-editing, with a bank
    bank-only and no-bank and, with --other, other-generator (all tools, but another image generator). Each tool set has a run directory. Continues what was stopped.

    Example: openmaia study ablate configs/demo.yaml --sets full,exemplars-only
    """
    from openmaia.assembly.ablation import ablation_configs
    from openmaia.assembly.generators import generator_name
    from openmaia.assembly.sweeps import run_ablation
    from openmaia.cli.terminal.output import Terminal
    from openmaia.cli.terminal.scores import show_ablation
    from openmaia.config.schema import test_generator
    from openmaia.evaluation.analysis.ablation import ablation_results
    from openmaia.reporting.figures.papers import ablation_csv
    from openmaia.runs.files import Files

    planned = ablation_configs(config, other or [], sets)
    base = next(iter(planned.values()))
    with Terminal() as terminal:
        runs = run_ablation(planned, terminal)
    results = ablation_results(runs, base.evaluate.bootstrap)
    name = base.name.rsplit("-ablation-", 1)[0]
    show_ablation(name, results, generator_name(test_generator(base)))
    files = Files(base.paths.runs)
    files.write(f"{name}-ablation.csv", ablation_csv(results, base.target.name))
    print(f"table: {files.path(f'{name}-ablation.csv')}")
    failed = {name: count for name, run in runs.items() if (count := len(run.failures()))}
    if failed:
        fail(", ".join(f"{count} units of {name} failed" for name, count in failed.items()), 1)
    unpaid = [planned[name] for name, run in runs.items() if base.budget and run.pending()]
    for each in unpaid:
        print_left(each)
    if unpaid:
        raise SystemExit(UNPAID)


@study.command(cls=Command)
@stoppable()
def bias(config: ConfigSources) -> None:
    """Finds contexts in which a classifier scores a class higher or lower.

    The agent claims the contexts. Each claim is tested on pairs of images, with the context and without it. If the test
    supports the claim, errors of the classifier that the context causes are counted. Continues what was stopped.

    Example: openmaia study bias configs/bias.yaml units=output=pig,strawberry
    """
    from openmaia.config.loading import load, refuse_unused_by
    from openmaia.recipes.bias.study import checked, conduct

    settings = checked(load(["task.name=bias", *config]))
    refuse_unused_by("openmaia study bias", config)
    from openmaia.cli.terminal.applications import show_biases
    from openmaia.cli.terminal.output import Terminal
    from openmaia.recipes.bias.page import write_pages

    with Terminal() as terminal:
        found, verdicts = conduct(settings, terminal)
        run, done = found.run, len(found.run.files.names("records"))
        terminal.say("everything was done already" if found.was_complete else f"{done} investigations done")
    write_pages(run, verdicts)
    show_biases(verdicts, run)
    any_failed = print_failures(run)
    print_report([run.files.root])
    if any_failed:
        raise SystemExit(1)
    if found.is_unpaid:
        print_left(settings)
        raise SystemExit(UNPAID)


@study.command(cls=Command)
@stoppable()
def spurious(config: ConfigSources) -> None:
    """Removes the units of a classifier that follow a spurious feature.

    This is Table 2 of the MAIA paper. The agent finds these units, and the classifier is fitted again without them. Continues what was stopped.

    Example: openmaia study spurious configs/spurious-small.yaml
    """
    from openmaia.assembly import backbones
    from openmaia.cli.terminal.applications import show_spurious
    from openmaia.cli.terminal.output import Terminal
    from openmaia.config.loading import load, refuse_unused_by
    from openmaia.recipes.spurious.page import table, write
    from openmaia.recipes.spurious.study import conduct
    from openmaia.runs.files import Files

    settings = load(config)
    refuse_unused_by("openmaia study spurious", config)
    with Terminal() as terminal:
        results = conduct(settings, terminal, lambda run: print_report([run.path]))
        rows = table(results, settings.spurious.units)
    files = Files(settings.paths.runs).inside(settings.name).confined()
    page = write(files, settings, rows, results, backbones.backbone_name(settings))
    show_spurious(rows)
    print(f"report: {page}")
    if failed := sum(len(result.verdicts.failed) for result in results):
        fail(f"{failed} units could not be judged, and count as not kept; run the same command again to retry", 1)
