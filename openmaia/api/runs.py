"""`openmaia.load` and `openmaia.sweep`: runs as pandas data frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from openmaia.api import frames
from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.runs import summary
from openmaia.runs.records import Record
from openmaia.runs.run import InvestigationId, Run

if TYPE_CHECKING:
    from openmaia.models.targets.preprocess import Preprocess

UnitName = str | tuple[str, int] | Unit
"""A unit of a run: `"layer4=122"`, `("layer4", 122)`, or a `Unit`."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadedRun:
    """A run directory, which stores investigations of many units. Its tables are read when they are asked for."""

    run: Run

    @property
    def path(self) -> str:
        """The run directory."""
        return self.run.files.root

    def units(self) -> pd.DataFrame:
        """Returns a row for each finished investigation, with the columns of `summary.parquet`.

        They are the unit, the replicate, the answer, counts (such as turns), costs, the scores of the test and the
        verdict.
        """
        from openmaia.evaluation.analysis.verdict import run_verdicts

        verdicts = run_verdicts(self.run)
        investigations = [(row, _investigation(row)) for row in self.run.headers()]
        rows = [summary.table_row(row, self.run.score(each)) | verdicts[each].columns for row, each in investigations]
        return pd.DataFrame(rows, columns=summary.SCHEMA.names)

    def scores(self) -> pd.DataFrame:
        """Returns a row for each tested description of the run with all of its scores that are numbers or texts."""
        from openmaia.evaluation.scores import flat

        rows = [
            {
                "target": each.unit.target,
                "layer": each.unit.layer,
                "index": each.unit.index,
                "replicate": each.replicate,
            }
            | flat(scores)
            for each, scores in sorted(self.run.scores().items())
        ]
        return pd.DataFrame(rows)

    def failures(self) -> dict[InvestigationId, str]:
        """Returns the error messages of the failed investigations.

        The command that started the run investigates them again.
        """
        return self.run.failures()

    def record(self, unit: UnitName, replicate: int = 0) -> Record:
        """Returns everything that happened in one investigation.

        Args:
            unit: The unit, such as `"layer4=122"` or `("layer4", 122)`.
            replicate: The number of the investigation among those of the unit, from 0.

        Raises:
            UsageError: The run has no such record.
        """
        return self.run.record(self._found(unit, replicate))

    def turns(self, unit: UnitName, replicate: int = 0) -> pd.DataFrame:
        """Returns a row for each reply of the agent, see `openmaia.api.frames.turns`.

        The arguments are those of `record`.
        """
        return frames.turns(self.record(unit, replicate))

    def images(self, unit: UnitName, replicate: int = 0) -> pd.DataFrame:
        """Returns a row for each image with an activation.

        See `openmaia.api.frames.images`. For the arguments see `record`.
        """
        return frames.images(self.record(unit, replicate))

    def _found(self, unit: UnitName, replicate: int) -> InvestigationId:
        done = sorted(self.run.done())
        if isinstance(unit, Unit):
            return InvestigationId(unit=unit, replicate=replicate)
        layer, index = unit.rpartition("=")[::2] if isinstance(unit, str) else unit
        for each in done:
            if (each.unit.layer, str(each.unit.index), each.replicate) == (layer, str(index), replicate):
                return each
        known = ", ".join(dict.fromkeys(f"{each.unit.layer}={each.unit.index}" for each in done[:10]))
        raise UsageError(
            f"{self.path} has no finished investigation of {unit!r} (replicate {replicate}); it has {known or 'none'}"
            + (" and more" if len(done) > 10 else "")
        )

    def __repr__(self) -> str:
        done, planned = len(self.run.done()), self.run.planned()
        return f"<run {self.path}: {done} of {planned} investigations done>"


def load(run: str | Path) -> LoadedRun:
    """Opens a run directory, or a further evaluation of one (`RUN/evaluations/NAME`).

    Args:
        run: The directory, such as `runs/demo`.

    Raises:
        UsageError: The folder is no run directory.

    Example:
        >>> run = openmaia.load("runs/demo")
        >>> run.units()[["layer", "index", "description", "auc"]]
        >>> run.images("_conv_head=66").nlargest(5, "activation")
    """
    return LoadedRun(Run.open(str(run)))


def sweep(
    model: "Config | str | Path | Sequence[str]",
    units: str = "",
    *,
    images: str | Path | Mapping[str, Any] | None = None,
    preprocess: "Preprocess | Mapping[str, Any] | None" = None,
    backbone: str | Mapping[str, Any] | None = None,
    **overrides: Any,
) -> LoadedRun:
    """Investigates many units on Ray and tests their descriptions, as `openmaia run` does. Continues a stopped run.

    Args:
        model: A config (an object, a file, or a list of files and overrides), or the name of a network, such as
            `torchvision:resnet18` or `package.module:function`, a function of yours that returns a module. A module
            itself cannot be sent to other processes.
        units: The units, such as `layer4=122,210:layer3=random:5`. Empty: those of the config.
        images: A folder of images, or a mapping with keys of the config section `pictures`. None: as the config says.
        preprocess: A mapping with `mean`, `std`, `size` and optionally `crop`, for a network that declares none.
        backbone: As for `openmaia.investigate`, but no object.
        **overrides: Keys of the config, such as `seed=1` or `ray={"investigations": 2}`.

    Returns:
        The run. Its failures are in `failures()`.

    Raises:
        UsageError: An argument is invalid, or the cluster does not permit the run.

    Example:
        >>> run = openmaia.sweep("torchvision:resnet18", "layer4=random:5", images="photos")
    """
    _refuse_objects(model, images, preprocess, backbone)
    inputs = configure(model, units, images=images, preprocess=preprocess, backbone=backbone, overrides=overrides)
    from openmaia.cli.assembly.sweeps import run_sweeps

    view = PrintedProgress()
    outcome = run_sweeps([inputs.config], view)[0]
    for investigation, cause in outcome.failed.items():
        view.say(f"failed: {investigation.unit}: {cause.splitlines()[0]}")
    return LoadedRun(outcome.run)


def _refuse_objects(model: Any, images: Any, preprocess: Any, backbone: Any) -> None:
    """Raises UsageError if an argument is an object of this process, which the processes of a sweep do not have."""
    reason = "A sweep runs in other processes, which do not have objects of this one"
    if not isinstance(model, Config | str | Path | list | tuple):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise UsageError(
            f"model is a {kind}. {reason}: write a function that returns the network into a file of the current folder, such "
            "as mine.py, and give its name, model='mine:network'; openmaia.investigate takes the module itself"
        )
    if not isinstance(images, str | Path | Mapping | None):
        raise UsageError(
            f"images is a {type(images).__name__}. {reason}: give a folder, or the keys of the section pictures"
        )
    if not isinstance(preprocess, Mapping | None):
        raise UsageError(
            f"preprocess is a {type(preprocess).__name__}. {reason}: give a mapping with mean, std and size, or let the "
            "function return openmaia.models.targets.preprocess.TargetNetwork"
        )
    if not isinstance(backbone, str | Mapping | None):
        raise UsageError(
            f"backbone is a {type(backbone).__name__}. {reason}: serve the model and give openai:MODEL@URL"
        )


def _investigation(row: Mapping[str, Any]) -> InvestigationId:
    unit = Unit(target=row["target"], layer=row["layer"], index=row["index"])
    return InvestigationId(unit=unit, replicate=row["replicate"])
