"""The division into explore and test: what it depends on, and what must stay together."""

import random
from collections.abc import Callable, Iterable
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from openmaia.core.images import digest
from openmaia.core.services import Split
from openmaia.datasets.split import COLOUR_DISTANCE, HASH_DISTANCE, Fingerprint, assign_splits, make_fingerprint
from tests.helpers.images import encoded, sample_image


def digest_of(image: Image.Image) -> str:
    return digest(np.asarray(image.convert("RGB")))


def fingerprints(images: Iterable[Image.Image]) -> dict[str, Fingerprint]:
    return {digest_of(image): make_fingerprint(image) for image in images}


def splits(images: Iterable[Image.Image]) -> list[Split]:
    return list(assign_splits(fingerprints(images)).values())


def samples(count: int, size: tuple[int, int] = (96, 72)) -> list[Image.Image]:
    return [sample_image(seed, size) for seed in range(count)]


def test_each_split_gets_about_half():
    halves = splits(samples(400))
    assert 150 < halves.count("explore") < 250
    assert halves.count("explore") + halves.count("test") == 400


def test_split_ignores_order():
    prints = fingerprints(samples(60))
    shuffled = list(prints.items())
    random.Random(1).shuffle(shuffled)
    assert assign_splits(dict(shuffled)) == assign_splits(prints)


def test_new_images_move_no_other():
    images = samples(80)
    before, after = assign_splits(fingerprints(images[:60])), assign_splits(fingerprints(images))
    assert {digest: after[digest] for digest in before} == before


def smaller(image: Image.Image) -> Image.Image:
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


def stretched(image: Image.Image) -> Image.Image:
    return image.resize((224, 224), Image.Resampling.BICUBIC)


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(3))


def mirrored_jpeg(image: Image.Image) -> Image.Image:
    return Image.open(BytesIO(encoded(ImageOps.mirror(image), "JPEG", quality=50)))


@pytest.mark.parametrize("alter", [smaller, stretched, blurred, ImageOps.mirror, mirrored_jpeg])
def test_near_duplicates_stay_together(alter: Callable[[Image.Image], Image.Image]):
    originals = samples(40, (160, 120))
    copies = [alter(image) for image in originals]
    halves = assign_splits(fingerprints(originals + copies))
    assert len(halves) == 80
    pairs = zip(originals, copies, strict=True)
    assert all(halves[digest_of(image)] == halves[digest_of(copy)] for image, copy in pairs)


def test_flat_images_are_divided_by_colour():
    halves = splits(Image.new("RGB", (50, 50), (r, g, 128)) for r in range(0, 256, 25) for g in range(0, 256, 25))
    assert 30 < halves.count("explore") < 91


def test_flat_images_of_one_colour_stay_together():
    halves = splits(Image.new("RGB", (20 + number, 30), (90, 140, 60)) for number in range(12))
    assert len(halves) == 12
    assert len(set(halves)) == 1


def test_equal_shapes_in_other_colours_are_different_images():
    squares: list[Image.Image] = []
    for colour in ((200, 30, 30), (30, 160, 40), (40, 60, 220), (230, 200, 40), (120, 40, 160), (20, 20, 20)):
        squares.append(Image.new("RGB", (80, 80), "white"))
        squares[-1].paste(colour, (10, 10, 70, 70))
    assert set(splits(squares)) == {"explore", "test"}


def test_shades_of_a_series_are_not_one_group():
    shades = (Image.new("RGB", (50, 50), (level, level, level)) for level in range(0, 256, 3))
    assert set(splits(shades)) == {"explore", "test"}


def test_smallest_digest_of_a_group_decides():
    mark = make_fingerprint(sample_image(1))
    expected = assign_splits({"0" * 64: mark})["0" * 64]
    assert set(assign_splits({letter * 64: mark for letter in "f0a93"}).values()) == {expected}


def test_many_copies_of_one_image_cost_little():
    mark = make_fingerprint(Image.new("RGB", (50, 50), "white"))
    assert len(set(assign_splits({f"{number:064x}": mark for number in range(20_000)}).values())) == 1


def view(position: int) -> Image.Image:
    """A part of a wide picture: neighbours are near-duplicates, and distant ones are not."""
    coarse = np.random.default_rng(5).integers(0, 256, (4, 20), np.uint8)
    wide = Image.fromarray(coarse).resize((900, 96), Image.Resampling.BICUBIC)
    return wide.crop((position, 0, position + 96, 96))


FRAMES = [view(2 * number) for number in range(150)]


def test_frames_of_a_film_are_in_both_splits():
    halves = splits(FRAMES)
    assert min(halves.count("explore"), halves.count("test")) > len(FRAMES) / 4
    assert 0 < len(FRAMES) - len(halves) < len(FRAMES) / 4


def test_no_frame_resembles_one_of_the_other_split():
    prints = fingerprints(FRAMES)
    halves = assign_splits(prints)
    sides = [[mark for digest, mark in prints.items() if halves.get(digest) == side] for side in ("explore", "test")]

    def is_near(one: Fingerprint, other: Fingerprint) -> bool:
        a, b = (np.frombuffer(mark.thumbnail, np.uint8).astype(int) for mark in (one, other))
        return (one.hash ^ other.hash).bit_count() <= HASH_DISTANCE and np.abs(a - b).mean() <= COLOUR_DISTANCE

    assert not any(is_near(one, other) for one in sides[0] for other in sides[1])


def test_several_films_are_not_cut():
    films = [FRAMES[start : start + 12] for start in (0, 40, 80, 120)] + [samples(12)]
    halves = assign_splits(fingerprints(image for film in films for image in film))
    assert len(halves) == 60
    assert all(len({halves[digest_of(image)] for image in film}) == 1 for film in films[:4])


def test_alike_images_that_are_no_copies_are_divided():
    base = np.asarray(sample_image(7, (96, 96)).convert("L")).astype(float)
    own = [np.asarray(sample_image(100 + seed, (96, 96)).convert("L")) for seed in range(80)]
    halves = splits(Image.fromarray((0.72 * base + 0.28 * each).astype(np.uint8)) for each in own)
    assert min(halves.count("explore"), halves.count("test")) >= 8


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_few_images_are_in_both_splits(count: int):
    assert all(
        set(splits(sample_image(10 * seed + n) for n in range(count))) == {"explore", "test"} for seed in range(20)
    )


def test_no_images_give_no_splits():
    assert assign_splits({}) == {}
