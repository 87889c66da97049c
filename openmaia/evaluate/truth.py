"""Labels against a known truth.

A truth is a tuple of slots: `or` units have several, each of which excites the unit; a slot is one or more concepts that
have to be there together. Each label is ranked against the slots of all units and near distractors of them (red
against blue, horizontal against vertical, a part of a combination against the whole), and it hits a slot of its unit
where that slot ranks first, alone. Labels and slots are matched one to one.

Label and slot are compared without a language model, by the words they have in common: words of the vocabulary in any
of their spellings count as one, other words as they are written. A label in words of one's own that mean the same is
not recognised; with sentence embeddings it would be.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from openmaia.pictures.vocabulary import BY_NAME, find, of_kind

Terms = frozenset[str]
Truth = Sequence[Sequence[str]]

IGNORED = frozenset("a an the of on in with and or at to only its background pattern shape thing things object".split())


def terms(text: str) -> Terms:
    """What a text names: vocabulary words by their names, all other words as they stand."""
    words = find(text)
    spelled = {part for word in words for name in (word.name, *word.aliases) for part in _tokens(name)}
    left = [
        t for t in _tokens(text) if t not in IGNORED and not spelled & {t, t.removesuffix("s"), t.removesuffix("es")}
    ]
    return frozenset([word.name for word in words] + left)


def _tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9-]+", text.lower())


def slots(truth: Truth) -> tuple[Terms, ...]:
    return tuple(frozenset(term for name in slot for term in terms(name)) for slot in truth)


def is_inside(truth: Truth) -> bool:
    """Whether the vocabulary has a word for every concept; otherwise to abstain is the right answer."""
    return all(name in BY_NAME for slot in truth for name in slot)


def candidates(truths: Iterable[Truth]) -> tuple[Terms, ...]:
    """The slots of all truths, and of each its near distractors: any one word exchanged for another of its kind, and of
    a combination each word alone."""
    found: dict[Terms, None] = {}
    for slot in (slot for truth in truths for slot in slots(truth)):
        found[slot] = None
        for word in sorted(slot & BY_NAME.keys()):
            for other in of_kind(BY_NAME[word].kind):
                found[slot - {word} | {other.name}] = None
            found[frozenset({word})] = None
    return tuple(found)


def similarity(one: Terms, other: Terms) -> float:
    """The Jaccard index: words in common over words of either."""
    return len(one & other) / len(one | other) if one or other else 0.0


Similarity = Callable[[Terms, Terms], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """hits: labels matched to slots. inside: whether the truth can be said in the vocabulary."""

    labels: int
    slots: int
    hits: int
    inside: bool

    @property
    def exact(self) -> bool:
        """Every slot named and nothing else; of a truth outside the vocabulary, that nothing was claimed."""
        return self.hits == self.slots == self.labels if self.inside else self.labels == 0


def score(labels: Sequence[str], truth: Truth, among: Sequence[Terms], like: Similarity = similarity) -> Score:
    """among: see candidates."""
    said = [terms(label) for label in dict.fromkeys(labels)]
    wanted = slots(truth)
    hits = np.array([[_is_first(label, slot, among, like) for slot in wanted] for label in said]).reshape(
        -1, len(wanted)
    )
    rows, columns = optimize.linear_sum_assignment(hits, maximize=True)
    return Score(labels=len(said), slots=len(wanted), hits=int(hits[rows, columns].sum()), inside=is_inside(truth))


def _is_first(label: Terms, slot: Terms, among: Sequence[Terms], like: Similarity) -> bool:
    own = like(label, slot)
    return own > 0 and all(like(label, other) < own for other in among if other != slot)


def figures(scores: Sequence[Score], resamples: int = 2000) -> dict[str, object]:
    """exact: estimate and Wilson interval over units (scipy's binomtest). precision: of all labels given; recall: of the
    slots of truths inside the vocabulary; intervals by bootstrap over units."""
    inside = [score for score in scores if score.inside]
    outside = [score for score in scores if not score.inside]
    return {
        "units": len(scores),
        "exact": proportion([score.exact for score in scores]),
        "exact_inside": proportion([score.exact for score in inside]),
        "abstained_outside": proportion([score.exact for score in outside]),
        "precision": _mean([score.hits / score.labels for score in scores if score.labels], resamples),
        "recall": _mean([score.hits / score.slots for score in inside], resamples),
    }


def proportion(hits: Sequence[bool]) -> list[float] | None:
    """[estimate, low, high]: Wilson's 95 % interval, scipy.stats.binomtest. None of nothing."""
    if not hits:
        return None
    interval = stats.binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return [round(float(value), 4) for value in (sum(hits) / len(hits), interval.low, interval.high)]


def _mean(values: Sequence[float], resamples: int) -> list[float] | None:
    """[mean, low, high]: scipy.stats.bootstrap over units, percentile method; the mean alone where all are equal."""
    if not values:
        return None
    data = np.asarray(values, dtype=np.float64)
    low = high = data.mean()
    if np.ptp(data) > 0:
        drawn = stats.bootstrap(
            (data,), np.mean, n_resamples=resamples, rng=np.random.default_rng(0), method="percentile"
        )
        low, high = drawn.confidence_interval
    return [round(float(value), 4) for value in (data.mean(), low, high)]
