"""Published exemplars in every form in which they come, and those that are refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmaia.core.images import EncodedImage, upsample
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.interop import masks
from openmaia.interop.exemplars import read, units
from openmaia.interop.importing import Importer
from openmaia.interop.reading import Refused
from tests.interop import published
from tests.interop.published import ACTIVATIONS, SIDE, THRESHOLDS, UNITS, K, layer, synthetic_layer


def imported(tmp_path: Path, folder: Path, index: int = 0, *, dataset: str = "imagenet") -> UnitExemplars:
    """What the store gives of a unit after an import of everything."""
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert report.refused == []
    target = "synthetic_neurons" if dataset == "synthetic" else "net"
    store = ExemplarStore.at(str(tmp_path / "out"), target, dataset)
    return store.read(Unit(target=target, layer=folder.name, index=index))


def shown(found: UnitExemplars) -> np.ndarray[Any, Any]:
    """The masks as the toolbox draws them, (k, height, width)."""
    maps = [exemplar.map for exemplar in found.exemplars]
    return np.stack([upsample(small, SIDE, SIDE) > found.threshold for small in maps if small is not None])


def place(tmp_path: Path) -> Path:
    return tmp_path / "in" / "net" / "imagenet" / "layer4"


def check(found: UnitExemplars, row: int) -> None:
    assert [e.activation for e in found.exemplars] == pytest.approx(ACTIVATIONS[row].tolist(), rel=1e-5)
    assert [e.rank for e in found.exemplars] == [0, 1, 2]
    assert {e.kind for e in found.exemplars} == {"top"}
    for rank, exemplar in enumerate(found.exemplars):
        assert np.array_equal(exemplar.image.pixels, published.images()[row, rank])
    assert np.array_equal(shown(found), published.masks()[row])


@pytest.mark.parametrize("row", range(UNITS))
def test_published_layer_is_read(tmp_path: Path, row: int):
    found = imported(tmp_path, layer(place(tmp_path)), row)
    check(found, row)
    assert found.threshold == pytest.approx(THRESHOLDS[row])
    assert found.positions is None
    assert (found.mean, found.std, found.maxima, found.percentile(3.0), found.z_score(3.0)) == (None,) * 5


@pytest.mark.parametrize(
    "mask",
    [
        published.masks(),
        published.masks()[:, :, None],
        published.masks()[:, :, None].astype(np.uint8) * 255,
        published.masks()[..., None].astype(np.uint8),
    ],
    ids=["bool, no singleton", "bool", "up to 255", "singleton last"],
)
def test_mask_forms_are_equivalent(tmp_path: Path, mask: Any):
    check(imported(tmp_path, layer(place(tmp_path), masks=mask), 1), 1)


def test_channels_may_be_last(tmp_path: Path):
    check(imported(tmp_path, layer(place(tmp_path), images=published.images()), 2), 2)


def test_units_npy_names_the_rows(tmp_path: Path):
    folder = layer(place(tmp_path), units=np.array([700, 5, 41]))
    check(imported(tmp_path, folder, 5), 1)
    store = ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet")
    assert store.units("layer4") == {5, 41, 700}
    assert [found.unit.index for found in units(read(folder), "net")] == [5, 41, 700]
    check(store.read(Unit(target="net", layer="layer4", index=700)), 0)


@pytest.mark.parametrize("shape", [(1, K), (K,)])
def test_single_unit_table_may_be_line_or_column(tmp_path: Path, shape: tuple[int, ...]):
    images = published.images()[:1].transpose(0, 1, 4, 2, 3)
    one = published.masks()[:1, :, None].astype(np.uint8)
    folder = layer(
        place(tmp_path), images=images, masks=one, activations=ACTIVATIONS[0].reshape(shape), thresholds=THRESHOLDS[:1]
    )
    check(imported(tmp_path, folder, 0), 0)


def test_any_number_of_exemplars_is_accepted(tmp_path: Path):
    folder = layer(
        place(tmp_path),
        images=published.images(2, 5).transpose(0, 1, 4, 2, 3),
        masks=published.masks(2, 5),
        activations=np.array([[5, 4, 3, 2, 1], [9, 9, 9, 9, 9.0]]),
        thresholds=THRESHOLDS[:2],
    )
    assert len(imported(tmp_path, folder, 1).exemplars) == 5


def test_synthetic_threshold_is_zero(tmp_path: Path):
    folder = synthetic_layer(tmp_path / "in" / "synthetic_neurons" / "mono")
    found = imported(tmp_path, folder, 1, dataset="synthetic")
    assert found.threshold == 0
    assert np.array_equal(shown(found), published.masks()[1])
    assert np.array_equal(found.exemplars[2].image.pixels, published.images()[1, 2])


def test_grey_masks_are_cut_at_half(tmp_path: Path):
    grey = np.where(published.masks(), 200, 100).astype(np.uint8)[..., None]
    folder = synthetic_layer(tmp_path / "in" / "synthetic_neurons" / "mono", masks=grey)
    assert np.array_equal(shown(imported(tmp_path, folder, 2, dataset="synthetic")), published.masks()[2])


def test_mask_at_the_threshold_is_kept(tmp_path: Path):
    values = ACTIVATIONS / 10
    values[0] = [0.5, 0.0, 0.0]
    folder = synthetic_layer(tmp_path / "in" / "synthetic_neurons" / "and", activations=values)
    assert np.array_equal(shown(imported(tmp_path, folder, 0, dataset="synthetic")), published.masks()[0])


def test_summed_synthetic_activations_are_refused(tmp_path: Path):
    folder = synthetic_layer(tmp_path / "synthetic_neurons" / "or", activations=ACTIVATIONS)
    with pytest.raises(Refused, match=r"up to 9\.5.*not comparable"):
        read(folder)


def test_layer_without_masks_has_no_maps(tmp_path: Path):
    found = imported(tmp_path, layer(place(tmp_path), masks=None))
    assert [e.map for e in found.exemplars] == [None] * K
    assert found.threshold == 4.0


def test_inactive_unit_is_dead(tmp_path: Path):
    values = ACTIVATIONS.copy()
    values[2] = 0
    folder = layer(place(tmp_path), activations=values, masks=np.zeros((UNITS, K, SIDE, SIDE), dtype=np.bool_))
    assert imported(tmp_path, folder, 2).state == "dead"
    store = ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet")
    assert store.states("layer4") == {0: "ok", 1: "ok", 2: "dead"}


# -- derived -------------------------------------------------------------------------------------------------------------


def test_missing_thresholds_are_estimated_and_reported(tmp_path: Path):
    layer(place(tmp_path), thresholds=None)
    layer(place(tmp_path).with_name("layer3"))
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    store = ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet")
    manifest = store.manifest()
    assert manifest is not None
    assert manifest["imported"] == "maia"
    assert manifest["estimated"] == ["threshold/layer4"]
    assert [line.split(":")[0] for line in report.derived if "thresholds" in line] == ["net/imagenet/layer4"]
    check(store.read(Unit(target="net", layer="layer4", index=0)), 0)


@pytest.mark.parametrize(
    ("activations", "lit", "threshold"),
    [
        ([8.0, 6.0, 2.0], [True, True, False], 4.0),
        ([8.0, 6.0, 2.0], [True, True, True], 1.0),
        ([8.0, 6.0, 2.0], [False, False, False], 8.0),
        ([-1.0, -2.0, -3.0], [True, True, True], -5.0),
        ([-1.0, -2.0, -3.0], [True, False, False], -1.5),
    ],
)
def test_estimated_threshold_separates_lit_from_empty(activations: list[float], lit: list[bool], threshold: float):
    assert masks.estimate_threshold(np.array(activations), np.array(lit)) == threshold


@pytest.mark.parametrize("cells", [7, 14, 28])
@pytest.mark.parametrize("activation", [1e-4, 30.1, 5e4])
def test_masks_are_recovered_from_maps(cells: int, activation: float):
    """Masks as they are published: a small map, enlarged and cut off at a threshold, here close to the activation."""
    noise = np.random.default_rng(cells).random((cells // 3, cells // 3)).astype(np.float32)
    mask = upsample(upsample(noise, cells, cells), 224, 224) > 0.75
    assert 0.02 < mask.mean() < 0.5
    threshold = 0.99 * activation
    made = masks.to_map(masks.normalize(mask), activation, threshold)
    assert made.shape == (56, 56)
    back = masks.from_map(made.astype(np.float16).astype(np.float32) if activation > 1 else made, threshold, 224, 224)
    union = (mask | (back > 0)).sum()
    assert (mask & (back > 0)).sum() / union > 0.95


# -- refused -------------------------------------------------------------------------------------------------------------

ROWS = ACTIVATIONS.copy()
ROWS[1] = [2.0, 3.0, 1.0]
NAN = ACTIVATIONS.copy()
NAN[2, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": published.images().astype(np.float32)}, r"images.npy is float32"),
        ({"images": published.images()[..., 0]}, r"images.npy is uint8 \(3, 3, 32, 32\)"),
        ({"images": published.images()[:0]}, r"images.npy"),
        ({"images": None}, r"no images.npy"),
        ({"masks": published.masks()[:2]}, r"masks.npy is bool \(2, 3, 32, 32\); expected"),
        ({"masks": published.masks()[..., :16]}, r"masks.npy is bool"),
        ({"masks": published.masks().astype(np.float64)}, r"masks.npy is float64"),
        ({"masks": None, "thresholds": None}, r"neither masks.npy nor thresholds.csv"),
        ({"activations": ROWS}, r"does not descend in line 2"),
        ({"activations": NAN}, r"not finite in line 3"),
        ({"activations": ACTIVATIONS[:2]}, r"activations.csv is \(2, 3\); expected \(3, 3\)"),
        ({"activations": None}, r"activations.csv cannot be read"),
        ({"thresholds": THRESHOLDS[:2]}, r"thresholds.csv has 2"),
        ({"thresholds": np.array([1.0, np.inf, 2.0])}, r"thresholds.csv has 2 finite"),
        ({"units": np.array([1, 2])}, r"units.npy"),
        ({"units": np.array([1, 1, 2])}, r"3 different units"),
        ({"units": np.array([-1, 1, 2])}, r"units.npy"),
        ({"units": np.array([1.0, 2.0, 3.0])}, r"units.npy is float64"),
    ],
)
def test_inconsistent_files_are_refused(tmp_path: Path, changes: dict[str, Any], said: str):
    with pytest.raises(Refused, match=said):
        read(layer(place(tmp_path), **changes))


class Hostile:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("name", ["images", "masks", "units"])
@pytest.mark.parametrize("form", ["object array", "bare pickle"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str, form: str):
    folder, mark = layer(place(tmp_path)), tmp_path / "executed"
    path = folder / f"{name}.npy"
    if form == "bare pickle":
        path.write_bytes(pickle.dumps(Hostile(mark)))
    else:
        np.save(path, np.array([Hostile(mark)], dtype=object), allow_pickle=True)
    with pytest.raises(Refused, match=f"{name}.npy"):
        read(folder)
    assert not mark.exists()


HEADER = b"\x93NUMPY\x01\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"no array at all",
        HEADER + (118).to_bytes(2, "little") + b"(" * 118,
        HEADER + (9000).to_bytes(2, "little") + b"[" * 9000,
        HEADER + (60).to_bytes(2, "little") + b"{'descr':'|u1','fortran_order':False,'shape':(9,9,3,224,-9),}".ljust(60),
        HEADER + (80).to_bytes(2, "little") + f"{{'descr':'|u1','fortran_order':False,'shape':({2**62},15,3,9,9),}}".encode().ljust(80),
    ],
    ids=["empty", "a magic number", "text", "nested", "nested deeply", "a negative shape", "a huge shape"],
)  # fmt: skip
def test_damaged_array_is_refused(tmp_path: Path, data: bytes):
    folder = layer(place(tmp_path))
    (folder / "images.npy").write_bytes(data)
    with pytest.raises(Refused, match="images.npy"):
        read(folder)


def test_truncated_array_and_archive_are_refused(tmp_path: Path):
    folder = layer(place(tmp_path))
    whole = (folder / "masks.npy").read_bytes()
    (folder / "masks.npy").write_bytes(whole[:-7])
    with pytest.raises(Refused, match="masks.npy"):
        read(folder)
    np.savez(tmp_path / "a.npz", masks=published.masks())
    (folder / "masks.npy").write_bytes((tmp_path / "a.npz").read_bytes())
    with pytest.raises(Refused, match="archive"):
        read(folder)


@pytest.mark.parametrize("text", ["", "a,b,c\n", "1,2\n3\n", "\0\0"])
def test_table_without_numbers_is_refused(tmp_path: Path, text: str):
    folder = layer(place(tmp_path))
    (folder / "activations.csv").write_text(text)
    with pytest.raises(Refused, match="activations.csv"):
        read(folder)


def test_huge_table_is_not_read(tmp_path: Path):
    folder = layer(place(tmp_path))
    with (folder / "activations.csv").open("wb") as stream:
        stream.truncate(10**10)
    with pytest.raises(Refused, match=r"10,000,000,000 bytes, and at most"):
        read(folder)


def test_images_are_read_one_unit_at_a_time(tmp_path: Path):
    """A sparse file of 16 GB: whoever reads it whole runs out of memory or patience."""
    count = 4000
    folder = layer(
        place(tmp_path),
        images=None,
        masks=None,
        activations=np.ones((count, 27)),
        thresholds=np.zeros(count),
    )
    lib: Any = np.lib.format
    lib.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=(count, 27, 3, 224, 224))
    first = next(units(read(folder), "net"))
    assert first.unit == Unit(target="net", layer="layer4", index=0)
    assert first.exemplars[26].image.digest == EncodedImage.of(np.zeros((224, 224, 3), dtype=np.uint8)).digest
