"""The data files with the units that are similar to that of a page: by words, by images, and by activations."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from openmaia.analysis.likeness import Likeness, find_nearest_by_activations, find_nearest_by_images
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.data import make_call
from openmaia.reporting.browser.unit.shared import RunSources
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import dumps

_SHARD = 400
"""Approximate number of units in a data file."""


def name_similar_file(page: str, count: int) -> str:
    """Returns the name of a page's data file. The number of files depends on `count`, that of all investigations."""
    shards = 1 << max(0, (count // _SHARD).bit_length())
    return f"similar-{zlib.crc32(page.encode()) % shards}.js"


class SimilarUnits:
    """The data files of all pages, made when they are asked for. Without `embed`, words are compared.

    `sources` has exemplars and trials of each run by its name in the report. Those of other runs are not compared.
    """

    def __init__(
        self,
        rows: Sequence[UnitRow],
        embed: TextEmbedding | None = None,
        sources: Mapping[str, RunSources] | None = None,
    ):
        self._described = [row for row in rows if row.href and row.header.get("labels")]
        texts = [(row.header["labels"], row.header.get("description") or "") for row in self._described]
        self._likeness = Likeness(texts, embed)
        self._sources = sources or {}
        self._layers: dict[tuple[str, str, str], dict[int, UnitRow]] = defaultdict(dict)
        for row in rows:
            if row.href:
                self._layers[_layer(row)].setdefault(row.unit.index, row)
        self._measured: dict[tuple[str, str, str], dict[str, dict[int, list[tuple[int, str]]]]] = {}
        self._rows = {row.page: row for row in rows}
        self._positions = {row.page: position for position, row in enumerate(self._described)}
        self._pages: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            if row.header:
                self._pages[name_similar_file(row.page, len(rows))].append(row.page)

    @property
    def names(self) -> list[str]:
        """The names of all data files."""
        return list(self._pages)

    def file(self, name: str) -> bytes | None:
        """Returns the content of a data file; None if no file has this name.

        It is a JavaScript call. For each page of the file it holds, under `words`, `images` and `activations`, address, name,
        labels, verdict and degree of the similar units.
        """
        if name not in self._pages:
            return None
        pages: dict[str, dict[str, list[Any]]] = {page: dict(self._alike(page)) for page in self._pages[name]}
        known = [page for page in pages if page in self._positions]
        nearest = self._likeness.find_nearest([self._positions[page] for page in known])
        for page, near in zip(known, nearest, strict=True):
            pages[page]["words"] = [_entry(self._described[each], "") for each in near]
        return make_call("receiveSimilar", dumps(pages))

    def _alike(self, page: str) -> Iterator[tuple[str, list[list[str]]]]:
        row = self._rows[page]
        layer = _layer(row)
        if layer not in self._measured:
            self._measured[layer] = dict(self._measure(layer))
        for by, nearest in self._measured[layer].items():
            near = nearest.get(row.unit.index, [])
            yield by, [_entry(self._layers[layer][other], degree) for other, degree in near]

    def _measure(self, layer: tuple[str, str, str]) -> Iterator[tuple[str, dict[int, list[tuple[int, str]]]]]:
        sources, units = self._sources.get(layer[0]), sorted(self._layers[layer])
        if sources is None:
            return
        top = sources.top_pictures(layer[2])
        by_images = find_nearest_by_images(top, units)
        yield (
            "images",
            {
                unit: [(other, f"{shared} of {len(top[unit])} images") for other, shared in near]
                for unit, near in by_images.items()
            },
        )
        trials = (trial.matrix for trial in sources.trials_of(layer[1], layer[2]))
        by_activations = find_nearest_by_activations(chain(trials, sources.shared.matrices(layer[1], layer[2])), units)
        yield (
            "activations",
            {
                unit: [(other, f"correlation {value:.2f}") for other, value in near]
                for unit, near in by_activations.items()
            },
        )


def _layer(row: UnitRow) -> tuple[str, str, str]:
    return row.run, row.unit.target, row.unit.layer


def _entry(row: UnitRow, degree: str) -> list[str]:
    return [row.href, row.name, ", ".join(row.header.get("labels") or ()), row.verdict.verdict.value, degree]
