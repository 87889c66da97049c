"""Finds similar units: by their descriptions, by the images that excite them, and by their activations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from openmaia.models.text_embedding import TextEmbedding

NEIGHBOURS = 5
_LEAST_OF_WORDS, _LEAST_OF_EMBEDDINGS = 0.2, 0.5
"""The smallest cosine of similar descriptions: of TF-IDF vectors, where it is 0 without a common word, and of
embeddings, where it is seldom 0."""
_LEAST_SHARED, _LEAST_CORRELATION = 2, 0.2
"""The smallest number of shared images, and the smallest correlation of activations, of similar units."""
_CHUNK = 200
"""Number of descriptions that are compared with all others at once, to bound the memory."""


def vectorize(texts: Sequence[str], embed: TextEmbedding | None = None) -> Any:
    """Returns vectors of length 1, a row for each text: an array with `embed`, else a sparse matrix of TF-IDF.

    None if no text has a word.
    """
    if not texts:
        return None
    if embed:
        return embed(texts)
    vectorizer: Any = cast(Any, TfidfVectorizer)(stop_words="english", dtype=np.float32)
    try:
        return vectorizer.fit_transform(texts)
    except ValueError:
        return None


class Likeness:
    """The similarity of descriptions, computed when it is asked for.

    Without `embed`, they are compared by their words (cosine of TF-IDF vectors).
    """

    def __init__(self, described: Sequence[tuple[Sequence[str], str]], embed: TextEmbedding | None = None):
        """Takes labels and description of each unit."""
        # The labels count twice.
        self._texts = [" ".join([*labels, *labels, description]) for labels, description in described]
        self._embed = embed

    def find_nearest(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Yields for each position those of at most NEIGHBOURS similar descriptions, the most similar first."""
        for first in range(0, len(positions), _CHUNK):
            yield from self._neighbours(positions[first : first + _CHUNK])

    @cached_property
    def _vectors(self) -> Any:
        return vectorize(self._texts, self._embed)

    def _neighbours(self, positions: Sequence[int]) -> Iterator[list[int]]:
        if self._vectors is None:
            yield from ([] for _ in positions)
            return
        least = _LEAST_OF_EMBEDDINGS if self._embed else _LEAST_OF_WORDS
        products: Any = self._vectors[positions] @ self._vectors.T
        for line, position in enumerate(positions):
            columns, values = self._cosines(products, line)
            kept = np.flatnonzero((values >= least) & (columns != position))
            best = kept[np.lexsort((columns[kept], -values[kept]))[:NEIGHBOURS]]
            yield columns[best].tolist()

    def _cosines(self, products: Any, line: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Returns positions of texts, and their similarities to the text in row `line`. Those with similarity 0 may be
        missing."""
        if self._embed:
            values = np.asarray(products[line], np.float32)
            return np.arange(len(values)), values
        start, end = products.indptr[line : line + 2]
        return np.asarray(products.indices[start:end], np.int64), np.asarray(products.data[start:end], np.float32)


def find_nearest_by_images(top: Mapping[int, Sequence[int]], units: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """Finds units that are excited most by the same images.

    Args:
        top: The numbers of the images that excite each unit of a layer most, by unit index.
        units: The units that are compared.

    Returns:
        For each of them at most NEIGHBOURS others with the number of shared images, the largest first.
    """
    excited: defaultdict[int, list[int]] = defaultdict(list)
    for unit in units:
        for number in top.get(unit, ()):
            excited[number].append(unit)
    nearest: dict[int, list[tuple[int, int]]] = {}
    for unit in units:
        shared = Counter(other for number in top.get(unit, ()) for other in excited[number] if other != unit)
        found = [(other, count) for other, count in shared.items() if count >= _LEAST_SHARED]
        nearest[unit] = sorted(found, key=lambda each: (-each[1], each[0]))[:NEIGHBOURS]
    return nearest


def find_nearest_by_activations(
    matrices: Iterable[npt.NDArray[np.floating[Any]]], units: Sequence[int]
) -> dict[int, list[tuple[int, float]]]:
    """Finds units with similar activations.

    Args:
        matrices: The activations of all units of a layer on some images, shape (images, units). One that has another number of
            units than the first is left out.
        units: The units that are compared.

    Returns:
        For each of them at most NEIGHBOURS others with Pearson's correlation, the largest first.
    """
    nearest: dict[int, list[tuple[int, float]]] = {unit: [] for unit in units}
    remaining = iter(matrices)
    if (first := next(remaining, None)) is None:
        return nearest
    # A damaged record may name a unit that the layer does not have.
    known = [unit for unit in units if unit < first.shape[1]]
    count, sums, products = 0, np.zeros(len(known)), np.zeros((len(known), len(known)))
    for matrix in chain([first], (each for each in remaining if each.shape[1] == first.shape[1])):
        values = matrix[:, known].astype(np.float64)
        count, sums, products = count + len(values), sums + values.sum(axis=0), products + values.T @ values
    covariance = products / count - np.outer(sums, sums) / count**2
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.nan_to_num(covariance / np.outer(scale, scale), nan=-1.0, posinf=-1.0, neginf=-1.0)
    np.fill_diagonal(correlation, -1.0)
    best = np.argsort(-correlation, axis=1, kind="stable")[:, :NEIGHBOURS]
    return nearest | {
        unit: [
            (known[other], float(correlation[row, other]))
            for other in best[row]
            if correlation[row, other] >= _LEAST_CORRELATION
        ]
        for row, unit in enumerate(known)
    }
