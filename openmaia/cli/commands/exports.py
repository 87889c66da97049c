"""`openmaia export`: runs as files of other programs."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import RunPath, RunPaths, print_damage, stoppable
from openmaia.cli.commands.help import Command, Group
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

if TYPE_CHECKING:
    from openmaia.evaluation.trials import Trial
    from openmaia.interop.histories import TestedImage
    from openmaia.runs.files import Files
    from openmaia.runs.records import Record

export = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Writes runs for MAIA, Neuronpedia, delphi, W&B and others.\n\nExample: openmaia export maia runs/demo --to published",
)


@export.command(cls=Command)
@stoppable()
def maia(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_EXEMPLARS", help="A run directory, or exemplars of OpenMAIA, such as exemplars."
        ),
    ],
    to: Annotated[str, typer.Option(help="The folder that is written to.")],
) -> None:
    """Writes a run, or exemplars, in the layout of the published MAIA code.

    Exemplars become TARGET/DATASET/LAYER folders. A run becomes AGENT/TARGET/LAYER/UNIT folders with history.json,
    experiment.html, description.txt and the results of its evaluation.

    Example: openmaia export maia runs/demo --to published
    """
    from openmaia.cli.terminal.output import Terminal
    from openmaia.interop.export import export
    from openmaia.runs.files import Files
    from openmaia.runs.run import Run

    if "://" in to:
        raise UsageError(f"{to} is a URL; give a folder of this machine")
    is_run = Files(folder).read("config.yaml") is not None
    with Terminal() as terminal:
        if is_run:
            lines = _export_run(folder, user_path(to), terminal.progress)
        else:
            lines = export(folder, to, terminal.progress)
    print("\n".join(lines))
    if is_run:
        print_damage(Run.open(folder))


@export.command(cls=Command)
@stoppable()
def neuronpedia(
    path: RunPath, to: Annotated[str, typer.Option(help="The folder that is written to.")] = "neuronpedia"
) -> None:
    """Writes the descriptions of a run as explanations of Neuronpedia.

    They become TARGET/LAYER/explanations/batch-N.jsonl.gz, as in Neuronpedia's own exports.

    Example: openmaia export neuronpedia runs/demo --to explanations
    """
    from openmaia.interop.explanations import write_neuronpedia

    _export_descriptions(path, to, write_neuronpedia)


@export.command(cls=Command)
@stoppable()
def delphi(path: RunPath, to: Annotated[str, typer.Option(help="The folder that is written to.")] = "delphi") -> None:
    """Writes the descriptions of a run as delphi writes its explanations.

    They become explanations/LAYER_latentINDEX.txt, one per unit.

    Example: openmaia export delphi runs/demo --to results/demo
    """
    from openmaia.interop.explanations import write_delphi

    _export_descriptions(path, to, write_delphi)


def _export_descriptions(path: str, to: str, write: "Callable[[Iterable[Record], Path], list[str]]") -> None:
    from openmaia.runs.run import Run

    if "://" in to:
        raise UsageError(f"{to} is a URL; give a folder of this machine")
    run = Run.open(path)
    print("\n".join(write(run.records(sorted(run.done())), user_path(to))))
    print_damage(run)


@export.command(cls=Command)
@stoppable()
def corrections(
    path: RunPath, to: Annotated[str, typer.Option(help="The table that is written.")] = "corrections.csv"
) -> None:
    """Writes the labels with which people corrected descriptions (openmaia view --votes).

    openmaia evaluate RUN --claims TABLE tests them beside the run's own.

    Example: openmaia export corrections runs/demo --to corrections.csv
    """
    import csv

    from openmaia.runs.run import Run
    from openmaia.runs.votes import corrections, read_votes

    if "://" in to:
        raise UsageError(f"{to} is a URL; give a file of this machine")
    rows = list(corrections(read_votes(Run.open(path))))
    if not rows:
        raise UsageError(
            f"nobody has corrected a description of {path}; people do on pages of openmaia view {path} --votes"
        )
    try:
        with user_path(to).open("x", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UsageError(f"{to} cannot be written ({error.strerror}); give another file") from error
    print(f"{len(rows)} corrections: {to}")


@export.command(cls=Command)
@stoppable()
def trace(
    path: RunPath,
    to: Annotated[str, typer.Option(help="The file that is written. Default: RUN/trace.json.")] = "",
) -> None:
    """Writes the timeline of a run's investigations as JSON.

    https://ui.perfetto.dev and chrome://tracing show the file.

    Example: openmaia export trace runs/demo --to demo.json
    """
    from openmaia.reporting.trace import write_trace
    from openmaia.runs.run import Run

    run = Run.open(path)
    files, name = _target(to, "trace.json", run.files)
    with files.writing(name) as stream:
        count = write_trace(run, stream)
    print(f"trace of {count} investigations: {files.path(name)}")
    print_damage(run)


@export.command(cls=Command)
@stoppable()
def otel(
    path: RunPath,
    to: Annotated[
        str, typer.Option(help="A file, or the URL of an OTLP receiver (http). Default: RUN/otel.jsonl.")
    ] = "",
) -> None:
    """Writes a run's investigations as spans of OpenTelemetry.

    They follow the GenAI conventions, and hold no prompts, replies, code, labels or images. A file is OTLP JSON. What is
    sent again has the same identifiers.

    Example: openmaia export otel runs/demo --to http://localhost:4318/v1/traces
    """
    from openmaia.core.shipped import install_command
    from openmaia.runs.run import Run

    try:
        from openmaia.reporting.spans import to_file, to_server, write_spans
    except ModuleNotFoundError as error:
        raise UsageError(f"export otel needs {error.name}; {install_command('otel')}") from error
    run = Run.open(path)
    if to.startswith(("http://", "https://")):
        count = write_spans(run, to_server(to))
        print(f"spans of {count} investigations were sent")
        print_damage(run)
        return
    if to.endswith("/v1/traces") or to.lower().startswith(("grpc:", "http:", "https:")):
        raise UsageError(f"{to} is neither a file nor the URL of an OTLP receiver; write http://HOST:4318/v1/traces")
    files, name = _target(to, "otel.jsonl", run.files)
    with files.writing(name) as stream:
        count = write_spans(run, to_file(stream))
    print(f"spans of {count} investigations: {files.path(name)}")
    print_damage(run)


@export.command(cls=Command)
@stoppable()
def figures(
    runs: RunPaths, to: Annotated[str, typer.Option(help="The folder that the files are written to.")] = "figures"
) -> None:
    """Draws figures and tables of the MAIA papers with our results.

    The published results stand beside. Each figure and table is written as PNG, SVG, CSV and LaTeX.

    Example: openmaia export figures runs/demo --to figures
    """
    from openmaia.reporting.figures.beside import set_beside_papers
    from openmaia.reporting.tables import name_runs
    from openmaia.runs.claimed import with_claim_runs
    from openmaia.runs.files import Files
    from openmaia.runs.run import Run

    folder = Files(to)
    folder.create()
    opened = list(name_runs(with_claim_runs(map(Run.open, runs))))
    found = set_beside_papers(opened)
    for name, data in found.files(is_png=True):
        folder.write(name, data)
    print(f"{len(found.figures)} figures and tables, each as PNG, SVG, CSV and LaTeX: {Path(folder.path(''))}")
    for run, _ in opened:
        print_damage(run)


@export.command(cls=Command)
@stoppable()
def dashboard(
    runs: RunPaths,
    to: Annotated[str, typer.Option(help="The file of the comparison of several runs. Default: comparison.json.")] = "",
) -> None:
    """Writes the W&B workspace of a run as JSON, and saves it in W&B.

    The file of one run is in its run directory. Several runs get one workspace that compares them by backbone. It is
    saved in W&B if you are logged in there.

    Example: openmaia export dashboard runs/demo
    """
    from openmaia.reporting.tracking.workspace import write_comparison, write_workspace
    from openmaia.runs.run import Run

    opened = [Run.open(path) for path in runs]
    if len(opened) == 1:
        if to:
            raise UsageError(f"--to {to} is the file of a comparison; give several runs, or leave it out")
        written = write_workspace(opened[0])
    else:
        written = write_comparison(opened, *_target(to, "comparison.json"))
    print(f"workspace: {written.file}")
    for run in opened:
        print_damage(run)
    if written.url:
        print(f"saved to W&B: {written.url}")
    else:
        print("not saved to W&B: no account; log in (wandb login, or WANDB_API_KEY) and run this again")


def _target(to: str, usual: str, files: "Files | None" = None) -> "tuple[Files, str]":
    """Returns where the file `to` is written, and its name; if it is empty, `files` (or the working directory) and the `usual` name."""
    from openmaia.runs.files import Files

    folder, _, name = to.rpartition("/")
    return files if files and not to else Files(folder or ("/" if to.startswith("/") else ".")), name or usual


def _export_run(path: str, to: Path, progress: Callable[[str, int, int], None]) -> list[str]:
    """Writes all investigations of a run that ended with an answer. Returns lines for the user.

    Raises:
        UsageError: No investigation ended with an answer, or the folder for one exists already or cannot be written.
    """
    from openmaia.evaluation.storage import StoredTrials
    from openmaia.interop import histories
    from openmaia.runs.records import Stop
    from openmaia.runs.run import InvestigationId, Run

    run = Run.open(path)
    done, evaluated = sorted(run.done()), run.evaluated()
    trials = StoredTrials(run, evaluated)
    ends: Counter[Stop] = Counter()
    for number, record in enumerate(run.records(done), start=1):
        investigation = InvestigationId(unit=record.unit, replicate=record.replicate)
        ends[record.stop] += 1
        if record.stop is Stop.ANSWER:
            # The published layout has one folder per unit.
            agent = record.backbone + (f"-{investigation.replicate}" if investigation.replicate else "")
            place = histories.locate_folder(to, agent, record.unit)
            trial = trials.readable(investigation, images=True) if investigation in evaluated else None
            try:
                histories.write(place, record, trial and (_tested(trial, "positive"), _tested(trial, "neutral")))
            except FileExistsError as error:
                raise UsageError(f"{place} exists already; give another folder, or remove it") from error
            except OSError as error:
                raise UsageError(f"{place} cannot be written: {error.strerror or error}") from error
        progress("investigations", number, len(done))
    written = ends.pop(Stop.ANSWER, 0)
    if not written:
        raise UsageError(f"{path} holds no investigation that ended with an answer")
    left_out = "".join(f"; {count} left out that ended with {stop}" for stop, count in sorted(ends.items()))
    return [f"{written} investigations{left_out} -> {to}"]


def _tested(trial: "Trial", role: str) -> "list[TestedImage]":
    from openmaia.core.images import EncodedImage
    from openmaia.interop.histories import TestedImage

    return [
        TestedImage(
            prompt=stimulus.prompt,
            activation=stimulus.activation,
            image=EncodedImage(data=stimulus.data) if stimulus.data else None,
        )
        for stimulus in trial.stimuli
        if stimulus.role == role
    ]
