"""Datasets of images: the index, the listing that is kept, and what happens after a change."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.core.errors import StoreError, UsageError
from openmaia.datasets import index
from openmaia.datasets.library import LISTING, ImageDataset
from tests.helpers.images import sample_image, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(12):
        save(tmp_path / "class" / f"{seed}.png", sample_image(seed, (32, 32)))
    return tmp_path


def test_plain_folder_is_photos_without_captions(folder: Path):
    dataset = ImageDataset.open(folder)
    photos = dataset.photos("explore") + dataset.photos("test")
    assert len(photos) == 12
    assert {(item.caption, item.category) for item in photos} == {("", "")}
    assert dataset.cutouts("explore") == dataset.textures("test") == []
    assert photos[0].load().mode == "RGB"


def test_listing_is_kept_and_used(folder: Path):
    first = ImageDataset.open(folder)
    document = json.loads((folder / LISTING).read_text())
    document["skipped"] = {"remembered": 1}
    (folder / LISTING).write_text(json.dumps(document))
    again = ImageDataset.open(folder)
    assert (again.items, again.skipped) == (first.items, {"remembered": 1}), "no image was decoded"


def test_listing_is_computed_again_after_a_dangling_link_has_appeared(folder: Path):
    ImageDataset.open(folder)
    (folder / "0 first.png").symlink_to(folder / "nowhere.png")
    again = ImageDataset.open(folder)
    assert {item.digest for item in again.items} == {item.digest for item in ImageDataset.open(folder).items}
    assert all(item.load() for item in again.items)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"stamp": ["openmaia-split-2", ""]}', "null"])
def test_damaged_listing_is_computed_again(folder: Path, text: str):
    first = ImageDataset.open(folder)
    (folder / LISTING).write_text(text)
    assert ImageDataset.open(folder) == first


@pytest.mark.parametrize("field", [("../../etc/passwd", 0), ([1], 0), (99, 0), ("neither", 2)])
def test_listing_with_an_invalid_entry_is_computed_again(folder: Path, field: tuple[object, int]):
    first = ImageDataset.open(folder)
    document = json.loads((folder / LISTING).read_text())
    document["images"][0][field[1]] = field[0]
    (folder / LISTING).write_text(json.dumps(document))
    assert ImageDataset.open(folder) == first


def test_new_image_moves_no_other(folder: Path):
    before = {item.source: item.split for item in ImageDataset.open(folder).items}
    save(folder / "new.png", sample_image(99))
    after = {item.source: item.split for item in ImageDataset.open(folder).items}
    assert len(after) == 13
    assert {path: after[path] for path in before} == before


def test_changed_image_is_noticed_on_loading(folder: Path):
    item = ImageDataset.open(folder).items[0]
    save(Path(item.source.name), sample_image(99))
    with pytest.raises(ValueError, match="has changed since it was listed"):
        item.load()


def test_folder_without_write_permission_works(folder: Path):
    (folder / LISTING).mkdir()  # root may write anywhere, but cannot replace a folder by a file
    assert ImageDataset.open(folder) == ImageDataset.open(folder)


@pytest.mark.parametrize("name", ["split.json", "index.json"])
@pytest.mark.parametrize("text", ['{"train": ["a.png"]}', "[1,2"])
def test_metadata_of_other_programs_is_ignored(folder: Path, name: str, text: str):
    plain = ImageDataset.open(folder).items
    (folder / name).write_text(text)
    assert ImageDataset.open(folder).items == plain
    assert (folder / name).read_text() == text


def test_skipped_files_are_remembered(folder: Path):
    (folder / "bad.jpg").write_bytes(b"\xff\xd8\xffnothing")
    assert ImageDataset.open(folder).skipped == ImageDataset.open(folder).skipped == {"corrupt": 1}


def test_copies_of_one_image_are_refused(tmp_path: Path):
    pixels = np.asarray(sample_image(1)).astype(int)
    for seed in range(30):
        noise = np.random.default_rng(seed).integers(-3, 4, pixels.shape)
        save(tmp_path / f"{seed}.png", Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)))
    with pytest.raises(UsageError, match="holds 30 different images, and most of them are near-duplicates"):
        ImageDataset.open(tmp_path)
    assert len(ImageDataset.open(tmp_path, is_divided=False).items) == 30


def test_few_images_of_a_split_are_said(folder: Path):
    assert any("few images: " in remark for remark in ImageDataset.open(folder).remarks)
    for seed in range(12, 60):
        save(folder / f"{seed}.png", sample_image(seed, (32, 32)))
    assert ImageDataset.open(folder).remarks == ()


def test_skipped_files_are_named(folder: Path):
    (folder / "bad.jpg").write_bytes(b"\xff\xd8\xffnothing")
    (remark, *_) = ImageDataset.open(folder).remarks
    assert "1 corrupt" in remark and "bad.jpg is corrupt" in remark


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_metadata_that_lists_some_images_hides_none(folder: Path, name: str):
    rows = ("file_name,caption\n0.png,a\nlost.png,b\n", '{"file_name": "0.png"}\n{"file_name": "lost.png"}\n')
    (folder / "class" / name).write_text(rows[name.endswith("l")])
    dataset = ImageDataset.open(folder)
    assert (len(dataset.items), dataset.skipped) == (12, {"listed and missing": 1})


def test_links_of_a_hub_cache_are_followed(tmp_path: Path):
    snapshot = tmp_path / "datasets--a--b" / "snapshots" / "1234" / "data"
    snapshot.mkdir(parents=True)
    for seed in range(4):
        path = save(tmp_path / "datasets--a--b" / "blobs" / f"{seed}.png", sample_image(seed))
        (snapshot / f"{seed}.png").symlink_to(path)
    for folder in (snapshot, snapshot.parent, tmp_path / "datasets--a--b"):
        dataset = ImageDataset.open(folder)
        assert (len(dataset.items), dataset.skipped) == (4, {})


def test_links_elsewhere_are_refused_with_a_way_on(tmp_path: Path):
    path = save(tmp_path / "a.png", sample_image(1))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "b.png").symlink_to(path)
    with pytest.raises(UsageError, match="1 link out of the folder.* cp -rL FOLDER COPY"):
        ImageDataset.open(tmp_path / "links")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere does not exist; expected a folder of images"),
        ("file", "file is a file; expected a folder of images"),
        ("empty", r"empty holds no usable image \(skipped: 1 not an image\); expected a folder with PNG"),
    ],
)
def test_folder_without_images_is_a_usage_error(tmp_path: Path, name: str, message: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        ImageDataset.open(tmp_path / name)


def test_index_gives_kinds_captions_and_categories(tmp_path: Path):
    cutout = sample_image(1).convert("RGBA")
    cutout.putalpha(120)
    path = "cutouts/animals/frog.png"
    save(tmp_path / path, cutout)
    entry = index.IndexEntry(path=path, kind="cutout", caption="A frog.", category="animals", package="p")
    index.write(tmp_path, [entry], {"p": "1"})
    assert index.load(tmp_path) == {path: entry}
    dataset = ImageDataset.open(tmp_path)
    (item,) = dataset.cutouts("explore") + dataset.cutouts("test")
    assert (item.caption, item.category, item.load().mode) == ("A frog.", "animals", "RGBA")


@pytest.mark.parametrize("text", ['{"format": "openmaia-pictures-1", "files": [{"path": 3}]}', '{"format": "openmaia-pictures-1", '])  # fmt: skip
def test_damaged_index_is_named(folder: Path, text: str):
    (folder / "index.json").write_text(text)
    with pytest.raises(StoreError, match="index.json is damaged"):
        ImageDataset.open(folder)


def test_listed_dataset_is_opened_without_reading_its_images(tmp_path: Path):
    data = save(tmp_path / "0.png", sample_image(1, (16, 16))).read_bytes()
    for number in range(1, 1500):
        (tmp_path / f"{number}.png").write_bytes(data)
    durations: list[float] = []
    for _ in range(4):
        start = time.process_time()
        ImageDataset.open(tmp_path, is_divided=False)
        durations.append(time.process_time() - start)
    assert min(durations[1:]) < durations[0] / 2, "the first time all images are read"
