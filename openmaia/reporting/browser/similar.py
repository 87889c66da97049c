"""Finds units with similar descriptions, by the words of labels and descriptions."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
CHUNK = 500
"""Number of rows whose similarities to all others are computed at once, to bound the memory."""


def similar_file(page: str, count: int) -> str:
    """Returns the name of the data file with the similar descriptions of a page.

    Args:
        page: The path of the page.
        count: The number of all units of the report.
    """
    shards = 1 << max(0, (count // SHARD).bit_length())
    return f"similar-{zlib.crc32(page.encode()) % shards}.js"


def similar_files(rows: Sequence[UnitRow]) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each data file: for each page the address, name, labels and verdict of similar units."""
    described = [row for row in rows if row.href and row.header.get("labels")]
    shards: dict[str, dict[str, list[Any]]] = defaultdict(dict)
    for row in rows:
        if row.header:
            shards[similar_file(row.page, len(rows))][row.page] = []
    for row, near in zip(described, _neighbours([_text(row) for row in described]), strict=True):
        found = [described[each] for each in near]
        entries = [[one.href, one.name, ", ".join(one.header["labels"]), one.verdict.verdict.value] for one in found]
        shards[similar_file(row.page, len(rows))][row.page] = entries
    for name, pages in shards.items():
        yield name, call("receiveSimilar", dumps(pages))


def _text(row: UnitRow) -> str:
    return " ".join([*row.header["labels"], *row.header["labels"], row.header.get("description") or ""])


def _neighbours(texts: Sequence[str]) -> Iterator[list[int]]:
    """Yields for each text the positions of the most similar other texts, the most similar first."""
    vectorizer: Any = cast(Any, TfidfVectorizer)(stop_words="english", dtype=np.float32)
    try:
        vectors: Any = vectorizer.fit_transform(texts) if texts else None
    except ValueError:  # no text has a word
        vectors = None
    if vectors is None:
        yield from ([] for _ in texts)
        return
    for first in range(0, len(texts), CHUNK):
        products: Any = (vectors[first : first + CHUNK] @ vectors.T).tocsr()
        for at in range(min(CHUNK, len(texts) - first)):
            columns: npt.NDArray[np.int64] = np.asarray(products[at].indices, np.int64)
            values: npt.NDArray[np.float32] = np.asarray(products[at].data, np.float32)
            best: list[int] = np.argsort(-values, kind="stable")[: NEIGHBOURS + 1].tolist()
            near = [int(columns[each]) for each in best if values[each] >= LEAST and columns[each] != first + at]
            yield near[:NEIGHBOURS]
