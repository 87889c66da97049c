"""`openmaia import-maia` and `openmaia export-maia`: files of other projects."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import print_damage
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

if TYPE_CHECKING:
    from openmaia.evaluation.trials import Trial
    from openmaia.interop.histories import TestedImage


def import_maia(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder with published files, at any depth.")],
    to: Annotated[str, typer.Option(help="The folder that exemplars and labels are written to.")] = "exemplars",
    target: Annotated[
        str, typer.Option(help="The target's name here, if it is not the published one. Label tables need it.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="The dataset's name here (exemplars.dataset), such as imagenet.")] = "",
    method: Annotated[
        str, typer.Option(help="The method that made the labels of tables. Default: the one of their format.")
    ] = "",
) -> None:
    """Imports exemplars, labels and agents' final answers that other projects published.

    The projects are MAIA, MILAN, CLIP-Dissect, Describe-and-Dissect and CoSy.

    Example: openmaia import-maia ~/maia/exemplars --dataset imagenet
    """
    from openmaia.cli.terminal.output import Terminal
    from openmaia.interop.importing import Importer

    with Terminal() as terminal:
        report = Importer(folder, to, target=target, dataset=dataset, method=method).run(terminal.progress)
    print("\n".join(report.lines()))
    if not report.imported:
        raise UsageError(f"nothing below {folder} could be imported")


def export_maia(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_EXEMPLARS", help="A run directory, or exemplars of OpenMAIA, such as exemplars."
        ),
    ],
    to: Annotated[str, typer.Argument(metavar="TO", help="The folder that is written to.")],
) -> None:
    """Writes a run, or exemplars, in the layout of the published MAIA code.

    Exemplars become TARGET/DATASET/LAYER folders. A run becomes AGENT/TARGET/LAYER/UNIT folders with history.json,
    experiment.html, description.txt and the results of its evaluation.

    Example: openmaia export-maia runs/demo published
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


def _export_run(path: str, to: Path, progress: Callable[[str, int, int], None]) -> list[str]:
    """Writes all investigations of a run that ended with an answer. Returns messages about the result.

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
