"""Compares stores of exemplars up to rounding."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore


def store(root: Path) -> ExemplarStore:
    return ExemplarStore.at(str(root), "net", "folder")


def assert_alike(one: ExemplarStore, other: ExemplarStore, layers: Sequence[str]) -> None:
    """Asserts that two stores show the same images at the same ranks, with equal values and statistics up to rounding."""
    for layer in layers:
        assert one.units(layer) == other.units(layer) != set()
        for index in one.units(layer):
            mine, its = (each.read(Unit(target="net", layer=layer, index=index)) for each in (one, other))
            assert [(e.kind, e.rank, e.image.digest) for e in mine.exemplars] == [
                (e.kind, e.rank, e.image.digest) for e in its.exemplars
            ]
            assert [e.activation for e in mine.exemplars] == pytest.approx(
                [e.activation for e in its.exemplars], rel=2e-5, abs=1e-6
            )
            for ours, theirs in zip(mine.exemplars, its.exemplars, strict=True):
                assert ours.box == theirs.box
                assert ours.map is not None and theirs.map is not None
                assert np.allclose(ours.map, theirs.map, rtol=2e-3, atol=1e-5)
            assert [mine.threshold, mine.mean, mine.std] == pytest.approx(
                [its.threshold, its.mean, its.std], rel=2e-5, abs=1e-6
            )
            assert mine.maxima == pytest.approx(its.maxima, rel=2e-5, abs=1e-6)
            assert mine.counts is not None and its.counts is not None
            assert mine.counts.images.tolist() == its.counts.images.tolist()
            assert mine.positions is not None and its.positions is not None
            assert mine.positions.quantiles == pytest.approx(its.positions.quantiles, rel=2e-5, abs=1e-6)
            assert mine.positions.variance == pytest.approx(its.positions.variance, rel=1e-4)
            assert mine.state == its.state
