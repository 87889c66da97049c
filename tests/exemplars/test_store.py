"""The exemplar store: what is written is read back, and damage is noticed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.services import ActivationCounts, Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars import image_table
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.files import Files
from tests.helpers.samples import HOSTILE_NAMES, UNIT, noise


def exemplars(unit: Unit = UNIT, scale: float = 1.0, vector: bool = False) -> UnitExemplars:
    random = np.random.default_rng(unit.index)
    maps = [(random.random((7, 9)) * scale).astype(np.float32) for _ in range(6)]
    rows = [
        Exemplar(
            kind=kind, rank=rank, activation=float(maps[n].max()), image=replace(noise(n), recipe=f"recipe {n}"), box=(1.5, 2.0, 20.0, 22.5),
            map=None if vector else maps[n],
        )
        for kind, numbers in (("top", (0, 1, 2)), ("bottom", (5, 4)), ("random", (2, 3)), ("ladder", (5, 0)), ("levels", (4, 1)))
        for rank, n in enumerate(numbers)
    ]  # fmt: skip
    return UnitExemplars(
        unit=unit,
        threshold=0.9 * scale,
        maxima=np.linspace(0, scale, 101),
        mean=0.5 * scale,
        std=0.1 * scale,
        class_name=f"class {unit.index}",
        counts=ActivationCounts(values=np.array([0.25, 0.75]) * scale, images=np.array([6, 3])),
        exemplars=tuple(rows),  # pyright: ignore[reportArgumentType]
    )


def test_exemplars_read_back(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "pictures")
    units = [Unit(target="net", layer="l", index=index) for index in (3, 1, 2)]
    store.claim({"k": 3})
    store.write("l", [exemplars(unit) for unit in units])
    assert store.units("l") == {1, 2, 3}
    after, before = store.read(units[1]), exemplars(units[1])
    assert (after.unit, after.threshold, after.mean, after.std) == (units[1], 0.9, 0.5, 0.1)
    assert np.array_equal(after.maxima, before.maxima)
    assert after.counts is not None and before.counts is not None
    assert (after.counts.values.tolist(), after.counts.images.tolist()) == ([0.25, 0.75], [6, 3])
    assert after.class_name == "class 1"
    assert [e.image.sources for e in after.exemplars] == [e.image.sources for e in before.exemplars]
    assert [e.image.recipe for e in after.exemplars] == [e.image.recipe for e in before.exemplars]
    assert [(e.kind, e.rank, e.activation, e.image.digest) for e in after.exemplars] == [
        (e.kind, e.rank, e.activation, e.image.digest) for e in before.exemplars
    ]


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e3, 1e6, 1e30])
def test_kept_maps_are_close_whatever_their_scale(tmp_path: Path, scale: float):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars(scale=scale)])
    for kept, made in zip(store.read(UNIT).exemplars, exemplars(scale=scale).exemplars, strict=True):
        assert kept.map is not None
        assert made.map is not None
        assert np.abs(kept.map - made.map).max() <= 1e-3 * scale


def test_exemplars_of_a_layer_without_space_have_no_maps(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars(vector=True)])
    assert all(exemplar.map is None for exemplar in store.read(UNIT).exemplars)


@pytest.mark.parametrize("text", ["[]", "3", '"text"'])
def test_a_manifest_of_another_shape_is_a_store_error(tmp_path: Path, text: str):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.files.write("manifest.json", text.encode())
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        store.claim({})


def test_imported_exemplars_of_another_version_are_refused(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({"imported": "maia", "source": "x"})
    store.claim({"digest": "of a network"})
    manifest = store.manifest()
    assert manifest is not None and manifest["source"] == "x"
    store.files.write("manifest.json", json.dumps(manifest | {"version": 1}).encode())
    with pytest.raises(UsageError, match=r"version \(1 there, \d wanted\)"):
        store.claim({"digest": "of a network"})


def test_a_unit_without_exemplars_is_named(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    with pytest.raises(StoreError, match="net/layer4/8"):
        store.read(replace(UNIT, index=8))


def test_an_empty_store_is_a_store_error(tmp_path: Path):
    with pytest.raises(StoreError):
        ExemplarStore.at(str(tmp_path), "net", "p").read(UNIT)


@pytest.mark.parametrize("part", ["units.parquet", "rows.parquet", "pictures.arrow", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "gone", "empty"])
def test_a_damaged_exemplar_file_is_a_store_error(tmp_path: Path, part: str, damage: str):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    path = next(path for path in tmp_path.rglob(f"*{part}"))
    path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-7])
    if damage == "gone":
        path.unlink()
    with pytest.raises(StoreError):
        store.read(UNIT)


@pytest.mark.parametrize("kept", [0, 100, -7])
def test_a_damaged_file_of_a_pass_is_named_when_its_images_are_joined(tmp_path: Path, kept: int):
    files = Files(str(tmp_path))
    images = [exemplar.image for exemplar in exemplars().exemplars]
    image_table.write(files, "work/a.arrow", images)
    image_table.write(files, "work/b.arrow", images)
    path = tmp_path / "work/b.arrow"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StoreError, match=r"work/b\.arrow is damaged: .*; remove .*/work to start"):
        image_table.join(files, "joined.arrow", ["work/a.arrow", "work/b.arrow"])
    assert not (tmp_path / "joined.arrow").exists()


def test_a_damaged_list_of_units_is_a_store_error(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    path = next(tmp_path.rglob("*units.parquet"))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(StoreError):
        store.units(UNIT.layer)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_exemplars_of_hostile_names_stay_below_the_root(tmp_path: Path, name: str):
    root = tmp_path / "a" / "b" / "root"
    store = ExemplarStore.at(str(root), name, name)
    unit = Unit(target=name, layer=name, index=1)
    store.claim({})
    store.write(name, [exemplars(unit)])
    assert store.read(unit).unit == unit
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []
    assert len([path for path in root.rglob("*") if path.is_file()]) == 4


def test_switch_that_is_off_is_as_good_as_none(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "t", "d")
    store.claim({"network": "a", "shuffled": False})
    store.claim({"network": "a"})
    with pytest.raises(UsageError, match="shuffled"):
        store.claim({"network": "a", "shuffled": True})
