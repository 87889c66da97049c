"""`openmaia evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.commands.common import Runs, stoppable
from openmaia.errors import UsageError

if TYPE_CHECKING:
    from openmaia.store.run import Run


def evaluate(
    runs: Runs,
    page: Annotated[
        Path | None,
        typer.Option("--2afc-page", help="only write a blind page here on which people choose between labels"),
    ] = None,
    answers: Annotated[
        list[Path] | None,
        typer.Option("--2afc-answers", help="only score a file of answers to it; one for each person"),
    ] = None,
    judge: Annotated[
        bool, typer.Option("--2afc-judge", help="only put the same choices to the model of evaluate.writer")
    ] = False,
) -> None:
    """The predictive protocol and its companions on finished runs, in this process; several runs are compared."""
    from openmaia.commands import choice

    if (page is not None) + bool(answers) + judge > 1:
        raise UsageError("--2afc-page, --2afc-answers and --2afc-judge were given together; give one of them at a time")
    if page is not None:
        return choice.write_page(runs, page)
    if answers:
        return choice.read_answers(runs, answers)
    if judge:
        return choice.ask_model(runs)
    return _evaluate_all(runs)


def _evaluate_all(runs: list[str]) -> None:
    from openmaia.store.run import Run

    opened = [Run.open(path) for path in runs]
    for path, run in zip(runs, opened, strict=True):
        if not run.done():
            raise UsageError(
                f"{path} holds no finished investigation, so that there is no description to evaluate; "
                "openmaia run makes them"
            )
    for path, run in zip(runs, opened, strict=True):
        _evaluate(path, run)
    if len(runs) > 1:
        from openmaia.evaluate.compared import compared
        from openmaia.report.write import named
        from openmaia.terminal.comparison import show_comparison

        resamples = min(run.config()["evaluate"]["bootstrap"] for run in opened)
        show_comparison(compared(list(named(opened)), resamples))


def _evaluate(path: str, run: "Run") -> None:
    from openmaia.config import load
    from openmaia.evaluate.run import evaluate as evaluate_run
    from openmaia.instruments import design, in_process
    from openmaia.schema import Config as Settings
    from openmaia.terminal.evaluation import show_evaluation
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.tables import table

    settings: Settings = load([f"{path}/config.yaml"])
    with stoppable(), Terminal() as terminal:
        evaluate_run(
            run,
            in_process(settings),
            design(settings),
            lambda done, total: terminal.progress("evaluation", done, total),
        )
    run.write_summary()
    table(run, settings.evaluate.bootstrap)
    show_evaluation(run, settings.evaluate.bootstrap)
