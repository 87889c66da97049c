"""Images of more than 8 bits: which value means white, by the file or by all images of the dataset."""

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from openmaia.datasets.library import ImageDataset
from openmaia.datasets.reading import SkipReason, UnusableImage, read
from tests.helpers.images import sample_image

GREY = [np.asarray(sample_image(seed, (64, 64)).convert("L")).astype(np.int64) for seed in range(4)]


def packed(values: npt.NDArray[np.int64]) -> bytes:
    """Pairs of values of 12 bits in three bytes."""
    pairs = values.reshape(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1).astype(np.uint8).tobytes()


def tiff(values: npt.NDArray[np.int64], bits: int, kind: str, white: int = 0, samples: int = 1) -> bytes:
    """A TIFF file with one strip. `kind` is the number type of NumPy without its size: u, i or f."""
    data = packed(values) if bits == 12 else values.astype(f"<{kind}{bits // 8}").tobytes()
    height, width = values.shape
    fields = {256: width // samples, 257: height, 258: bits, 259: 1, 262: min(samples, 2), 273: 0, 277: samples, 278: height, 279: len(data), 339: "uif".index(kind) + 1}  # fmt: skip
    fields |= {281: white} if white else {}
    fields[273] = 8 + 2 + 12 * len(fields) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(fields.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(fields)) + entries + bytes(4) + data


def opened(folder: Path, files: list[bytes]) -> ImageDataset:
    for number, data in enumerate(files):
        (folder / f"{number}.tif").write_bytes(data)
    return ImageDataset.open(folder)


def loaded(dataset: ImageDataset) -> list[npt.NDArray[np.int64]]:
    return [np.asarray(item.load())[..., 0].astype(np.int64) for item in dataset.items]


@pytest.mark.parametrize(
    ("bits", "kind", "factor", "offset", "white"),
    [
        (12, "u", 16, 0, 0), (16, "u", 16, 0, 0), (16, "u", 4, 0, 0), (16, "u", 257, 0, 0), (16, "u", 16, 0, 4095),
        (32, "u", 16, 0, 0), (32, "f", 1, 0, 0),
    ],
)  # fmt: skip
def test_brightness_is_that_of_eight_bits(tmp_path: Path, bits: int, kind: str, factor: int, offset: int, white: int):
    dataset = opened(tmp_path, [tiff(grey * factor + offset, bits, kind, white) for grey in GREY])
    assert all(np.abs(image - grey).max() <= 2 for image, grey in zip(loaded(dataset), GREY, strict=True))


@pytest.mark.parametrize(("bits", "kind"), [(16, "i"), (32, "i"), (32, "f")])
def test_values_below_zero_range_from_the_least_to_the_largest_of_the_dataset(tmp_path: Path, bits: int, kind: str):
    dataset = opened(tmp_path, [tiff(grey * 16 - 1024, bits, kind) for grey in GREY])
    everything = np.stack(GREY)
    expected = (everything - everything.min()) * 255 // (everything.max() - everything.min())
    assert all(np.abs(image - one).max() <= 1 for image, one in zip(loaded(dataset), expected, strict=True))
    assert any("values of" in remark and "are scaled to 0 to 255" in remark for remark in dataset.remarks)


def test_dark_image_stays_dark_beside_a_bright_one(tmp_path: Path):
    dataset = opened(tmp_path, [tiff(GREY[0] * 16, 16, "u"), tiff(GREY[1] // 8, 16, "u")])
    assert loaded(dataset)[0].max() > 200 and loaded(dataset)[1].max() <= 1


def test_scale_is_remembered(tmp_path: Path):
    first = opened(tmp_path, [tiff(grey * 16, 16, "u") for grey in GREY])
    assert ImageDataset.open(tmp_path) == first and loaded(ImageDataset.open(tmp_path))[0].max() > 100


def test_colours_of_twelve_bits_in_sixteen_are_read(tmp_path: Path):
    from openmaia.datasets.memory import _deep_png  # the only writer of such files

    pixels = [np.asarray(sample_image(seed, (64, 64))) for seed in range(2)]
    for number, image in enumerate(pixels):
        (tmp_path / f"{number}.png").write_bytes(_deep_png(image.astype(np.uint16) * 16))
    items = ImageDataset.open(tmp_path).items
    assert all(
        np.abs(np.asarray(item.load()).astype(int) - image).max() <= 1
        for item, image in zip(items, pixels, strict=True)
    )


def test_first_of_several_pages_is_said(tmp_path: Path):
    pages = [sample_image(seed) for seed in range(3)]
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    assert any("1 files of several frames or pages" in each for each in ImageDataset.open(tmp_path).remarks)


@pytest.mark.parametrize(
    ("bits", "kind", "samples", "named"),
    [(12, "u", 3, "3 samples of 12 bits for each"), (64, "f", 1, r"1 sample of 64 bits \(floats\)")],
)
def test_tiff_of_an_unsupported_kind_is_named_and_is_not_corrupt(
    tmp_path: Path, bits: int, kind: str, samples: int, named: str
):
    data = tiff(np.tile(GREY[0], (1, samples)), bits, kind, samples=samples)
    with pytest.raises(UnusableImage, match=named) as caught:
        read(data, "deep.tif")
    assert caught.value.reason is SkipReason.UNSUPPORTED
    dataset = opened(tmp_path, [data, *(tiff(grey, 16, "u") for grey in GREY)])
    assert "1 with unsupported kinds of samples" in str(dataset.left_out)


def test_damaged_tiff_writes_nothing_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    random = np.random.default_rng(0)
    sample_image(1).save(tmp_path / "whole.tif", compression="tiff_lzw")
    data = (tmp_path / "whole.tif").read_bytes()
    for number in range(60):
        broken = bytearray(data)
        for place in random.integers(8, len(data), 6):
            broken[place] = int(random.integers(256))
        (tmp_path / f"{number}.tif").write_bytes(broken)
    assert ImageDataset.open(tmp_path, is_divided=False).skipped
    assert capfd.readouterr().err == ""


def test_image_modes_of_pillow_with_sixteen_bits_equal_their_file(tmp_path: Path):
    from openmaia.datasets.memory import MemoryImages

    by_path = opened(tmp_path, [tiff(grey * 16, 16, "u") for grey in GREY])
    images = [Image.open(item.source.name) for item in by_path.items]
    by_image = ImageDataset.of(MemoryImages(images), None)
    assert all(np.array_equal(a, b) for a, b in zip(loaded(by_path), loaded(by_image), strict=True))
