"""`openmaia.load` and `openmaia.sweep`: runs as pandas data frames."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from openmaia.analysis.costs.left import find_left
from openmaia.api import frames
from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.config.loading import restore
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.secrets import boundary
from openmaia.core.selection import split_units
from openmaia.core.units import Unit
from openmaia.runs import summary
from openmaia.runs.records import Record
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.snapshot import Snapshot
from openmaia.runs.votes import read_votes

if TYPE_CHECKING:
    from openmaia.assembly.models import Models
    from openmaia.distributed.assembly import Progress
    from openmaia.exemplars.shared import ProgressCallback
    from openmaia.models.targets.preprocess import Preprocess

UnitName = str | tuple[str, int] | Unit
"""`"layer4=122"`, `"layer4/122"`, `("layer4", 122)`, or a `Unit`."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadedRun:
    """The results of a run, as `openmaia.sweep` and `openmaia.load` return it.

    Each method reads files of the run directory when it is called.
    """

    run: Run
    was_complete: bool = False
    """Whether `openmaia.sweep` found the run complete, so that it did nothing."""
    is_unpaid: bool = False
    """Whether `openmaia.sweep` ended because the budget is spent, with investigations or tests that are left."""

    @property
    def path(self) -> str:
        """The path of the run directory."""
        return self.run.files.root

    def units(self) -> pd.DataFrame:
        """Returns a data frame with one row per finished investigation, the table in `summary.parquet` of the run.

        Among the columns are:

        - `target`, `layer`, `index`: the unit that was investigated
        - `replicate`: the number of the replicate, from 0
        - `stop`: how the investigation ended
        - `description`, `labels`: what the agent answered
        - `turns`, `tokens` and others: what the investigation cost
        - `auc` and others: the scores of the description in its test on new images
        - `verdict`: `supported`, `undecided` or `not supported`; `abstained` without a description, and `not tested`
          without a complete test
        - `verdict_reason`: the reason for the verdict
        """
        from openmaia.evaluation.analysis.verdict import score_columns, scores_and_verdicts

        run = Snapshot.of_run(self.run)
        _warn_of_damage(run)
        values = scores_and_verdicts(run)
        rows = [summary.table_row(row, values[InvestigationId.of_row(row)]) for row in run.headers()]
        return pd.DataFrame(rows, columns=[*summary.SCHEMA.names, *score_columns()])

    def scores(self) -> pd.DataFrame:
        """Returns a data frame with one row per evaluated investigation and one column per score of its description.

        The columns `target`, `layer`, `index` and `replicate` name the investigation. Scores that are lists or
        dictionaries are left out.
        """
        from openmaia.evaluation.scores import flat

        run = Snapshot.of_run(self.run)
        _warn_of_damage(run)
        rows = [
            {
                "target": each.unit.target,
                "layer": each.unit.layer,
                "index": each.unit.index,
                "replicate": each.replicate,
            }
            | flat(scores)
            for each, scores in sorted(run.scores().items())
        ]
        return pd.DataFrame(rows)

    def votes(self) -> pd.DataFrame:
        """Returns a data frame with one row per person and description that they voted on (`openmaia view --votes`).

        Beside those that name the investigation, its columns are `person`, `fit` (`fits`, `fits in part` or `does not
        fit`), and `correction`, which may be empty. Votes on descriptions that were replaced since then are left out.
        """
        columns = ["target", "layer", "index", "replicate", "person", "fit", "correction"]
        rows = [
            (*astuple(each.unit), each.replicate, vote.person, vote.fit, vote.correction)
            for each, votes in read_votes(self.run).by_investigation.items()
            for vote in votes
        ]
        return pd.DataFrame(rows, columns=columns)

    def failures(self) -> dict[InvestigationId, str]:
        """Returns the error message of each failed investigation, whose key has the fields `unit` and `replicate`.

        To repeat the failed investigations, resume the run: start it again with the same arguments.
        """
        return self.run.failures()

    def record(self, unit: UnitName, replicate: int = 0) -> Record:
        """Returns the record of one investigation.

        Args:
            unit: The unit, such as `"layer4=122"` or `("layer4", 122)`.
            replicate: The number of the replicate, from 0.

        Raises:
            UsageError: The run has no finished investigation of the unit with this number.
        """
        return self.run.record(self._found(unit, replicate))

    def turns(self, unit: UnitName, replicate: int = 0) -> pd.DataFrame:
        """Returns a data frame with one row per turn of one investigation.

        `openmaia.api.frames.turns` lists its columns.

        Args:
            unit: The unit, such as `"layer4=122"` or `("layer4", 122)`.
            replicate: The number of the replicate, from 0.

        Raises:
            UsageError: The run has no finished investigation of the unit with this number.
        """
        return frames.turns(self.record(unit, replicate))

    def images(self, unit: UnitName, replicate: int = 0) -> pd.DataFrame:
        """Returns a data frame with one row per image on which the agent saw the unit's activation.

        These are the images that the agent measured and the exemplars that it asked for, not those of the test.
        `openmaia.api.frames.images` lists its columns.

        Args:
            unit: The unit, such as `"layer4=122"` or `("layer4", 122)`.
            replicate: The number of the replicate, from 0.

        Raises:
            UsageError: The run has no finished investigation of the unit with this number.
        """
        return frames.images(self.record(unit, replicate))

    def _found(self, unit: UnitName, replicate: int) -> InvestigationId:
        done = sorted(self.run.done())
        if isinstance(unit, Unit):
            return InvestigationId(unit=unit, replicate=replicate)
        layer, index = split_units(unit.strip())[0] if isinstance(unit, str) else unit
        for each in done:
            names = (each.unit.layer, f"{each.unit.target}/{each.unit.layer}")
            if layer in names and (str(each.unit.index), each.replicate) == (str(index).strip(), replicate):
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
    """Opens a run directory to read its results.

    Args:
        run: The path of the directory, such as `runs/demo`. If its descriptions were tested again with other settings
            (`openmaia evaluate runs/demo … --as NAME`), `runs/demo/evaluations/NAME` opens the run with those scores.

    Returns:
        The run, whose methods return its results as pandas data frames.

    Raises:
        UsageError: The folder is no run directory.

    Example:
        >>> run = openmaia.load("runs/demo")
        >>> run.units()[["layer", "index", "description", "auc"]]
        >>> run.images("stage4=66").nlargest(5, "activation")
    """
    return LoadedRun(Run.open(str(run)))


class AnswerTest(Protocol):
    """A test of the answers of a run, for `openmaia.sweep`: a study of your own."""

    def is_done(self, run: LoadedRun) -> bool:
        """Returns whether the answers in all records of the run have been tested."""
        ...

    def test(self, run: LoadedRun, models: "Models", progress: "ProgressCallback") -> None:
        """Tests the answers of the run, and stores the results in its directory, so that `is_done` finds them.

        It is called in the process of the caller when the last investigation has ended and the models are still loaded.

        Args:
            run: The run.
            models: The models of the sweep.
            progress: Called with the numbers of finished and of all items.
        """
        ...


@boundary()
def load_models(model: "LoadedRun | Config | str | Path | Sequence[str]", **overrides: Any) -> "Models":
    """Returns the models that a config or a run names, to use them in this process.

    Args:
        model: A run of `openmaia.load` or `openmaia.sweep`, or a config or the name of a network, as for
            `openmaia.sweep`.
        **overrides: Other settings by their config keys. A run takes none.

    Returns:
        An object with the target, the generators, the language model that writes prompts, and the judge. Each is loaded
        at its first use.

    Raises:
        UsageError: An argument is invalid.

    Example:
        >>> models = openmaia.load_models("configs/demo.yaml")
        >>> (made,) = models.generator.generate([Generation(prompt="a guitar on grass", seed=1)])
        >>> (response,) = models.target.respond([LayerProbe(layer="stage4", image=made.image)])
        >>> response[66]
    """
    from openmaia.assembly.models import Models

    if isinstance(model, LoadedRun):
        if overrides:
            raise UsageError(
                f"{', '.join(overrides)}: the models of a run are those of its config; give the config instead"
            )
        return Models(restore(model.run.config(), model.path), run=model.run)
    return Models(configure(model, "", overrides=overrides, function="openmaia.load_models").config)


@boundary()
def sweep(
    model: "Config | str | Path | Sequence[str]",
    units: str = "",
    *,
    images: str | Path | Mapping[str, Any] | None = None,
    preprocess: "Preprocess | Mapping[str, Any] | None" = None,
    backbone: str | Mapping[str, Any] | None = None,
    test: AnswerTest | None = None,
    progress: "Progress | None" = None,
    **overrides: Any,
) -> LoadedRun:
    """Investigates many units on Ray and tests their descriptions, as the command `openmaia run` does.

    The results are stored in a run directory. If it exists already, the run continues and finished parts are not
    repeated. By default, Ray is started on this machine (config key `ray.address`).

    Args:
        model: A config (a `Config` object, the path of a file, or a list of files and `key=value` overrides), or the
            name of a network, such as `torchvision:resnet18`. The name `package.module:function` stands for a function
            of yours that returns a `torch.nn.Module`. The module itself cannot be passed, because investigations run in
            other processes.
        units: The units. For example, `layer4=122,210:layer3=random:5` are units 122 and 210 of layer4 and five random
            units of layer3. Empty: the units that the config names.
        images: A folder of images, or a mapping with keys of the config section `pictures`. None: as the config says.
        preprocess: For a network that declares no preprocessing, a mapping with `mean`, `std`, `size` and optionally
            `crop`, as for `openmaia.investigate`.
        backbone: The agent, as for `openmaia.investigate`, but as a text or a mapping and not as an object.
        test: A test of your own, which takes the place of the test with generated images.
        progress: An object with the methods `say` and `progress` of `openmaia.distributed.assembly.Progress`, which
            receives messages. None: they are printed, and the errors of failed investigations with them.
        **overrides: Other settings by their config keys, such as `seed=1` or `ray={"investigations": 2}`.

    Returns:
        The run. Its method `failures` returns the errors of investigations that failed.

    Raises:
        UsageError: An argument is invalid, the Ray cluster is too small, or another process works on the same run.

    Example:
        >>> run = openmaia.sweep("torchvision:resnet18", "layer4=random:5", images="photos")
    """
    _refuse_objects(model, images, preprocess, backbone)
    inputs = configure(
        model,
        units,
        images=images,
        preprocess=preprocess,
        backbone=backbone,
        overrides=overrides,
        function="openmaia.sweep",
    )
    from openmaia.assembly.sweeps import run_sweeps, run_tested

    view = progress or PrintedProgress()
    if test is None:
        (outcome,) = run_sweeps([inputs.config], view)
    else:
        outcome = run_tested(
            inputs.config,
            view,
            is_done=lambda run: test.is_done(LoadedRun(run)),
            test=lambda run, models, progress: test.test(LoadedRun(run), models, progress),
        )
    for investigation, cause in outcome.failed.items() if progress is None else ():
        view.say(f"failed: {investigation.unit}: {cause.splitlines()[0]}")
    if outcome.is_unpaid and progress is None:
        view.say(find_left(outcome.run, inputs.config.budget, is_tested=test is None).words)
    return LoadedRun(outcome.run, was_complete=outcome.was_complete, is_unpaid=outcome.is_unpaid)


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


def _warn_of_damage(run: Run) -> None:
    from openmaia.evaluation.damage import damaged_files

    if found := damaged_files(run):
        warnings.warn(
            f"{len(found)} files of {run.files.root} are left out, such as {found[0].name}: {found[0].reason}; "
            "`openmaia show` lists them",
            stacklevel=3,
        )
