"""Images that were generated already: the same again for the same request, and never another one."""

import hashlib
import os
import pickle
import sqlite3
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from openmaia.config.loading import load
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.distributed.pools.dispatch.cache import FORMAT, CacheSpec, GenerationCache, cache_key, pack, unpack
from openmaia.distributed.pools.dispatch.disk_cache import LARGEST
from openmaia.distributed.pools.run_pools import cache_spec
from openmaia.offline.scenes.album import VERSION
from tests.helpers.traps import Running

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
    return CacheSpec(identity="model 1", memory_bytes=2**20, disk_bytes=2**30, folder=str(tmp_path / "generator"))


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


def on_disk(spec: CacheSpec) -> list[Path]:
    return list(Path(spec.folder).glob("*/*"))


def test_cache_disk_is_bounded(spec: CacheSpec):
    small = replace(spec, disk_bytes=2**19, memory_bytes=0)
    cache = GenerationCache(small)
    for seed in range(60):
        cache.put(key(seed), GeneratedImage(image=image(seed, 90)))
        cache.flush()
        assert sum(entry.stat().st_size for entry in on_disk(spec)) <= 2**19
    assert 10 < len(on_disk(spec)) < 50
    assert cache.get_from_disk(key(59))


def test_cache_disk_deletes_first_what_was_not_used_for_longest(spec: CacheSpec):
    cache = filled(spec, 0, 1, 2)
    for entry in on_disk(spec):
        os.utime(entry, (1000, 1000))
    assert cache.get_from_disk(key(1))
    three = sum(entry.stat().st_size for entry in on_disk(spec))
    filled(replace(spec, disk_bytes=three), 3)  # 2 of 4 remain, because there must be room for the next writes
    assert [seed for seed in range(4) if cache.is_on_disk(key(seed))] == [1, 3]


def test_cache_disk_takes_a_lower_limit(spec: CacheSpec):
    filled(spec, *range(40))
    before = sum(entry.stat().st_size for entry in on_disk(spec))
    filled(replace(spec, disk_bytes=before // 2), 40)
    assert sum(entry.stat().st_size for entry in on_disk(spec)) <= before // 2


def stored(spec: CacheSpec, first: int) -> None:
    """Stores images in a process of its own, half of them the same as those of another process."""
    filled(replace(spec, memory_bytes=0), *range(first, first + 40))


def test_cache_disk_is_shared_by_processes_that_write_and_delete(spec: CacheSpec):
    small = replace(spec, disk_bytes=2**17)
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as processes:
        for done in [processes.submit(stored, small, first) for first in (0, 20, 40)]:
            done.result(timeout=60)
    cache = GenerationCache(spec)
    kept = [seed for seed in range(80) if cache.is_on_disk(key(seed))]
    assert kept and all(cache.get_from_disk(key(seed)) == generated(seed) for seed in kept)
    assert sum(entry.stat().st_size for entry in on_disk(spec)) <= 2**17 * 19 / 16
    assert not [entry for entry in on_disk(spec) if "." in entry.name], "no unfinished files"


def test_cache_deletes_what_a_dead_process_left_unfinished(spec: CacheSpec):
    filled(spec, 1)
    (left := Path(spec.folder) / key(2)[:2] / f"{key(2)}.0123").parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    filled(spec, 3)
    assert not left.exists() and GenerationCache(spec).get_from_disk(key(1))


def database(folder: Path, name: str, value: bytes) -> None:
    """Writes an entry of the library diskcache that holds a pickle."""
    columns = "key BLOB, raw INTEGER, store_time REAL, expire_time REAL, access_time REAL, access_count INTEGER"
    with sqlite3.connect(folder / "cache.db") as tables:
        tables.execute(f"CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, {columns} DEFAULT 0, tag BLOB, size INTEGER "
                       "DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB)")  # fmt: skip
        tables.execute("INSERT INTO Cache (key, raw, mode, value) VALUES (?, 1, 4, ?)", (name, value))


def test_cache_never_unpickles_a_planted_entry(spec: CacheSpec, tmp_path: Path):
    trap = pickle.dumps(Running(tmp_path / "sprung"))
    path = Path(spec.folder) / key(1)[:2] / key(1)
    path.parent.mkdir(parents=True)
    path.write_bytes(trap)
    database(Path(spec.folder), key(1), trap)
    cache = GenerationCache(spec)
    assert cache.get_from_disk(key(1)) is None
    assert not (tmp_path / "sprung").exists()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(pack(key(1), generated(1)))
    path.symlink_to(path.parent / "elsewhere")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)


def signed(body: bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(hashlib.sha256(FORMAT + key(1).encode() + body).digest() + body), None)[1]


@pytest.mark.parametrize(
    "plant",
    [
        fifo,
        link,
        large,
        sparse,
        signed(b""),
        signed(b"[" * 100_000),
        signed(b"1\n" + image(1).data),
        signed(b'{"sources": 3, "recipe": "", "missing_terms": [], "verified_by": ""}\n' + image(1).data),
        signed(b'{"sources": [], "recipe": [], "missing_terms": [], "verified_by": ""}\n' + image(1).data),
        signed(b'{"sources": [], "recipe": "", "missing_terms": [], "verified_by": ""}\nno image'),
    ],
)
def test_cache_takes_a_planted_file_for_a_miss_and_replaces_it(plant: Callable[[Path], None], spec: CacheSpec):
    path = Path(spec.folder) / key(1)[:2] / key(1)
    path.parent.mkdir(parents=True)
    plant(path)
    cache = GenerationCache(spec)
    assert cache.get_from_disk(key(1)) is None
    cache.put(key(1), generated(1))
    cache.flush()
    assert cache.get_from_disk(key(1)) == generated(1)


def test_cache_deletes_no_file_that_is_not_its_own(spec: CacheSpec, tmp_path: Path):
    folder, outside = Path(spec.folder), tmp_path / key(1)[:2]
    mine = [folder / "photos/cat.png", folder / key(2)[:2] / "cat.png", outside / key(1)]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (1, 1))
    (folder / outside.name).symlink_to(outside)
    filled(replace(spec, disk_bytes=2000), 1, 2, 3)
    assert all(path.stat().st_size == 1000 for path in mine)


def test_cache_leaves_no_file_open_that_it_refuses(spec: CacheSpec):
    (Path(spec.folder) / key(1)[:2] / key(1)).mkdir(parents=True)
    cache = GenerationCache(spec)
    before = len(os.listdir("/proc/self/fd"))
    assert [cache.get_from_disk(key(1)) for _ in range(3)] == [None] * 3
    assert len(os.listdir("/proc/self/fd")) == before


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


@pytest.mark.parametrize("role", ["generator", "editor"])
def test_scenes_are_cached_by_the_version_of_their_drawing(role: str):
    """Otherwise a program that draws other pixels would be given the former ones."""
    made = [cache_spec(role, load(["name=x", "units=all", "target.name=t", f"{role}.kind={kind}"]))
            for kind in ("scenes", "collage")]  # fmt: skip
    assert [VERSION in spec.identity for spec in made if spec] == [True, False]
