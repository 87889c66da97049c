"""Images that a program passes: every usual container is read whole, and what is not read is counted."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.datasets.library import ImageDataset
from openmaia.datasets.memory import MemoryImages
from tests.helpers.images import encoded, sample_image, save

COUNT = 6
IMAGES = [sample_image(seed, (64, 64)) for seed in range(COUNT)]
PIXELS = np.stack([np.asarray(image) for image in IMAGES])


def opened(items: Any) -> ImageDataset:
    return ImageDataset.of(MemoryImages(items), None)


def digests(items: Any) -> list[str]:
    dataset = opened(items)
    assert dataset.skipped == {}
    return [item.digest for item in dataset.items]


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [str(save(tmp_path / f"{seed}.png", image)) for seed, image in enumerate(IMAGES)]


class Items(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(PIXELS[index]).permute(2, 0, 1), 3  # pyright: ignore[reportUnknownMemberType]


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter((image, 0) for image in IMAGES)


@pytest.mark.parametrize(
    "given",
    [
        PIXELS, PIXELS / 255, torch.from_numpy(PIXELS).permute(0, 3, 1, 2), Items(), Stream(), iter(IMAGES), tuple(IMAGES),  # pyright: ignore[reportUnknownMemberType]
        dict(enumerate(IMAGES)), pd.Series(IMAGES, index=range(7, 7 + COUNT)), [encoded(image, "PNG") for image in IMAGES],
        [io.BytesIO(encoded(image, "PNG")) for image in IMAGES], [{"image": image} for image in IMAGES],
        np.array([*IMAGES, None], object)[:-1], {"image": IMAGES, "label": [0] * COUNT}, [image.astype(int) for image in PIXELS],
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_container_of_images_is_read_whole(given: Any):
    assert digests(given) == digests(list(IMAGES))


@pytest.mark.parametrize(
    "form",
    [
        pd.Series, lambda paths: pd.Series(paths, index=range(COUNT)[::-1]), np.array, lambda paths: np.array(paths, object),
        pd.Index, lambda paths: pd.DataFrame({"label": 1, "path": paths}), lambda paths: pa.table({"file_name": paths}),
        lambda paths: [f"file://{path}" for path in paths], lambda paths: map(Path, paths),
    ],
)  # fmt: skip
def test_container_of_files_is_read_in_its_order(paths: list[str], form: Any):
    assert digests(form(paths)) == digests(paths)


def test_filtered_series_is_read_by_position(paths: list[str]):
    series = pd.Series(paths)
    assert digests(series[series.index % 2 == 1]) == digests(paths[1::2])


def test_missing_values_are_counted(paths: list[str]):
    assert opened(pd.Series([None, *paths, float("nan")])).skipped == {"empty": 2}


def test_first_missing_file_is_counted_like_a_later_one(paths: list[str]):
    assert opened(["/nowhere.png", *paths, "/nowhere.png"]).skipped == {"unreadable": 2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (PIXELS[0], r"one ndarray of shape \(64, 64, 3\)"),
        (IMAGES[0], "is one Image"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), r"columns a, b; .*images=table\['a'\]"),
        (torch.utils.data.DataLoader(Items(), batch_size=2), "batches; give its dataset"),
        (3, "is a int"),
    ],
)
def test_what_is_no_list_of_images_is_refused(given: Any, message: str):
    with pytest.raises(UsageError, match=message):
        opened(given)


def test_secret_of_a_url_is_not_shown():
    with pytest.raises(UsageError) as caught:
        opened(["http://127.0.0.1:9/a.jpg?signature=SECRET"])
    assert "127.0.0.1:9/a.jpg" in caught.value.message and "SECRET" not in caught.value.message


def test_turn_of_a_photograph_is_that_of_its_file(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "turned.jpg", sample_image(1, (96, 48)), exif=exif, quality=95)
    by_path, by_image = (opened([each]).items[0].load() for each in (path, Image.open(path)))
    assert by_path.size == by_image.size == (48, 96)
    assert np.array_equal(np.asarray(by_path), np.asarray(by_image))


@pytest.mark.parametrize("mode", ["CMYK", "LA", "RGBA", "P", "YCbCr"])
def test_image_of_any_mode_equals_its_file(tmp_path: Path, mode: str):
    image = (IMAGES[0].convert("L") if mode == "LA" else IMAGES[0]).convert(mode)
    path = save(tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr") else "a.png"), image)
    by_path, by_image = (opened([each]).items[0].load() for each in (path, Image.open(path)))
    assert by_path.mode == by_image.mode and np.array_equal(np.asarray(by_path), np.asarray(by_image))


@pytest.mark.parametrize("channels", [1, 3])
def test_arrays_of_twelve_bits_are_scaled_as_one_dataset(channels: int):
    bright, dark = (PIXELS[seed, ..., :channels].astype(np.uint16) * 16 for seed in (0, 1))
    dark = dark // 32
    loaded = [np.asarray(item.load())[..., 0].astype(int) for item in opened([bright, dark]).items]
    assert np.abs(loaded[0] - PIXELS[0, ..., 0]).max() <= 1
    assert np.abs(loaded[1] - PIXELS[1, ..., 0] // 32).max() <= 1
