"""From measurements to hypotheses, and from controlled measurements to an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.backbones.eyes import Sight
from openmaia.backbones.scripted.prompts import COLOURS, Shot
from openmaia.pictures.phrases import GENERAL
from openmaia.pictures.vocabulary import BY_NAME, WORDS, Kind

Measured = Sequence[tuple[str, float]]

SINGLES, PAIRS = 6, 2
"""How many hypotheses go from the screening into controlled tests."""


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
    """effect: mean activation of its pictures above that of its controls. p: one-sided, Welch."""

    hypothesis: Hypothesis
    effect: float
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
    known = {shot.prompt: shot.words for shot in shots}
    rows = [(known[prompt], value) for prompt, value in measured if prompt in known]
    if not rows:
        return []
    values = np.array([value for _, value in rows])
    scale = float(stats.median_abs_deviation(values, scale="normal")) + 0.1 * float(values.std()) + 1e-6
    effects = _main_effects(rows)
    singles = [
        Hypothesis(words=(word,), score=effect / scale + 0.5 * evidence.get(word, 0.0))
        for word, effect in effects.items()
    ]
    best = sorted(singles, key=lambda h: (-h.score, h.words))[:SINGLES]
    return best + _combinations(rows, effects, scale)[:PAIRS]


def _main_effects(rows: Sequence[tuple[tuple[str, ...], float]]) -> dict[str, float]:
    """Each word's mean after what its partners add has been taken off (two rounds of alternating averages)."""
    kinds = {word.name: word.kind for word in WORDS}
    is_drawing = [kinds[words[0]] is Kind.COLOUR for words, _ in rows]
    values = np.array([value for _, value in rows])
    # Drawings and collages of objects have different levels; a word is compared with its like.
    for drawing in (True, False):
        chosen = np.array(is_drawing) == drawing
        if chosen.any():
            values[chosen] -= np.median(values[chosen])
    effects: dict[str, float] = {}
    for _ in range(2):
        for side in (1, 0):
            for word in dict.fromkeys(words[side] for words, _ in rows):
                own = [
                    value - effects.get(words[1 - side], 0.0)
                    for (words, _), value in zip(rows, values, strict=True)
                    if words[side] == word
                ]
                effects[word] = float(np.mean(own))
    return effects


def _combinations(
    rows: Sequence[tuple[tuple[str, ...], float]], effects: Mapping[str, float], scale: float
) -> list[Hypothesis]:
    """Colour and carrier together, where the pair stands out from both its row and its column."""
    cells = {words: value for words, value in rows if words[0] in COLOURS}
    found: list[Hypothesis] = []
    for (colour, carrier), value in cells.items():
        row = [v for (c, k), v in cells.items() if c == colour and k != carrier]
        column = [v for (c, k), v in cells.items() if k == carrier and c != colour]
        if len(row) > 1 and len(column) > 1:
            excess = value - max(float(np.quantile(row, 0.75)), float(np.quantile(column, 0.75)))
            found.append(Hypothesis(words=(colour, carrier), score=excess / scale))
    return sorted(found, key=lambda h: (-h.score, h.words))


def finding(hypothesis: Hypothesis, own: Sequence[float], controls: Sequence[Sequence[float]]) -> Finding:
    """controls: one group per thing that was changed; the strongest group counts, so that a combination has to beat
    each of its parts alone. Welch's t-test as in scipy.stats.ttest_ind_from_stats."""
    groups = [group for group in controls if len(group) > 1]
    if len(own) < 2 or not groups:
        return Finding(hypothesis=hypothesis, effect=0.0, p=1.0, holds=False)
    strongest = max(groups, key=lambda group: float(np.mean(group)))
    effect = float(np.mean(own) - np.mean(strongest))
    spread = float(np.std(own) + np.std(strongest))
    if spread > 1e-6 * (abs(effect) + 1e-6):
        one, two = ((float(np.mean(g)), float(np.std(g, ddof=1)), len(g)) for g in (own, strongest))
        p = float(stats.ttest_ind_from_stats(*one, *two, equal_var=False, alternative="greater").pvalue)
    else:
        p = 0.0 if effect > 0 else 1.0
    return Finding(hypothesis=hypothesis, effect=effect, p=p, holds=effect > 0 and p < 0.1)


def kind(found: Finding) -> Kind:
    """Of a combination: that of its first word."""
    return BY_NAME[found.hypothesis.words[0]].kind


def answer(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that make up the answer, strongest first; none for an abstention."""
    holding = sorted((f for f in findings if f.holds), key=lambda f: (-f.effect, f.hypothesis.words))
    if not holding:
        return []
    best = holding[0].effect
    kept = [f for f in holding if f.effect >= 0.5 * best]
    # A weaker word of the same kind is most likely a partial match (rings hold horizontal edges), not a second concept.
    strongest = {kind(f): f.effect for f in reversed(kept)}
    kept = [f for f in kept if f.effect >= 0.75 * strongest[kind(f)]]
    pairs = [f for f in kept if len(f.hypothesis.words) == 2]
    in_pairs = {word for f in pairs for word in f.hypothesis.words}
    kept = [f for f in kept if len(f.hypothesis.words) == 2 or f.hypothesis.words[0] not in in_pairs]
    return _without_redundant(kept)[:3]


def _without_redundant(findings: Sequence[Finding]) -> list[Finding]:
    """A property that explains as much makes objects that have it superfluous; a general word its special cases."""

    strongest_property = max((f.effect for f in findings if kind(f) not in (Kind.OBJECT, Kind.SCENE)), default=0.0)
    kept = [f for f in findings if kind(f) not in (Kind.OBJECT, Kind.SCENE) or f.effect > 1.25 * strongest_property]
    named = {f.hypothesis.words[0]: f.effect for f in kept}
    superfluous: set[str] = set()
    for general, narrower in GENERAL.items():
        for special in narrower:
            if general in named and special in named:
                superfluous.add(special if named[general] >= 0.8 * named[special] else general)
    return [f for f in kept if f.hypothesis.words[0] not in superfluous]
