"""`openmaia study`: runs that answer one question each."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import ConfigSources, fail, print_failures, print_report, stoppable
from openmaia.cli.commands.help import Command, Group
from openmaia.core.paths import user_path

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.runs.run import Run

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

    The same units are investigated with several sets of tools: full, exemplars-only, generation-only, no-editing and, with
    --other, other-generator (all tools, but another image generator). Each tool set has a run directory. Continues what was stopped.

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


@study.command(cls=Command)
@stoppable()
def bias(config: ConfigSources) -> None:
    """Finds contexts in which a classifier scores a class higher or lower.

    The agent claims the contexts. Each claim is tested on pairs of images, with the context and without it. If the test
    supports the claim, errors of the classifier that the context causes are counted. Continues what was stopped.

    Example: openmaia study bias configs/bias.yaml units=output=pig,strawberry
    """
    from openmaia.assembly.biases import checked, design
    from openmaia.config.loading import load, refuse_unused_by

    settings = checked(load(["task.name=bias", *config]))
    refuse_unused_by("openmaia study bias", config)
    from openmaia.apps.bias.pages import write_pages
    from openmaia.apps.bias.run import judged
    from openmaia.assembly.sweeps import run_bias
    from openmaia.cli.terminal.applications import show_biases
    from openmaia.cli.terminal.output import Terminal

    with Terminal() as terminal:
        outcome = run_bias(settings, terminal)
        terminal.say("everything was done already" if outcome.was_complete else f"{outcome.done} investigations done")
    verdicts = judged(outcome.run, design(settings))
    write_pages(outcome.run, verdicts)
    show_biases(verdicts, outcome.run)
    any_failed = print_failures(outcome)
    print_report([outcome.run.files.root])
    if any_failed:
        raise SystemExit(1)


@study.command(cls=Command)
@stoppable()
def spurious(config: ConfigSources) -> None:
    """Removes the units of a classifier that follow a spurious feature.

    This is Table 2 of the MAIA paper. The agent finds these units, and the classifier is fitted again without them. Continues what was stopped.

    Example: openmaia study spurious configs/spurious-small.yaml
    """
    from openmaia.apps.spurious.drawing import draw, folder
    from openmaia.apps.spurious.page import write
    from openmaia.apps.spurious.study import StudyServices, conduct
    from openmaia.apps.spurious.table import table
    from openmaia.assembly import backbones, generators, targets
    from openmaia.assembly.evaluation import trainer
    from openmaia.assembly.sweeps import run_sweeps
    from openmaia.cli.terminal.applications import show_spurious
    from openmaia.cli.terminal.output import Terminal
    from openmaia.config.loading import load, refuse_unused_by
    from openmaia.runs.files import Files

    settings = load(config)
    refuse_unused_by("openmaia study spurious", config)
    study = settings.spurious

    def investigate(judging: "Config") -> "Run":
        run = run_sweeps([judging], terminal)[0].run
        print_report([run.files.root])
        return run

    with Terminal() as terminal:
        root = user_path(study.folder)
        if not study.folder:
            root = folder(settings)
            draw(Files(str(root)), study, generators.generator(settings), partial(terminal.progress, "drawing"))
        services = StudyServices(
            trainer=trainer(settings),
            investigate=investigate,
            target=targets.target,
            generator=lambda: generators.generator(settings),
            progress=terminal.progress,
        )
        results = [conduct(settings, root, seed, services) for seed in range(study.seeds)]
        rows = table(results, study.units)
    files = Files(settings.paths.runs).inside(settings.name).confined()
    page = write(files, settings, rows, results, backbones.backbone_name(settings))
    show_spurious(rows)
    print(f"report: {page}")
    if failed := sum(len(result.verdicts.failed) for result in results):
        fail(f"{failed} units could not be judged, and count as not kept; run the same command again to retry", 1)
