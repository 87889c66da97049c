"""The run in W&B. wandb is imported here and in workspace.py, and nowhere else."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from openmaia.errors import UsageError
from openmaia.schema import TrackingConfig
from openmaia.tracking.ledger import Ledger

INSTALL = "python -m pip install 'wandb>=0.31,<0.32' 'wandb-workspaces>=0.4.13,<0.5'"


class WandbRun:
    """Started, or gone on with under the ledger's id."""

    def __init__(self, tracking: TrackingConfig, ledger: Ledger, name: str, config: Mapping[str, Any], folder: str):
        """folder: below which wandb writes its files. Raises UsageError without wandb, and what wandb raises."""
        try:
            import wandb
        except ImportError as error:
            raise UsageError(f"tracking.kind=wandb needs wandb ({error}); install it: {INSTALL}") from error
        self._wandb: Any = wandb
        self._ledger = ledger
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_stats=True,
            init_timeout=tracking.start_seconds,
        )
        self._run: Any = wandb.init(
            id=ledger.id,
            resume="allow",
            mode="offline" if tracking.mode == "offline" else "online",
            project=tracking.project,
            entity=tracking.entity or None,
            name=tracking.name or name,
            tags=list(tracking.tags),
            config=dict(config),
            dir=folder,
            settings=settings,
        )
        for pattern in ("pools/*", "agents/*", "failures/*", "investigations/*", "evaluation/*", "exemplars/*"):
            self._run.define_metric(pattern, step_metric="run/hours")
        for part in ("unit", "score"):
            self._run.define_metric(f"{part}/*", step_metric=f"{part}/number")

    def log(self, values: Mapping[str, Any]) -> None:
        """A point. Steps go on where an earlier process of this run stopped, also where W&B knows of more."""
        step = max(self._ledger.next_step(), int(self._run.step))
        self._run.log(dict(values), step=step)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Replaces the table before it. Bytes in a row are PNG pictures."""
        table = self._wandb.Table(columns=list(columns))
        for row in rows:
            table.add_data(*(self._cell(value) for value in row))
        self.log({"units": table})

    def histograms(self, values: Mapping[str, Sequence[float]]) -> None:
        def bins(found: Sequence[float]) -> int:
            return min(64, int(max(found) - min(found)) + 1)

        self.log({k: self._wandb.Histogram(list(v), num_bins=bins(v)) for k, v in values.items() if v})

    def finish(self) -> None:
        self._run.finish()

    def _cell(self, value: Any) -> Any:
        return self._wandb.Image(Image.open(io.BytesIO(value))) if isinstance(value, bytes) else value
