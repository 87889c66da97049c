"""Which of the tested words the scripted experimenter answers: exact names, or the general word for several of them."""

from openmaia.offline.experimenter.answers import Reach, answer
from openmaia.offline.experimenter.design import Hypothesis
from openmaia.offline.experimenter.judge import HypothesisResult, result

REACH = Reach(height=1.0, usual=0.05)
ABSENT = [0.0, 0.02, 0.0, 0.01, 0.03, 0.0]


def outcome(name: str, *activations: float) -> HypothesisResult:
    return result(Hypothesis(words=(name,), score=5.0), activations, [ABSENT])


def named(*results: HypothesisResult) -> list[str]:
    return [r.hypothesis.name for r in answer(results, REACH, {})]


STRAWBERRY = outcome("strawberry", 0.9, 0.8, 0.9, 0.5, 0.6, 0.4)
APPLE = outcome("apple", 0.7, 0.8, 0.6, 0.5, 0.6, 0.4)
SOME_FRUIT = outcome("fruit", 0.9, 0.0, 0.8, 0.0, 0.1, 0.1)
"""A mean of less than half that of strawberries: most images show fruit that the network does not recognise."""


def test_general_word_takes_the_place_of_several_names():
    assert not SOME_FRUIT.holds
    assert named(STRAWBERRY, APPLE, SOME_FRUIT) == ["fruit"]


def test_name_stays_if_other_names_excite_less():
    assert named(STRAWBERRY, outcome("apple", 0.4, 0.3, 0.4, 0.3, 0.3, 0.3), SOME_FRUIT) == ["strawberry"]


def test_names_stay_if_the_general_word_excites_little():
    apple = outcome("apple", 0.9, 0.8, 0.8, 0.5, 0.6, 0.4)
    assert named(STRAWBERRY, apple, outcome("fruit", 0.6, 0.0, 0.2, 0.0, 0.1, 0.0)) == ["strawberry", "apple"]


def test_name_that_one_picture_may_explain_gives_way_to_a_wider_word():
    fruit, noisy = outcome("fruit", 0.8, 0.3, 0.8, 0.3, 0.7, 0.3), Reach(height=1.0, usual=0.2)
    assert STRAWBERRY.holds and STRAWBERRY.effect > fruit.effect
    assert [r.hypothesis.name for r in answer([STRAWBERRY, fruit], noisy, {})] == ["fruit"]
    assert [r.hypothesis.name for r in answer([STRAWBERRY, fruit], REACH, {})] == ["strawberry"]


def test_nearest_general_word_takes_the_place():
    lion, tiger = outcome("lion", 0.9, 0.8, 0.9, 0.8, 0.9, 0.8), outcome("tiger", 0.9, 0.8, 0.9, 0.8, 0.8, 0.8)
    carnivore, mammal = (
        outcome("carnivore", 0.8, 0.7, 0.8, 0.8, 0.7, 0.8),
        outcome("mammal", 0.6, 0.2, 0.5, 0.4, 0.1, 0.6),
    )
    assert named(mammal, lion, carnivore, tiger) == ["carnivore"]
