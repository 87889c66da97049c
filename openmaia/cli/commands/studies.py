"""`openmaia ablate`, `openmaia bias` and `openmaia spurious`: runs that answer one question each."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import ConfigSources, fail, print_failures, print_report
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.runs.run import Run

OtherOption = Annotated[
    list[str] | None,
    typer.Option(help="YAML file or key=value that makes the other generator, such as configs/models/sd15.yaml."),
]
SetsOption = Annotated[str, typer.Option(help="Tool sets, separated by commas. Empty: all that can be run.")]


def ablate(config: ConfigSources, other: OtherOption = None, sets: SetsOption = "") -> None:
    """Measures what each tool of the agent adds: investigates the same units with several sets of tools.

    The sets are full, exemplars-only, generation-only, no-editing and, with --other, other-generator (all tools, but
    another image generator). Each tool set has a run directory. Continues what was stopped.

    Example: openmaia ablate configs/demo.yaml --sets full,exemplars-only
    """
    from openmaia.assembly.generators import generator_name
    from openmaia.assembly.sweeps import run_ablation
    from openmaia.cli.terminal.output import Terminal
    from openmaia.cli.terminal.scores import show_ablation
    from openmaia.config.schema import test_generator
    from openmaia.evaluation.analysis.ablation import ablation_results
    from openmaia.reporting.figures.papers.ablations import ablation_csv
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


def ablation_configs(sources: Sequence[str], other: Sequence[str], sets: str) -> "dict[str, Config]":
    """Returns a config for each tool set of an ablation, by the name of the tool set.

    A tool set is a choice of the tools that the agent may use. The full set has all of them.

    Args:
        sources: The YAML files and key=value overrides that all tool sets share.
        other: The sources that select another generator, for the tool set `other-generator`. Empty if this set is not
            run.
        sets: The names of the tool sets, separated by commas. If it is empty, all tool sets are run, but
            `other-generator` only if `other` is not empty.

    Raises:
        UsageError: The task or the backbone of the config does not allow an ablation, or the config leaves out tools
            itself. Or a tool set is unknown or named twice, or the full set is missing. Or only one of `other` and the
            tool set `other-generator` is given. Or `other` does not change the generator, or changes something
            besides the generator and the editor.
    """
    from openmaia.config.loading import load, refuse_unused_by
    from openmaia.evaluation.analysis.ablation import FULL, OTHER, SETS

    base = load(sources)
    refuse_unused_by("openmaia ablate", sources)
    _check_base(base)
    wanted = [name.strip() for name in sets.split(",") if name.strip()]
    wanted = wanted or [name for name in SETS if name != OTHER or other]
    for name in wanted:
        if name not in SETS or wanted.count(name) > 1:
            raise UsageError(f"--sets={sets}: {name!r} is unknown or named twice; expected some of {', '.join(SETS)}")
    if FULL not in wanted:
        raise UsageError(f"--sets={sets}: the other tool sets are compared with {FULL!r}; name it, too")
    if (OTHER in wanted) != bool(other):
        raise UsageError(f"the tool set {OTHER!r} and --other, which says what the other generator is, go together")
    configs: dict[str, Config] = {}
    for name in sorted(wanted, key=list(SETS).index):
        own = [f"name={base.name}-ablation-{name}", f"without=[{','.join(SETS[name])}]"]
        if "text2image" in SETS[name]:  # nothing can be generated, so nothing is demanded
            own += ["task.evidence.experiments=0", "task.evidence.labels=0"]
        configs[name] = load([*sources, *(other if name == OTHER else ()), *own])
    if other:
        _check_other(configs[FULL], configs[OTHER], other)
    return configs


def _check_base(base: "Config") -> None:
    from openmaia.agent.tasks.task import load
    from openmaia.core.components import of_config
    from openmaia.core.units import Scope

    if of_config(base.backbone).is_recorded:
        raise UsageError(
            f"backbone.kind={base.backbone.kind} gives the same replies whatever the tools; give a backbone that answers anew"
        )
    if base.without:
        raise UsageError(f"without={base.without}: an ablation leaves tools out itself; leave this key out")
    task = load(base.task.name)
    if task.scope is not Scope.UNIT or task.answer.choices:
        raise UsageError(
            f"task.name={base.task.name}: its answers are not tested by images, so that tool sets cannot be compared; "
            "give a task about a unit, such as description"
        )


def _check_other(full: "Config", other: "Config", given: Sequence[str]) -> None:
    from openmaia.config.loading import differing_keys, to_dict

    changed = [key for key in differing_keys(to_dict(full), to_dict(other)) if key not in ("name", "without")]
    foreign = [key for key in changed if not key.startswith(("generator.", "editor."))]
    if foreign or not any(key.startswith("generator.") for key in changed):
        raise UsageError(
            f"--other={' '.join(given)}: expected another generator and nothing else, and it changes "
            f"{', '.join(foreign or changed) or 'nothing'}"
        )


def bias(config: ConfigSources) -> None:
    """Finds contexts in which a classifier scores a class higher or lower, and tests them on generated images.

    The agent claims the contexts. Each claim is tested on pairs of images, with the context and without it. If the test
    supports the claim, errors of the classifier that the context causes are counted. Continues what was stopped.

    Example: openmaia bias configs/bias.yaml units=output=pig,strawberry
    """
    from openmaia.assembly.biases import checked, design
    from openmaia.config.loading import load, refuse_unused_by

    settings = checked(load(["task.name=bias", *config]))
    refuse_unused_by("openmaia bias", config)
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


def spurious(config: ConfigSources) -> None:
    """Reproduces Table 2 of the MAIA paper: removes the units of a classifier that follow a spurious feature.

    The agent finds these units, and the classifier is fitted again without them. Continues what was stopped.

    Example: openmaia spurious configs/spurious-small.yaml
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
    refuse_unused_by("openmaia spurious", config)
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
