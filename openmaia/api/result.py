"""The result of `openmaia.investigate`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmaia.config.schema import Config
from openmaia.core.services import UnitExemplars
from openmaia.core.units import TargetInfo, Unit
from openmaia.runs.records import Record

if TYPE_CHECKING:
    import pandas as pd

    from openmaia.evaluation.analysis.verdict import UnitVerdict
    from openmaia.evaluation.compared import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnitResult:
    """The result of `openmaia.investigate`: what an agent found out about one unit, and how its description was tested.

    As the last expression of a notebook cell, it is displayed as a page with images.
    """

    record: Record
    """The record of the investigation."""
    exemplars: UnitExemplars
    """The exemplars of the unit, and statistics of its activations."""
    evaluation: "Evaluation | None"
    """The test of the description. None if it was not tested."""
    config: Config
    """The config of the investigation."""
    network: TargetInfo | None = None
    """The target. None: it is not noted in the run in which the result is saved."""

    @property
    def unit(self) -> Unit:
        """The unit that was investigated."""
        return self.record.unit

    @property
    def description(self) -> str:
        """The agent's final description of the unit. Empty if the agent abstained or reached a limit."""
        return self.record.description

    @property
    def labels(self) -> tuple[str, ...]:
        """The agent's final labels. May be empty."""
        return self.record.labels

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of the description in its test on new images, by name, such as `auc`. Empty if it was not tested."""
        from openmaia.evaluation.scores import score

        return score(self.evaluation) if self.evaluation else {}

    @property
    def verdict(self) -> "UnitVerdict":
        """Whether the test supports the description (field `verdict`), and why (field `reason`).

        The verdict `supported` needs a comparison with the descriptions of other units, which only runs of many
        units make (`openmaia.sweep`). A description that beats every control is therefore `undecided` here.
        """
        from openmaia.evaluation.analysis.verdict import judge

        scores = self.scores or ({} if self.record.description or self.record.labels else {"outcome": "abstained"})
        return judge(self.record.stop.value, scores, self.record.cause)

    def turns(self) -> "pd.DataFrame":
        """Returns a data frame with one row per turn. `openmaia.api.frames.turns` lists its columns."""
        from openmaia.api.frames import turns

        return turns(self.record)

    def images(self) -> "pd.DataFrame":
        """Returns a data frame with one row per image on which the agent saw the unit's activation.

        These are the images that the agent measured and the exemplars that it asked for, not those of the test.
        `openmaia.api.frames.images` lists its columns.
        """
        from openmaia.api.frames import images

        return images(self.record)

    def show(self) -> None:
        """Displays the result: in a notebook as a page with images, elsewhere as printed text."""
        from openmaia.api.html import show

        show(self)

    def save(self, run_dir: str | Path) -> str:
        """Adds the record, and the test of the description, to a run directory, which is created if it does not exist.

        `openmaia.load` and `openmaia report` read the directory, as they read one of `openmaia run`. Earlier records of
        the same unit are kept: the new one gets the next replicate number.

        Args:
            run_dir: The path or URL of the run directory, such as `runs/mine`.

        Returns:
            The path of the file of the record.

        Raises:
            UsageError: The directory holds a run of another config, or cannot be written.
        """
        from openmaia.evaluation.analysis.verdict import write_summary
        from openmaia.evaluation.claims import read_claim
        from openmaia.evaluation.storage import to_parquet
        from openmaia.runs.files import Files
        from openmaia.runs.run import EVALUATION, Run

        folder = Files(str(run_dir))
        paths = replace(self.config.paths, runs=folder.above(1).root)
        run = Run.create(replace(self.config, name=folder.name, paths=paths))
        if self.network is not None:
            run.bind(self.network)
        investigation = run.add(self.record)
        if self.evaluation is not None:
            trial = self.evaluation.trial
            basis = read_claim(run, investigation).basis
            claim = replace(trial.claim, replicate=investigation.replicate, basis=basis)
            tested = replace(self.evaluation, trial=replace(trial, claim=claim))
            run.write_artifact(EVALUATION, investigation, to_parquet(tested))
        write_summary(run)
        return run.record_path(investigation)

    def __repr__(self) -> str:
        verdict = self.verdict
        said = self.description or f"no description ({self.record.stop.value})"
        labels = ", ".join(self.labels) or "none"
        return (
            f"{self.unit}: {said}\nlabels: {labels}; backbone: {self.record.backbone}\n"
            f"{verdict.verdict.value}: {verdict.reason}"
        )

    def _repr_html_(self) -> str:
        from openmaia.api.html import render_result

        return render_result(self)
