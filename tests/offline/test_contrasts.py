"""Contrasts by the rules of the offline vocabulary."""

from openmaia.offline.vocabulary.contrasts import APART, RuleContrasts
from openmaia.offline.vocabulary.words import find


def test_combination_keeps_one_half():
    kept = [set(pair.shows.split()) & {"red", "circle"} for pair in RuleContrasts().find(["red circle"], (), 4)]
    assert kept == [{"circle"}, {"red"}] * 2


def test_phrase_exchanges_one_word():
    shown = [pair.shows for pair in RuleContrasts().find(["a fish that wears a red hat"], (), 2)]
    assert all(text.startswith("a ") and text.endswith(" hat") for text in shown)
    assert "red" in shown[0] and "fish" not in shown[0]
    assert "fish" in shown[1] and "red" not in shown[1]


def test_no_contrast_shows_another_label():
    for pair in RuleContrasts().find(["red", "blue", "fish"], (), 60):
        assert not {word.name for word in find(pair.shows)} & {"red", "blue", "fish"}
        assert not {word.name for word in find(pair.contrast_prompt)} & {"red", "blue", "fish"}


def test_unknown_label_uses_dropped_hypotheses():
    pairs = RuleContrasts().find(["bow ties"], ["neckties", "collars"], 4)
    assert {pair.shows for pair in pairs} == {"neckties", "collars"}
    assert {pair.source for pair in RuleContrasts().find(["bow ties"], (), 2)} == {APART}
