"""Groups descriptions by their labels, and puts groups of similar labels side by side."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.analysis.likeness import vectorize
from openmaia.models.text_embedding import TextEmbedding

MOST = 1_000
"""Concepts of a report. A list of more would be read by nobody, and the time is bounded for 100,000 descriptions."""
_LEAST_OF_WORDS, _LEAST_OF_EMBEDDINGS = 0.5, 0.6
"""The smallest cosine of labels of one concept: of TF-IDF vectors, where "red boat" and "boat" have about 0.7, and of
embeddings."""
_CHUNK = 500
"""Number of texts that are compared at once, to bound the memory."""

_Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelConcepts:
    """Groups of similar labels."""

    names: tuple[str, ...]
    """The most frequent label of each concept, the concept with most descriptions first."""
    positions: tuple[int | None, ...]
    """For each description the position of its concept in `names`; None if it has no label, or belongs to none of MOST
    concepts."""
    ranks: tuple[int | None, ...]
    """For each description its place in an order in which similar ones are neighbours; None where `positions` is."""


def find_concepts(labels: Sequence[Sequence[str]], embed: TextEmbedding | None = None) -> LabelConcepts:
    """Groups descriptions, each given by its labels.

    The most frequent texts are centres. Each other text joins the most similar centre, or becomes a centre if none is
    similar enough. Without `embed`, labels are compared by their words.
    """
    texts = ["; ".join(_folded(each)) for each in labels]
    counted = Counter(text for text in texts if text)
    ordered = sorted(counted, key=lambda text: (-counted[text], text))
    found = _Centres(ordered, embed)
    groups = [found.group.get(text) for text in texts]
    named = _names(labels, groups)
    sizes = Counter(named[group] for group in groups if group is not None)
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    numbers = {name: number for number, name in enumerate(names)}
    return LabelConcepts(
        names=tuple(names),
        positions=tuple(None if group is None else numbers[named[group]] for group in groups),
        ranks=_ranks(texts, groups, found),
    )


def _folded(labels: Iterable[str]) -> list[str]:
    return [text for label in labels if (text := " ".join(label.casefold().split()))]


def _names(labels: Sequence[Sequence[str]], groups: Sequence[int | None]) -> dict[int, str]:
    """The most frequent label of each group. Groups with the same one become one concept."""
    counted: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for each, group in zip(labels, groups, strict=True):
        if group is not None:
            counted[group].update(dict.fromkeys(_folded(each), 1))
    return {group: min(count, key=lambda label: (-count[label], label)) for group, count in counted.items()}


def _ranks(texts: Sequence[str], groups: Sequence[int | None], found: "_Centres") -> tuple[int | None, ...]:
    places = {group: place for place, group in enumerate(found.chain())}
    known = [at for at, group in enumerate(groups) if group is not None]
    known.sort(key=lambda at: (places[groups[at] or 0], -found.likeness[texts[at]], texts[at], at))
    ranks: list[int | None] = [None] * len(texts)
    for rank, at in enumerate(known):
        ranks[at] = rank
    return tuple(ranks)


class _Centres:
    """Assigns distinct texts, the most frequent first, to centres among them."""

    def __init__(self, texts: Sequence[str], embed: TextEmbedding | None):
        self.group: dict[str, int] = {}
        self.likeness: dict[str, float] = {}
        """Of each text to its centre."""
        self._texts = texts
        self._vectors = vectorize(texts, embed)
        self._least = _LEAST_OF_EMBEDDINGS if embed else _LEAST_OF_WORDS
        self._chosen: list[int] = []
        for first in range(0, len(texts), _CHUNK):
            self._assign(range(first, min(first + _CHUNK, len(texts))))

    def _assign(self, chunk: range) -> None:
        before = len(self._chosen)
        known, among = self._cosines(chunk, self._chosen), self._cosines(chunk, chunk)
        for line, at in enumerate(chunk):
            new = [centre - chunk.start for centre in self._chosen[before:]]
            values = np.concatenate([known[line], among[line, new]])
            best = int(values.argmax()) if len(values) else -1
            if best >= 0 and values[best] >= self._least:
                self._put(at, best, float(values[best]))
            elif len(self._chosen) < MOST:
                self._chosen.append(at)
                self._put(at, len(self._chosen) - 1, 1.0)

    def _put(self, at: int, group: int, likeness: float) -> None:
        self.group[self._texts[at]], self.likeness[self._texts[at]] = group, likeness

    def _cosines(self, rows: Sequence[int], columns: Sequence[int]) -> _Array:
        if self._vectors is None or not len(columns):
            return np.zeros((len(rows), len(columns)), np.float32)
        products: Any = self._vectors[list(rows)] @ self._vectors[list(columns)].T
        return np.asarray(products if isinstance(products, np.ndarray) else products.toarray(), np.float32)

    def chain(self) -> list[int]:
        """The groups in an order in which each follows a similar one: the nearest that is left, or the largest."""
        count = len(self._chosen)
        cosines = self._cosines(self._chosen, self._chosen)
        left, order = np.ones(count, bool), list[int]()
        for _ in range(count):
            near = np.where(left, cosines[order[-1]], -1) if order else left.astype(np.float32)
            order.append(int(near.argmax()))
            left[order[-1]] = False
        return order
