"""The data files with the units whose descriptions are similar to those of a page."""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from openmaia.analysis.likeness import Likeness
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.data import make_call
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import dumps

_SHARD = 400
"""Approximate number of units in a data file."""


def name_similar_file(page: str, count: int) -> str:
    """Returns the name of a page's data file. The number of files depends on `count`, that of all investigations."""
    shards = 1 << max(0, (count // _SHARD).bit_length())
    return f"similar-{zlib.crc32(page.encode()) % shards}.js"


class SimilarDescriptions:
    """The data files of all pages, made when they are asked for. Without `embed`, words are compared."""

    def __init__(self, rows: Sequence[UnitRow], embed: TextEmbedding | None = None):
        self._described = [row for row in rows if row.href and row.header.get("labels")]
        texts = [(row.header["labels"], row.header.get("description") or "") for row in self._described]
        self._likeness = Likeness(texts, embed)
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

        It is a JavaScript call. For each page of the file it holds address, name, labels and verdict of the similar
        units.
        """
        if name not in self._pages:
            return None
        pages: dict[str, list[Any]] = {page: [] for page in self._pages[name]}
        known = [page for page in pages if page in self._positions]
        nearest = self._likeness.find_nearest([self._positions[page] for page in known])
        for page, near in zip(known, nearest, strict=True):
            pages[page] = [self._entry(each) for each in near]
        return make_call("receiveSimilar", dumps(pages))

    def _entry(self, position: int) -> list[str]:
        row = self._described[position]
        return [row.href, row.name, ", ".join(row.header["labels"]), row.verdict.verdict.value]
