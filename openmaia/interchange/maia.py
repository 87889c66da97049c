"""Reads whatever of the published formats lies below a folder, and says what became of each file."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from openmaia.errors import UsageError
from openmaia.interchange import baselines, exemplars, keep, labels, reading, results, synthetic, unit_lists
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.files import Files, safe

PICKLED = (".pkl", ".pickle", ".pt", ".pth")


@dataclass(slots=True, kw_only=True)
class Report:
    """imported, derived, refused: lines for people; refused ones begin with the path."""

    imported: list[str] = field(default_factory=list[str])
    derived: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def lines(self) -> Iterator[str]:
        for heading, said in (("imported", self.imported), ("derived", self.derived), ("refused", self.refused)):
            if said:
                yield f"{heading}:"
                yield from (f"  {_printable(line)}" for line in said)


def _printable(line: str) -> str:
    """Names in published files may hold line breaks and control sequences of terminals."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies below a folder, by what it looks like; nothing of it is read yet."""

    layers: tuple[Path, ...]
    units: tuple[Path, ...]
    lists: tuple[Path, ...]
    tables: tuple[Path, ...]
    pickles: tuple[Path, ...]


def look(folder: Path) -> Found:
    layers: list[Path] = []
    units: list[Path] = []
    files: list[Path] = []
    for place, below, names in os.walk(folder):
        here, taken = Path(place), set[str]()
        below[:] = sorted(name for name in below if not name.startswith("."))
        if {"images.npy", "masks.npy"} & set(names):
            layers.append(here)
            taken.update(exemplars.FILES)
        if set(results.MARKS) & set(names):
            units.append(here)
            taken.update(results.FILES)
        ours = any(name.endswith(".units.parquet") for name in names)
        files += [here / name for name in sorted(names) if name not in taken and not (ours and name == "manifest.json")]
    return Found(
        layers=tuple(layers),
        units=tuple(units),
        lists=tuple(path for path in files if path.suffix == ".json"),
        tables=tuple(path for path in files if path.suffix == ".csv"),
        pickles=tuple(path for path in files if path.suffix in PICKLED),
    )


class Import:
    """One import. to: where stores and labels go. target: a name in place of the one model found. dataset: one in place
    of the dataset's. runs: where the answers of published investigations go, "" for nowhere."""

    def __init__(self, folder: str, to: str, *, target: str = "", dataset: str = "", runs: str = ""):
        self._root = Path(folder).expanduser().resolve()
        if not self._root.is_dir():
            raise UsageError(f"{folder} is no folder; give one that holds published exemplars, labels or results")
        self._to, self._target, self._dataset, self._runs = to, target, dataset, runs
        self._labels: list[Label] = []
        self.report = Report()

    def run(self, progress: keep.Progress = lambda stage, done, total: None) -> Report:
        """Raises UsageError where one target is named and several models are found."""
        found = look(self._root)
        self._check_target(found)
        self._exemplars(found.layers, progress)
        for path in found.lists:
            self._try(path, self._list)
        for path in found.tables:
            self._try(path, self._table)
        if self._labels:
            self._write_labels(self._to, self._labels)
        self._results(found.units, progress)
        self.report.refused += [
            f"{self._name(path)}: is a pickle, and pickles are never loaded" for path in found.pickles
        ]
        return self.report

    def _check_target(self, found: Found) -> None:
        models = {exemplars.model(folder) for folder in found.layers} | {
            folder.parent.parent.name for folder in found.units
        }
        if self._target and len(models) > 1:
            raise UsageError(
                f"--target {self._target} names one target, and there are files about {', '.join(sorted(models))}; "
                "import their folders one by one"
            )

    def _try(self, path: Path, take: Callable[[Path], None]) -> None:
        try:
            take(path)
        except (Refused, UsageError) as error:
            self.report.refused.append(f"{self._name(path)}: {error.message}")

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path != self._root else path.name

    def _exemplars(self, folders: tuple[Path, ...], progress: keep.Progress) -> None:
        layers: list[exemplars.Layer] = []
        for folder in folders:
            self._try(folder, lambda folder: layers.append(exemplars.read(folder)))
        for layer in layers:
            self._try(layer.folder, lambda _, layer=layer: self._layer(layer, progress))

    def _layer(self, layer: exemplars.Layer, progress: keep.Progress) -> None:
        target, dataset = self._target or layer.model, self._dataset or layer.dataset
        store = ExemplarStore.at(self._to, target, dataset)
        units, k = layer.activations.shape
        said = f"exemplars of {target}/{layer.name} on {dataset}: {units} units, {k} each"
        if store.units(layer.name):
            self.report.imported.append(f"{said}: there already, left as they are (in {store.files.root})")
            return
        keep.claim(store, target, self._root.name, set(layer.estimated))
        keep.write(store, layer, target, progress)
        self.report.imported.append(f"{said} -> {store.files.root}")
        self.report.derived.append(
            f"{self._name(layer.folder)}: maxima, mean and std, of the exemplars alone (estimated)"
        )
        if layer.thresholds is None:
            self.report.derived.append(
                f"{self._name(layer.folder)}: thresholds, from which masks are lit (estimated; there is no thresholds.csv)"
            )
        if layer.masks is not None:
            self.report.derived.append(f"{self._name(layer.folder)}: maps, drawn from the masks")

    def _list(self, path: Path) -> None:
        if isinstance(reading.json_data(path), list):
            self._synthetic(path, synthetic.read(path))
        else:
            self._units(path, unit_lists.read(path))

    def _units(self, path: Path, found: unit_lists.UnitList) -> None:
        for model, layers in found.models.items():
            name = f"units/{safe(model)}.json"
            Files(self._to).write(name, unit_lists.as_json(layers))
            count = sum(map(len, layers.values()))
            self.report.imported.append(
                f"{count} units of {model} -> units={self._to}/{name}, or units={unit_lists.grammar(layers)}"
            )
        for unit in found.repeated:
            self.report.derived.append(f"{self._name(path)}: {unit} is listed again; taken once")

    def _synthetic(self, path: Path, found: tuple[synthetic.SyntheticUnit, ...]) -> None:
        target = self._target or exemplars.SYNTHETIC
        self._labels += [synthetic.as_label(unit, target, self._name(path)) for unit in found]
        self.report.imported.append(f"what {len(found)} synthetic units ({path.stem}) were made for")
        sums = [unit.label for unit in found if not unit.comparable]
        if sums:
            self.report.refused.append(
                f"{self._name(path)}: the activations of {len(sums)} units go above 1 ({', '.join(sums[:3])}, ...): they "
                "were summed over concepts and are not compared with what live units answer, which is at most 1"
            )

    def _table(self, path: Path) -> None:
        found = baselines.read(path, self._target, self._name(path))
        self._labels += found
        self.report.imported.append(f"labels by {found[0].method} of {len(found)} units ({self._name(path)})")

    def _results(self, folders: tuple[Path, ...], progress: keep.Progress) -> None:
        answers: list[Label] = []
        per_agent: dict[str, list[int]] = {}

        def take(folder: Path) -> None:
            found = results.read(folder, self._root, self._target)
            counts = per_agent.setdefault(f"{found.agent} on {found.unit.target}", [0, 0, 0])
            label = found.as_label(self._name(folder))
            answers.extend([label] if label else [])
            for i, had in enumerate((True, label is not None, found.scores is not None)):
                counts[i] += had
            self.report.refused += [f"{self._name(folder)}: {note}" for note in dict.fromkeys(found.notes)]

        for done, folder in enumerate(folders, start=1):
            self._try(folder, take)
            progress("results", done, len(folders))
        for name, (count, answered, scored) in per_agent.items():
            self.report.imported.append(
                f"investigations by {name}: {count}, {answered} with an answer, {scored} scored"
            )
        if answers and self._runs:
            self._write_labels(self._runs, answers)
        elif answers:
            self.report.derived.append("the answers were read and not kept; --runs DIR writes them there")

    def _write_labels(self, to: str, found: list[Label]) -> None:
        files = Files(to)
        labels.add(files, found)
        self.report.imported.append(f"{len(found)} labels -> {files.root}/{labels.NAME}")
