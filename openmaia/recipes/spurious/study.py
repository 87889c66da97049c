"""Removes the units of a classifier that follow spurious features. The result of every step is stored.

The factorial probe, which makes the agent's judgement without an agent, knows the classes and places, which the agent has
to find: it is a reference and not a fair competitor.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

import openmaia
from openmaia.agent.tools.seeds import seed as derive_seed
from openmaia.api.progress import PrintedProgress
from openmaia.api.runs import LoadedRun
from openmaia.assembly.evaluation import trainer
from openmaia.config.schema import Config
from openmaia.config.studies import SpuriousConfig
from openmaia.core.components import target_class
from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.paths import user_path
from openmaia.core.services import Generation, Generator, LayerProbe, Target
from openmaia.recipes.spurious import data, rows
from openmaia.recipes.spurious.data import LabelledImage
from openmaia.recipes.spurious.rows import FeatureSet, SelectionScore
from openmaia.runs.files import Files, joined

if TYPE_CHECKING:
    from openmaia.distributed.assembly import Progress
    from openmaia.models.training import ClassifierTrainer

NetworkOutput = npt.NDArray[np.float32]

_SELECTIVE, _SPURIOUS = "SELECTIVE", "SPURIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVerdicts:
    """The indices of the units by the agent's verdict."""

    selective: tuple[int, ...]
    spurious: tuple[int, ...]
    undecided: tuple[int, ...]
    """The agent gave neither answer."""
    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyServices:
    """What the study of a classifier uses besides the models of the config."""

    trainer: "ClassifierTrainer"
    investigate: Callable[[Config], LoadedRun]
    """Lets the agent investigate all units of a config."""
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
    """By the names in `rows.TABLE_ROWS`."""

    @property
    def agreement(self) -> int:
        """The number of candidates that the agent and the factorial probe judge alike: as selective or as not."""
        return sum((unit in self.verdicts.selective) == (unit in self.probe) for unit in self.candidates)


def conduct(
    config: Config, progress: "Progress | None" = None, observe: Callable[[LoadedRun], None] = lambda run: None
) -> list[StudyResult]:
    """Conducts the study of all classifiers of a config, on a data set that is generated if the config names none.

    Args:
        observe: Called with the run of each classifier when its units are judged.

    Raises:
        UsageError: The config does not fit the data set or the network.
    """
    view, settings, root = progress or PrintedProgress(), config.spurious, user_path(config.spurious.folder)
    if not settings.folder:
        root = data.folder(config)
        generator = openmaia.load_models(config).generator
        data.draw(Files(str(root)), settings, generator, partial(view.progress, "drawing"))

    def investigate(judging: Config) -> LoadedRun:
        run = openmaia.sweep(judging, progress=progress)
        observe(run)
        return run

    services = StudyServices(trainer=trainer(config), investigate=investigate, progress=view.progress)
    return [conduct_one(config, root, seed, services) for seed in range(settings.seeds)]


def conduct_one(config: Config, root: Path, seed: int, services: StudyServices) -> StudyResult:
    """Trains a classifier, lets the agent judge its units, and computes its rows of the table.

    Raises:
        UsageError: The config does not fit the data set or the network.
    """
    study = _Study(config, root, seed, services)
    splits = data.divide(root, config.spurious, seed)
    checkpoint = study.train(splits.train)
    validation, logits = study.read("validation", checkpoint, splits.validation)
    candidates = study.choose(validation)
    judged = study.judge(checkpoint, splits.validation, candidates, validation.features.shape[1])
    probe = study.probe(checkpoint, candidates)
    # Read only now: no choice of units can depend on the test images and the pool.
    test, shifted = study.read("test", checkpoint, splits.test)
    pool, _ = study.read("pool", checkpoint, splits.pool)
    original = SelectionScore(units=(test.features.shape[1],), accuracies=(_accuracy(shifted, test),))
    scored = study.score(validation, test, pool, candidates, judged.selective, probe)
    return StudyResult(
        seed=seed,
        seen=_accuracy(logits, validation),
        shifted=_accuracy(shifted, test),
        candidates=tuple(candidates),
        verdicts=judged,
        probe=tuple(probe),
        rows={"original": original} | scored,
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
        key = _digest(self._trainer.digest(), data.hash_content(self._root, images), self._seed)
        checkpoint = self._cache / "models" / f"{key}.safetensors"
        if not checkpoint.is_file():
            labels, progress = [image.label for image in images], self._progress(f"training {self._seed}")
            self._trainer.train(self._paths(images), labels, self._seed, checkpoint, progress)
        return checkpoint

    def read(self, name: str, checkpoint: Path, images: Sequence[LabelledImage]) -> tuple[FeatureSet, NetworkOutput]:
        """Returns the features that the last linear layer receives for each image, and the logits. Both are cached."""
        path = self._cache / "features" / f"{_digest(checkpoint.stem, data.hash_content(self._root, images))}.npz"
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
            (features,) = rows.standardise_features(validation)
            return rows.fit_with_units(features, validation.labels, count, tolerance).units

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
        layer = _layer(config)
        count = openmaia.load_models(config).target.info().layers[layer]
        if count != width:
            raise UsageError(
                f"target.layers=[{layer}] has {count} units, and the last linear layer is given {width} features; name the "
                "layer before it, such as layer4 of resnet18"
            )
        judged = read_verdicts(self._services.investigate(config), units)
        self._results.write("verdicts.json", json.dumps(asdict(judged)).encode())
        return judged

    def probe(self, checkpoint: Path, units: Sequence[int]) -> list[int]:
        """Returns the units that the factorial probe finds selective. Empty if the setting `spurious.probe` is 0."""
        config = replace_weights(self._config, checkpoint)

        def probe() -> list[int]:
            models = openmaia.load_models(config)
            images = draw_probe(self._settings, models.generator, self._config.seed)
            return find_selective(measure_responses(models.target, _layer(config), images), units)

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
            scored = rows.score_unbalanced(self._settings, validation, test, units, agent, probe)
            scored |= rows.score_balanced(self._settings, pool, test, len(agent), self._seed)
            return {name: asdict(row) for name, row in scored.items()}

        contents = [_content(part) for part in (validation, test, pool)]
        scored = self._stored("rows", _digest(*contents, units, agent, probe, asdict(self._settings)), score)
        return {
            name: SelectionScore(**{key: tuple(values) for key, values in row.items()}) for name, row in scored.items()
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
        key = data.hash_content(self._root, images)
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


# -- the agent's judgement -------------------------------------------------------------------------------------------------


def configure_judging(
    config: Config, seed: int, checkpoint: Path, images: Path, dataset: str, units: Sequence[int]
) -> Config:
    """Returns the config of a run with one investigation of each unit.

    Args:
        seed: The seed of the classifier.
        checkpoint: The weights of the classifier.
        images: The folder of the images from which exemplars are computed.
        dataset: The name under which they are stored.
    """
    return replace(
        replace_weights(config, checkpoint),
        name="judging",
        units=f"{_layer(config)}={','.join(map(str, units))}",
        task=replace(config.task, name="spurious"),
        exemplars=replace(config.exemplars, folder=str(images), dataset=dataset),
        paths=replace(config.paths, runs=joined(config.paths.runs, f"{config.name}/seed-{seed}")),
        spurious=SpuriousConfig(),  # the agent does not depend on how rows are scored
    )


def replace_weights(config: Config, checkpoint: Path) -> Config:
    """Returns a copy of the config with the weights of a checkpoint.

    Raises:
        UsageError: The target is no network, or the config does not name exactly one layer of it.
    """
    found = target_class(config.target)
    if not found.is_network:
        raise UsageError(
            f"target.kind={config.target.kind} has no weights to fine-tune; give a classifier as target.network"
        )
    if len(layers := found.layers(config.target)) != 1:
        raise UsageError(
            f"target.layers={list(layers)}: give the one layer whose units the last linear layer is given, such as "
            "layer4 of resnet18"
        )
    return replace(config, target=replace(cast(Any, config.target), weights=str(checkpoint)))


def read_verdicts(run: LoadedRun, units: Sequence[int]) -> UnitVerdicts:
    """Reads the agent's answers. A unit without a record counts as failed."""
    found = {row["index"]: list(row["labels"]) for row in run.units().to_dict("records") if not row["replicate"]}
    by_answer: dict[str, list[int]] = {_SELECTIVE: [], _SPURIOUS: [], "undecided": [], "failed": []}
    for index in units:
        labels = found.get(index)
        answer = labels[0] if labels and labels[0] in (_SELECTIVE, _SPURIOUS) else "undecided"
        by_answer["failed" if labels is None else answer].append(index)
    return UnitVerdicts(**{name.lower(): tuple(indices) for name, indices in by_answer.items()})


def _layer(config: Config) -> str:
    return target_class(config.target).layers(config.target)[0]


# -- the factorial probe ---------------------------------------------------------------------------------------------------


def draw_probe(settings: SpuriousConfig, generator: Generator, run_seed: int) -> list[list[list[EncodedImage]]]:
    """Generates `settings.probe` images of every class in every place, as nested lists [class][place][repeat].

    Where a generator cuts up dataset images, they are of the explore split, as the agent's are.
    """
    places = [*settings.train_locations, settings.filler, *settings.other_locations]

    def cell(label: str, place: str) -> list[EncodedImage]:
        # Without the class, so that images of different classes share their background with some generators.
        seeds = [derive_seed(run_seed, "confirm", f"probe {place}", repeat) for repeat in range(settings.probe)]
        requests = [Generation(prompt=data.make_prompt(label, place, settings.prompt), seed=number) for number in seeds]
        return [made.image for made in generator.generate(requests)]

    return [[cell(label, place) for place in places] for label in settings.classes]


def measure_responses(
    target: Target, layer: str, images: Sequence[Sequence[Sequence[EncodedImage]]]
) -> npt.NDArray[np.float64]:
    """Measures the activations of all units of a layer on the images of `draw_probe`, (classes, places, repeats,
    units).
    """
    return np.array(
        [[target.respond([LayerProbe(layer=layer, image=image) for image in cell]) for cell in row] for row in images]
    )


def find_selective(activations: npt.NDArray[np.float64], units: Sequence[int]) -> list[int]:
    """Returns the units whose mean activations vary more between classes than between places.

    Both variances are main effects in a two-way analysis of variance with a balanced design.

    Args:
        activations: (classes, places, repeats, units)
        units: Indices into the last axis.
    """
    by_class = activations.mean(axis=(1, 2)).var(axis=0)
    by_place = activations.mean(axis=(0, 2)).var(axis=0)
    return [unit for unit in units if by_class[unit] > by_place[unit]]


def _accuracy(logits: NetworkOutput, images: FeatureSet) -> float:
    return float((logits.argmax(axis=1) == images.labels).mean())


def _content(images: FeatureSet) -> str:
    parts = (images.features, images.labels, images.cells)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
