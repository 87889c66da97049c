"""The command line. Commands import what they need when they run, so that --help answers at once."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from openmaia.errors import OpenMaiaError, UsageError
from openmaia.signals import on_sigterm

app = typer.Typer(
    name="openmaia",
    help="Agents that find out what the neurons of vision networks do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Config = Annotated[list[str], typer.Argument(help="YAML files and key=value overrides, later ones win")]
Runs = Annotated[list[str], typer.Argument(help="run directories, such as runs/demo")]


def main() -> None:
    """Exit codes: 0 all done, 1 some units failed or something of ours did, 2 the user's mistake."""
    on_sigterm()
    try:
        app()
    except UsageError as error:
        _fail(error.message, 2)
    except OpenMaiaError as error:
        _fail(error.message, 1)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C and SIGTERM end orderly: what was completed is kept."""
    try:
        yield
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on from here", 1)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


@app.command()
def run(config: Config) -> None:
    """A whole sweep on Ray: exemplars, investigations, evaluation, report. Resumes by itself."""
    from openmaia.config import load

    settings = load(config)
    from openmaia.remote.sweep import sweep
    from openmaia.terminal import Terminal, table

    with _stoppable(), Terminal() as terminal:
        outcome = sweep(settings, terminal)
        terminal.say("everything was done already" if outcome.was_complete else f"{outcome.done} investigations done")
    page = _report([outcome.run.files.root])
    table(outcome.run, settings.evaluate.bootstrap)
    for owed, cause in outcome.failed.items():
        print(f"failed: {owed.unit}: {cause.splitlines()[0]}", file=sys.stderr)
    print(f"report: {page}")
    if outcome.failed:
        raise SystemExit(1)


@app.command()
def investigate(
    config: Config,
    unit: Annotated[str, typer.Option(help="one unit, such as layer4=122")],
) -> None:
    """One unit in this process, without Ray, the conversation live in the terminal."""
    from openmaia import build, exemplars
    from openmaia.agent.attempt import attempt
    from openmaia.config import load
    from openmaia.store.files import safe
    from openmaia.store.run import Owed, Run
    from openmaia.tasks.task import load as load_task
    from openmaia.terminal import Terminal, show_turn
    from openmaia.units import select

    settings = load([*config, f"units={unit}"])
    units = select(unit, build.target(settings).info()).units
    if len(units) != 1:
        raise UsageError(f"--unit {unit} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    settings.name = safe(f"{settings.name}-{units[0].layer}-{units[0].index}")
    record_run = Run.create(settings)
    record_run.set_plan(units, settings.replicates)
    with Terminal() as terminal:
        store = exemplars.make(
            settings, [units[0].layer], terminal.say, lambda done, total: terminal.progress("exemplars", done, total)
        )
    with _stoppable():
        result = attempt(
            Owed(unit=units[0], replicate=0),
            load_task(settings.task.name),
            build.services(settings, store),
            build.options(settings),
            record_run,
            watch=show_turn,
        )
    if result.summary is None:
        _fail(result.cause, 1)
    print(f"record: {record_run.files.root}")


@app.command()
def exemplars(config: Config) -> None:
    """Exemplars of all units of the layers asked for (target.layers). Resumes by itself."""
    from openmaia.config import load

    settings = load(config)
    from openmaia.remote import exemplars as maker
    from openmaia.remote.cluster import cluster
    from openmaia.report.sheets import write_sheets
    from openmaia.terminal import Terminal, exemplars_table

    with _stoppable(), Terminal() as terminal:
        terminal.say("starting Ray and loading the network")
        with cluster(settings):
            store = maker.make(settings, lambda info: list(info.layers), partial(terminal.progress, "exemplars"))
    exemplars_table(store, settings.target.name)
    print("drawing contact sheets")
    pages = write_sheets(store, settings.target.name, store.layers())
    print("\n".join(f"contact sheet: {page}" for page in pages))


@app.command()
def evaluate(runs: Runs) -> None:
    """The predictive protocol on finished runs, in this process."""
    from openmaia import build
    from openmaia.config import load
    from openmaia.evaluate.run import evaluate as evaluate_run
    from openmaia.schema import Config as Settings
    from openmaia.store.run import Run
    from openmaia.terminal import Terminal, table

    for path in runs:
        opened = Run.open(path)
        settings: Settings = load([f"{path}/config.yaml"])
        with _stoppable(), Terminal() as terminal:
            evaluate_run(
                opened,
                build.generator(settings),
                build.target(settings),
                n=settings.evaluate.n,
                seed=settings.seed,
                progress=lambda done, total, t=terminal: t.progress("evaluation", done, total),
            )
        opened.write_summary()
        table(opened, settings.evaluate.bootstrap)


@app.command()
def report(runs: Runs) -> None:
    """Write the report of one or several runs into the first one's directory."""
    print(f"report: {_report(runs)}")


@app.command()
def show(
    path: Annotated[str, typer.Argument(metavar="RUN", help="a run directory")],
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """The state of a run: owed, running, done, failed and why. Works while it runs."""
    from openmaia.store.run import Run
    from openmaia.store.state import state

    opened = Run.open(path)
    found = state(opened)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    from openmaia.terminal import show_state

    show_state(found, opened)


@app.command("import-maia")
def import_maia(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="a folder of published files; all below it is looked at")
    ],
    to: Annotated[str, typer.Option(help="where exemplars, unit lists and labels go")] = "exemplars",
    target: Annotated[str, typer.Option(help="the target's name here, in place of the published model's")] = "",
    dataset: Annotated[str, typer.Option(help="the dataset's name here (exemplars.dataset), such as imagenet")] = "",
    runs: Annotated[str, typer.Option(help="where the answers of published investigations go, as labels")] = "",
) -> None:
    """Take over exemplars, unit lists, labels and results of MAIA, MILAN and others."""
    from openmaia.interchange.maia import Import
    from openmaia.terminal import Terminal

    with _stoppable(), Terminal() as terminal:
        report = Import(folder, to, target=target, dataset=dataset, runs=runs).run(terminal.progress)
    print("\n".join(report.lines()))
    if not report.imported:
        raise UsageError(f"nothing below {folder} could be imported")


@app.command("export-maia")
def export_maia(
    folder: Annotated[str, typer.Argument(metavar="EXEMPLARS_DIR", help="exemplars of OpenMAIA, such as exemplars")],
    to: Annotated[str, typer.Argument(metavar="TO", help="gets TARGET/DATASET/LAYER folders")],
) -> None:
    """Write exemplars as MAIA and MILAN lay them out."""
    from openmaia.interchange.export import export
    from openmaia.terminal import Terminal

    with _stoppable(), Terminal() as terminal:
        said = export(folder, to, terminal.progress)
    print("\n".join(said))


@app.command()
def doctor(
    config: Annotated[list[str] | None, typer.Argument(help="YAML files and key=value overrides")] = None,
) -> None:
    """What this machine can run, what is missing, and the command that mends it."""
    from openmaia.doctor import examine
    from openmaia.terminal import show_findings

    if not show_findings(examine(config or [])):
        raise SystemExit(1)


def _report(runs: list[str]) -> Path:
    from openmaia.report import write_report
    from openmaia.store.run import Run

    return write_report([Run.open(path) for path in runs])


if __name__ == "__main__":
    main()
