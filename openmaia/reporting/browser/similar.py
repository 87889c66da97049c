"""Finds units with similar descriptions, by embeddings or by their words."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.data import make_call
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import dumps

NEIGHBOURS = 5
_LEAST_OF_WORDS, _LEAST_OF_EMBEDDINGS = 0.2, 0.5
"""The smallest cosine of similar descriptions: of TF-IDF vectors, where it is 0 without a common word, and of
embeddings, where it is seldom 0."""
_SHARD = 400
"""Approximate number of units in a data file."""
_CHUNK = 200
"""Number of descriptions that are compared with all others at once, to bound the memory."""


def name_similar_file(page: str, count: int) -> str:
    """Returns the name of a page's data file. The number of files depends on `count`, that of all investigations."""
    shards = 1 << max(0, (count // _SHARD).bit_length())
    return f"similar-{zlib.crc32(page.encode()) % shards}.js"


class SimilarDescriptions:
    """The data files with the similar descriptions of each page, made when they are asked for.

    Without `embed`, descriptions are compared by their words (cosine of TF-IDF vectors).
    """

    def __init__(self, rows: Sequence[UnitRow], embed: TextEmbedding | None = None):
        self._embed = embed
        self._described = [row for row in rows if row.href and row.header.get("labels")]
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
        positions = [self._positions[page] for page in pages if page in self._positions]
        for first in range(0, len(positions), _CHUNK):
            part = positions[first : first + _CHUNK]
            for position, near in zip(part, self._neighbours(part), strict=True):
                pages[self._described[position].page] = [self._entry(each) for each in near]
        return make_call("receiveSimilar", dumps(pages))

    def _entry(self, position: int) -> list[str]:
        row = self._described[position]
        return [row.href, row.name, ", ".join(row.header["labels"]), row.verdict.verdict.value]

    @cached_property
    def _vectors(self) -> Any:
        """A sparse matrix or an array; None if no text has a word."""
        texts = list(map(_text, self._described))
        if not texts:
            return None
        if self._embed:
            return self._embed(texts)
        vectorizer: Any = cast(Any, TfidfVectorizer)(stop_words="english", dtype=np.float32)
        try:
            return vectorizer.fit_transform(texts)
        except ValueError:
            return None

    def _neighbours(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Yields the positions of the most similar other texts for each of some texts."""
        if self._vectors is None:
            yield from ([] for _ in positions)
            return
        products: Any = self._vectors[positions] @ self._vectors.T
        for line, position in enumerate(positions):
            columns, values = self._cosines(products, line)
            kept = np.flatnonzero((values >= self._least) & (columns != position))
            best = kept[np.lexsort((columns[kept], -values[kept]))[:NEIGHBOURS]]
            yield columns[best].tolist()

    @property
    def _least(self) -> float:
        return _LEAST_OF_EMBEDDINGS if self._embed else _LEAST_OF_WORDS

    def _cosines(self, products: Any, line: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Returns positions of texts, and their similarities to the text in row `line`. Those with similarity 0 may be
        missing."""
        if self._embed:
            values = np.asarray(products[line], np.float32)
            return np.arange(len(values)), values
        start, end = products.indptr[line : line + 2]
        return np.asarray(products.indices[start:end], np.int64), np.asarray(products.data[start:end], np.float32)


def _text(row: UnitRow) -> str:
    return " ".join([*row.header["labels"], *row.header["labels"], row.header.get("description") or ""])
