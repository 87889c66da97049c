"""Images that were generated already: the same again for the same request, and never another one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.distributed.pools.dispatch.cache import CacheSpec, GenerationCache, cache_key, pack, unpack

FOREST = Generation(prompt="a forest", seed=7)


def image(seed: int, side: int = 24) -> EncodedImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return EncodedImage.of(pixels, sources=(f"source {seed}", "b"), recipe='{"a": 1}')


def generated(seed: int) -> GeneratedImage:
    return GeneratedImage(image=image(seed), missing_terms=("unicorn", "naïve\n"))


def key(seed: int, identity: str = "model 1") -> str:
    return cache_key(identity, replace(FOREST, seed=seed))


@pytest.fixture
def spec(tmp_path: Path) -> CacheSpec:
    return CacheSpec(identity="model 1", memory_bytes=2**20, disk_bytes=2**24, folder=str(tmp_path / "generator"))


def filled(spec: CacheSpec, *seeds: int) -> GenerationCache:
    cache = GenerationCache(spec)
    for seed in seeds:
        cache.put(key(seed), generated(seed))
        cache.flush()
    return cache


@pytest.mark.parametrize("other", [{"prompt": "a forest "}, {"seed": 8}, {"split": "test"}])
def test_cache_key_holds_what_decides_the_image(other: dict[str, object]):
    assert cache_key("m", replace(FOREST)) == cache_key("m", FOREST)
    assert cache_key("m", replace(FOREST, **other)) != cache_key("m", FOREST)
    assert cache_key("another model", FOREST) != cache_key("m", FOREST)


def test_cache_key_of_an_edit_knows_the_image_by_pixels_and_origin():
    edit = Edit(image=image(1), instruction="make it red", seed=3)
    assert cache_key("m", replace(edit, image=image(1).packed())) == cache_key("m", edit)
    others = [
        replace(edit, image=image(2)),
        replace(edit, image=replace(image(1), recipe="")),
        replace(edit, image=replace(image(1), sources=("b",))),
        replace(edit, instruction="make it green"),
        replace(edit, seed=4),
        replace(edit, split="test"),
    ]
    assert len({cache_key("m", one) for one in [edit, *others]}) == 7


def test_cache_on_disk_returns_what_was_stored(spec: CacheSpec):
    filled(spec, 1)
    cache = GenerationCache(spec)
    assert cache.get_from_memory(key(1)) is None
    found = cache.get_from_disk(key(1))
    assert found == generated(1)
    assert found and np.array_equal(found.image.pixels, image(1).pixels)
    assert cache.get_from_disk(key(2)) is None


def test_cache_memory_keeps_what_was_used_last(spec: CacheSpec):
    each = len(generated(1).image.data) + 1500
    cache = GenerationCache(replace(spec, memory_bytes=3 * each, disk_bytes=0))
    for seed in (1, 2, 3):
        cache.put(key(seed), generated(seed))
    assert cache.get_from_memory(key(1)) == generated(1)
    cache.put(key(4), generated(4))
    assert [seed for seed in range(1, 5) if cache.get_from_memory(key(seed))] == [1, 3, 4]


def test_cache_disk_is_bounded(spec: CacheSpec):
    small = replace(spec, disk_bytes=2**19, memory_bytes=0)
    cache = GenerationCache(small)
    for seed in range(60):
        cache.put(key(seed), GeneratedImage(image=image(seed, 90)))
        cache.flush()
    kept = [seed for seed in range(60) if cache.get_from_disk(key(seed))]
    assert 5 < len(kept) < 50
    assert 59 in kept


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_cache_never_returns_a_damaged_image(damage: str):
    data = pack("k", generated(1))
    flipped = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
    assert unpack("k", {"truncated": data[:-1], "flipped": flipped, "empty": b""}[damage]) is None
    assert unpack("another key", data) is None


def test_cache_with_a_broken_disk_keeps_the_memory(spec: CacheSpec, tmp_path: Path):
    (tmp_path / "generator").write_text("a file where the folder should be")
    cache = filled(spec, 1)
    assert cache.get_from_disk(key(1)) is None
    assert cache.get_from_memory(key(1)) == generated(1)


def test_cache_packing_keeps_any_words():
    strange = GeneratedImage(
        image=replace(image(1), recipe="\n\x00\u2028😀", sources=("", "\n")),
        missing_terms=("", '"\\'),
        verified_by="\n",
    )
    assert unpack("k", pack("k", strange)) == strange
