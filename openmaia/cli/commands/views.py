"""`openmaia show`, `report`, `trace`, `figures`, `dashboard` and `doctor`: commands that look and change no run."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from openmaia.cli.commands.common import EmbeddingOption, RunPath, RunPaths, print_damage, print_report
from openmaia.cli.commands.completion import complete_config


def show(
    path: RunPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print all units for programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until the run ends.")] = False,
    agents: Annotated[
        bool, typer.Option("--agents", help="Show how well the agents follow the protocol, to compare backbones.")
    ] = False,
) -> None:
    """Shows the progress of a run, why investigations failed, and the verdicts on descriptions.

    It can be used while the run continues.

    Example: openmaia show runs/demo --watch
    """
    from openmaia.runs.run import InvestigationId, Run
    from openmaia.runs.state import state

    run = Run.open(path)
    if agents:
        from openmaia.agent.tasks.task import load
        from openmaia.cli.terminal.runs import show_conduct
        from openmaia.reporting.conduct import conduct

        counted = conduct(run.records(), load(run.config()["task"]["name"]).answer)
        print(json.dumps(asdict(counted), ensure_ascii=False)) if as_json else show_conduct(run.name, counted)
        return
    if as_json:
        from openmaia.evaluation.analysis.significance import supported_shares
        from openmaia.evaluation.analysis.verdict import run_verdicts
        from openmaia.evaluation.metric import columns

        verdicts = run_verdicts(run)
        document = state(run, ["outcome", *columns()])
        document["units"] = [row | verdicts[InvestigationId.of_row(row)].columns for row in document["units"]]
        document["supported"] = supported_shares(run)
        print(json.dumps(document, ensure_ascii=False))
        return
    from openmaia.cli.terminal import runs

    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            runs.watch(run)
        return
    runs.show_state(run, run.config()["evaluate"]["bootstrap"])
    if len(run.done()) <= runs.READ_EVALUATIONS:
        print_damage(run)


def report(runs: RunPaths, embedding: EmbeddingOption = "") -> None:
    """Writes an HTML report with the experiments of one or several runs into the directory of the first one.

    Examples:

    openmaia report runs/demo

    openmaia report runs/demo --embedding sentence-transformers/all-MiniLM-L6-v2
    """
    from openmaia.runs.run import Run

    print_report(runs, embedding)
    for path in runs:
        print_damage(Run.open(path))


def trace(
    path: RunPath,
    out: Annotated[
        str, typer.Option(help="The file that is written; trace.json in the run directory if not given.")
    ] = "",
) -> None:
    """Writes the timeline of a run's investigations as JSON, for https://ui.perfetto.dev or chrome://tracing.

    Example: openmaia trace runs/demo --out demo.json
    """
    from openmaia.reporting.trace import write_trace
    from openmaia.runs.files import Files
    from openmaia.runs.run import Run

    run = Run.open(path)
    folder, _, name = out.rpartition("/")
    files = Files(folder or ("/" if out.startswith("/") else ".")) if out else run.files
    with files.writing(name or "trace.json") as stream:
        count = write_trace(run, stream)
    print(f"trace of {count} investigations: {files.path(name or 'trace.json')}")
    print_damage(run)


def figures(
    runs: RunPaths, to: Annotated[str, typer.Option(help="The folder that the files are written to.")] = "figures"
) -> None:
    """Draws figures and tables of the MAIA papers with our results beside theirs, as PNG, SVG, CSV and LaTeX.

    Example: openmaia figures runs/demo --to figures
    """
    from openmaia.evaluation.analysis.comparison import compare_runs
    from openmaia.reporting.browser.report import named
    from openmaia.reporting.figures.differences import difference_table
    from openmaia.reporting.figures.papers.measured import measured
    from openmaia.reporting.figures.papers.paper_figures import paper_figures
    from openmaia.reporting.figures.truths import truth_tables
    from openmaia.runs.claimed import with_claim_runs
    from openmaia.runs.files import Files
    from openmaia.runs.run import Run

    folder = Files(to)
    folder.create()
    opened = list(named(with_claim_runs(map(Run.open, runs))))
    measurements = [measured(run, name) for run, name in opened]
    drawn = paper_figures(measurements)
    documents = [document for figure in drawn for document in figure.documents()]
    if len(opened) > 1:
        table = difference_table(compare_runs(opened, min(one.resamples for one in measurements)))
        documents += [("differences.csv", table.csv()), ("differences.tex", table.latex())]
    for name, table in truth_tables(opened).items():
        documents += [(f"{name}.csv", table.csv()), (f"{name}.tex", table.latex())]
    for name, data in documents:
        folder.write(name, data)
    print(f"{len(drawn)} figures and tables, each as PNG, SVG, CSV and LaTeX: {Path(folder.path(''))}")
    for run, _ in opened:
        print_damage(run)


def dashboard(path: RunPath) -> None:
    """Writes the W&B workspace of a run as JSON into the run directory, and saves it in W&B if the user has an account.

    Example: openmaia dashboard runs/demo
    """
    from openmaia.reporting.tracking.workspace import write_workspace
    from openmaia.runs.run import Run

    run = Run.open(path)
    written = write_workspace(run)
    print(f"workspace: {written.file}")
    print_damage(run)
    if written.url:
        print(f"saved to W&B: {written.url}")
    else:
        print("not saved to W&B: no account; log in (wandb login, or WANDB_API_KEY) and run this again")


def doctor(
    config: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG", help="YAML files and key=value overrides.", autocompletion=complete_config),
    ] = None,
) -> None:
    """Checks what this machine can run, what is missing for a config, and what to do about it. Loads no weights.

    Example: openmaia doctor configs/resnet152.yaml configs/models/gemma3-27b.yaml
    """
    from openmaia.checks import examine
    from openmaia.cli.terminal.output import console

    results = examine(config or [])
    styles = {"ok": "green", "note": "yellow", "missing": "red"}
    for result in results:
        console.print(f"{result.state:<8}", style=styles[result.state], end="")
        console.print(result.message, highlight=False, markup=False, soft_wrap=True)
    if any(result.state == "missing" for result in results):
        raise SystemExit(1)
