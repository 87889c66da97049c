"""Finds units with similar descriptions, by the words of labels and descriptions."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from openmaia.reporting.browser.data import call
from openmaia.reporting.browser.rows import UnitRow
from openmaia.runs.records import dumps

NEIGHBOURS, LEAST = 5, 0.2
"""Maximum number of similar descriptions of a unit, and the least cosine of their TF-IDF vectors."""
SHARD = 400
"""Approximate number of units in a data file."""
CHUNK = 200
"""Number of rows whose similarities to all others are computed at once, to bound the memory."""


def similar_file(page: str, count: int) -> str:
    """Returns the name of the data file with the similar descriptions of a page.

    Args:
        page: The path of the page.
        count: The number of all units of the report.
    """
    shards = 1 << max(0, (count // SHARD).bit_length())
    return f"similar-{zlib.crc32(page.encode()) % shards}.js"


class SimilarDescriptions:
    """The data files with the similar descriptions of each page. Each is made when it is asked for."""

    def __init__(self, rows: Sequence[UnitRow]):
        self._described = [row for row in rows if row.href and row.header.get("labels")]
        self._positions = {row.page: position for position, row in enumerate(self._described)}
        self._pages: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            if row.header:
                self._pages[similar_file(row.page, len(rows))].append(row.page)

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return list(self._pages)

    def file(self, name: str) -> bytes | None:
        """Returns for each page of a file the address, name, labels and verdict of similar units; None for another name."""
        if name not in self._pages:
            return None
        pages: dict[str, list[Any]] = {page: [] for page in self._pages[name]}
        positions = [self._positions[page] for page in pages if page in self._positions]
        for first in range(0, len(positions), CHUNK):
            part = positions[first : first + CHUNK]
            for position, near in zip(part, self._neighbours(part), strict=True):
                pages[self._described[position].page] = [self._entry(each) for each in near]
        return call("receiveSimilar", dumps(pages))

    def _entry(self, position: int) -> list[str]:
        row = self._described[position]
        return [row.href, row.name, ", ".join(row.header["labels"]), row.verdict.verdict.value]

    @cached_property
    def _vectors(self) -> Any:
        """The vectors of all texts as a sparse matrix; None if no text has a word."""
        vectorizer: Any = cast(Any, TfidfVectorizer)(stop_words="english", dtype=np.float32)
        try:
            return vectorizer.fit_transform(map(_text, self._described)) if self._described else None
        except ValueError:
            return None

    def _neighbours(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Yields for each text the positions of the most similar other texts, the most similar first."""
        if self._vectors is None:
            yield from ([] for _ in positions)
            return
        products: Any = (self._vectors[positions] @ self._vectors.T).tocsr()
        for line, position in enumerate(positions):
            start, end = products.indptr[line : line + 2]
            columns: npt.NDArray[np.int64] = np.asarray(products.indices[start:end], np.int64)
            values: npt.NDArray[np.float32] = np.asarray(products.data[start:end], np.float32)
            kept = np.flatnonzero((values >= LEAST) & (columns != position))
            best = kept[np.lexsort((columns[kept], -values[kept]))[:NEIGHBOURS]]
            yield columns[best].tolist()


def _text(row: UnitRow) -> str:
    return " ".join([*row.header["labels"], *row.header["labels"], row.header.get("description") or ""])
