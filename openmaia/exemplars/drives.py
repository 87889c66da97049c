"""Keeps in the exemplar store what the units of layers raise (`Classifier.attribute`), so that a layer is attributed once.

<layer>.drives.parquet   one row per unit: numbers of classes, and their rises

The sample of the dataset is fixed by the store: images that are top exemplars of as many units of the layer as possible.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import DRIVEN, Classifier, Drives, Effects
from openmaia.core.units import TargetInfo
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs import tables
from openmaia.runs.files import safe
from openmaia.runs.records import dumps

_VERSION = 1
"""Enters the stamp. A change of what is computed raises it."""

_PASSES = 2**15
"""Backward passes (images x classes) for a layer."""

_FEWEST, _MOST = 16, 256
"""Images of the sample."""

_COLUMNS = pa.schema([("unit", pa.int32()), ("classes", pa.list_(pa.int64())), ("rises", pa.list_(pa.float64()))])


class KeptDrives:
    """What the units of a target raise, computed and read where its exemplars are stored."""

    def __init__(self, store: ExemplarStore, target: Classifier, network: TargetInfo):
        self._store, self._target, self._network, self._effects = store, target, network, target.effects()
        self._stamps: dict[str, str] = {}

    def missing(self, layers: Sequence[str]) -> list[str]:
        """Returns those of the layers whose units can be changed, and of which nothing valid is stored."""
        return [layer for layer in layers if layer in self._effects.layers and self._read(layer) is None]

    def keep(self, layers: Sequence[str], progress: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
        """Computes and stores the drives of layers that have exemplars. Returns a sentence for each whose drives cannot be
        computed, which is left out. `progress` is that of `Classifier.attribute`, for each layer."""
        said: list[str] = []
        for layer in layers:
            try:
                drives = self._target.attribute(layer, self._sample(layer), progress)
            except UsageError as error:
                said.append(f"system.drives() has no answer about {layer}: {error.message}")
                continue
            rows = [
                {"unit": unit, "classes": classes, "rises": rises}
                for unit, (classes, rises) in enumerate(
                    zip(drives.classes.tolist(), drives.rises.tolist(), strict=True)
                )
            ]
            header = {"stamp": self._stamp(layer), "images": drives.images}
            self._store.files.write(_name(layer), tables.dump(rows, _COLUMNS, header))
        return said

    def effects(self, layers: Sequence[str]) -> Effects:
        """Returns which effects can be measured, with the drives of those of the layers of which they are stored."""
        found = {layer: self._read(layer) for layer in layers if layer in self._effects.layers}
        return replace(self._effects, drives={layer: each for layer, each in found.items() if each is not None})

    def _read(self, layer: str) -> Drives | None:
        """None if nothing valid is stored: what is damaged is computed again."""
        if (data := self._store.files.read(_name(layer))) is None:
            return None
        try:
            rows, header = tables.load(data, self._store.files.path(_name(layer)), schema=_COLUMNS)
            if header.get("stamp") != self._stamp(layer):
                return None
            classes = np.array([row["classes"] for row in rows], dtype=np.int64)
            rises = np.array([row["rises"] for row in rows], dtype=np.float64)
        except (StoreError, TypeError, ValueError):
            return None
        count, shape = len(self._effects.classes), (len(rows), min(DRIVEN, len(self._effects.classes)))
        is_whole = [row["unit"] for row in rows] == list(range(len(rows))) and classes.shape == rises.shape == shape
        is_whole = is_whole and bool(((classes >= 0) & (classes < count)).all())
        images: Any = header.get("images")
        return Drives(classes=classes, rises=rises, images=images) if is_whole and isinstance(images, int) else None

    def _stamp(self, layer: str) -> str:
        if layer not in self._stamps:
            own, digests = self._effects, [each.digest for each in self._sample(layer)]
            # The manifest of imported exemplars says nothing about the network.
            network = [self._network.digest, self._network.preprocessing]
            facts = [
                _VERSION,
                self._store.manifest(),
                network,
                layer,
                len(own.classes),
                own.heads,
                own.exclude,
                digests,
            ]
            self._stamps[layer] = hashlib.sha256(dumps(facts).encode()).hexdigest()
        return self._stamps[layer]

    def _sample(self, layer: str) -> list[EncodedImage]:
        """Raises UsageError if the units have no exemplars."""
        count = min(max(_PASSES // len(self._effects.classes), _FEWEST), _MOST)
        numbers = covering(self._store.top_pictures(layer), count)
        if not numbers:
            raise UsageError("its units have no exemplars")
        return list(self._store.pictures(layer, numbers).values())


def covering(top: Mapping[int, Sequence[int]], count: int) -> list[int]:
    """Returns the numbers of at most `count` images, in ascending order, each of which is a top exemplar of as many units as
    possible that the ones before have left out. When all units have one, they are covered again.

    Args:
        top: The numbers of a unit's top exemplars, by unit index.
    """
    units = np.concatenate([np.full(len(numbers), unit) for unit, numbers in top.items()] or [np.zeros(0, int)])
    names, images = np.unique(
        np.array([each for numbers in top.values() for each in numbers], dtype=int), return_inverse=True
    )
    chosen: list[int] = []
    left, is_free = np.ones(len(units), bool), np.ones(len(names), bool)
    while len(chosen) < min(count, len(names)):
        usable = left & is_free[images]
        if not usable.any():
            left = np.ones(len(units), bool)
            continue
        best = int(np.bincount(images[usable], minlength=len(names)).argmax())
        chosen.append(best)
        is_free[best] = False
        left &= ~np.isin(units, units[images == best])
    return sorted(names[chosen].tolist())


def _name(layer: str) -> str:
    return f"{safe(layer)}.drives.parquet"
