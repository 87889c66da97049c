"""Exemplars of sparse responses are those of the same responses with their zeros."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from openmaia.core.images import EncodedImage, Pixels, ViewBox, whole
from openmaia.core.units import TargetInfo
from openmaia.exemplars import passes
from openmaia.exemplars.sparse import Responses, SparseResponses
from openmaia.exemplars.summary import Summaries
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import TargetNetwork
from tests.helpers.dissecting import first, kept, ordered
from tests.helpers.images import sample_image
from tests.helpers.looking import dense
from tests.models.targets.test_targets import PREPROCESS, small

DICTIONARY = Path(__file__).parents[1] / "models" / "targets" / "dictionaries" / "saelens-topk"
PICTURES = 90


def sparse(values: torch.Tensor) -> SparseResponses:
    """The values of shape (images, units, *positions) that are not 0, in a random order."""
    at = torch.nonzero(values.reshape(-1))[:, 0]
    at = at[torch.randperm(len(at), generator=torch.Generator().manual_seed(0))]
    images, units, *positions = values.shape
    return SparseResponses(images=images, units=units, positions=tuple(positions), at=at, values=values.reshape(-1)[at])


class Drawn:
    """A target of 6 units: one silent, one active everywhere, and the others here and there."""

    def __init__(self, positions: tuple[int, ...], *, is_sparse: bool, batch: int = 1, broken: float | None = None):
        self.batch, self._positions, self._is_sparse, self._broken = batch, positions, is_sparse, broken

    def info(self) -> TargetInfo:
        return TargetInfo(name="drawn", layers={"layer": 6}, digest="", input_size=(40, 40))

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        return pixels, whole(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> Mapping[str, Responses]:
        values = torch.stack([self._drawn(int(view.astype(np.int64).sum())) for view in views])
        return {"layer": sparse(values) if self._is_sparse else values}

    def _drawn(self, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        values = torch.rand(6, *self._positions, generator=generator)
        limits = torch.tensor([1.0, 0.0, 0.5, 0.8, 0.99, 0.999]).view(6, *[1] * len(self._positions))
        values = torch.where(values > limits, values, 0.0)
        if self._broken is not None and seed % 5 == 0:
            values[2].view(-1)[0] = self._broken
        return values


def pictures() -> list[EncodedImage]:
    return [EncodedImage.of(np.asarray(sample_image(seed, (40, 40)))) for seed in range(PICTURES)]


def assert_equal(one: Summaries, other: Summaries) -> None:
    for layer, mine in one.items():
        theirs = other[layer]
        for name in ("scales", "positions", "maxima", "highest", "lowest", "broken"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
        assert np.allclose(mine.sums, theirs.sums, rtol=1e-9)
        assert (mine.seen, mine.positions_seen) == (theirs.seen, theirs.positions_seen)
        assert all(np.array_equal(mine.sampled[number], theirs.sampled[number]) for number in theirs.sampled)


@pytest.mark.parametrize("positions", [(), (4, 5), (9, 8)])  # 72 are more than are counted
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("broken", [None, float("nan"), float("inf")])
def test_statistics_and_choices_equal_those_with_zeros(positions: tuple[int, ...], batch: int, broken: float | None):
    order, images = ordered(pictures())
    # Two workers, the second of which sees the images with the smaller numbers.
    shares = [range(40, PICTURES), range(40)]
    found = [
        first(Drawn(positions, is_sparse=each, batch=batch, broken=broken), order, images, ["layer"], 15, shares)
        for each in (True, False)
    ]
    assert_equal(*found)
    assert found[0]["layer"].broken.any() == (broken is not None)


@pytest.mark.parametrize("positions", [(), (9, 8)])
def test_maps_equal_those_with_zeros(positions: tuple[int, ...]):
    order, images = ordered(pictures())
    targets = [Drawn(positions, is_sparse=each, batch=7) for each in (True, False)]
    summary = first(targets[0], order, images, ["layer"], 5, [range(PICTURES)])["layer"]
    chosen = {"layer": passes.choose(summary, order)}
    few, all_values = (kept(each, images, chosen) for each in targets)
    assert few.keys() == all_values.keys()
    for unit, exemplars in few.items():
        for mine, theirs in zip(exemplars, all_values[unit], strict=True):
            assert (mine.kind, mine.rank, mine.activation) == (theirs.kind, theirs.rank, theirs.activation)
            assert (mine.map is None) == (theirs.map is None) == (not positions)
            if mine.map is not None and theirs.map is not None:
                assert np.array_equal(mine.map, theirs.map)


class WithZeros:
    """A target whose sparse responses get their zeros back."""

    def __init__(self, target: NetworkTarget):
        self._target, self.batch = target, target.batch

    def info(self) -> TargetInfo:
        return self._target.info()

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        return self._target.view(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> Mapping[str, Responses]:
        return {layer: dense(each) for layer, each in self._target.responses(views, recipes).items()}


def test_features_of_a_network_have_the_exemplars_of_dense_features():
    network = TargetNetwork(module=small(), preprocess=PREPROCESS)
    target = NetworkTarget("net", network, ["conv"], dictionaries={"conv": str(DICTIONARY)})
    order, images = ordered(pictures())
    assert isinstance(target.responses([target.view(images[0].pixels)[0]], [""])["conv/features"], SparseResponses)
    layers = ["conv/features", "conv"]
    found = [first(each, order, images, layers, 15, [range(PICTURES)]) for each in (target, WithZeros(target))]
    assert_equal(*found)


def test_chosen_responses_may_repeat():
    values = torch.tensor([[[0.0, 2.0], [3.0, 0.0]], [[0.0, 0.0], [0.0, 5.0]]])
    found = sparse(values).chosen([1, 0, 1, 1], [1, 0, 1, 0])
    assert found.tolist() == [[0.0, 5.0], [0.0, 2.0], [0.0, 5.0], [0.0, 0.0]]


def test_maxima_are_zero_where_nothing_is_active():
    values = torch.tensor([[[0.0, 2.0], [0.0, 0.0]], [[1.0, 7.0], [0.0, 0.5]]])
    assert sparse(values).maxima().tolist() == [[2.0, 0.0], [7.0, 0.5]]
