"""From measurements to hypotheses, and from controlled measurements to findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.backbones.eyes import Sight
from openmaia.backbones.scripted.prompts import COLOURS, Shot
from openmaia.pictures.vocabulary import BY_NAME, WORDS, Kind

Measured = Sequence[tuple[str, float]]

SINGLES = {Kind.COLOUR: 3, Kind.PATTERN: 2, Kind.SHAPE: 2, Kind.OBJECT: 8, Kind.SCENE: 1}
PAIRS = 4
"""How many hypotheses at most go from the screening into controlled tests. Each kind has places of its own: things that
happen to be yellow would otherwise keep everything else out of the test of a unit for yellow."""

MORE_OBJECTS = 6
"""Further places for objects where a colour is among the strongest: those of that colour fill the first ones."""

LEAST = 0.8
"""Score below which a hypothesis is not worth a test, in deviations."""

LEVEL = 0.03
"""Of the controlled tests, one-sided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """words: one for a concept, two for a combination (colour, carrier). score: for ranking, in deviations."""

    words: tuple[str, ...]
    score: float

    @property
    def name(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """effect: mean activation of its pictures above that of its controls. height: the same, of an
    object that of the upper third of its pictures: it cannot always be recognised where it was drawn. p: one-sided, Welch."""

    hypothesis: Hypothesis
    effect: float
    height: float
    p: float
    holds: bool


def exemplar_evidence(top: Sequence[Sight], chance: Sequence[Sight]) -> dict[str, float]:
    """How much more of each word the top exemplars show than random pictures, in pooled deviations."""
    if not top or not chance:
        return {word.name: 0.0 for word in WORDS}
    found: dict[str, float] = {}
    for word in WORDS:
        high, low = (np.array([sight[word.name] for sight in sights]) for sights in (top, chance))
        spread = float(np.sqrt((high.var() + low.var()) / 2)) + 0.05
        found[word.name] = float(np.clip((high.mean() - low.mean()) / spread, -2, 4))
    return found


def hypotheses(shots: Sequence[Shot], measured: Measured, evidence: Mapping[str, float]) -> list[Hypothesis]:
    """The strongest single words by screening and exemplars, then the strongest combinations."""
    known = {shot.prompt: shot for shot in shots}
    found = [(known[prompt], value) for prompt, value in measured if prompt in known]
    rows = [(shot.words, value) for shot, value in found]
    if not rows:
        return []
    values = np.array([value for _, value in rows])
    scale = float(stats.median_abs_deviation(values, scale="normal")) + 0.1 * float(values.std()) + 1e-6
    singles = [
        Hypothesis(words=(word,), score=effect / scale + 0.5 * evidence.get(word, 0.0))
        for word, effect in _main_effects(rows).items()
    ]
    ranked = sorted(singles, key=lambda h: (-h.score, h.words))
    crowded = any(kind_of(h) is Kind.COLOUR and h.score > ranked[0].score / 2 for h in ranked)
    places = SINGLES | {Kind.OBJECT: SINGLES[Kind.OBJECT] + MORE_OBJECTS * crowded}
    best = [h for kind, count in places.items() for h in [h for h in ranked if kind_of(h) is kind][:count]]
    pairs = _combinations(rows, [shot.ground for shot, _ in found], scale)[:PAIRS]
    return [h for h in sorted(best, key=lambda h: (-h.score, h.words)) + pairs if h.score > LEAST]


def kind_of(hypothesis: Hypothesis) -> Kind:
    """Of a combination: that of its first word."""
    return BY_NAME[hypothesis.words[0]].kind


Rows = Sequence[tuple[tuple[str, ...], float]]


def _main_effects(rows: Rows) -> dict[str, float]:
    """How far a word's pictures lie above the median of pictures of the same sort: colours alone, drawings, things on
    plain ground, things on scenes. A word that is in several sorts gets the mean over them."""
    sorts: dict[tuple[Kind, int], list[tuple[tuple[str, ...], float]]] = {}
    for words, value in rows:
        sorts.setdefault((BY_NAME[words[0]].kind, len(words)), []).append((words, value))
    found: dict[str, list[float]] = {}
    for group in sorts.values():
        middle = float(np.median([value for _, value in group]))
        for word in dict.fromkeys(word for words, _ in group for word in words):
            found.setdefault(word, []).append(float(np.mean([v for words, v in group if word in words])) - middle)
    return {word: float(np.mean(effects)) for word, effects in found.items()}


def _combinations(rows: Rows, grounds: Sequence[str], scale: float) -> list[Hypothesis]:
    """Colour and carrier together, where the pair stands out from both its row and its column. The pair's value is the
    mean of its own drawing and of all that show both words, be the colour that of the ground."""
    drawn = [(words, ground, value) for (words, value), ground in zip(rows, grounds, strict=True) if _is_pair(words)]
    found: list[Hypothesis] = []
    for (colour, carrier), _, value in drawn:
        row = [v for (c, k), _, v in drawn if c == colour and k != carrier]
        column = [v for (c, k), ground, v in drawn if k == carrier and colour not in (c, ground)]
        both = [v for (c, k), ground, v in drawn if k == carrier and colour in (c, ground)]
        if len(row) > 1 and len(column) > 1:
            own = (value + float(np.mean(both))) / 2
            excess = own - max(float(np.mean(row)), float(np.mean(column)))
            found.append(Hypothesis(words=(colour, carrier), score=excess / scale))
    return sorted(found, key=lambda h: (-h.score, h.words))


def _is_pair(words: tuple[str, ...]) -> bool:
    return words[0] in COLOURS and len(words) == 2


def finding(hypothesis: Hypothesis, own: Sequence[float], controls: Sequence[Sequence[float]]) -> Finding:
    """controls: one group per thing that was changed; the strongest group counts, so that a combination has to beat
    each of its parts alone. Welch's t-test as in scipy.stats.ttest_ind_from_stats."""
    groups = [group for group in controls if len(group) > 1]
    if len(own) < 2 or not groups:
        return Finding(hypothesis=hypothesis, effect=0.0, height=0.0, p=1.0, holds=False)
    strongest = max(groups, key=lambda group: float(np.mean(group)))
    effect = float(np.mean(own) - np.mean(strongest))
    upper = sorted(own)[-max(len(own) // 3, 1) :] if kind_of(hypothesis) is Kind.OBJECT else own
    height = float(np.mean(upper) - np.mean(strongest))
    spread = float(np.std(own) + np.std(strongest))
    if spread > 1e-6 * (abs(effect) + 1e-6):
        one, two = ((float(np.mean(g)), float(np.std(g, ddof=1)), len(g)) for g in (own, strongest))
        p = float(stats.ttest_ind_from_stats(*one, *two, equal_var=False, alternative="greater").pvalue)
    else:
        p = 0.0 if effect > 0 else 1.0
    return Finding(hypothesis=hypothesis, effect=effect, height=height, p=p, holds=effect > 0 and p < LEVEL)


def is_object(found: Finding) -> bool:
    return kind_of(found.hypothesis) is Kind.OBJECT
