"""Creates and updates a W&B run. Only this module and workspace.py import wandb."""

import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from PIL import Image

from openmaia.config.loading import to_dict
from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.run import Run

STATE = "tracking/wandb.json"
"""File with the id and the first start of the W&B run, which a resumed run continues."""
INSTALL = "python -m pip install 'wandb>=0.31,<0.32' 'wandb-workspaces>=0.4.13,<0.5'"
AGENT = "agent"
"""Key of the W&B config with the name of the backbone, by which runs are grouped."""
_HIDDEN = ("paths", "tracking", "address", "base_url")
"""Config keys that are not sent to W&B: paths of files, and addresses, which may contain credentials."""
_START_SECONDS = 60.0
"""Seconds within which the W&B client has to start."""
_ENVIRONMENT = threading.Lock()


def make_plain(name: str) -> str:
    """Converts a name to a part of a metric name. Special characters are replaced, because W&B interprets them."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def read_state(run: Run) -> tuple[str, float] | None:
    """Returns the id of the W&B run, and its first start in seconds since the epoch; None if the run was not tracked.

    Raises StoreError if STATE is damaged.
    """
    state = run.files.read_json(STATE, "remove it to start a new W&B run")
    if state is None:
        return None
    try:
        return make_plain(str(state["id"])), float(state["began"])
    except (TypeError, KeyError, ValueError) as error:
        raise StoreError(f"{run.files.path(STATE)} is damaged; remove it to start a new W&B run ({error!r})") from error


class WandbRun:
    """The W&B run of a run, which a resumed run continues."""

    def __init__(self, config: Config, run: Run, folder: Path):
        """Starts or continues the W&B run, with local files in `folder`.

        Raises UsageError if wandb is not installed, or no account is configured in online mode.
        """
        try:
            import wandb
        except ImportError as error:
            raise UsageError(f"wandb is not installed ({error}); install it: {INSTALL}") from error
        tracking, state = config.tracking, read_state(run)
        if tracking.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise UsageError("there is no account")
        self.is_resumed = state is not None
        self.id, self.began = state or (f"{make_plain(config.name)[:40]}-{uuid.uuid4().hex[:12]}", time.time())
        self._step, self._folder = 0, folder / "wandb"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(
            id=self.id,
            resume="allow",
            reinit="create_new",
            mode="offline" if tracking.mode == "offline" else "online",
            project=tracking.project,
            entity=tracking.entity or None,
            name=tracking.name or config.name,
            tags=list(tracking.tags),
            config=_visible(to_dict(config)) | {AGENT: of_config(config.backbone).title(config.backbone)},
            dir=folder,
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                disable_job_creation=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,  # it holds the command line
                init_timeout=_START_SECONDS,
                finish_timeout=tracking.finish_seconds,
            ),
        )
        for part in ("pools", "agents", "failures", "investigations", "turns", "evaluation", "exemplars"):
            self._run.define_metric(f"{part}/*", step_metric="run/hours")
        for part in ("unit", "score"):
            self._run.define_metric(f"{part}/*", step_metric=f"{part}/number")
        run.files.write(STATE, json.dumps({"id": self.id, "began": self.began}).encode())

    def log(self, values: Mapping[str, Any]) -> None:
        """Logs values by metric name."""
        # W&B's step must grow with each call, also in a resumed run: it is the elapsed time in tenths of a second.
        self._step = max(self._step + 1, int(10 * (time.time() - self.began)))
        self._run.log(dict(values), step=self._step)

    def log_table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Logs the table "units", which replaces the previous one. A cell may be a PIL image."""
        import wandb

        table: Any = wandb.Table(columns=list(columns))
        for row in rows:
            table.add_data(*(wandb.Image(cell) if isinstance(cell, Image.Image) else cell for cell in row))
        with _data_folder(self._folder):
            self.log({"units": table})

    def summarize(self, values: Mapping[str, Any]) -> None:
        """Sets values of the summary of the run, by metric name."""
        self._run.summary.update(dict(values))

    def finish(self) -> None:
        """Waits until wandb has sent all data, or has stored them in offline mode."""
        self._run.finish()


def end_service() -> None:
    """Kills the service process of wandb after a failure.

    Otherwise Python would wait without limit at exit if the service hangs, or print a traceback if it has died.
    """
    import wandb

    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for pid in children.read_text().split():
                if Path(f"/proc/{pid}/comm").read_text().strip() == "wandb-core":
                    os.kill(int(pid), signal.SIGKILL)
    with suppress(Exception, SystemExit):
        wandb.teardown()


def _visible(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    section = cast(dict[str, Any], values)
    return {key: _visible(value) for key, value in section.items() if key not in _HIDDEN}


@contextmanager
def _data_folder(folder: Path) -> Generator[None]:
    """Context manager in which wandb stores the files of tables in a folder."""
    with _ENVIRONMENT:
        before = os.environ.get("WANDB_DATA_DIR", "")
        os.environ["WANDB_DATA_DIR"] = str(folder)
        try:
            yield
        finally:
            os.environ["WANDB_DATA_DIR"] = before
            if not before:
                del os.environ["WANDB_DATA_DIR"]
