"""Reading Qt resources and GIMP patterns, and captions from file names."""

import struct
import zlib

import numpy as np
import pytest

from openmaia.offline.packaged import captions
from openmaia.offline.packaged.formats import read_pattern, read_resources
from tests.offline.packaged import formats


@pytest.mark.parametrize("version", [1, 2, 3])
def test_resources_are_read_in_every_version(version: int) -> None:
    text = struct.pack(">I", 396) + zlib.compress(b"text" * 99)
    data = formats.resource({"a": {"x.webp": b"image", "y.qml": (1, text)}, "b.txt": b""}, version)
    everything = [("a/x.webp", b"image"), ("a/y.qml", b"text" * 99), ("b.txt", b"")]
    assert list(read_resources(data, ("",))) == everything


def test_unselected_resources_are_not_decompressed() -> None:
    data = formats.resource({"bad.qml": (1, b"no zlib stream"), "good.webp": b"image"})
    assert list(read_resources(data, (".webp",))) == [("good.webp", b"image")]
    with pytest.raises(zlib.error):
        list(read_resources(data, (".qml",)))


def test_other_files_are_no_resources() -> None:
    with pytest.raises(ValueError, match="compiled Qt resource"):
        read_resources(b"RIFF" + bytes(40), (".webp",))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_patterns_become_rgb(channels: int) -> None:
    pixels = np.arange(5 * 4 * channels, dtype=np.uint8).reshape(5, 4, channels)
    image = np.asarray(read_pattern(formats.pattern(pixels)))
    assert image.shape == (5, 4, 3)
    assert (image[..., 0] == pixels[..., 0]).all()


def test_truncated_patterns_are_refused() -> None:
    data = formats.pattern(np.zeros((4, 4, 3), np.uint8))
    for length in range(len(data)):
        with pytest.raises((ValueError, struct.error)):
            read_pattern(data[:length])


@pytest.mark.parametrize(
    ("stem", "caption"),
    [
        ("measuringTape4", "A measuring tape."),
        ("alpaca", "An alpaca."),
        ("Swans", "Swans."),
        ("solar6", "A solar panel."),
        ("red_panda", "A red panda."),
    ],
)
def test_file_names_become_captions(stem: str, caption: str) -> None:
    assert captions.photo(stem) == caption


def test_names_and_textures_become_captions() -> None:
    assert captions.named("eiffelTower", "{}, a monument") == "Eiffel Tower, a monument."
    assert captions.texture("pink_marble") == "A texture of pink marble."
    assert captions.texture("parque2") == "A texture of parquet."
