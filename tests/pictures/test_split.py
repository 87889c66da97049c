"""What the division into explore and test must never depend on."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from openmaia.images import digest as pixel_digest
from openmaia.pictures.places import File
from openmaia.pictures.split import PictureFile, fingerprint, split

from . import making


def entry(name: str, image: Image.Image, digest: str | None = None) -> PictureFile:
    content = digest or pixel_digest(np.asarray(image.convert("RGB")))
    return PictureFile(source=File(Path(name)), digest=content, fingerprint=fingerprint(image))


def entries(count: int) -> list[PictureFile]:
    return [entry(f"{seed}.png", making.picture(seed)) for seed in range(count)]


def test_around_half_each() -> None:
    halves = list(split(entries(400)).values())
    assert 150 < halves.count("explore") < 250
    assert halves.count("explore") + halves.count("test") == 400


def test_neither_order_nor_names_matter() -> None:
    files = entries(60)
    shuffled = [PictureFile(source=File(Path("x")), digest=file.digest, fingerprint=file.fingerprint) for file in files]
    random.Random(1).shuffle(shuffled)
    assert split(shuffled) == split(files)


def test_a_new_picture_moves_no_other() -> None:
    files = entries(80)
    before = split(files[:60])
    after = split(files)
    assert {digest: after[digest] for digest in before} == before


def smaller(image: Image.Image) -> Image.Image:
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


def stretched(image: Image.Image) -> Image.Image:
    return image.resize((224, 224), Image.Resampling.BICUBIC)


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(3))


@pytest.mark.parametrize("alter", [smaller, stretched, blurred, ImageOps.mirror])
def test_near_duplicates_stay_together(alter: Callable[[Image.Image], Image.Image]) -> None:
    originals = [making.picture(seed, (160, 120)) for seed in range(40)]
    files = [entry("a", image) for image in originals]
    copies = [entry("b", alter(image)) for image in originals]
    halves = split(files + copies)
    assert len(halves) == 80
    assert all(halves[file.digest] == halves[copy.digest] for file, copy in zip(files, copies, strict=True))


def test_a_jpeg_of_a_png_stays_with_it(tmp_path: Path) -> None:
    for seed in range(20):
        image = making.picture(seed, (160, 120))
        lossy = Image.open(making.save(tmp_path / f"{seed}.jpg", ImageOps.mirror(image), quality=50))
        first, second = entry("a", image), entry("b", lossy)
        halves = split([first, second])
        assert first.digest != second.digest
        assert halves[first.digest] == halves[second.digest]


def test_flat_pictures_are_divided_by_colour() -> None:
    flats = [
        entry("flat", Image.new("RGB", (50, 50), (r, g, 128))) for r in range(0, 256, 25) for g in range(0, 256, 25)
    ]
    halves = list(split(flats).values())
    assert 30 < halves.count("explore") < 91


def test_flat_pictures_of_one_colour_stay_together() -> None:
    sizes = [(20 + number, 30) for number in range(12)]
    halves = split([entry("flat", Image.new("RGB", size, (90, 140, 60))) for size in sizes])
    assert len(halves) == 12
    assert len(set(halves.values())) == 1


def test_equal_shapes_in_other_colours_are_different_pictures() -> None:
    discs: list[PictureFile] = []
    for colour in ((200, 30, 30), (30, 160, 40), (40, 60, 220), (230, 200, 40), (120, 40, 160), (20, 20, 20)):
        canvas = Image.new("RGB", (80, 80), "white")
        canvas.paste(colour, (10, 10, 70, 70))
        discs.append(entry("disc", canvas))
    assert set(split(discs).values()) == {"explore", "test"}


def test_the_smallest_digest_of_a_group_decides() -> None:
    image = making.picture(1)
    expected = split([entry("a", image, digest="0" * 64)])["0" * 64]
    grouped = split([entry("b", image, digest=letter * 64) for letter in "f0a93"])
    assert set(grouped.values()) == {expected}


def test_shades_of_a_row_are_not_all_one_group() -> None:
    shades = [entry("flat", Image.new("RGB", (50, 50), (level, level, level))) for level in range(0, 256, 3)]
    assert set(split(shades).values()) == {"explore", "test"}


def test_many_copies_of_one_picture_cost_little() -> None:
    mark = fingerprint(Image.new("RGB", (50, 50), "white"))
    files = [PictureFile(source=File(Path("x")), digest=f"{number:064x}", fingerprint=mark) for number in range(20_000)]
    assert len(set(split(files).values())) == 1


def test_nothing_is_divided_into_nothing() -> None:
    assert split([]) == {}
