"""Sweeps that take seconds: formulas for units, a recorded conversation for a backbone, eight pictures."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from openmaia.assembly.exemplars import make
from openmaia.config.loading import load
from openmaia.runs.run import InvestigationId, Run
from tests.cluster.ray_hosts import node_environment
from tests.conftest import REPOSITORY
from tests.helpers.images import sample_image, save

TALK = [
    """[HYPOTHESIS LIST]:
1. red things
[CODE]:
```python
images = tools.text2image(["a red circle", "a blue square"])
activations, shown = system.call_neuron(images)
tools.visit()
tools.devour()
tools.display(shown, activations)
```""",
    "[DESCRIPTION]: red things\n[LABEL 1]: red circle",
]

TWELVE = "units=mono=0-5:or=0-2:and=0-2"


@dataclass(frozen=True)
class Meeting:
    """Where a test and the tools of its agents meet."""

    folder: Path

    def hold_after(self, visits: int) -> None:
        new = self.folder / "hold.new"
        new.write_text(str(visits))
        new.replace(self.folder / "hold")  # tools may read it meanwhile

    def clear(self) -> None:
        for path in (self.folder / "visits").iterdir():
            path.unlink()

    def go_on(self) -> None:
        (self.folder / "hold").unlink()

    def visits(self) -> list[str]:
        """A host for every experiment that was begun."""
        return [path.read_text() for path in (self.folder / "visits").iterdir()]


@dataclass(frozen=True)
class Sweep:
    sources: list[str]
    run: Run
    meeting: Meeting

    def done(self) -> int:
        return len(self.run.done())

    def written(self) -> dict[InvestigationId, tuple[int, int]]:
        """Inode and time of each record: one that is written again gets others."""
        stats = {investigation: os.stat(self.run.record_path(investigation)) for investigation in self.run.done()}
        return {investigation: (stat.st_ino, stat.st_mtime_ns) for investigation, stat in stats.items()}


class Sweeps:
    """Makes sweeps that share pictures and exemplars."""

    def __init__(self, folder: Path):
        self.folder = folder
        for seed in range(8):
            save(folder / "pictures" / f"{seed}.png", sample_image(seed))
        for name, replies in (("talk", TALK), ("half", TALK[:1])):
            told = [{"role": "assistant", "content": text} for text in replies]
            (folder / f"{name}.json").write_text(json.dumps(told))
        make(load(self.sources("exemplars")), ["mono", "or", "and"])

    def sources(self, name: str, *overrides: str, talk: str = "talk") -> list[str]:
        return [
            str(REPOSITORY / "configs/closed-form.yaml"),
            f"name={name}",
            TWELVE,
            f"paths.cache={self.folder}/cache",
            f"paths.runs={self.folder}/runs",
            f"paths.exemplars={self.folder}/exemplars",
            "pictures.kind=folder",
            "generator.parts=pictures",
            "editor.parts=pictures",
            f"pictures.folder={self.folder}/pictures",
            "exemplars.k=2",
            "backbone.kind=replay",
            f"backbone.record={self.folder}/{talk}.json",
            "tools=[tests.cluster.agent_tools:visit,tests.cluster.agent_tools:devour]",
            "sandbox.seconds=600",
            "task.evidence.experiments=0",
            "task.evidence.labels=0",
            "evaluate.n=2",
            "evaluate.bootstrap=20",
            "ray.investigations=6",
            "ray.memory_mb=100",
            *overrides,
        ]

    def meeting(self, name: str) -> Meeting:
        meeting = Meeting(self.folder / "meetings" / name)
        (meeting.folder / "visits").mkdir(parents=True)
        return meeting

    def make(self, name: str, *overrides: str, talk: str = "talk", meeting: Meeting | None = None) -> Sweep:
        sources = self.sources(name, *overrides, talk=talk)
        return Sweep(sources, Run.create(load(sources)), meeting or self.meeting(name))


@pytest.fixture(scope="package")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Sweeps:
    return Sweeps(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder with a short path: the paths of sockets below it may have 107 bytes. Removed with all that is in it."""
    made = Path(f"/tmp/oma{os.getpid()}")
    made.mkdir(mode=0o755)
    (made / "tmp").mkdir()
    yield made
    shutil.rmtree(made)


def environment(root: Path, meeting: Meeting) -> dict[str, str]:
    """Of jobs and hosts."""
    return node_environment(root) | {"OPENMAIA_TEST": str(meeting.folder), "PYTHONPATH": str(REPOSITORY)}
