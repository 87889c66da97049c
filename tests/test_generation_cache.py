"""Pictures that were drawn already: the same again for the same request, and never another one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmaia.images import Picture
from openmaia.remote.cache import Cache, Kept, pack, size, unpack
from openmaia.services import Drawn, Edit, Generation
from openmaia.store.files import Files

FOREST = Generation(prompt="a forest", seed=7)


def picture(seed: int, side: int = 24) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Picture.of(pixels, sources=(f"source {seed}", "b"), recipe='{"a": 1}')


def drawn(seed: int) -> Drawn:
    return Drawn(picture=picture(seed), undrawn=("unicorn", "naïve\n"))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(identity="model 1", memory=2**20, disk=2**20, files=Files(str(tmp_path)), folder="cache/generator")


def forgetful(kept: Kept) -> Cache:
    """A cache of the same run with nothing in memory yet, as after a restart."""
    cache = Cache(kept)
    cache.flush()
    return cache


def filled(kept: Kept, *seeds: int) -> Cache:
    cache = Cache(kept)
    for seed in seeds:
        cache.keep(cache.key(replace(FOREST, seed=seed)), drawn(seed))
        cache.flush()
    return cache


def file(kept: Kept, cache: Cache, seed: int) -> Path:
    return Path(kept.files.path(f"{kept.folder}/{cache.key(replace(FOREST, seed=seed))}"))


@pytest.mark.parametrize(
    "other",
    [replace(FOREST, prompt="a forest "), replace(FOREST, seed=8), replace(FOREST, half="test")],
)
def test_what_decides_the_picture_is_in_the_key(kept: Kept, other: Generation):
    cache = Cache(kept)
    assert cache.key(replace(FOREST)) == cache.key(FOREST)
    assert cache.key(other) != cache.key(FOREST)


def test_an_edits_key_knows_the_picture_by_its_pixels_and_by_where_they_are_from(kept: Kept):
    cache = Cache(kept)
    edit = Edit(picture=picture(1), instruction="make it red", seed=3)
    assert cache.key(replace(edit, picture=picture(1).packed())) == cache.key(edit)
    others = [
        replace(edit, picture=picture(2)),
        replace(edit, picture=replace(picture(1), recipe="")),
        replace(edit, picture=replace(picture(1), sources=("b",))),
        replace(edit, instruction="make it green"),
        replace(edit, seed=4),
        replace(edit, half="test"),
    ]
    assert len({cache.key(one) for one in [edit, *others]}) == 7


def test_another_models_pictures_are_never_served(kept: Kept):
    filled(kept, 1)
    other = forgetful(replace(kept, identity="model 2"))
    assert not other.on_disk(other.key(replace(FOREST, seed=1)))


def test_what_comes_from_disk_equals_what_was_drawn(kept: Kept):
    filled(kept, 1)
    cache = forgetful(kept)
    key = cache.key(replace(FOREST, seed=1))
    assert cache.recall(key) is None and cache.on_disk(key)
    found = cache.read(key)
    assert found == drawn(1)
    assert found and np.array_equal(found.picture.pixels, picture(1).pixels)


def test_memory_holds_what_was_used_last(kept: Kept):
    cache = Cache(replace(kept, memory=3 * size(drawn(1)) + 500, disk=0))
    keys = {seed: cache.key(replace(FOREST, seed=seed)) for seed in range(1, 6)}
    for seed in (1, 2, 3):
        cache.keep(keys[seed], drawn(seed))
    assert cache.recall(keys[1]) == drawn(1)
    cache.keep(keys[4], drawn(4))
    assert [seed for seed in keys if cache.recall(keys[seed])] == [1, 3, 4]


def test_a_picture_larger_than_the_memory_is_not_held(kept: Kept):
    cache = filled(replace(kept, memory=10), 1)
    assert cache.recall(cache.key(replace(FOREST, seed=1))) is None
    assert cache.read(cache.key(replace(FOREST, seed=1))) == drawn(1)


def test_the_disk_is_bounded_and_loses_what_was_not_used_for_longest(kept: Kept):
    one = len(pack("", drawn(1)))
    cache = filled(replace(kept, disk=int(3.5 * one)), 1, 2, 3)
    cache.read(cache.key(replace(FOREST, seed=1)))
    cache.keep(cache.key(replace(FOREST, seed=4)), drawn(4))
    cache.flush()
    assert [seed for seed in range(1, 5) if file(kept, cache, seed).exists()] == [1, 3, 4]
    assert sum(kept.files.sizes(kept.folder)) <= 3.5 * one


def test_the_bound_of_the_disk_counts_what_earlier_processes_wrote(kept: Kept):
    filled(kept, 1, 2, 3)
    small = replace(kept, disk=int(2.5 * len(pack("", drawn(1)))))
    forgetful(small)
    assert len(kept.files.names(kept.folder)) == 2


@pytest.mark.parametrize("damage", ["truncated", "a flipped bit", "another key's", "empty"])
def test_a_damaged_file_is_never_served_and_is_written_again(kept: Kept, damage: str):
    cache = filled(kept, 1, 2)
    path = file(kept, cache, 1)
    data = path.read_bytes()
    flipped = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
    another = file(kept, cache, 2).read_bytes()
    path.write_bytes({"truncated": data[:-1], "a flipped bit": flipped, "another key's": another, "empty": b""}[damage])
    again = forgetful(kept)
    key = again.key(replace(FOREST, seed=1))
    assert again.on_disk(key) and again.read(key) is None and not again.on_disk(key)
    again.keep(key, drawn(1))
    again.flush()
    assert path.read_bytes() == data


def test_a_file_that_has_gone_is_no_error(kept: Kept):
    cache = filled(kept, 1)
    file(kept, cache, 1).unlink()
    assert forgetful(kept).read(cache.key(replace(FOREST, seed=1))) is None


def test_a_disk_that_fails_leaves_the_memory(kept: Kept, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    cache = filled(kept, 1, 2)
    key = cache.key(replace(FOREST, seed=1))
    assert not cache.on_disk(key) and cache.recall(key) == drawn(1)


def test_any_words_survive_packing():
    strange = Drawn(
        picture=replace(picture(1), recipe="\n\x00\u2028😀", sources=("", "\n")), undrawn=("", '"\\'), vouched="\n"
    )
    assert unpack("k", pack("k", strange)) == strange
    assert unpack("other", pack("k", strange)) is None
