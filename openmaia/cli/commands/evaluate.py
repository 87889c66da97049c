"""`openmaia evaluate`: the scores of descriptions, claims of other methods, and the options of the forced choices."""

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.choices import ask_model, score_files, write_page
from openmaia.cli.commands.common import RepeatFlag, print_damage, repeat_damaged
from openmaia.cli.commands.completion import complete_run
from openmaia.cli.commands.faithfulness import ablate, check_layers, check_network
from openmaia.core.errors import UsageError
from openmaia.core.secrets import redacted

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.evaluation.services import EvaluationServices
    from openmaia.runs.run import Run


def evaluate(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Run directories, and key=value overrides or YAML files for --as.",
            autocompletion=complete_run,
        ),
    ],
    page: Annotated[
        Path | None,
        typer.Option("--2afc-page", help="Only write a blind page on which people choose between labels."),
    ] = None,
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            "--2afc-answers",
            help="Only score a file of answers to it, one for each person. May be given several times.",
        ),
    ] = None,
    judge: Annotated[
        bool, typer.Option("--2afc-judge", help="Only ask the model that writes the test prompts the same questions.")
    ] = False,
    truth: Annotated[
        str,
        typer.Option("--2afc-truth", help="Compare with these true labels (a table, or imported), not with pictures."),
    ] = "",
    name: Annotated[
        str, typer.Option("--as", help="Keep this evaluation in RUN/evaluations/NAME, beside the others of the run.")
    ] = "",
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claims",
            help="Also test what other methods say about the units: a CSV file with the columns layer, unit, method and "
            "description or labels, imported labels, or another run, also a person's. Several times for several files.",
        ),
    ] = None,
    faithfulness: Annotated[
        bool,
        typer.Option(
            "--faithfulness",
            help="Also ablate each unit of a classifier, measure what its classes lose, and test the effects that answers name.",
        ),
    ] = False,
    repeat: RepeatFlag = False,
) -> None:
    """Tests the descriptions of runs, and compares runs.

    It works in this process. Each unit is measured on images that are generated from its description, and on control images (the predictive
    protocol). Overrides change the test, for example the number of images. A changed test needs a name (--as NAME). Its
    results are stored in RUN/evaluations/NAME, which all commands accept as a run directory.
    Continues what was stopped.

    Examples:

    openmaia evaluate runs/demo runs/other

    openmaia evaluate runs/demo evaluate.n=60 --as n60

    openmaia evaluate runs/demo runs/demo/evaluations/n60

    openmaia evaluate runs/demo runs/milan evaluate.preset=pairing --as pairing

    openmaia evaluate runs/demo --claims methods.csv --claims runs/demo-human

    openmaia evaluate runs/demo --faithfulness
    """
    paths, overlays = split(runs)
    if (page is not None) + bool(answers) + judge > 1:
        raise UsageError("--2afc-page, --2afc-answers and --2afc-judge were given together; give one of them at a time")
    if (page is not None or answers or judge) and (overlays or name):
        raise UsageError(f"{(*overlays, '--as')[0]} is not for the forced choices (--2afc-…); leave it out")
    if truth and page is None and not judge:
        raise UsageError("--2afc-truth says what labels are compared with; give --2afc-page or --2afc-judge with it")
    if claims and (len(paths) > 1 or page is not None or answers or judge):
        raise UsageError("--claims is for the test of one run; give one run directory, without --2afc-…")
    if faithfulness and (page is not None or answers or judge):
        raise UsageError("--faithfulness is not for the forced choices (--2afc-…); leave it out")
    if page is not None:
        write_page(paths, page, truth)
    elif answers:
        score_files(paths, answers)
    elif judge:
        ask_model(paths, truth)
    else:
        _score(paths, overlays, name, repeat, claims or [], faithfulness=faithfulness)


def split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divides arguments into run directories, and into YAML files and key=value overrides.

    Raises:
        UsageError: There is no run directory.
    """
    overlays = [each for each in given if re.match(r"[\w.]+=|.*\.ya?ml$", each) and not Path(each).is_dir()]
    paths = [each for each in given if each not in overlays]
    if not paths:
        raise UsageError(f"{' '.join(given)}: no run directory was given; name one, such as runs/demo")
    return paths, overlays


TESTING = ("evaluate.", "generator.", "seed")
"""Beginnings of the config keys that an evaluation may change. The other keys say how the descriptions were found."""


def _settings(run: "Run", overlays: Sequence[str], name: str) -> "tuple[Run, Config]":
    """Returns the run directory that holds an evaluation, and the config of the evaluation.

    Args:
        run: The run whose descriptions are tested.
        name: The name of a further evaluation (--as). Empty for the evaluation in the run directory itself.

    Raises:
        UsageError: The overlays change keys that are not in TESTING, or they change a key and there is no name.
    """
    from openmaia.config.loading import differing_keys, restore, to_dict
    from openmaia.runs.further import configure, extended, further_evaluation
    from openmaia.runs.run import Run

    kept = further_evaluation(run, name) if name else run
    stored = (kept if kept.files.exists("config.yaml") else run).config()
    source = run.config() if run.source is None else Run(run.source).config()
    settings = restore(extended(stored, source), kept.files.root, overlays)
    changed = differing_keys(extended(run.config(), source), to_dict(settings))
    if foreign := [key for key in changed if not key.startswith(TESTING)]:
        raise UsageError(
            f"{', '.join(foreign)}: an evaluation tests the descriptions that {run.files.root} holds, and may change only "
            "evaluate.…, generator.…, seed and the keys of the machine; give others to openmaia run name=…"
        )
    if changed and not name:
        raise UsageError(
            f"{run.files.root} has an evaluation with another {', '.join(changed)}; add --as NAME to keep a second one "
            "beside it"
        )
    if name:
        configure(kept, settings)
    return kept, settings


def _score(
    paths: Sequence[str], overlays: Sequence[str], name: str, repeat: bool, claims: Sequence[str], *, faithfulness: bool
) -> None:
    from openmaia.assembly.evaluation import in_process
    from openmaia.config.loading import refuse_unused_by
    from openmaia.core.text import printable
    from openmaia.evaluation.damage import foreign_tests
    from openmaia.reporting.tables import name_runs
    from openmaia.runs.run import Run

    refuse_unused_by("openmaia evaluate", overlays)
    given = [Run.open(path) for path in paths]
    for run in given:
        if not run.done():
            raise UsageError(
                f"{run.files.root} holds no finished investigation and so no description; run it with openmaia run"
            )
    evaluated = [_settings(run, overlays, name) for run in given]
    for run, settings in evaluated if faithfulness else ():
        check_network(run, settings)
    services: EvaluationServices | None = None
    if claims:
        services = in_process(evaluated[0][1], run=evaluated[0][0])
        evaluated[0][0].bind(services.target.info())
        evaluated += _claimed(*evaluated[0], claims, services)
    for run, _ in evaluated if repeat else ():
        repeat_damaged(run, records=False)
    for run, _ in evaluated:
        if sentence := foreign_tests(run):
            print(f"{printable(sentence)}; what the records hold is tested", file=sys.stderr)
    services = _measure_together(evaluated, services)
    for run, settings in evaluated:
        used = services or in_process(settings, run)
        run.bind(used.target.info())
        if faithfulness:
            check_layers(run, used)
        _score_run(run, settings, used)
        if faithfulness:
            ablate(run, settings, used)
    opened = list(name_runs([run for run, _ in evaluated]))
    _show_together(opened, bool(claims))
    damaged = [run for run, _ in opened if print_damage(run)]
    if damaged:
        raise SystemExit(1)


def _claimed(
    run: "Run", settings: "Config", paths: Sequence[str], services: "EvaluationServices"
) -> "list[tuple[Run, Config]]":
    """Stores claims. Returns the run directory of each method with the config of the test."""
    from openmaia.assembly.claims import store_claims

    stored, sentence = store_claims(run, paths, services.target.info())
    print(sentence)
    return [(each, settings) for each in stored]


def _show_together(opened: "Sequence[tuple[Run, str]]", methods: bool) -> None:
    from openmaia.cli.terminal.scores import show_beside, show_comparison, show_methods
    from openmaia.evaluation.analysis.comparison import compare_runs

    if len(opened) < 2:
        return
    resamples = min(run.config()["evaluate"]["bootstrap"] for run, _ in opened)
    if methods:
        show_methods(opened, resamples)
    else:
        show_beside(opened, resamples)
        show_comparison(compare_runs(opened, resamples))


def _measure_together(
    evaluated: "Sequence[tuple[Run, Config]]", services: "EvaluationServices | None" = None
) -> "EvaluationServices | None":
    """Tests the descriptions of several runs with the same images, if their preset is `pairing` or services are given.

    Returns:
        The services that all runs share. If the runs are tested one by one, this is `services`, which may be None.

    Raises:
        UsageError: The configs of the runs differ in what a shared test needs.
    """
    from openmaia.assembly.evaluation import design, in_process
    from openmaia.cli.terminal.output import Terminal
    from openmaia.config.loading import differing_keys, to_dict
    from openmaia.evaluation.run import measure_together

    (_, first), *others = evaluated
    is_paired = any(settings.evaluate.preset == "pairing" for _, settings in evaluated)
    if not others or not (services or is_paired):
        return services
    for run, settings in others:
        differing = differing_keys(to_dict(first), to_dict(settings))
        if unequal := [key for key in differing if key.startswith((*TESTING, "target."))]:
            cause = "evaluate.preset=pairing" if is_paired else "--claims"
            raise UsageError(
                f"{run.files.root} and {evaluated[0][0].files.root}: {cause} tests the descriptions of several runs on the "
                f"same images, and {', '.join(unequal)} differ; give the same values with --as NAME"
            )
    with Terminal() as terminal:
        services = services or in_process(first, evaluated[0][0])
        for run, _ in evaluated:
            run.bind(services.target.info())
        progress = partial(terminal.progress, "evaluation with shared images")
        measure_together([run for run, _ in evaluated], services, design(first), progress)
    return services


def _score_run(run: "Run", settings: "Config", services: "EvaluationServices") -> None:
    from openmaia.assembly.evaluation import design
    from openmaia.cli.terminal.output import Terminal
    from openmaia.cli.terminal.runs import show_units
    from openmaia.cli.terminal.scores import show_reliability, show_scores, show_truth
    from openmaia.evaluation.analysis.verdict import write_summary
    from openmaia.evaluation.run import evaluate_run

    with Terminal() as terminal:
        evaluate_run(run, services, design(settings), partial(terminal.progress, "evaluation"))
    write_summary(run)
    show_units(run, settings.evaluate.bootstrap)
    show_scores(run, settings.evaluate.bootstrap)
    show_reliability(run)
    show_truth([(run, run.name)])
    if run.source is not None:
        print(f"evaluation: {redacted(run.files.root)}")
