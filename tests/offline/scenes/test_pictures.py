"""The pictures `scenes`: any number, drawn when needed, with true captions, the same in every process."""

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from openmaia.assembly import datasets, exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.datasets.library import DatasetImage
from openmaia.evaluation.controls import load_photographs, picture_captions
from openmaia.offline.scenes.album import SceneSource, pictures
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.scenes.truth import holds
from tests.conftest import REPOSITORY


def config(folder: Path, *overrides: str) -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=net",
            "target.network=tests.helpers.networks:mortal",
            "target.layers=[0]",
            "pictures.kind=scenes",
            "pictures.count=60",
            "pictures.size=64",
            f"paths.exemplars={folder / 'exemplars'}",
            f"paths.cache={folder / 'cache'}",
            *overrides,
        ]
    )


def source(item: DatasetImage) -> SceneSource:
    assert isinstance(item.source, SceneSource)
    return item.source


def test_dataset_is_the_same_every_time_and_draws_nothing_at_first(tmp_path: Path):
    one, other = (datasets.image_dataset(config(tmp_path)) for _ in range(2))
    assert one.items == other.items and len({item.digest for item in one.items}) == 60
    assert not (tmp_path / "cache" / "scenes").exists()
    assert [len(one.photos(split)) for split in ("explore", "test")] == [30, 30]
    assert pickle.loads(pickle.dumps(one.items)) == one.items


def test_seed_and_size_and_share_of_clutter_give_others(tmp_path: Path):
    digests = [
        {item.digest for item in datasets.image_dataset(config(tmp_path, *changes)).items}
        for changes in ([], ["pictures.seed=1"], ["pictures.size=65"], ["pictures.clutter=1.0"])
    ]
    assert not digests[0] & digests[1] and not digests[0] & digests[2]
    # Those that are cluttered at the smaller share are so at the larger one.
    assert 0 < len(digests[0] & digests[3]) < 30


def test_more_pictures_keep_the_earlier_ones(tmp_path: Path):
    few, many = (datasets.image_dataset(config(tmp_path, f"pictures.count={n}")).items for n in (20, 40))
    assert many[:20] == few


def test_picture_is_drawn_once_and_again_if_its_file_is_damaged(tmp_path: Path):
    [item] = pictures(1, 3, 64, 0.0, tmp_path / "cache")
    first = np.asarray(item.load())
    [file] = (tmp_path / "cache").rglob("*.png")
    assert first.shape == (64, 64, 3) and file.stat().st_size > 100
    before = file.stat().st_mtime_ns
    assert np.array_equal(np.asarray(item.load()), first) and file.stat().st_mtime_ns == before
    written = file.read_bytes()
    for damaged in (b"not a picture", written[: len(written) // 2]):
        file.write_bytes(damaged)
        assert np.array_equal(np.asarray(item.load()), first) and file.read_bytes() == written == item.source.read()


def test_picture_is_drawn_where_nothing_can_be_kept(tmp_path: Path):
    (tmp_path / "file").write_text("")
    [item] = pictures(1, 3, 64, 0.0, tmp_path / "file")
    assert item.load().size == (64, 64)


def test_many_pictures_take_little_memory(tmp_path: Path):
    tracemalloc.start()
    kept = list(pictures(1000, 0, 224, 0.25, tmp_path))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 1000 and size < 3_000_000


@pytest.mark.parametrize("item", pictures(150, 7, 64, 0.3, Path("nowhere")), ids=lambda item: item.caption)
def test_caption_is_true_of_the_scene_and_read_back(item: DatasetImage):
    own = source(item).scene
    scene, missing = read(item.caption, 0)
    assert missing == () and (scene.place, scene.time or "day") == (own.place, own.time or "day")
    assert sorted(f.kind for f in scene.figures) == sorted(f.kind for f in own.figures)
    assert holds(settle(own), item.caption) is not False
    if own.style not in GREY_STYLES:
        assert sorted(map(str, (f.paint for f in scene.figures))) == sorted(map(str, (f.paint for f in own.figures)))


def test_recipe_is_the_scene_of_the_picture(tmp_path: Path):
    [item] = pictures(1, 1, 64, 1.0, tmp_path)
    scene = Scene.loads(item.recipe)
    assert settle(scene) == scene and len(scene.figures) >= 4


def test_clutter_has_many_objects_and_patterned_grounds(tmp_path: Path):
    scenes = [source(item).scene for item in pictures(60, 2, 64, 1.0, tmp_path)]
    assert min(len(scene.figures) for scene in scenes) >= 4
    assert 15 < sum(bool(scene.ground.pattern) for scene in scenes) < 45


def test_exemplars_are_pictures_of_the_explore_half(tmp_path: Path):
    made = config(tmp_path, "exemplars.k=5")
    store = exemplars.make(made, ["0"])
    explore = {item.digest for item in datasets.image_dataset(made).photos("explore")}
    shown = store.read(Unit(target="net", layer="0", index=0)).of_kind("top")
    assert len(shown) == 5 and all({*each.image.sources} <= explore for each in shown)


def test_tests_take_photographs_of_the_other_half(tmp_path: Path):
    dataset = datasets.image_dataset(config(tmp_path))
    photographs, captions = load_photographs(dataset, 10, 64), picture_captions(dataset)
    assert len(photographs) == 10 and all(captions[image.sources[0]] for image in photographs)
    assert {image.sources[0] for image in photographs} <= {item.digest for item in dataset.photos("test")}
    assert photographs[0].pixels.shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("pictures.size=8", "32 to 1024"),
        ("pictures.count=1", "at least 2"),
        ("pictures.clutter=1.5", "clutter"),
        ("pictures.seed=-1", "seed"),
    ],
)
def test_values_have_bounds(override: str, said: str, tmp_path: Path):
    with pytest.raises(UsageError, match=said):
        config(tmp_path, override)
