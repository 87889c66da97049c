"""Tar shards and Parquet files: the same pictures as in a folder, whatever else the archives hold."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from openmaia import build, exemplars
from openmaia.errors import UsageError
from openmaia.pictures.library import Library
from openmaia.pictures.places import Cell, Member
from tests.pictures.archiving import (
    COUNT,
    KINDS,
    config,
    config_kind,
    encoded,
    opened,
    pictures,
    shards,
    told,
    write_parquet,
    write_tar,
)

# -- the same as a folder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_archives_hold_what_a_folder_of_the_same_pictures_holds(tree: Path, kind: str) -> None:
    plain = Library.open(tree / "plain")
    found = opened(shards(tree / "shards", kind), config_kind(kind))
    assert told(found.items) == told(plain.items)
    assert len(found.items) == COUNT
    assert found.skipped == {}
    assert {(item.caption, item.category) for item in found.items} == {("", "")}
    own = {item.digest: np.asarray(item.load()) for item in plain.items}
    assert all(np.array_equal(np.asarray(item.load()), own[item.digest]) for item in found.items)


@pytest.mark.parametrize("kind", KINDS)
def test_exemplars_are_taken_from_the_same_pictures_in_the_same_order(tree: Path, kind: str) -> None:
    archives = config(shards(tree / "shards", kind), config_kind(kind), tree / "cache")
    plain = config(tree / "plain", "folder", tree / "cache")
    one, other = (exemplars.dataset(settings, build.library(settings)) for settings in (archives, plain))
    assert [item.digest for item in one] == [item.digest for item in other] != []


def test_cells_far_down_in_a_row_group_are_found(tmp_path: Path) -> None:
    data = list(pictures().values())
    found = opened(write_parquet(tmp_path / "a.parquet", {"image": data}, group=COUNT), "parquet")
    assert [item.source.read() for item in found.items] == data


def test_pickled_items_are_small_and_load_elsewhere(tree: Path) -> None:
    for kind in KINDS:
        for item in opened(shards(tree / kind, kind), config_kind(kind)).items:
            data = pickle.dumps(item)
            assert len(data) < 1000
            assert pickle.loads(data) == item
            assert pickle.loads(data).load().size == (96, 72)


def test_an_item_reads_its_own_member_only(tree: Path) -> None:
    path = write_tar(tree / "a.tar", pictures())
    items = opened(path).items
    first, *others = items
    data = bytearray(path.read_bytes())
    for item in others:
        assert isinstance(item.source, Member)
        data[item.source.offset : item.source.offset + item.source.size] = os.urandom(item.source.size)
    path.write_bytes(data)
    assert first.load().size == (96, 72)
    for item in others:
        with pytest.raises(ValueError, match=r"a\.tar: \d+"):
            item.load()


def test_a_cell_is_read_from_its_own_row_group(tree: Path) -> None:
    path = shards(tree / "shards", "struct") / "0.parquet"
    items = {(i.source.group, i.source.row): i for i in opened(path, "parquet").items if isinstance(i.source, Cell)}
    assert sorted(items) == [(group, row) for group in (0, 1) for row in range(5)]
    chunk = pq.read_metadata(path).row_group(1).column(1)  # pyright: ignore[reportUnknownMemberType]
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(data)
    assert items[0, 3].load().size == (96, 72)
    with pytest.raises(ValueError, match="row 3 of row group 1"):
        items[1, 3].load()


# -- where they lie ------------------------------------------------------------------------------------------------------


def test_a_folder_a_file_a_pattern_and_a_url_name_archives(tree: Path) -> None:
    folder = shards(tree / "with a blank", "webdataset")
    write_tar(folder / "deeper" / "other.tar", {"x.jpg": encoded(99)})
    write_tar(folder / ".hidden.tar", {"x.jpg": encoded(98)})
    (folder / "notes.txt").write_text("no archive")
    for root, count in {
        folder: COUNT + 1,
        folder / "shard-0.tar": 10,
        folder / "shard-*.tar": COUNT,
        folder / "shard-[1-9].tar": COUNT - 10,
        folder / "*" / "*.tar": 1,
        folder.as_uri(): COUNT + 1,
        f"{folder.as_uri()}/shard-*.tar": COUNT,
    }.items():
        assert len(opened(root).items) == count, root
    link = tree / "link.tar"
    link.symlink_to(folder / "shard-0.tar")  # as in the cache of the Hugging Face hub
    assert len(opened(link).items) == 10


def test_a_folder_whose_name_has_brackets_is_itself(tree: Path) -> None:
    assert len(opened(shards(tree / "a[b]", "webdataset")).items) == COUNT


@pytest.mark.parametrize(
    "root", ["{tmp}/missing", "{tmp}/empty", "{tmp}/empty/*.tar", "file://{tmp}/missing", "no://x"]
)
def test_a_place_without_archives_is_the_users_mistake(tmp_path: Path, root: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"pictures\.folder=.*(give a file, a folder, or a pattern|cannot be listed)"):
        opened(root.format(tmp=tmp_path))


@pytest.mark.parametrize("kind", ["folder", "webdataset", "parquet"])
def test_no_folder_is_not_the_one_we_stand_in(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"pictures\.kind={kind} but pictures\.folder is empty"):
        opened("", kind)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"pictures\.kind='zip'.*packages or folder or webdataset or parquet"):
        opened("x", "zip")


# -- the listing ---------------------------------------------------------------------------------------------------------


def listings(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*webdataset-*.json"))


def test_the_listing_is_kept_beside_the_archives_and_used(tree: Path) -> None:
    folder = shards(tree / "shards", "webdataset")
    first = opened(folder)
    (kept,) = listings(folder)
    before = kept.stat().st_mtime_ns
    assert opened(folder) == first
    assert kept.stat().st_mtime_ns == before
    document = json.loads(kept.read_text())
    document["skipped"] = {"remembered": 1}
    kept.write_text(json.dumps(document))
    assert opened(folder).skipped == {"remembered": 1}, "no picture was decoded"


def test_where_the_folder_cannot_be_written_the_cache_keeps_it(tree: Path) -> None:
    folder = shards(tree / "shards", "webdataset")
    first = opened(folder, cache=tree / "cache")
    (beside,) = listings(folder)
    beside.unlink()
    beside.mkdir()  # root may write anywhere, but replace a folder by a file nobody may
    assert opened(folder, cache=tree / "cache") == first
    (kept,) = listings(tree / "cache")
    kept.write_text(kept.read_text().replace('"skipped":{}', '"skipped":{"remembered":1}'))
    assert opened(folder, cache=tree / "cache").skipped == {"remembered": 1}


def test_a_changed_shard_is_listed_anew_and_the_others_keep_their_halves(tree: Path) -> None:
    folder = shards(tree / "shards", "webdataset")
    before = {item.digest: item.half for item in opened(folder).items}
    write_tar(folder / "shard-2.tar", {"new.jpg": encoded(99)})
    after = {item.digest: item.half for item in opened(folder).items}
    assert len(after) == COUNT + 1
    assert {digest: after[digest] for digest in before} == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_was_replaced_after_the_listing_is_noticed(tree: Path, kind: str) -> None:
    folder = shards(tree / "shards", kind)
    items = opened(folder, config_kind(kind)).items
    for path in [*folder.glob("*.tar"), *folder.glob("*.parquet")]:
        path.unlink()
    other = {name: encoded(int(name[:4]) + 500) for name in pictures()}
    write_tar(folder / "shard-0.tar", other)
    write_parquet(folder / "0.parquet", {"img": list(other.values())}, group=3)
    for item in items:
        with pytest.raises(
            ValueError, match=r"another picture|cannot be read|corrupt|ends after|not there|is not a picture"
        ):
            item.load()


@pytest.mark.parametrize("place", [[9, "a.jpg", 0, 10], [0, "a.jpg", -512, 10], [0, 7, 0, 10], [0, "a.jpg", 0], "x", None, [True, "a", 0, 1]])  # fmt: skip
def test_a_listing_that_names_what_cannot_be_is_made_anew(tree: Path, place: object) -> None:
    folder = shards(tree / "shards", "webdataset")
    first = opened(folder)
    (kept,) = listings(folder)
    document = json.loads(kept.read_text())
    document["files"][0][0] = place
    kept.write_text(json.dumps(document))
    assert opened(folder) == first


# -- the image column ----------------------------------------------------------------------------------------------------


def test_a_parquet_file_without_images_is_the_users_mistake(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x"], "score": [1.5], "at": [{"bytes": 3}]})
    with pytest.raises(
        UsageError, match=r"pictures\.folder=.*a\.parquet has no image column.*text \(string\), score \(double\), at"
    ):
        opened(path, "parquet")


def test_of_several_columns_the_described_or_named_one_is_the_image(tmp_path: Path) -> None:
    columns = {"mask": [encoded(1), encoded(2)], "photo": [encoded(3), encoded(4)]}
    with pytest.raises(UsageError, match="several columns that could be the image.*mask"):
        opened(write_parquet(tmp_path / "a" / "a.parquet", columns), "parquet")
    told = {b"huggingface": json.dumps({"info": {"features": {"photo": {"_type": "Image"}, "x": {"_type": "Value"}}}})}
    described = opened(write_parquet(tmp_path / "b" / "a.parquet", columns, metadata=told), "parquet")
    named = write_parquet(tmp_path / "c" / "a.parquet", {"mask": columns["mask"], "image": columns["photo"]})
    plain = write_parquet(tmp_path / "d" / "a.parquet", {"photo": columns["photo"]})
    assert told_digests(described) == told_digests(opened(named, "parquet")) == told_digests(opened(plain, "parquet"))


def told_digests(library: Library) -> list[str]:
    return [item.digest for item in library.items]


@pytest.mark.parametrize("metadata", [{b"huggingface": b"\xff{"}, {b"huggingface": b"[]"}, {b"huggingface": b'{"info": {"features": 3}}'}])  # fmt: skip
def test_a_damaged_description_is_no_description(tmp_path: Path, metadata: dict[bytes, bytes]) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"image": [encoded(1)], "mask": [encoded(2)]}, metadata=metadata)
    assert len(opened(path, "parquet").items) == 1
