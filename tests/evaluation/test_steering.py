"""What the network says while units are weakened and strengthened."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.images import EncodedImage
from openmaia.core.services import Intervention
from openmaia.core.units import OUTPUT
from openmaia.evaluation.services import EvaluationServices
from openmaia.evaluation.steering import FACTORS, STEERING_FILE, measure_steering, read_steering, write_steering
from openmaia.evaluation.storage import StoredTrials
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.runs.run import Run
from tests.evaluation.test_effects import EDGES, made
from tests.helpers.planted_edges import network


@pytest.fixture(scope="module")
def target() -> NetworkTarget:
    return NetworkTarget("t", network(), ["units", OUTPUT])


@pytest.fixture
def run(tmp_path: Path, services: EvaluationServices, target: NetworkTarget) -> Run:
    return made(tmp_path, [(), ()], services, target)


def probability(said: tuple[tuple[str, float], ...], name: str) -> float:
    return dict(said).get(name, 0.0)


def test_same_images_are_shown_with_every_unit_at_each_factor(run: Run, target: NetworkTarget):
    progress: list[tuple[int, int]] = []
    found = measure_steering(run, target, lambda done, total: progress.append((done, total)))
    assert found is not None
    assert progress == [(1, 2), (2, 2)]
    assert [each.unit.index for each in found.units] == [0, 1]
    assert all(len(each.said) == len(found.images) == 4 for each in found.units)
    assert all(len(image) == len(FACTORS) for each in found.units for image in each.said)
    first, second = found.units
    assert [image[1] for image in first.said] == [image[1] for image in second.said]  # the factor 1 changes nothing
    assert any(probability(image[2], EDGES[0]) > probability(image[1], EDGES[0]) for image in first.said)
    trial = StoredTrials(run).read(found.trial, images=True)
    stimuli = {each.digest: each for each in trial.stimuli if each.role == "neutral"}
    image = EncodedImage(data=stimuli[found.images[0]].data)
    (logarithms,) = target.intervene([Intervention(unit=first.unit, image=image, scale=4.0)])
    best = int(np.argmax(logarithms))
    assert first.said[0][2][0] == (f"c{best}", round(float(np.exp(logarithms[best])), 4))


def test_stored_steering_is_read_again(run: Run, target: NetworkTarget):
    assert read_steering(run) is None
    found = measure_steering(run, target)
    assert found is not None
    write_steering(run, found)
    assert read_steering(run) == found
    for damaged in (b"[]", b"{", b'{"units": [{}]}', run.files.read(STEERING_FILE).replace(b'"said"', b'"sad"')):  # pyright: ignore[reportOptionalMemberAccess]
        run.files.write(STEERING_FILE, damaged)
        assert read_steering(run) is None
    first = found.units[0]
    for said in (first.said[1:], ((), *first.said[1:]), (((), *first.said[0][1:]), *first.said[1:])):
        write_steering(run, replace(found, units=(replace(first, said=said),)))
        assert read_steering(run) is None


def test_nothing_is_stored_of_a_network_whose_units_cannot_be_changed(run: Run):
    assert measure_steering(run, NetworkTarget("t", network(), [OUTPUT])) is None
