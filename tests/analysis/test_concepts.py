"""Concepts: which descriptions are grouped, how a group is named, and the order of similar ones."""

from openmaia.analysis.concepts import MOST, find_concepts
from openmaia.models.text_embedding import load_text_embedding
from tests.helpers import minilm


def test_descriptions_with_similar_labels_are_one_concept_named_by_the_most_frequent_label():
    found = find_concepts([["boat"], ["Red boat"], ["stripes"], ["  BOAT "], ["boat", "house"], ["striped pattern"]])
    assert found.names == ("boat", "striped pattern", "stripes")
    assert found.positions == (0, 0, 2, 0, 0, 1)


def test_description_without_labels_has_no_concept():
    found = find_concepts([[], ["boat"], [" "]])
    assert (found.names, found.positions, found.ranks) == (("boat",), (None, 0, None), (None, 0, None))
    assert find_concepts([]).names == ()


def test_concepts_do_not_depend_on_the_order_of_the_units():
    labels = [["boat"], ["red boat"], ["red house"], ["house"], ["house"], ["tree"]]
    one, two = find_concepts(labels), find_concepts(labels[::-1])
    assert one.names == two.names
    assert one.positions == two.positions[::-1]


def test_similar_concepts_are_neighbours_in_the_order():
    found = find_concepts([["red wooden boat"], ["zebra"], ["big red house"], ["zebra"], ["tall wooden tower"]])
    order = sorted(range(5), key=lambda at: found.ranks[at] or 0)
    assert sorted(found.ranks, key=lambda rank: rank or 0) == [0, 1, 2, 3, 4]
    assert order[:2] == [1, 3], "the largest concept comes first"
    assert order[2:] in ([2, 0, 4], [4, 0, 2], [0, 2, 4], [0, 4, 2])


def test_labels_without_a_word_are_grouped_where_they_are_equal():
    found = find_concepts([["?"], ["!"], ["?"]])
    assert found.names == ("?", "!") and found.positions == (0, 1, 0)


def test_number_of_concepts_is_bounded():
    found = find_concepts([[f"thing{number}"] for number in range(MOST + 5)])
    assert len(found.names) == MOST
    assert sum(position is None for position in found.positions) == 5


def test_model_groups_labels_of_the_same_meaning():
    embed = load_text_embedding(minilm.folder())
    found = find_concepts([["stripes"], ["a striped pattern"], ["a steam locomotive"], ["steam engines"]], embed)
    assert found.positions[0] == found.positions[1] != found.positions[2]
