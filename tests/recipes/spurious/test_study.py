"""A whole study: what the agent sees, which units are judged and kept, and reusing stored results."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.agent.loop import investigate_and_publish
from openmaia.agent.tasks.task import load as load_task
from openmaia.api.runs import LoadedRun
from openmaia.assembly import investigations, targets
from openmaia.assembly.evaluation import trainer
from openmaia.assembly.exemplars import make
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import decode
from openmaia.core.images import digest as pixel_digest
from openmaia.core.selection import select
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.recipes.spurious import data
from openmaia.recipes.spurious.study import StudyResult, StudyServices, conduct_one
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.sweeping import replayed

SMALL = REPOSITORY / "configs/spurious-small.yaml"
LOOK_AND_SAY = (
    '[CODE]:\n```python\ntools.display(*[image for kind in ("top", "bottom", "random", "ladder")'
    " for _, image in tools.dataset_exemplars(system, kind=kind)])\n```",
    "[REASONING]: whatever it was shown\n[LABEL]: {}",
)


class Study:
    """A study of a small network on plain images, without Ray."""

    def __init__(self, folder: Path, tree: Path, labels: str):
        self.tree, self.folder, self.config = tree, folder, load(_sources(folder, labels))
        self.services = StudyServices(
            trainer=trainer(self.config),
            investigate=self.investigate,
        )

    def conduct(self) -> StudyResult:
        return conduct_one(self.config, self.tree, 0, self.services)

    def investigate(self, config: Config) -> LoadedRun:
        """Hides the data set while the agents work."""
        away = self.tree.rename(self.tree.with_name("away"))
        run = Run.create(config)
        target = targets.target(config)
        run.set_plan(select(config.units, target.info()).units, 1)
        store = make(config, list(target.info().layers))
        for investigation in run.pending():
            investigate_and_publish(
                investigation,
                load_task(config.task.name),
                investigations.services(config, store),
                investigations.options(config),
                run,
            )
        away.rename(self.tree)
        return LoadedRun(run)


def _sources(folder: Path, label: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    Image.effect_noise((16, 16), 50).convert("RGB").save(pictures / "noise.png")
    history = replayed(folder / "history.json", [LOOK_AND_SAY[0], *[LOOK_AND_SAY[1].format(label)] * 2])
    return [
        str(SMALL), "target.network=tests.helpers.networks:small_classifier", "target.layers=[features]", "target.size=32",
        "target.name=small", "generator.size=32", "pictures.kind=folder", f"pictures.folder={pictures}", "generator.parts=pictures",
            "editor.parts=pictures",
        "backbone.kind=replay", f"backbone.record={history}", f"paths.cache={folder / 'cache'}",
        f"paths.runs={folder / 'runs'}", f"paths.exemplars={folder / 'exemplars'}", "exemplars.k=4", "spurious.units=3",
        "spurious.per_cell=8", "spurious.pool=64", "spurious.balanced=32", "spurious.trials=1", "spurious.splits=1",
        "spurious.draws=3", "spurious.probe=0", "spurious.validation=0.5", "spurious.rate=0.01", "spurious.batch=8",
        "limits.turns=3", "limits.soft_turns=2", "task.evidence.experiments=0",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyResult]:
    folder = tmp_path_factory.mktemp("spurious")
    study = Study(folder / "study", _coloured_tree(folder / "tree"), "SELECTIVE")
    return study, study.conduct()


def _coloured_tree(root: Path) -> Path:
    """A data set in which the place is a colour and the class the width of a bar."""
    asked = load(_sources(root.parent / "study", "SELECTIVE")).spurious
    rng = np.random.default_rng(0)
    colours = {place: rng.integers(0, 256, 3) for place in [*asked.train_locations, asked.filler]}
    for cell, count in sorted(data.count_wanted(asked).items()):
        (root / cell.folder).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(colours[cell.location] + rng.integers(-25, 25, (32, 32, 3)), 0, 255).astype(np.uint8)
            pixels[:, : 4 + 6 * asked.classes.index(cell.label)] //= 2
            Image.fromarray(pixels).save(root / cell.folder / f"{number}.png")
    return root


def test_all_rows_without_the_probe_exist(studied: tuple[Study, StudyResult]):
    assert set(studied[1].rows) == {"original", "l1", "random", "l1_n", "agent", "balanced", "balanced_n"}


def test_agent_sees_unbalanced_images_only(studied: tuple[Study, StudyResult]):
    study, _ = studied
    splits = data.divide(study.tree, study.config.spurious, 0)
    forbidden, allowed = (_digests(study.tree, part) for part in ([*splits.test, *splits.pool], splits.validation))
    run = Run.open(str(study.folder / "runs/spurious-small/seed-0/judging"))
    seen = {digest for investigation in run.done() for digest in run.record(investigation).images}
    kept = _stored(study, run)
    assert seen and kept
    assert not (seen | kept) & forbidden
    assert kept <= allowed


def test_all_candidates_are_judged(studied: tuple[Study, StudyResult]):
    _, outcome = studied
    assert outcome.verdicts.selective == outcome.candidates and len(outcome.candidates) == 3


def test_stored_results_are_reused(studied: tuple[Study, StudyResult]):
    study, outcome = studied

    class Idle:
        def __init__(self):
            self.digest = study.services.trainer.digest

    def finished(config: Config) -> LoadedRun:
        run = Run.create(config)
        assert not run.pending()
        return LoadedRun(run)

    again = conduct_one(study.config, study.tree, 0, replace(study.services, trainer=Idle(), investigate=finished))  # type: ignore[arg-type]
    assert again == outcome


def test_invalid_answer_is_not_kept(studied: tuple[Study, StudyResult], tmp_path: Path):
    study = Study(tmp_path / "study", studied[0].tree, "both, somehow")
    outcome = study.conduct()
    assert outcome.verdicts.undecided == outcome.candidates
    assert "agent" not in outcome.rows and "original" in outcome.rows


def _digests(tree: Path, examples: Iterable[data.LabelledImage]) -> set[str]:
    return {pixel_digest(np.asarray(decode((tree / one.path).read_bytes()))) for one in examples}


def _stored(study: Study, run: Run) -> set[str]:
    config = run.config()
    store = ExemplarStore.at(config["paths"]["exemplars"], "small", config["exemplars"]["dataset"])
    return {
        exemplar.image.digest
        for index in store.units("features")
        for exemplar in store.read(Unit(target="small", layer="features", index=index)).exemplars
    }
