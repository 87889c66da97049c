"""Reading Qt resources, GIMP patterns and copyright files of packages."""

import struct
import zlib

import numpy as np
import pytest

from openmaia.pictures import captions, licences, pattern, rcc

from . import making


def everything(_: str) -> bool:
    return True


def compressed(content: bytes) -> tuple[int, bytes]:
    return 1, struct.pack(">I", len(content)) + zlib.compress(content)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_resource_file_is_read_in_every_version(version: int) -> None:
    data = making.resource({"a": {"x.webp": b"picture", "y.qml": compressed(b"text" * 99)}, "b.txt": b""}, version)
    assert dict(rcc.read(data, everything)) == {"a/x.webp": b"picture", "a/y.qml": b"text" * 99, "b.txt": b""}


def test_what_is_not_wanted_is_not_decompressed() -> None:
    data = making.resource({"bad.qml": (1, b"junk that is no zlib stream"), "good.webp": b"picture"})
    assert list(rcc.read(data, lambda path: path.endswith(".webp"))) == [("good.webp", b"picture")]
    with pytest.raises(ValueError, match="zlib"):
        list(rcc.read(data, everything))


def test_a_zstd_entry_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="zstd"):
        list(rcc.read(making.resource({"a": (4, b"whatever")}), everything))


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\\b", "a\0b"])
def test_a_name_that_could_leave_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no plain file name"):
        list(rcc.read(making.resource({name: b"x"}), everything))


def test_decompression_stops_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rcc, "MAX_ENTRY_BYTES", 1000)
    with pytest.raises(ValueError, match="exceeds"):
        list(rcc.read(making.resource({"bomb": compressed(bytes(100_000))}), everything))


def test_a_folder_that_contains_itself_ends() -> None:
    data = bytearray(making.resource({"a": {}}))
    struct.pack_into(">II", data, 24 + 22 + 6, 1, 1)  # the folder's only child is the folder
    with pytest.raises(ValueError, match="deeper"):
        list(rcc.read(bytes(data), everything))


def test_any_damage_to_a_resource_file_raises_nothing_but_value_errors() -> None:
    data = making.resource({"a": {"x": b"123", "y": compressed(b"45" * 50)}})
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data[:place] + b"\xff" + data[place + 1 :] for place in range(len(data))]
    for bad in damaged:
        try:
            list(rcc.read(bad, everything))
        except ValueError:
            continue


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_pattern_becomes_rgb(channels: int) -> None:
    pixels = np.arange(5 * 4 * channels, dtype=np.uint8).reshape(5, 4, channels)
    image = np.asarray(pattern.decode(making.pattern(pixels)))
    assert image.shape == (5, 4, 3)
    assert (image[..., 0] == pixels[..., 0]).all()


def test_any_damage_to_a_pattern_raises_nothing_but_value_errors() -> None:
    data = making.pattern(np.zeros((4, 4, 3), np.uint8))
    for length in range(len(data)):
        with pytest.raises(ValueError, match="GIMP pattern"):
            pattern.decode(data[:length])
    for place in range(24):
        try:
            pattern.decode(data[:place] + b"\xff" + data[place + 1 :])
        except ValueError:
            continue


def test_the_last_matching_paragraph_of_a_copyright_file_decides() -> None:
    rules = licences.parse(
        "Format: x\n\nFiles: *\nCopyright: a\nLicense: GPL-3+\n text\n\n"
        "Files: src/*.svg\n  src/images/fish1.jpg\nCopyright: b\nLicense: CC-BY-2.0\n\nLicense: GPL-3+\n text\n"
    )
    assert licences.licence(rules, "src/images/fish1.webp") == "CC-BY-2.0"
    assert licences.licence(rules, "src/images/fish2.webp") == "GPL-3+"
    assert licences.licence([], "anything") == "unknown"


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("measuringTape4", "A measuring tape."),
        ("alpaca", "An alpaca."),
        ("Swans", "Swans."),
        ("solar6", "A solar panel."),
        ("red_panda", "A red panda."),
    ],
)
def test_file_names_become_captions(stem: str, expected: str) -> None:
    assert captions.photo(stem) == expected


def test_monuments_keep_their_capitals_and_textures_say_what_they_are() -> None:
    assert captions.named("eiffelTower", "{}, a monument") == "Eiffel Tower, a monument."
    assert captions.texture("pink_marble") == "A texture of pink marble."
    assert captions.texture("parque2") == "A texture of parquet."
