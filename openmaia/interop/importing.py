"""Imports files of the published MAIA code and of other projects from a folder: exemplars, labels, agents' answers, prompts, and
lists of units.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from openmaia.core import tables
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.paths import user_path
from openmaia.core.selection import count_listed
from openmaia.core.services import UnitExemplars
from openmaia.core.text import printable
from openmaia.exemplars.store import ExemplarStore
from openmaia.interop import answers, exemplars, label_tables, labels, prompt_packs, reading, synthetic
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused
from openmaia.runs.files import Files, safe

_PICKLED = (".pkl", ".pickle", ".pt", ".pth")


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """Messages for the user about the files of a folder."""

    imported: list[str] = field(default_factory=list[str])
    derived: list[str] = field(default_factory=list[str])
    """How values that the imported files lack were estimated, or that they are missing."""
    refused: list[str] = field(default_factory=list[str])
    """Each begins with the path of the file."""

    def lines(self) -> Iterator[str]:
        """Yields the report line by line. Unprintable characters of file names are replaced."""
        for heading, lines in (("imported", self.imported), ("derived", self.derived), ("refused", self.refused)):
            if lines:
                yield f"{heading}:"
                yield from ("  " + printable(line, replacement="?") for line in lines)


class Importer:
    """Imports what other projects published from the files below one folder."""

    def __init__(self, folder: str, to: str, *, target: str = "", dataset: str = "", method: str = ""):
        """Prepares an import.

        Args:
            folder: The folder that contains the published files, also in subfolders.
            to: The root folder of the exemplar stores. Labels are written to `labels.jsonl` in it.
            target: Replaces the name of the model in the paths of the files, which must be about one model only. It is
                required for label tables, which do not name their model.
            dataset: Replaces the name of the exemplars' dataset.
            method: Replaces the name of the method of label tables.

        Raises:
            UsageError: The folder does not exist.
        """
        self._root = user_path(folder).resolve()
        if not self._root.is_dir():
            raise UsageError(f"{folder} is no folder; give one that holds published exemplars, labels or results")
        self._to, self._target, self._dataset, self._method = to, target, dataset, method
        self._labels: dict[tuple[str, str, str, int], Label] = {}
        self._tasks: dict[str, Path] = {}
        self._report = ImportReport()

    def run(self, progress: Callable[[str, int, int], None] = lambda stage, done, total: None) -> ImportReport:
        """Imports all files.

        Args:
            progress: Called after each unit with the name of the layer, or "answers", the number of finished units, and
                the number of all units.

        Raises:
            UsageError: There is a `target`, but the files are about several models.
        """
        layers, units, prompts, files = self._scan()
        self._check_target(layers, units)
        for folder in layers:
            self._attempt(folder, lambda folder: self._import_layer(folder, progress))
        for path in files:
            if path.suffix.lower() == ".json":
                self._attempt(path, self._import_list)
            elif path.suffix.lower() in tables.SUFFIXES:
                self._attempt(path, self._import_table)
            elif path.suffix in _PICKLED:
                self._report.refused.append(f"{self._name(path)}: is a pickle, and pickles are never loaded")
        for folder in prompts:
            self._attempt(folder, self._import_prompts)
        self._import_answers(units, progress)
        if self._labels:
            store = Files(self._to)
            labels.add(store, self._labels.values())
            self._report.imported.append(f"{len(self._labels)} labels -> {store.inside(labels.NAME).root}")
        return self._report

    def _scan(self) -> tuple[list[Path], list[Path], list[Path], list[Path]]:
        """Returns the folders of layers, those of investigated units, those of prompts, and all other files."""
        layers: list[Path] = []
        units: list[Path] = []
        prompts: list[Path] = []
        files: list[Path] = []
        for name, folders, names in os.walk(self._root, onerror=self._refuse_folder):
            folder, known = Path(name), set[str]()
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if {"images.npy", "masks.npy"} & set(names):
                layers.append(folder)
                known.update(exemplars.EXEMPLAR_FILES)
            if set(answers.MARKS) & set(names):
                units.append(folder)
                known.update(answers.ANSWER_FILES)
            if prompt_packs.API in names:
                prompts.append(folder)
            if any(name.endswith(".units.parquet") for name in names):  # a store of ours
                known.add("manifest.json")
            files += [folder / name for name in sorted(names) if name not in known]
        return layers, units, prompts, files

    def _refuse_folder(self, error: OSError) -> None:
        self._report.refused.append(f"{self._name(Path(error.filename))}: cannot be read ({error.strerror})")

    def _check_target(self, layers: list[Path], units: list[Path]) -> None:
        models = {exemplars.model(folder) for folder in layers} | {folder.parent.parent.name for folder in units}
        if self._target and len(models) > 1:
            raise UsageError(
                f"--target {self._target} names one target, and there are files about {', '.join(sorted(models))}; "
                "import their folders one by one"
            )

    def _attempt(self, path: Path, take: Callable[[Path], None]) -> None:
        try:
            take(path)
        except (Refused, UsageError) as error:
            self._report.refused.append(f"{self._name(path)}: {error.message}")
        except StoreError:  # the destination cannot be written
            raise
        except Exception as error:  # one damaged file must not cost the others, and damage raises almost anything
            self._report.refused.append(f"{self._name(path)}: cannot be read ({type(error).__name__}: {error})")

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path != self._root else path.name

    def _import_layer(self, folder: Path, progress: Callable[[str, int, int], None]) -> None:
        layer, report = exemplars.read(folder), self._report
        target, dataset = self._target or layer.model, self._dataset or layer.dataset
        store = ExemplarStore.at(self._to, target, dataset)
        units, k = layer.activations.shape
        summary = f"exemplars of {target}/{layer.name} on {dataset}: {units} units, {k} each"
        if store.is_current() and store.units(layer.name):
            report.imported.append(f"{summary}: imported before, unchanged (in {store.files.root})")
            return
        _claim(store, target, self._root.name, set(layer.estimated))

        def units_read() -> Iterator[UnitExemplars]:
            for done, unit in enumerate(exemplars.units(layer, target), start=1):
                yield unit
                progress(layer.name, done, units)

        store.write(layer.name, units_read())
        report.imported.append(f"{summary} -> {store.files.root}")
        name = self._name(folder)
        report.derived.append(
            f"{name}: no percentiles and z-scores, for which the other images of the data set are missing; "
            "openmaia exemplars CONFIG --measure measures them on images of yours"
        )
        if layer.thresholds is None:
            report.derived.append(f"{name}: thresholds, from the masks (estimated; there is no thresholds.csv)")
        if layer.masks is not None:
            report.derived.append(f"{name}: maps, made from the masks")

    def _import_list(self, path: Path) -> None:
        data = reading.read_json(path)
        if isinstance(data, dict):
            self._check_list(path, cast(dict[str, Any], data))
            return
        if not isinstance(data, list):
            raise Refused("is neither a list of units nor one of synthetic units")
        truths = synthetic.read_truths(
            cast(list[Any], data), path.stem, self._target or exemplars.SYNTHETIC, self._name(path)
        )
        self._add(truths)
        self._report.imported.append(f"what {len(truths)} synthetic units ({path.stem}) were made for")

    def _check_list(self, path: Path, data: dict[str, Any]) -> None:
        counted = count_listed(data, self._target or path.stem)
        if counted is None or not counted[0]:
            raise Refused("is neither a list of units nor one of synthetic units")
        units, repeated = counted
        self._report.imported.append(f"a list of {units} units of {path.stem}, which needs no copy: units={path}")
        if repeated:
            self._report.derived.append(f"{self._name(path)}: {repeated} units are listed twice, and count once")

    def _import_prompts(self, folder: Path) -> None:
        for name, files in prompt_packs.read(folder).items():
            task = Files(self._to).inside(f"tasks/{safe(name)}")
            if (other := self._tasks.setdefault(task.root, folder)) != folder:
                raise Refused(f"would replace {task.root} of {self._name(other)}; import it alone, with another --to")
            for file, text in files.items():
                task.write(file, text.encode())
            self._report.imported.append(f"prompts ({self._name(folder)}): task.name={task.root}")

    def _import_table(self, path: Path) -> None:
        table = label_tables.read(path, self._target, self._name(path), self._method)
        if not self._target:
            raise Refused(f"holds labels by {table[0].method}, but does not name their network; give --target")
        self._add(table)
        self._report.imported.append(f"labels by {table[0].method} of {len(table)} units ({self._name(path)})")

    def _add(self, new: list[Label]) -> None:
        if repeated := next((label for label in new if label.key in self._labels), None):
            raise Refused(
                f"labels {repeated.layer}/{repeated.unit} by {repeated.method} again, after "
                f"{self._labels[repeated.key].source}; import the files one by one, with --target or --method"
            )
        self._labels |= {label.key: label for label in new}

    def _import_answers(self, folders: list[Path], progress: Callable[[str, int, int], None]) -> None:
        counts: dict[str, int] = {}

        def take(folder: Path) -> None:
            label, problems = answers.read(folder, self._root, self._target)
            self._add([label])
            agent = f"{label.method} on {label.target}"
            counts[agent] = counts.get(agent, 0) + 1
            self._report.refused += [f"{self._name(folder)}: {problem}" for problem in problems]

        for done, folder in enumerate(folders, start=1):
            self._attempt(folder, take)
            progress("answers", done, len(folders))
        self._report.imported += [f"answers by {agent}: {count}" for agent, count in counts.items()]


def _claim(store: ExemplarStore, target: str, source: str, estimated: set[str]) -> None:
    """Writes the manifest of an imported store. It lists the values that this import and earlier ones estimated.

    Raises:
        UsageError: The store holds exemplars that OpenMAIA computed, or that another version of it imported.
    """
    before = store.manifest() or {}
    if before.get("imported") and store.is_current():
        estimated = estimated | set(before.get("estimated", ()))
        store.files.delete("manifest.json")
    store.claim({"target": target, "imported": "maia", "source": source, "estimated": sorted(estimated)})
