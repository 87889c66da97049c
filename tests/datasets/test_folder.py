"""Folders that hold anything: which files are images, and which are skipped for what reason."""

import io
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import flatten
from openmaia.datasets import reading
from openmaia.datasets.folder import FileSource, ImageFolder
from openmaia.datasets.reading import MAX_BYTES, SkipReason, UnusableImage
from openmaia.datasets.scanning import describe, scan
from tests.helpers.images import huge_png, sample_image, save
from tests.helpers.permissions import obeyed_permissions


def scanned(root: Path) -> tuple[list[Path], dict[str, int]]:
    """Paths of the usable images, and the number of skipped ones by reason."""
    sources = list(ImageFolder(root).sources())
    found = scan(sources)
    images = map(sources.__getitem__, found.images)
    return [source.path for source in images if isinstance(source, FileSource)], found.skipped


def read(path: Path) -> reading.Decoded:
    source = FileSource(path)
    return reading.read(source.read(), source.name)


def test_every_format_and_mode_is_read(tmp_path: Path):
    image = sample_image(1)
    save(tmp_path / "rgb.jpg", image)
    save(tmp_path / "cmyk.jpg", image.convert("CMYK"))
    save(tmp_path / "palette.gif", image.convert("P"))
    save(tmp_path / "one_bit.png", image.convert("1"))
    save(tmp_path / "transparent.webp", image.convert("RGBA"))
    save(tmp_path / "bitmap.bmp", image)
    save(tmp_path / "tagged.tif", image)
    save(tmp_path / "sixteen_bit.png", Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257))
    frames = [sample_image(seed).convert("P") for seed in (1, 2, 3)]
    save(tmp_path / "animated.gif", frames[0], save_all=True, append_images=frames[1:])
    save(tmp_path / "a.png", image).rename(tmp_path / "wrong_suffix.dat")
    paths, skipped = scanned(tmp_path)
    assert (len(paths), skipped) == (10, {})


def test_sixteen_bits_and_cmyk_keep_their_brightness(tmp_path: Path):
    image = sample_image(1)
    grey = np.asarray(image.convert("L"))
    deep = save(tmp_path / "deep.png", Image.fromarray(grey.astype(np.uint16) * 257))
    print_colours = save(tmp_path / "cmyk.jpg", image.convert("CMYK"), quality=95)
    assert np.abs(np.asarray(read(deep)[0])[..., 0].astype(int) - grey).max() <= 1
    assert np.abs(np.asarray(read(print_colours)[0]).astype(int) - np.asarray(image)).mean() < 8


def test_dark_image_of_sixteen_bits_stays_dark(tmp_path: Path):
    grey = np.asarray(sample_image(1).convert("L"))
    for name, type in (("deep.png", np.uint16), ("deep.tif", np.uint16), ("deep.pgm", np.int32)):
        path = save(tmp_path / name, Image.fromarray(grey.astype(type)))
        assert np.asarray(read(path)[0]).max() == 0


def test_images_with_values_that_are_no_numbers_are_left_out(tmp_path: Path):
    grey = np.asarray(sample_image(1).convert("L"))
    save(tmp_path / "numbers.tif", Image.fromarray(np.full_like(grey, np.nan, dtype=np.float32)))
    assert scanned(tmp_path) == ([], {"with values that are no numbers": 1})


def test_folder_with_an_unreadable_subfolder_is_refused(tmp_path: Path):
    save(tmp_path / "a.png", sample_image(1))
    (tmp_path / "closed").mkdir(0o000)
    with obeyed_permissions(), pytest.raises(UsageError, match=r"closed cannot be read \(Permission denied\)"):
        ImageFolder(tmp_path).stamp()


def test_animation_is_its_first_frame(tmp_path: Path):
    first, second = (Image.new("P", (40, 40), colour) for colour in (3, 200))
    for frame in (first, second):
        frame.putpalette([value for grey in range(256) for value in (grey, grey, grey)])
    path = save(tmp_path / "a.gif", first, save_all=True, append_images=[second])
    assert read(path)[0].convert("L").getextrema() == (3, 3)


def test_transparency_is_kept_and_laid_on_white_for_comparison(tmp_path: Path):
    image = sample_image(1).convert("RGBA")
    image.putalpha(0)
    loaded = read(save(tmp_path / "clear.png", image))[0]
    assert loaded.mode == "RGBA"
    assert flatten(loaded).getextrema() == ((255, 255), (255, 255), (255, 255))


def test_exif_orientation_is_applied(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read(save(tmp_path / "turned.jpg", sample_image(1, (96, 48)), exif=exif))[0].size == (48, 96)


def test_digest_of_a_png_ignores_its_compression(tmp_path: Path):
    loose = save(tmp_path / "loose.png", sample_image(1), compress_level=0)
    tight = save(tmp_path / "tight.png", sample_image(1), compress_level=9)
    other = save(tmp_path / "other.png", sample_image(2))
    assert read(loose)[1] == read(tight)[1] != read(other)[1]


def test_bad_files_are_counted_by_reason(tmp_path: Path):
    save(tmp_path / "good.png", sample_image(1))
    whole = save(tmp_path / "whole.jpg", sample_image(2)).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.png").write_bytes(os.urandom(500))
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "weights.npz").write_bytes(b"PK" + bytes(100))
    (tmp_path / "postscript.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n")
    (tmp_path / "bomb.png").write_bytes(huge_png())
    save(tmp_path / "icon.png", sample_image(3, (8, 8)))
    with (tmp_path / "sparse.tif").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    os.mkfifo(tmp_path / "pipe.png")
    paths, skipped = scanned(tmp_path)
    assert {path.name for path in paths} == {"good.png", "whole.jpg"}
    assert describe(skipped) == "2 corrupt, 1 empty, 4 not an image, 2 too large, 1 too small"


def test_random_damage_never_ends_a_scan(tmp_path: Path):
    random = np.random.default_rng(0)
    save(tmp_path / "good.png", sample_image(0))
    for suffix in ("png", "jpg", "gif", "webp", "tif", "bmp", "ppm"):
        data = bytearray(save(tmp_path / f"a.{suffix}", sample_image(1, (32, 32))).read_bytes())
        for number in range(30):
            for place in random.integers(0, len(data), 4):
                data[place] = int(random.integers(256))
            (tmp_path / f"{number}.{suffix}").write_bytes(data)
    paths, skipped = scanned(tmp_path)
    assert len(paths) + sum(skipped.values()) == 1 + 7 * 31


def test_links_are_followed_inside_the_folder_only(tmp_path: Path):
    outside = save(tmp_path / "outside" / "secret.png", sample_image(1))
    root = tmp_path / "root"
    save(root / "a" / "own.png", sample_image(2))
    (root / "link.png").symlink_to(root / "a" / "own.png")
    (root / "stolen.png").symlink_to(outside)
    (root / "elsewhere").symlink_to(outside.parent)
    (root / "loop").symlink_to(root)
    (root / "dangling.png").symlink_to(root / "missing.png")
    paths, skipped = scanned(root)
    assert [path.relative_to(root).as_posix() for path in paths] == ["a/own.png", "link.png"]
    assert skipped == {SkipReason.OUTSIDE: 2, SkipReason.UNREADABLE: 1}


def test_links_in_a_circle_are_unreadable_files(tmp_path: Path):
    save(tmp_path / "good.png", sample_image(1))
    (tmp_path / "self.png").symlink_to("self.png")
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    paths, skipped = scanned(tmp_path)
    assert [path.name for path in paths] == ["good.png"] and skipped == {SkipReason.UNREADABLE: 3}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_compressed_text_of_a_png_is_not_expanded(kind: bytes):
    plain = io.BytesIO()
    sample_image(1).save(plain, "PNG")
    data = plain.getvalue()
    bomb = data[:33] + chunk(kind, b"a\0\0" + zlib.compress(bytes(100 << 20))) + data[33:]
    with pytest.raises(UnusableImage, match="too large"):
        reading.read(bomb, "bomb.png")


@pytest.mark.parametrize("size", [(1, 1), (1, 60_000), (60_000, 15)])
def test_tiny_image_is_refused_at_its_header(size: tuple[int, int]):
    data = io.BytesIO()
    Image.new("L", size).save(data, "PNG")
    with pytest.raises(UnusableImage) as caught:
        reading.read(data.getvalue(), "tiny.png")
    assert caught.value.reason is SkipReason.TOO_SMALL


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*" + b"\xff" * 200, b"Exif\0\0", b"Exif\0\0II*\0" + bytes(4)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_broken_exif_leaves_the_image_as_it_is(exif: bytes):
    data = io.BytesIO()
    sample_image(1, (40, 24)).save(data, "JPEG", exif=exif)
    assert reading.read(data.getvalue(), "a.jpg")[0].size == (40, 24)


def test_files_of_any_name_are_sorted_by_path(tmp_path: Path):
    names = ["zebra/ñandú 鳥.png", "a.png", "Klasse 1/bild.png", "deep/er/and/deeper.png", "emoji 🦜.png"]
    for seed, name in enumerate(names):
        save(tmp_path / name, sample_image(seed))
    with (tmp_path / os.fsdecode(b"latin-\xe9.png")).open("wb") as file:
        sample_image(9).save(file, "PNG")
    save(tmp_path / ".hidden" / "x.png", sample_image(8))
    paths, _ = scanned(tmp_path)
    assert len(paths) == 6
    assert paths == sorted(paths, key=os.fsencode)


def test_reason_of_an_unusable_image_survives_pickling(tmp_path: Path):
    (tmp_path / "a.bmp").write_bytes(b"BM\5\0\0\0")
    with pytest.raises(UnusableImage) as caught:
        read(tmp_path / "a.bmp")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.reason is SkipReason.CORRUPT
    assert "a.bmp" in str(copy)
