"""Scanning folders that hold anything."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.errors import UsageError
from openmaia.images import flatten
from openmaia.pictures import reading
from openmaia.pictures.folder import Folder
from openmaia.pictures.places import File
from openmaia.pictures.reading import MAX_BYTES, Decoded, Skipped, Unusable
from openmaia.pictures.scanning import Scan

from . import making


def scan(root: Path) -> Scan:
    return Folder(root).scan()


def read(path: Path) -> Decoded:
    source = File(path)
    return reading.read(source.read(), source.name)


def paths(found: Scan) -> list[Path]:
    assert all(isinstance(file.source, File) for file in found.files)
    return [file.source.path for file in found.files if isinstance(file.source, File)]


def test_every_kind_of_picture_is_read(tmp_path: Path) -> None:
    image = making.picture(1)
    making.save(tmp_path / "rgb.jpg", image)
    making.save(tmp_path / "cmyk.jpg", image.convert("CMYK"))
    making.save(tmp_path / "palette.gif", image.convert("P"))
    making.save(tmp_path / "one_bit.png", image.convert("1"))
    making.save(tmp_path / "transparent.webp", image.convert("RGBA"))
    making.save(tmp_path / "bitmap.bmp", image)
    making.save(tmp_path / "tagged.tif", image)
    grey = np.asarray(image.convert("L")).astype(np.uint16) * 257
    making.save(tmp_path / "sixteen_bit.png", Image.fromarray(grey))
    frames = [making.picture(seed).convert("P") for seed in (1, 2, 3)]
    making.save(tmp_path / "animated.gif", frames[0], save_all=True, append_images=frames[1:])
    found = scan(tmp_path)
    assert found.skipped == {}
    assert len(found.files) == 9


def test_sixteen_bits_and_cmyk_keep_their_brightness(tmp_path: Path) -> None:
    image = making.picture(1)
    grey = np.asarray(image.convert("L"))
    deep = making.save(tmp_path / "deep.png", Image.fromarray(grey.astype(np.uint16) * 257))
    print_colours = making.save(tmp_path / "cmyk.jpg", image.convert("CMYK"), quality=95)
    assert np.abs(np.asarray(read(deep).image)[..., 0].astype(int) - grey).max() <= 1
    assert np.abs(np.asarray(read(print_colours).image).astype(int) - np.asarray(image)).mean() < 8


def test_an_animation_is_its_first_frame(tmp_path: Path) -> None:
    first, second = (Image.new("P", (40, 40), colour) for colour in (3, 200))
    first.putpalette([value for grey in range(256) for value in (grey, grey, grey)])
    second.putpalette([value for grey in range(256) for value in (grey, grey, grey)])
    path = making.save(tmp_path / "a.gif", first, save_all=True, append_images=[second])
    assert read(path).image.convert("L").getextrema() == (3, 3)


def test_transparency_is_kept_for_loading_and_laid_on_white_for_comparing(tmp_path: Path) -> None:
    image = making.picture(1).convert("RGBA")
    image.putalpha(0)
    loaded = read(making.save(tmp_path / "clear.png", image)).image
    assert loaded.mode == "RGBA"
    assert flatten(loaded).getextrema() == ((255, 255), (255, 255), (255, 255))


def test_a_camera_held_sideways_is_turned_upright(tmp_path: Path) -> None:
    image = making.picture(1, (96, 48))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read(making.save(tmp_path / "turned.jpg", image, exif=exif)).image.size == (48, 96)


def test_bad_files_are_counted_by_reason(tmp_path: Path) -> None:
    making.save(tmp_path / "good.png", making.picture(1))
    whole = making.save(tmp_path / "whole.jpg", making.picture(2)).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.png").write_bytes(os.urandom(500))
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "weights.npz").write_bytes(b"PK" + bytes(100))
    (tmp_path / "postscript.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n")
    (tmp_path / "bomb.png").write_bytes(making.huge_png())
    making.save(tmp_path / "icon.png", making.picture(3, (8, 8)))
    with (tmp_path / "sparse.tif").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    found = scan(tmp_path)
    assert {path.name for path in paths(found)} == {"good.png", "whole.jpg"}
    assert found.skipped == {
        Skipped.CORRUPT: 2,
        Skipped.EMPTY: 1,
        Skipped.NOT_A_PICTURE: 3,
        Skipped.TOO_LARGE: 2,
        Skipped.TOO_SMALL: 1,
    }
    assert found.describe() == ("2 pictures; skipped: 2 corrupt, 1 empty, 3 not a picture, 2 too large, 1 too small")


def test_a_picture_under_a_wrong_name_is_read(tmp_path: Path) -> None:
    making.save(tmp_path / "a.png", making.picture(1))
    (tmp_path / "a.png").rename(tmp_path / "a.dat")
    assert len(scan(tmp_path).files) == 1


def test_random_damage_never_ends_a_scan(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    making.save(tmp_path / "good.png", making.picture(0))
    for suffix in ("png", "jpg", "gif", "webp", "tif", "bmp", "ppm"):
        data = bytearray(making.save(tmp_path / f"a.{suffix}", making.picture(1, (32, 32))).read_bytes())
        for number in range(30):
            for place in random.integers(0, len(data), 4):
                data[place] = int(random.integers(256))
            (tmp_path / f"{number}.{suffix}").write_bytes(data)
    found = scan(tmp_path)
    assert len(found.files) + sum(found.skipped.values()) == 1 + 7 * 31


def test_links_are_followed_inside_the_folder_only(tmp_path: Path) -> None:
    outside = making.save(tmp_path / "outside" / "secret.png", making.picture(1))
    root = tmp_path / "root"
    making.save(root / "a" / "own.png", making.picture(2))
    (root / "link.png").symlink_to(root / "a" / "own.png")
    (root / "stolen.png").symlink_to(outside)
    (root / "elsewhere").symlink_to(outside.parent)
    (root / "loop").symlink_to(root)
    (root / "dangling.png").symlink_to(root / "missing.png")
    found = scan(root)
    assert [path.relative_to(root).as_posix() for path in paths(found)] == ["a/own.png", "link.png"]
    assert found.skipped == {Skipped.OUTSIDE: 2, Skipped.UNREADABLE: 1}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    making.save(tmp_path / "good.png", making.picture(1))
    os.mkfifo(tmp_path / "pipe.png")
    assert scan(tmp_path).skipped == {Skipped.NOT_A_PICTURE: 1}


def test_any_layout_and_any_name_in_one_order(tmp_path: Path) -> None:
    names = ["zebra/ñandú 鳥.png", "a.png", "Klasse 1/bild.png", "deep/er/and/deeper.png", "emoji 🦜.png"]
    for seed, name in enumerate(names):
        making.save(tmp_path / name, making.picture(seed))
    with (tmp_path / os.fsdecode(b"latin-\xe9.png")).open("wb") as file:
        making.picture(9).save(file, "PNG")
    (tmp_path / ".hidden").mkdir()
    making.save(tmp_path / ".hidden" / "x.png", making.picture(8))
    found = paths(scan(tmp_path))
    assert len(found) == 6
    assert found == sorted(found, key=os.fsencode)


def test_a_png_has_one_digest_however_it_was_compressed(tmp_path: Path) -> None:
    loose = making.save(tmp_path / "loose.png", making.picture(1), compress_level=0)
    tight = making.save(tmp_path / "tight.png", making.picture(1), compress_level=9)
    other = making.save(tmp_path / "other.png", making.picture(2))
    assert read(loose).digest == read(tight).digest != read(other).digest


@pytest.mark.parametrize("given", ["missing", "empty", "file"])
def test_without_pictures_one_clear_message(tmp_path: Path, given: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=rf"(?s){given}.*expected.*name a"):
        scan(tmp_path / given)


def test_an_unusable_file_says_why_even_after_pickling(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    path.write_bytes(b"BM" + struct.pack("<I", 5))
    with pytest.raises(Unusable) as caught:
        read(path)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.reason is Skipped.CORRUPT
    assert str(path) in str(copy)
