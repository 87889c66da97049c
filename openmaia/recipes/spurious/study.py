"""The study of one classifier, from its training to its rows of the table. The result of every step is stored."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import Generator, Target
from openmaia.recipes.spurious import factorial, layout, scoring, sparse
from openmaia.recipes.spurious.layout import LabelledImage
from openmaia.recipes.spurious.scoring import FeatureSet, SelectionScore
from openmaia.recipes.spurious.verdicts import UnitVerdicts, configure_judging, read_verdicts, replace_weights
from openmaia.runs.files import Files
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.models.training import ClassifierTrainer

NetworkOutput = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyServices:
    """What a study uses."""

    trainer: "ClassifierTrainer"
    investigate: Callable[[Config], Run]
    """Lets the agent investigate all units of a config."""
    target: Callable[[Config], Target]
    """Returns the network of a config."""
    generator: Callable[[], Generator]
    """For the factorial probe."""
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    """Called with the name of the stage, and the numbers of finished and of all items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """The results for one classifier."""

    seed: int
    """Of the training and of the division of the images."""
    seen: float
    """Accuracy on the validation images."""
    shifted: float
    """Accuracy on the test images."""
    candidates: tuple[int, ...]
    """The units that l1 selected for the agent to judge."""
    verdicts: UnitVerdicts
    probe: tuple[int, ...]
    """The candidates that the factorial probe found selective."""
    rows: Mapping[str, SelectionScore]
    """By the names in `scoring.TABLE_ROWS`."""

    @property
    def agreement(self) -> int:
        """The number of candidates that the agent and the factorial probe judge alike: as selective or as not."""
        return sum((unit in self.verdicts.selective) == (unit in self.probe) for unit in self.candidates)


def conduct(config: Config, root: Path, seed: int, services: StudyServices) -> StudyResult:
    """Trains a classifier, lets the agent judge its units, and computes its rows of the table.

    Raises:
        UsageError: The config does not fit the data set or the network.
    """
    study = _Study(config, root, seed, services)
    splits = layout.divide(root, config.spurious, seed)
    checkpoint = study.train(splits.train)
    validation, logits = study.read("validation", checkpoint, splits.validation)
    candidates = study.choose(validation)
    judged = study.judge(checkpoint, splits.validation, candidates, validation.features.shape[1])
    probe = study.probe(checkpoint, candidates)
    # Read only now: no choice of units can depend on the test images and the pool.
    test, shifted = study.read("test", checkpoint, splits.test)
    pool, _ = study.read("pool", checkpoint, splits.pool)
    original = SelectionScore(units=(test.features.shape[1],), accuracies=(_accuracy(shifted, test),))
    rows = study.score(validation, test, pool, candidates, judged.selective, probe)
    return StudyResult(
        seed=seed,
        seen=_accuracy(logits, validation),
        shifted=_accuracy(shifted, test),
        candidates=tuple(candidates),
        verdicts=judged,
        probe=tuple(probe),
        rows={"original": original} | rows,
    )


class _Study:
    def __init__(self, config: Config, root: Path, seed: int, services: StudyServices):
        self._config, self._root, self._seed, self._services = config, root, seed, services
        self._settings, self._trainer = config.spurious, services.trainer
        self._cache = user_path(config.paths.cache) / "spurious"
        self._results = Files(config.paths.runs).inside(f"{config.name}/seed-{seed}").confined()

    def train(self, images: Sequence[LabelledImage]) -> Path:
        """Trains the classifier, or takes it from the cache, whose key covers images, settings and seed. Returns the
        checkpoint.
        """
        key = _digest(self._trainer.digest(), layout.hash_content(self._root, images), self._seed)
        checkpoint = self._cache / "models" / f"{key}.safetensors"
        if not checkpoint.is_file():
            labels, progress = [image.label for image in images], self._progress(f"training {self._seed}")
            self._trainer.train(self._paths(images), labels, self._seed, checkpoint, progress)
        return checkpoint

    def read(self, name: str, checkpoint: Path, images: Sequence[LabelledImage]) -> tuple[FeatureSet, NetworkOutput]:
        """Returns the features that the last linear layer receives for each image, and the logits. Both are cached."""
        path = self._cache / "features" / f"{_digest(checkpoint.stem, layout.hash_content(self._root, images))}.npz"
        if not path.is_file():
            progress = self._progress(f"features {self._seed}: {name}")
            features, logits = self._trainer.read(checkpoint, self._paths(images), progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            with Files(str(path.parent)).writing(path.name) as stream:
                np.savez(stream, features=features, logits=logits)
        with np.load(path, allow_pickle=False) as stored:
            features, logits = stored["features"], stored["logits"]
        labels = np.array([image.label for image in images])
        places = {place: number for number, place in enumerate(sorted({image.location for image in images}))}
        cells = labels * len(places) + np.array([places[image.location] for image in images])
        return FeatureSet(features=features, labels=labels, cells=cells), logits

    def choose(self, validation: FeatureSet) -> list[int]:
        """Returns the units that l1 on the validation images selects."""
        count, tolerance = self._settings.units, self._settings.tolerance

        def choose() -> list[int]:
            (features,) = scoring.standardise_features(validation)
            return sparse.fit_with_units(features, validation.labels, count, tolerance).units

        return self._stored("candidates", _digest(_content(validation), count, tolerance), choose)

    def judge(
        self, checkpoint: Path, images: Sequence[LabelledImage], units: Sequence[int], width: int
    ) -> UnitVerdicts:
        """Lets the agent judge units. Its exemplars come only from `images`.

        Args:
            width: The number of features that the last linear layer receives.

        Raises:
            UsageError: The config's layer does not have `width` units.
        """
        folder = self._exposed(images)
        dataset = _digest(checkpoint.stem, folder.name, self._config.exemplars.k, self._config.exemplars.quantile)
        config = configure_judging(self._config, self._seed, checkpoint, folder, dataset, units)
        (layer,) = target_class(config.target).layers(config.target)
        count = self._services.target(config).info().layers[layer]
        if count != width:
            raise UsageError(
                f"target.layers=[{layer}] has {count} units, and the last linear layer is given {width} features; name the "
                "layer before it, such as layer4 of resnet18"
            )
        judged = read_verdicts(self._services.investigate(config), config.target.name, layer, units)
        self._results.write("verdicts.json", json.dumps(judged.as_dict()).encode())
        return judged

    def probe(self, checkpoint: Path, units: Sequence[int]) -> list[int]:
        """Returns the units that the factorial probe finds selective. Empty if the setting `spurious.probe` is 0."""
        config = replace_weights(self._config, checkpoint)

        def probe() -> list[int]:
            images = factorial.draw(self._settings, self._services.generator(), self._config.seed)
            target = self._services.target(config)
            (layer,) = target_class(config.target).layers(config.target)
            return factorial.find_selective(factorial.measure_responses(target, layer, images), units)

        parts = (list(units), asdict(self._settings), asdict(self._config.generator), self._config.seed)
        return self._stored("probe", _digest(checkpoint.stem, *parts), probe) if self._settings.probe else []

    def score(
        self,
        validation: FeatureSet,
        test: FeatureSet,
        pool: FeatureSet,
        units: Sequence[int],
        agent: Sequence[int],
        probe: Sequence[int],
    ) -> dict[str, SelectionScore]:
        """Returns all rows of the table except that of the original classifier. `agent` and `probe` are those of
        `units` that each found selective.
        """

        def score() -> dict[str, Any]:
            rows = scoring.score_unbalanced(self._settings, validation, test, units, agent, probe)
            rows |= scoring.score_balanced(self._settings, pool, test, len(agent), self._seed)
            return {name: asdict(row) for name, row in rows.items()}

        contents = [_content(part) for part in (validation, test, pool)]
        rows = self._stored("rows", _digest(*contents, units, agent, probe, asdict(self._settings)), score)
        return {
            name: SelectionScore(**{key: tuple(values) for key, values in row.items()}) for name, row in rows.items()
        }

    def _stored(self, name: str, key: str, compute: Callable[[], Any]) -> Any:
        """Returns the result in `name`.json if it was stored with this cache key; otherwise computes and stores it."""
        try:
            found: Any = parse_json(self._results.read(f"{name}.json") or b"{}")
        except ValueError:
            found = {}
        stored: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if stored.get("made_from") != key or "result" not in stored:
            stored = json.loads(json.dumps({"made_from": key, "result": compute()}))
            self._results.write(f"{name}.json", json.dumps(stored).encode())
        return stored["result"]

    def _exposed(self, images: Sequence[LabelledImage]) -> Path:
        """Copies the images to a folder under names that do not reveal their class or place."""
        key = layout.hash_content(self._root, images)
        folder = self._cache / "shown" / key
        if not folder.is_dir():
            partial = folder.with_name(f".{key}.{os.getpid()}")
            partial.mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(self._paths(images)):
                shutil.copyfile(path, partial / f"{number:06d}{path.suffix.lower()}")
            partial.replace(folder)
        return folder

    def _paths(self, images: Sequence[LabelledImage]) -> list[Path]:
        return [self._root / image.path for image in images]

    def _progress(self, stage: str) -> Callable[[int, int], None]:
        return lambda done, total: self._services.progress(stage, done, total)


def _accuracy(logits: NetworkOutput, images: FeatureSet) -> float:
    return float((logits.argmax(axis=1) == images.labels).mean())


def _content(images: FeatureSet) -> str:
    parts = (images.features, images.labels, images.cells)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
