"""Units that are alike by the images that excite them, and by their activations."""

import numpy as np
import pytest

from openmaia.analysis.likeness import NEIGHBOURS, find_nearest_by_activations, find_nearest_by_images


def test_units_share_images_only_with_units_that_are_compared():
    top = {1: (1, 2, 3), 2: (2, 3, 9), 3: (3, 4, 5), 4: (1, 2, 3), 5: (1, 2, 3)}
    found = find_nearest_by_images(top, [1, 2, 3, 4, 6])
    assert found == {1: [(4, 3), (2, 2)], 2: [(1, 2), (4, 2)], 3: [], 4: [(1, 3), (2, 2)], 6: []}


def test_no_more_neighbours_are_named_than_are_shown():
    found = find_nearest_by_images(dict.fromkeys(range(9), (1, 2)), range(9))
    assert [other for other, _ in found[4]] == [0, 1, 2, 3, 5] and len(found[4]) == NEIGHBOURS


def parts(matrix: np.ndarray) -> list[np.ndarray]:
    return np.array_split(matrix.astype(np.float16), 3)


def test_activations_are_compared_over_all_images():
    random = np.random.default_rng(0)
    base = random.normal(size=(60, 5))
    base[:, 2] = base[:, 0] + random.normal(size=60) / 2
    base[:, 3] = -base[:, 0]
    base[:, 4] = 7.0
    found = find_nearest_by_activations(parts(base), [0, 2, 3, 4])
    kept = base.astype(np.float16).astype(float)
    assert found[0] == [(2, pytest.approx(np.corrcoef(kept[:, 0], kept[:, 2])[0, 1]))]
    assert found[3] == [] and found[4] == [], "an opposite unit and a constant one are like none"


def test_images_with_activations_of_another_number_of_units_are_left_out():
    base = np.random.default_rng(0).normal(size=(60, 3))
    expected = find_nearest_by_activations([base], [0, 1, 2])
    assert find_nearest_by_activations([base, base[:, :2] * 9], [0, 1, 2]) == expected


def test_a_unit_that_the_layer_does_not_have_is_like_none_and_costs_the_others_nothing():
    base = np.random.default_rng(0).normal(size=(60, 1)) * [1.0, 2.0]
    found = find_nearest_by_activations(parts(base), [0, 1, 64])
    assert [[other for other, _ in found[unit]] for unit in (0, 1, 64)] == [[1], [0], []]


def test_without_images_no_unit_is_like_another():
    assert find_nearest_by_activations([], [3, 1]) == {3: [], 1: []}
