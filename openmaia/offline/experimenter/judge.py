"""Derives hypotheses from the screening, and tests them by controlled measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openmaia.core.services import BankWord
from openmaia.offline.experimenter.design import COLOUR_WORDS, Hypothesis, ScreeningPrompt
from openmaia.offline.experimenter.eyes import Sight
from openmaia.offline.vocabulary.words import BY_NAME, WORDS, WordKind, covers, find

Measurements = Sequence[tuple[str, float]]
"""Pairs (prompt, activation)."""
ScreeningRows = Sequence[tuple[tuple[str, ...], float]]
"""Pairs (words that vary in a prompt of the screening, activation)."""

_SINGLES = {
    (WordKind.COLOUR, False): 3, (WordKind.PATTERN, False): 2, (WordKind.SHAPE, False): 2, (WordKind.SCENE, False): 1,
    (WordKind.OBJECT, False): 5, (WordKind.OBJECT, True): 5,
}  # fmt: skip
# Largest number of hypotheses that are tested: _SINGLES by kind of word and whether it is an exact name, this for
# combinations. Without these limits, if a unit responds to yellow, all tests would be spent on yellow objects.
_PAIRS = 3
# Additional general words, and additional exact names, for objects that are tested if the score of a colour is more
# than half of the highest score. In this case, objects that have this colour take the first ranks among the objects.
_MORE_OBJECTS = 6
# Largest number of hypotheses that are tested if the bank has named some. They are fewer than after a screening, because
# a word of the bank is known from many images, and one of the screening from one or two.
_WITH_BANK = 8
# Score that a hypothesis must exceed to be tested, in units of the spread of the activations in the screening.
_LEAST = 0.8
# Significance level of the controlled tests, one-sided.
_LEVEL = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisResult:
    """The result of the test of a hypothesis against its control groups."""

    hypothesis: Hypothesis
    effect: float
    """Mean activation of the images of the hypothesis minus that of its control group with the highest mean
    activation."""
    height: float
    """The effect. For an object, it is computed from the upper third of the activations of the images of the
    hypothesis, because a network does not recognise the object in every drawn image."""
    p: float
    """Of Welch's t-test, one-sided."""
    holds: bool
    """Whether the effect is positive and significant at _LEVEL."""

    @property
    def is_object(self) -> bool:
        return self.hypothesis.kind is WordKind.OBJECT


def exemplar_evidence(top: Sequence[Sight], random: Sequence[Sight]) -> dict[str, float]:
    """Finds the words that top exemplars show more than random images.

    Returns:
        By word, the mean evidence in top exemplars minus that in random images, divided by the pooled standard
            deviation plus 0.05, and
        clipped to the range from -2 to 4. All values are 0 if there are no top exemplars or no random images.
    """
    if not top or not random:
        return {word.name: 0.0 for word in WORDS}
    evidence: dict[str, float] = {}
    for word in WORDS:
        high, low = (np.array([sight[word.name] for sight in sights]) for sights in (top, random))
        spread = float(np.sqrt((high.var() + low.var()) / 2)) + 0.05
        evidence[word.name] = float(np.clip((high.mean() - low.mean()) / spread, -2, 4))
    return evidence


def hypotheses(
    prompts: Sequence[ScreeningPrompt], measured: Measurements, evidence: Mapping[str, float]
) -> list[Hypothesis]:
    """Returns hypotheses with a score above _LEAST, first single words, then combinations of two, each in descending
    order of the score.

    A word has a high score if the unit responds to its images in the screening, and if the unit's top exemplars show
    it. The score of a combination depends only on the screening. Of `measured`, only measurements of `prompts` are
    used.
    """
    known = {each.prompt: each for each in prompts}
    screened = [(known[prompt], value) for prompt, value in measured if prompt in known]
    rows = [(each.words, value) for each, value in screened]
    if not rows:
        return []
    values = np.array([value for _, value in rows])
    scale = float(stats.median_abs_deviation(values, scale="normal")) + 0.1 * float(values.std()) + 1e-6
    singles = [
        Hypothesis(words=(word,), score=effect / scale + 0.5 * evidence.get(word, 0.0))
        for word, effect in _main_effects(rows).items()
    ]
    ranked = sorted(singles, key=_rank)
    crowded = any(h.kind is WordKind.COLOUR and h.score > ranked[0].score / 2 for h in ranked)
    more = {WordKind.OBJECT: _MORE_OBJECTS * crowded}
    best = [
        h
        for (kind, is_exact), count in _SINGLES.items()
        for h in [h for h in ranked if (h.kind, h.is_exact) == (kind, is_exact)][: count + more.get(kind, 0)]
    ]
    pairs = _combinations(rows, [each.ground for each, _ in screened], scale)[:_PAIRS]
    return [h for h in sorted(best, key=_rank) + pairs if h.score > _LEAST]


def hypotheses_of_bank(words: Sequence[BankWord], evidence: Mapping[str, float]) -> list[Hypothesis]:
    """Returns hypotheses without a screening, at most _WITH_BANK, in descending order of the score: the words of the bank, and
    words that the unit's top exemplars show.

    The score of a word is the z of its AUC, 0 without one, and half of its evidence. None if the vocabulary has no word of
    the bank.
    """
    z: dict[tuple[str, ...], float] = {}
    for word in words:
        for meant in _meant(word.text):
            z.setdefault(meant, word.z)
    if not z:
        return []
    shown: dict[tuple[str, ...], float] = {(name,): 0.5 * each for name, each in evidence.items()}
    scored = [Hypothesis(words=each, score=z.get(each, 0.0) + shown.get(each, 0.0)) for each in {**z, **shown}]
    return [each for each in sorted(scored, key=_rank) if each.score > _LEAST][:_WITH_BANK]


def _meant(text: str) -> list[tuple[str, ...]]:
    # The hypotheses that a word of the bank stands for. A word of several names, such as "stripes", stands for all of them.
    found = find(text)
    if covers(text) and len(found) == 1:
        return [(found[0].name,)]
    colours, carriers = (
        [word.name for word in found if word.kind in kinds]
        for kinds in ((WordKind.COLOUR,), (WordKind.SHAPE, WordKind.PATTERN))
    )
    if covers(text) and len(found) == len(colours) + len(carriers) == 2 and colours and carriers:
        return [(*colours, *carriers)]
    return [(word.name,) for word in WORDS if {*text.split()} <= {*word.name.split()}]


def result(hypothesis: Hypothesis, own: Sequence[float], controls: Sequence[Sequence[float]]) -> HypothesisResult:
    """Tests by Welch's t-test whether the activations on images of a hypothesis exceed those of its control group with
    the highest mean.

    Groups with fewer than two images are ignored. If no group remains, or if the hypothesis has fewer than two images,
    it does not hold, and its effect is 0.
    """
    groups = [group for group in controls if len(group) > 1]
    if len(own) < 2 or not groups:
        return HypothesisResult(hypothesis=hypothesis, effect=0.0, height=0.0, p=1.0, holds=False)
    strongest = max(groups, key=lambda group: float(np.mean(group)))
    effect = float(np.mean(own) - np.mean(strongest))
    upper = sorted(own)[-max(len(own) // 3, 1) :] if hypothesis.kind is WordKind.OBJECT else own
    height = float(np.mean(upper) - np.mean(strongest))
    spread = float(np.std(own) + np.std(strongest))
    if spread > 1e-6 * (abs(effect) + 1e-6):
        first, second = ((float(np.mean(g)), float(np.std(g, ddof=1)), len(g)) for g in (own, strongest))
        p = float(stats.ttest_ind_from_stats(*first, *second, equal_var=False, alternative="greater").pvalue)
    else:
        p = 0.0 if effect > 0 else 1.0
    return HypothesisResult(hypothesis=hypothesis, effect=effect, height=height, p=p, holds=effect > 0 and p < _LEVEL)


def _rank(hypothesis: Hypothesis) -> tuple[float, tuple[str, ...]]:
    return -hypothesis.score, hypothesis.words


def _main_effects(rows: ScreeningRows) -> dict[str, float]:
    # The mean activation of a word's images minus the median of images of the same sort: plain colours, coloured shapes
    # and patterns, objects on a plain background, and objects in scenes. A word that occurs in several sorts gets the
    # mean over them.
    sorts: dict[tuple[WordKind, int], list[tuple[tuple[str, ...], float]]] = {}
    for words, value in rows:
        sorts.setdefault((BY_NAME[words[0]].kind, len(words)), []).append((words, value))
    effects: dict[str, list[float]] = {}
    for group in sorts.values():
        middle = float(np.median([value for _, value in group]))
        for word in dict.fromkeys(word for words, _ in group for word in words):
            effects.setdefault(word, []).append(float(np.mean([v for words, v in group if word in words])) - middle)
    return {word: float(np.mean(values)) for word, values in effects.items()}


def _combinations(rows: ScreeningRows, grounds: Sequence[str], scale: float) -> list[Hypothesis]:
    # The value of a combination is the average of the activation on its own image and of the mean over all images that
    # show both words, even if the colour is that of the background. Its score is the excess of this value over the mean
    # for the colour in other combinations and that for the shape or pattern, whichever is higher, divided by `scale`.
    drawn = [
        (*words, ground, value)
        for (words, value), ground in zip(rows, grounds, strict=True)
        if len(words) == 2 and words[0] in COLOUR_WORDS
    ]
    scored: list[Hypothesis] = []
    for colour, carrier, _, value in drawn:
        row = [v for c, k, _, v in drawn if c == colour and k != carrier]
        column = [v for c, k, ground, v in drawn if k == carrier and colour not in (c, ground)]
        both = [v for c, k, ground, v in drawn if k == carrier and colour in (c, ground)]
        if len(row) > 1 and len(column) > 1:
            own = (value + float(np.mean(both))) / 2
            excess = own - max(float(np.mean(row)), float(np.mean(column)))
            scored.append(Hypothesis(words=(colour, carrier), score=excess / scale))
    return sorted(scored, key=_rank)
