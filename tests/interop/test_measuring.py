"""Imported exemplars that are measured: what is not published comes from a pass over pictures that the user names."""

from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.tools.image_registry import describe_activation
from openmaia.assembly import exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.units import Unit
from openmaia.exemplars.measured import measure_imported
from openmaia.exemplars.store import ExemplarStore
from openmaia.interop.export import export
from openmaia.interop.importing import Importer
from tests.conftest import REPOSITORY
from tests.helpers.images import sample_image, save

PICTURES, K = 40, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for number in range(PICTURES):
        save(root / f"{number}.png", sample_image(number, (40, 40)))
    return root


def settings(root: Path, folder: Path, *overrides: str) -> Config:
    network = [
        "target.kind=network",
        "target.name=net",
        "target.network=tests.helpers.networks:mortal",
        "target.layers=[0]",
    ]
    images = [f"exemplars.folder={folder}", "pictures.kind=folder", f"pictures.folder={folder}", f"exemplars.k={K}"]
    own = [*network, *images, "exemplars.dataset=imagenet", f"paths.exemplars={root}", *overrides]
    return load([str(REPOSITORY / "configs/closed-form.yaml"), *own])


@pytest.fixture(scope="module")
def computed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ExemplarStore:
    """Exemplars of our own, with the statistics of the same pictures."""
    return exemplars.make(settings(tmp_path_factory.mktemp("computed"), folder), ["0"])


@pytest.fixture
def imported(computed: ExemplarStore, tmp_path: Path) -> Path:
    """The same exemplars, after they were exported in the published format and imported again."""
    export(computed.files.root, str(tmp_path / "published"))
    Importer(str(tmp_path / "published"), str(tmp_path / "imported")).run()
    return tmp_path / "imported"


def compute(config: Config) -> ExemplarStore:
    return exemplars.make(config, ["0"])


def test_pass_over_pictures_measures_what_is_not_published(computed: ExemplarStore, imported: Path, folder: Path):
    before = ExemplarStore.at(str(imported), "net", "imagenet")
    units = [Unit(target="net", layer="0", index=index) for index in sorted(before.units("0"))]
    unmeasured = {unit: before.read(unit) for unit in units}
    assert all(found.maxima is None and found.percentile(1.0) is None for found in unmeasured.values())
    store, layers = measure_imported(settings(imported, folder), compute)
    assert layers == ["0"]
    for unit in units:
        old, new, ours = unmeasured[unit], store.read(unit), computed.read(unit)
        assert new.threshold == old.threshold
        assert [(e.activation, e.image.digest) for e in new.of_kind("top")] == [
            (e.activation, e.image.digest) for e in old.of_kind("top")
        ]
        assert new.maxima is not None and ours.maxima is not None and np.array_equal(new.maxima, ours.maxima)
        assert (new.mean, new.std, new.state) == (ours.mean, ours.std, ours.state)
        for kind in ("bottom", "random", "ladder"):
            assert [e.activation for e in new.of_kind(kind)] == [e.activation for e in ours.of_kind(kind)]
    assert [path.name for path in (imported / "net").iterdir()] == ["imagenet"], (
        "nothing of the measurement is left behind"
    )
    live = next(unit for unit in units if store.read(unit).state == "ok")
    weakest = min(exemplar.activation for exemplar in store.read(live).of_kind("top"))
    shown = describe_activation(weakest, None, store.read(live))
    assert shown["percentile"] > 100 * (1 - (K + 1) / PICTURES), (
        "the weakest of the strongest is still among the strongest"
    )
    assert store.spread("0").keys() == {unit.index for unit in units}
    again, _ = measure_imported(settings(imported, folder), compute)
    assert len(again.read(live).of_kind("bottom")) == K, "a second measurement replaces the first"


def test_only_imported_exemplars_of_the_target_are_measured(computed: ExemplarStore, imported: Path, folder: Path):
    root = str(Path(computed.files.root).parent.parent)
    with pytest.raises(UsageError, match=r"holds no imported exemplars; import some with openmaia import"):
        measure_imported(settings(Path(root), folder), compute)
    with pytest.raises(UsageError, match=r"holds exemplars of 0, and target\.layers reads 2; name the same layers"):
        measure_imported(settings(imported, folder, "target.layers=[2]"), lambda config: exemplars.make(config, ["2"]))
    with pytest.raises(StoreError):
        ExemplarStore.at(str(imported), "net", "imagenet").read(Unit(target="net", layer="2", index=0))
