"""What units raise, as it is kept beside their exemplars."""

from pathlib import Path

import numpy as np
import pytest
import torch

from openmaia.core.services import Drives
from openmaia.core.units import OUTPUT, Unit
from openmaia.exemplars.drives import KeptDrives, covering
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.targets.hooked import NetworkTarget
from tests.helpers.dissecting import dissect
from tests.helpers.planted_edges import UNITS, PlantedEdges, colour_fields, network

NAME = "units.drives.parquet"
EDGES = PlantedEdges().edges.tolist()


@pytest.fixture(scope="module")
def target() -> NetworkTarget:
    return NetworkTarget("t", network(), ["units", OUTPUT])


@pytest.fixture
def store(tmp_path: Path, target: NetworkTarget) -> ExemplarStore:
    made = ExemplarStore.at(str(tmp_path), "t", "fields")
    units = [Unit(target="t", layer="units", index=index) for index in range(UNITS)]
    made.claim({"network": target.info().digest})
    made.write("units", dissect(target, colour_fields(30), units, k=2, quantile=0.9))
    return made


def drives(store: ExemplarStore, target: NetworkTarget) -> Drives | None:
    return KeptDrives(store, target, target.info()).effects(["units", OUTPUT]).drives.get("units")


def test_drives_are_computed_once_and_read_again(store: ExemplarStore, target: NetworkTarget):
    layers = ["units", OUTPUT]
    assert KeptDrives(store, target, target.info()).missing(layers) == ["units"]
    assert drives(store, target) is None
    seen: list[tuple[int, int]] = []
    assert (
        KeptDrives(store, target, target.info()).keep(["units"], lambda done, total: seen.append((done, total))) == []
    )
    assert seen[-1][0] == seen[-1][1] > 0
    found = drives(store, target)
    assert found is not None
    assert found.classes[:, 0].tolist() == EDGES
    assert found.images * UNITS == seen[-1][1]
    assert KeptDrives(store, target, target.info()).missing(layers) == []


def test_drives_of_something_else_are_computed_again(store: ExemplarStore, target: NetworkTarget):
    KeptDrives(store, target, target.info()).keep(["units"])
    other = NetworkTarget("t", network(heads=(10, 30)), ["units"])
    assert KeptDrives(store, other, other.info()).missing(["units"]) == ["units"]
    store.write_manifest({"network": "another"})
    assert drives(store, target) is None
    KeptDrives(store, target, target.info()).keep(["units"])
    assert drives(store, target) is not None
    written = store.files.read(NAME) or b""
    for damaged in (b"", b"PAR1", written[: len(written) // 2], written.replace(b"stamp", b"sramp")):
        store.files.write(NAME, damaged)
        assert KeptDrives(store, target, target.info()).missing(["units"]) == ["units"]


def test_imported_exemplars_do_not_hide_that_the_network_is_another(tmp_path: Path, target: NetworkTarget):
    made = ExemplarStore.at(str(tmp_path), "t", "fields")
    made.claim({"target": "t", "imported": "maia"})
    units = [Unit(target="t", layer="units", index=index) for index in range(UNITS)]
    made.write("units", dissect(target, colour_fields(30), units, k=2, quantile=0.9))
    KeptDrives(made, target, target.info()).keep(["units"])
    assert KeptDrives(made, target, target.info()).missing(["units"]) == []
    turned = network()
    with torch.no_grad():
        turned.module.fc.weight.copy_(turned.module.fc.weight.flip(0))
    other = NetworkTarget("t", turned, ["units"])
    assert KeptDrives(made, other, other.info()).missing(["units"]) == ["units"]


def test_layer_whose_drives_cannot_be_computed_is_said(tmp_path: Path, target: NetworkTarget):
    empty = ExemplarStore.at(str(tmp_path), "t", "none")
    empty.claim({})
    kept = KeptDrives(empty, target, target.info())
    assert kept.keep(["units"]) == ["system.drives() has no answer about units: its units have no exemplars"]
    assert kept.effects(["units"]).drives == {}


def test_sample_covers_as_many_units_as_it_can():
    top = {0: (5, 1), 1: (5, 2), 2: (3, 9), 3: (9, 4)}
    assert covering(top, 2) == [5, 9]
    assert len(covering(top, 4)) == 4
    assert covering(top, 100) == [1, 2, 3, 4, 5, 9]
    assert covering({}, 3) == []
    many = {unit: tuple(np.random.default_rng(unit).integers(0, 50, 5).tolist()) for unit in range(200)}
    chosen = set(covering(many, 25))
    assert sum(bool(chosen & set(numbers)) for numbers in many.values()) > 190
