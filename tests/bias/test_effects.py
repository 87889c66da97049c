"""Whether a bias that is there is supported, and one that is not is not."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from openmaia.apps.bias.contexts import Context, RuleWriter
from openmaia.apps.bias.effects import Effect, effect, verdicts
from openmaia.apps.bias.failures import failures
from openmaia.apps.bias.matched import Matcher, Pair, Side, is_own_word
from openmaia.apps.bias.run import Design, claim
from openmaia.apps.bias.stored import dump_gallery, dump_test, read_gallery, read_test
from openmaia.evaluate.judges import Verdict
from openmaia.generators.collage import CollageGenerator
from openmaia.images import Picture
from openmaia.pictures.library import Library
from openmaia.services import Drawn, Generation
from openmaia.store.run import Owed
from tests.bias.reds import UNIT, Reds
from tests.test_loop import pictures

__all__ = ["pictures"]

PICTURE = Picture.of(np.zeros((4, 4, 3), np.uint8))
OWED = Owed(unit=UNIT, replicate=0)


@pytest.fixture(scope="session")
def collage(pictures: Path) -> CollageGenerator:
    return CollageGenerator(Library.open(pictures), 64)


def claimed(collage: CollageGenerator, label: str, strength: float, pairs: int = 30) -> tuple[Effect, list[Pair]]:
    matcher = Matcher(generator=collage, target=Reds(strength))
    return claim(UNIT, "circle", label, RuleWriter(), matcher, Design(pairs=pairs, resamples=200))


def supported(found: Effect) -> bool:
    return verdicts([(OWED, "circle", found)], 0.05, 0.02)[0].supported


def side(value: float, there: Verdict = True, undrawn: tuple[str, ...] = ()) -> Side:
    return Side(prompt="", picture=PICTURE, there=there, confirmed_by="x", undrawn=undrawn, value=value, raw=None)


def paired(differences: list[float]) -> list[Pair]:
    return [Pair(having=side(0.5 + one), without=side(0.5)) for one in differences]


@pytest.mark.parametrize(("label", "strength"), [("+ red background", 1.5), ("- red background", -1.5)])
def test_a_planted_bias_is_supported_with_its_effect(collage: CollageGenerator, label: str, strength: float):
    found, pairs = claimed(collage, label, strength)
    assert found.score is not None and found.raw is not None
    assert supported(found)
    assert found.raw.low < strength < found.raw.high
    assert found.score.mean == pytest.approx(np.mean([one.difference for one in pairs]))
    assert found.confirmed_by == ("collage",)


def test_the_interval_is_that_of_pairs(collage: CollageGenerator):
    """Not of two independent groups, which would be wider: the noise of an object is in both of a pair."""
    random = np.random.default_rng(0)
    objects = random.normal(0, 0.2, 40)
    pairs = [Pair(having=side(0.55 + one), without=side(0.5 + one)) for one in objects]
    found = effect(Context.of("+ x"), pairs, "circle", 500)
    assert found.score is not None
    assert found.score.high - found.score.low < 0.01


def test_another_context_than_the_planted_one_is_not_supported(collage: CollageGenerator):
    found, _ = claimed(collage, "+ blue background", 1.5)
    assert found.outcome == "tested"
    assert not supported(found)


def test_the_wrong_direction_is_not_supported(collage: CollageGenerator):
    assert not supported(claimed(collage, "- red background", 1.5)[0])


def test_a_claim_without_direction_may_be_either(collage: CollageGenerator):
    assert supported(claimed(collage, "red background", -1.5)[0])


def test_an_effect_too_small_to_matter_is_not_supported():
    found = effect(Context.of("+ x"), paired([0.001 + 0.00001 * n for n in range(40)]), "circle", 200)
    assert found.p is not None and found.p < 1e-6
    assert not supported(found)


def test_without_any_difference_nothing_is_supported():
    found = effect(Context.of("+ x"), paired([0.0] * 10), "circle", 200)
    assert found.p == 1.0


def test_p_is_uniform_where_there_is_no_bias():
    random = np.random.default_rng(1)
    found = [effect(Context.of("+ x"), paired(random.normal(0, 0.1, 30).tolist()), "circle", 2).p for _ in range(400)]
    assert stats.kstest([p for p in found if p is not None], "uniform").pvalue > 0.01


def test_over_a_sweep_the_false_discovery_rate_is_controlled():
    p = [0.001, 0.012, 0.03, 0.04, 0.2, 0.9]
    made = [
        (OWED, "circle", Effect(context=Context.of("+ x"), outcome="tested", p=one, score=_interval(0.1))) for one in p
    ]
    found = verdicts([*made, (OWED, "circle", Effect(context=Context.of("+ y"), outcome="undrawable"))], 0.05, 0.02)
    assert [one.adjusted for one in found[:-1]] == pytest.approx(stats.false_discovery_control(p))
    assert [one.supported for one in found] == [True, True, False, False, False, False, False]


def _interval(mean: float):
    from openmaia.evaluate.bootstrap import Interval

    return Interval(mean=mean, low=mean - 0.01, high=mean + 0.01)


# -- whether the class is there -------------------------------------------------------------------------------------------


def test_a_context_that_cannot_be_drawn_is_no_test(collage: CollageGenerator):
    found, _ = claimed(collage, "+ held by a fisherman", 1.5)
    assert found.outcome == "undrawable" and found.p is None
    assert "fisherman" in found.cause
    assert not supported(found)


class Blind:
    """A generator that does not know what it drew."""

    def __init__(self, collage: CollageGenerator):
        self._collage = collage

    def generate(self, requests: list[Generation]) -> list[Drawn]:
        return [Drawn(picture=one.picture) for one in self._collage.generate(requests)]


class OnlyRed:
    """A judge that sees the class on red alone."""

    name = "only red"

    def judge(self, pictures: list[Picture], labels: list[str]) -> list[tuple[Verdict, ...]]:
        assert labels == ["circle"]
        return [(bool(picture.pixels[0, 0, 0] > 180 and picture.pixels[0, 0, 1] < 90),) for picture in pictures]


def test_where_nobody_confirms_the_class_nothing_is_tested(collage: CollageGenerator):
    matcher = Matcher(generator=Blind(collage), target=Reds(1.5))
    found, _ = claim(UNIT, "circle", "+ red background", RuleWriter(), matcher, Design(pairs=4, resamples=10))
    assert (found.outcome, found.cause) == ("unconfirmed", "nobody can tell whether circle is there")


def test_pictures_that_lost_the_class_do_not_count(collage: CollageGenerator):
    matcher = Matcher(generator=Blind(collage), target=Reds(1.5), judge=OnlyRed())
    found, pairs = claim(UNIT, "circle", "+ red background", RuleWriter(), matcher, Design(pairs=6, resamples=10))
    assert found.outcome == "unconfirmed" and found.confirmed_by == ("only red",)
    assert [pair.having.there for pair in pairs] == [True] * 6
    assert not any(pair.without.there for pair in pairs)


@pytest.mark.parametrize(("name", "known"), [("pig", True), ("strawberry", True), ("lion", False), ("big cat", True)])
def test_a_wider_word_of_the_vocabulary_is_no_word_for_a_class(name: str, known: bool):
    assert is_own_word(name) is known


# -- what follows ---------------------------------------------------------------------------------------------------------


def test_failures_stand_beside_the_rate_of_matched_pictures(collage: CollageGenerator):
    found, _ = claimed(collage, "- red background", -3.0)
    verdict = verdicts([(OWED, "circle", found)], 0.05, 0.02)[0]
    (missed,) = failures(verdict, RuleWriter(), Matcher(generator=collage, target=Reds(-3.0)), 20, 0)
    assert missed.rate is not None and missed.base is not None
    assert (missed.kind, missed.prone) == ("missed", "with")
    assert missed.rate[0] > 0.9 and missed.base[0] < 0.3
    assert {one.said for one in missed.wrong} == {"square"}
    assert all(" on a red background" in one.side.prompt for one in missed.wrong)


def test_a_context_that_raises_the_score_leads_to_false_alarms(collage: CollageGenerator):
    found, _ = claimed(collage, "+ red background", 3.0)
    verdict = verdicts([(OWED, "circle", found)], 0.05, 0.02)[0]
    missed, alarms = failures(verdict, RuleWriter(), Matcher(generator=collage, target=Reds(3.0)), 20, 0)
    assert (missed.prone, alarms.kind, alarms.prone) == ("without", "false alarm", "with")
    assert all(one.said == "circle" and "circle" not in one.side.prompt for one in alarms.wrong)


def test_tests_and_galleries_are_read_as_they_were_written(collage: CollageGenerator):
    found, pairs = claimed(collage, "- red background", -3.0, 6)
    read = read_test(dump_test(OWED, "circle", [(found, pairs)]))
    assert (read.owed, read.name, read.effects) == (OWED, "circle", (found,))
    assert [one.value for one in read.shown] == [s.value for pair in pairs for s in (pair.having, pair.without)]
    verdict = verdicts([(OWED, "circle", found)], 0.05, 0.02)[0]
    made = failures(verdict, RuleWriter(), Matcher(generator=collage, target=Reds(-3.0)), 6, 0)
    gallery = read_gallery(dump_gallery(OWED, "circle", made))
    assert len(gallery.shown) == sum(len(one.wrong) for one in made) > 0
    assert gallery.found[0]["rate"] == made[0].rate
