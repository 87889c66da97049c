"""One classifier, from its training to its rows of Table 2. Every step keeps its result and is not done again."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from openmaia.apps.spurious import factorial, layout, scoring, sparse
from openmaia.apps.spurious.layout import Example
from openmaia.apps.spurious.scoring import Score, Seen
from openmaia.apps.spurious.verdicts import Verdicts, judging, verdicts, with_weights
from openmaia.errors import UsageError
from openmaia.schema import Config
from openmaia.services import Generator, Target
from openmaia.store.files import Files
from openmaia.store.run import Run

Floats = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]


class Trainer(Protocol):
    """See openmaia.training.classifier."""

    def digest(self) -> str: ...

    def train(
        self,
        paths: Sequence[Path],
        labels: Sequence[int],
        seed: int,
        checkpoint: Path,
        progress: Callable[[int, int], None],
    ) -> None: ...

    def read(
        self, checkpoint: Path, paths: Sequence[Path], progress: Callable[[int, int], None]
    ) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """investigate: runs what a config asks for, and gives the run. target, generator: made when they are needed."""

    trainer: Trainer
    investigate: Callable[[Config], Run]
    target: Callable[[Config], Target]
    generator: Callable[[], Generator]
    progress: Progress = lambda stage, done, total: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one classifier. seen: its accuracy on unbalanced validation pictures, shifted: on test pictures. candidates: the
    units that l1 chose; verdicts: what the agent said of them; probe: those that the factorial probe found selective."""

    seed: int
    seen: float
    shifted: float
    candidates: tuple[int, ...]
    verdicts: Verdicts
    probe: tuple[int, ...]
    rows: Mapping[str, Score]

    @property
    def agreement(self) -> int:
        """Units on which agent and probe agree."""
        return sum((unit in self.verdicts.selective) == (unit in self.probe) for unit in self.candidates)


def conduct(config: Config, root: Path, seed: int, use: Instruments) -> Outcome:
    """root: of the tree. Until the agent has judged, nothing of the balanced pool or of the test pictures is read."""
    study = _Study(config, root, seed, use)
    splits = layout.divide(root, config.spurious, seed)
    checkpoint = study.trained(splits.train)
    validation, logits = study.read("validation", checkpoint, splits.validation)
    candidates = study.chosen(validation)
    judged = study.judged(checkpoint, splits.validation, candidates, validation.features.shape[1])
    probed = study.probed(checkpoint, candidates)
    test, shifted = study.read("test", checkpoint, splits.test)
    pool, _ = study.read("pool", checkpoint, splits.pool)
    rows = study.scored(validation, test, pool, shifted, candidates, judged, probed)
    return Outcome(
        seed=seed,
        seen=_accuracy(logits, validation),
        shifted=_accuracy(shifted, test),
        candidates=tuple(candidates),
        verdicts=judged,
        probe=tuple(probed),
        rows=rows,
    )


class _Study:
    def __init__(self, config: Config, root: Path, seed: int, use: Instruments):
        self._config, self._asked, self._root, self._seed, self._use = config, config.spurious, root, seed, use
        self._cache = Path(config.paths.cache).expanduser() / "spurious"
        self._kept = Files(f"{config.paths.runs}/{config.name}/seed-{seed}")

    def trained(self, examples: Sequence[Example]) -> Path:
        """The checkpoint, named by what it was trained on and how."""
        made_from = _digest(self._use.trainer.digest(), layout.content(self._root, examples), self._seed)
        checkpoint = self._cache / "models" / f"{made_from}.safetensors"
        if not checkpoint.is_file():
            labels = [one.label for one in examples]
            stage = f"training {self._seed}"
            self._use.trainer.train(
                self._paths(examples), labels, self._seed, checkpoint,
                lambda done, total: self._use.progress(stage, done, total),
            )  # fmt: skip
        return checkpoint

    def read(self, name: str, checkpoint: Path, examples: Sequence[Example]) -> tuple[Seen, Floats]:
        """What the last layer is given, and its logits, for each picture."""
        path = self._cache / "features" / f"{_digest(checkpoint.stem, layout.content(self._root, examples))}.npz"
        if not path.is_file():
            stage = f"features {self._seed}: {name}"
            found = self._use.trainer.read(
                checkpoint, self._paths(examples), lambda done, total: self._use.progress(stage, done, total)
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            with Files(str(path.parent)).writing(path.name) as stream:
                np.savez(stream, features=found[0], logits=found[1])
        with np.load(path) as kept:
            features, logits = kept["features"], kept["logits"]
        labels = np.array([one.label for one in examples])
        places = {place: number for number, place in enumerate(sorted({one.location for one in examples}))}
        cells = labels * len(places) + np.array([places[one.location] for one in examples])
        return Seen(features=features, labels=labels, cells=cells), logits

    def chosen(self, validation: Seen) -> list[int]:
        """By l1, from the unbalanced validation pictures."""
        made_from = _digest(_content(validation), self._asked.units, self._asked.tolerance)

        def choose() -> list[int]:
            scale = sparse.Scale.of(validation.features)
            fit = scale(validation.features)
            return sparse.with_units(fit, validation.labels, self._asked.units, self._asked.tolerance).units

        return self._once("candidates", made_from, choose)

    def judged(self, checkpoint: Path, examples: Sequence[Example], units: Sequence[int], width: int) -> Verdicts:
        """By the agent. It gets a folder with the unbalanced validation pictures and no other part of the tree."""
        folder = self._shown(examples)
        dataset = _digest(checkpoint.stem, folder.name, self._config.exemplars.k, self._config.exemplars.quantile)
        config = judging(self._config, self._seed, checkpoint, folder, dataset, units)
        layer = config.target.layers[0]
        has = self._use.target(config).info().layers[layer]
        if has != width:
            raise UsageError(
                f"target.layers=[{layer}] has {has} units, and the last linear layer is given {width} features; name the layer "
                "before it, such as layer4 of resnet18"
            )
        run = self._use.investigate(config)
        found = verdicts(run, config.target.name, layer, units)
        self._kept.write("verdicts.json", json.dumps(found.as_dict()).encode())
        return found

    def probed(self, checkpoint: Path, units: Sequence[int]) -> list[int]:
        """Without an agent; empty where no probe is asked for."""
        if not self._asked.probe:
            return []
        made_from = _digest(
            checkpoint.stem, list(units), asdict(self._asked), asdict(self._config.generator), self._config.seed
        )

        def probe() -> list[int]:
            config = with_weights(self._config, checkpoint)
            layer = config.target.layers[0]
            shown = factorial.pictures(self._asked, self._use.generator(), self._config.seed)
            return factorial.selective(factorial.responses(self._use.target(config), layer, shown), units)

        return self._once("probe", made_from, probe)

    def scored(
        self,
        validation: Seen,
        test: Seen,
        pool: Seen,
        logits: Floats,
        units: Sequence[int],
        judged: Verdicts,
        probe: Sequence[int],
    ) -> dict[str, Score]:
        agent = judged.selective
        contents = [_content(part) for part in (validation, test, pool)]
        made_from = _digest(*contents, list(units), list(agent), list(probe), asdict(self._asked))

        def score() -> dict[str, Any]:
            all_units = Score(units=(test.features.shape[1],), accuracies=(_accuracy(logits, test),))
            rows = {"original": all_units}
            rows |= scoring.unbalanced(self._asked, validation, test, units, agent, probe)
            rows |= scoring.balanced(self._asked, pool, test, len(agent), self._seed)
            return {name: asdict(row) for name, row in rows.items()}

        kept = self._once("rows", made_from, score)
        return {
            name: Score(units=tuple(row["units"]), accuracies=tuple(row["accuracies"])) for name, row in kept.items()
        }

    def _once(self, name: str, made_from: str, make: Callable[[], Any]) -> Any:
        """A step's result, from its file where that was made from the same."""
        kept = json.loads(self._kept.read(f"{name}.json") or b"{}")
        if kept.get("made_from") != made_from:
            kept = json.loads(json.dumps({"made_from": made_from, "result": make()}))
            self._kept.write(f"{name}.json", json.dumps(kept).encode())
        return kept["result"]

    def _shown(self, examples: Sequence[Example]) -> Path:
        """A folder with these pictures alone, under names that tell nothing."""
        made_from = layout.content(self._root, examples)
        folder = self._cache / "shown" / made_from
        if not folder.is_dir():
            making = folder.with_name(f".{made_from}.{os.getpid()}")
            making.mkdir(parents=True, exist_ok=True)
            for number, one in enumerate(examples):
                shutil.copyfile(self._root / one.path, making / f"{number:06d}{Path(one.path).suffix.lower()}")
            making.replace(folder)
        return folder

    def _paths(self, examples: Sequence[Example]) -> list[Path]:
        return [self._root / one.path for one in examples]


def _accuracy(logits: Floats, seen: Seen) -> float:
    return float((logits.argmax(axis=1) == seen.labels).mean())


def _content(seen: Seen) -> str:
    parts = (seen.features, seen.labels, seen.cells)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
