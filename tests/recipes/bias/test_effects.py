"""Which biases are supported: planted ones are, others are not; and the failure modes of supported ones."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, Generator
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.judging.judges import ImageVerdict
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.vocabulary.contexts import RuleContextWriter, is_exact_name
from openmaia.recipes.bias.effects import ContextEffect, decide, estimate_effect, find_failures
from openmaia.recipes.bias.pairs import ClaimedContext, MatchedPair, Matcher, PairSide
from openmaia.recipes.bias.study import dump_failures, dump_test, measure_claim, read_test
from openmaia.runs.run import InvestigationId
from tests.helpers.investigating import pictures
from tests.recipes.bias.circles import UNIT, CircleClassifier, TwoHeads

__all__ = ["pictures"]

IMAGE = EncodedImage.of(np.zeros((4, 4, 3), np.uint8))
INVESTIGATION = InvestigationId(unit=UNIT, replicate=0)
ANSWER = Claim(unit=UNIT)


@pytest.fixture(scope="session")
def collage(pictures: Path) -> CollageGenerator:
    return CollageGenerator(ImageDataset.open(pictures), 64)


def claimed(
    collage: CollageGenerator, label: str, strength: float, pairs: int = 30
) -> tuple[ContextEffect, list[MatchedPair]]:
    return measure_claim(UNIT, "circle", label, matching(collage, strength), settings(pairs))


def matching(generator: Generator, strength: float, **others: Any) -> Matcher:
    return Matcher(writer=RuleContextWriter(), generator=generator, target=CircleClassifier(strength), **others)


def settings(pairs: int) -> Config:
    return load([f"bias.pairs={pairs}", "evaluate.bootstrap=200", "name=x", "target.name=circles", "units=all"])


def supported(found: ContextEffect) -> bool:
    return decide([(INVESTIGATION, "circle", found)], 0.05, 0.02)[0].supported


def side(value: float, shows_class: ImageVerdict = True, missing_terms: tuple[str, ...] = ()) -> PairSide:
    return PairSide(
        prompt="",
        image=IMAGE,
        shows_class=shows_class,
        confirmed_by="x",
        missing_terms=missing_terms,
        value=value,
        raw=None,
    )


def paired(differences: list[float]) -> list[MatchedPair]:
    return [MatchedPair(having=side(0.5 + one), without=side(0.5)) for one in differences]


@pytest.mark.parametrize(("label", "strength"), [("+ red background", 1.5), ("- red background", -1.5)])
def test_planted_bias_is_supported(collage: CollageGenerator, label: str, strength: float):
    found, pairs = claimed(collage, label, strength)
    assert found.score is not None and found.raw is not None
    assert supported(found)
    assert abs(found.raw.mean - strength) < found.raw.high - found.raw.low, "within two widths of the interval's half"
    assert found.score.mean == pytest.approx(np.mean([one.difference for one in pairs]))
    assert found.confirmed_by == ("collage",)


def test_interval_is_that_of_pairs(collage: CollageGenerator):
    """Not of two independent groups, which would be wider: the noise of an object is in both of a pair."""
    random = np.random.default_rng(0)
    objects = random.normal(0, 0.2, 40)
    pairs = [MatchedPair(having=side(0.55 + one), without=side(0.5 + one)) for one in objects]
    found = estimate_effect(ClaimedContext.parse("+ x"), pairs, "circle", 500)
    assert found.score is not None
    assert found.score.high - found.score.low < 0.01


def test_other_context_is_not_supported(collage: CollageGenerator):
    found, _ = claimed(collage, "+ blue background", 1.5)
    assert found.outcome == "tested"
    assert not supported(found)


def test_wrong_direction_is_not_supported(collage: CollageGenerator):
    assert not supported(claimed(collage, "- red background", 1.5)[0])


def test_claim_without_sign_is_two_sided(collage: CollageGenerator):
    assert supported(claimed(collage, "red background", -1.5)[0])


def test_tiny_effect_is_not_supported():
    found = estimate_effect(
        ClaimedContext.parse("+ x"), paired([0.001 + 0.00001 * n for n in range(40)]), "circle", 200
    )
    assert found.p is not None and found.p < 1e-6
    assert not supported(found)


def test_equal_scores_have_p_one():
    found = estimate_effect(ClaimedContext.parse("+ x"), paired([0.0] * 10), "circle", 200)
    assert found.p == 1.0


def test_p_is_uniform_without_a_bias():
    random = np.random.default_rng(1)
    found = [
        estimate_effect(ClaimedContext.parse("+ x"), paired(random.normal(0, 0.1, 30).tolist()), "circle", 2).p
        for _ in range(400)
    ]
    assert stats.kstest([p for p in found if p is not None], "uniform").pvalue > 0.01


def test_false_discovery_rate_is_controlled():
    p = [0.001, 0.012, 0.03, 0.04, 0.2, 0.9]
    made = [
        (
            INVESTIGATION,
            "circle",
            ContextEffect(context=ClaimedContext.parse("+ x"), outcome="tested", p=one, score=_interval(0.1)),
        )
        for one in p
    ]
    found = decide(
        [*made, (INVESTIGATION, "circle", ContextEffect(context=ClaimedContext.parse("+ y"), outcome="undrawable"))],
        0.05,
        0.02,
    )
    assert [one.adjusted for one in found[:-1]] == pytest.approx(stats.false_discovery_control(p))
    assert [one.supported for one in found] == [True, True, False, False, False, False, False]


def _interval(mean: float):
    from openmaia.evaluation.analysis.bootstrap import Interval

    return Interval(mean=mean, low=mean - 0.01, high=mean + 0.01)


# -- whether the class is there -------------------------------------------------------------------------------------------


def test_undrawable_context_is_not_tested(collage: CollageGenerator):
    found, _ = claimed(collage, "+ held by a fisherman", 1.5)
    assert found.outcome == "undrawable" and found.p is None
    assert "fisherman" in found.cause
    assert not supported(found)


class Blind:
    """A generator that does not know what it drew."""

    def __init__(self, collage: CollageGenerator):
        self._collage = collage

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return [GeneratedImage(image=one.image) for one in self._collage.generate(requests)]


class OnlyRed:
    """A judge that sees the class on red alone."""

    name = "only red"

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[ImageVerdict, ...]]:
        return [(bool(image.pixels[0, 0, 0] > 180 and image.pixels[0, 0, 1] < 90),) for image in images]


def test_unconfirmed_class_is_not_tested(collage: CollageGenerator):
    matcher = matching(Blind(collage), 1.5)
    found, _ = measure_claim(UNIT, "circle", "+ red background", matcher, settings(4))
    assert (found.outcome, found.cause) == ("unconfirmed", "it is unknown whether circle is visible")


def test_images_without_the_class_do_not_count(collage: CollageGenerator):
    matcher = matching(Blind(collage), 1.5, judge=OnlyRed())
    found, pairs = measure_claim(UNIT, "circle", "+ red background", matcher, settings(6))
    assert found.outcome == "unconfirmed" and found.confirmed_by == ("only red",)
    assert [pair.having.shows_class for pair in pairs] == [True] * 6
    assert not any(pair.without.shows_class for pair in pairs)


def test_class_with_a_more_general_word_is_not_confirmed(collage: CollageGenerator):
    matcher = matching(collage, 1.5, judge=OnlyRed(), knows_class=is_exact_name)
    (pair, _) = matcher.pairs(UNIT, "bull", ClaimedContext.parse("+ red background"), 2, 0)
    assert (pair.having.shows_class, pair.having.confirmed_by) == (None, "")


# -- what follows ---------------------------------------------------------------------------------------------------------


def test_failures_have_a_base_rate(collage: CollageGenerator):
    found, _ = claimed(collage, "- red background", -3.0)
    verdict = decide([(INVESTIGATION, "circle", found)], 0.05, 0.02)[0]
    (missed,) = find_failures(verdict, matching(collage, -3.0), 20, 0)
    assert missed.rate is not None and missed.base is not None
    assert (missed.kind, missed.prone) == ("missed", "with")
    assert missed.rate[0] > 0.9 and missed.base[0] < 0.3
    assert {image.predicted for image in missed.wrong} == {"square"}
    assert all(" on a red background" in one.prompt for one in missed.wrong)


def test_failures_are_those_of_the_head_of_the_class(collage: CollageGenerator):
    found, _ = claimed(collage, "- red background", -3.0)
    verdict = decide([(INVESTIGATION, "circle", found)], 0.05, 0.02)[0]
    (alone,) = find_failures(verdict, matching(collage, -3.0), 20, 0)
    (missed,) = find_failures(verdict, replace(matching(collage, -3.0), target=TwoHeads(-3.0)), 20, 0)
    assert (missed.rate, missed.base) == (alone.rate, alone.base)
    assert {image.predicted for image in missed.wrong} == {"square"}


def test_raising_context_leads_to_false_alarms(collage: CollageGenerator):
    found, _ = claimed(collage, "+ red background", 3.0)
    verdict = decide([(INVESTIGATION, "circle", found)], 0.05, 0.02)[0]
    missed, alarms = find_failures(verdict, matching(collage, 3.0), 20, 0)
    assert (missed.prone, alarms.kind, alarms.prone) == ("without", "false alarm", "with")
    assert all(image.predicted == "circle" and "circle" not in image.prompt for image in alarms.wrong)


def test_tests_and_failures_are_read_as_written(collage: CollageGenerator):
    found, pairs = claimed(collage, "- red background", -3.0, 6)
    read = read_test(dump_test(ANSWER, "circle", [(found, pairs)]))
    assert (read.investigation, read.name, read.effects) == (INVESTIGATION, "circle", (found,))
    assert [image.value for image in read.images[0]] == [s.value for pair in pairs for s in (pair.having, pair.without)]
    verdict = decide([(INVESTIGATION, "circle", found)], 0.05, 0.02)[0]
    modes = find_failures(verdict, matching(collage, -3.0), 6, 0)
    stored = read_test(dump_failures(ANSWER, "circle", modes))
    assert sum(map(len, stored.images)) == sum(len(mode.wrong) for mode in modes) > 0
    assert stored.parts[0]["rate"] == modes[0].rate
