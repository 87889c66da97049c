"""The result of `openmaia.investigate`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmaia.config.schema import Config
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.runs.records import Record

if TYPE_CHECKING:
    import pandas as pd

    from openmaia.evaluation.analysis.verdict import UnitVerdict
    from openmaia.evaluation.scores import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UnitResult:
    """What an agent found out about one unit. In a notebook it shows itself as a grid of images."""

    record: Record
    """Everything that happened in the investigation."""
    exemplars: UnitExemplars
    """The dataset images that excite the unit most and least."""
    evaluation: "Evaluation | None"
    """The test of the description on new images. None if it was not tested."""
    config: Config
    """The config of the investigation."""

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
        """The agent's final labels: short names of what the unit responds to."""
        return self.record.labels

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of the description's test by name, such as `auc`. Empty if the description was not tested."""
        return self.evaluation.scores if self.evaluation else {}

    @property
    def verdict(self) -> "UnitVerdict":
        """The verdict on the description, and why.

        In the investigation of a single unit, a tested description is never compared with descriptions of other units.
        It therefore has no p-value, and its verdict is `untested`.
        """
        from openmaia.evaluation.analysis.verdict import judge

        return judge(self.record.stop.value, self.scores, self.record.cause)

    def turns(self) -> "pd.DataFrame":
        """Returns a row for each reply of the agent, with its experiment. See `openmaia.api.frames.turns`."""
        from openmaia.api.frames import turns

        return turns(self.record)

    def images(self) -> "pd.DataFrame":
        """Returns a row for each image with a known activation. See `openmaia.api.frames.images`."""
        from openmaia.api.frames import images

        return images(self.record)

    def show(self) -> None:
        """Shows the result: in a notebook as a page with images, elsewhere as text."""
        from openmaia.api.html import show

        show(self)

    def save(self, run_dir: str | Path) -> str:
        """Adds the record and the description's test to a run directory, which is created if it does not exist.

        The directory is like that of `openmaia run`: `openmaia report` shows it. An earlier record of the unit is kept;
        the new one becomes a further replicate.

        Args:
            run_dir: The run directory, such as `runs/mine`.

        Returns:
            The path of the record.

        Raises:
            UsageError: The directory holds a run of another config, or cannot be written.
        """
        from openmaia.evaluation.analysis.verdict import write_summary
        from openmaia.evaluation.storage import to_parquet
        from openmaia.runs.run import EVALUATION, Run

        folder = Path(run_dir)
        run = Run.create(
            replace(self.config, name=folder.name, paths=replace(self.config.paths, runs=str(folder.parent)))
        )
        investigation = run.add(self.record)
        if self.evaluation is not None:
            trial = self.evaluation.trial
            claim = replace(trial.claim, replicate=investigation.replicate)
            tested = replace(self.evaluation, trial=replace(trial, claim=claim))
            run.write_artifact(EVALUATION, investigation, to_parquet(tested))
        write_summary(run)
        return run.record_path(investigation)

    def __repr__(self) -> str:
        labels = ", ".join(self.labels) or "none"
        auc = self.scores.get("auc")
        tested = "not tested" if auc is None else f"AUC {auc:.2f} on new images"
        said = self.description or f"no description ({self.record.stop.value})"
        return f"{self.unit}: {said}\nlabels: {labels}; {tested}; backbone: {self.record.backbone}"

    def _repr_html_(self) -> str:
        from openmaia.api.html import result_page

        return result_page(self)
