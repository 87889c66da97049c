"""Tar shards and Parquet files: the same pictures as in a folder, whatever else the archives hold."""

import io
import json
import os
import pickle
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openmaia import build, exemplars
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.pictures.library import Item, Library
from openmaia.pictures.places import Cell, Member
from openmaia.schema import Config

from . import making

COUNT = 24


def encoded(seed: int, suffix: str = "jpg") -> bytes:
    buffer = io.BytesIO()
    making.picture(seed).save(buffer, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[suffix])
    return buffer.getvalue()


def pictures(count: int = COUNT) -> dict[str, bytes]:
    suffixes = ("jpg", "png", "webp")
    return {f"{seed:04}.{suffixes[seed % 3]}": encoded(seed, suffixes[seed % 3]) for seed in range(count)}


def write_tar(path: Path, files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_parquet(path: Path, columns: Mapping[str, Any], group: int = 5, metadata: Any = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(dict(columns)).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=group)  # pyright: ignore[reportUnknownMemberType]
    return path


def config(root: Path | str, kind: str, cache: Path) -> Config:
    sources = ["name=x", "units=all", "target.name=net", f"pictures.kind={kind}", f"paths.cache={cache}"]
    return load([*sources, f"pictures.folder={root}"] if root else sources)


def opened(root: Path | str, kind: str = "webdataset", cache: Path = Path("/nonexistent")) -> Library:
    return build.library(config(root, kind, cache))


def told(items: Iterable[Item]) -> list[tuple[str, str, str]]:
    return sorted((item.digest, item.half, item.kind) for item in items)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The same pictures as plain files."""
    for name, data in pictures().items():
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / name).write_bytes(data)
    return tmp_path


def shards(folder: Path, kind: str) -> Path:
    """Two shards of them, with captions beside."""
    given = list(pictures().items())
    for number, part in enumerate((given[:10], given[10:])):
        if kind == "webdataset":
            beside = {name.split(".")[0] + ".txt": b"a caption" for name, _ in part}
            write_tar(folder / f"shard-{number}.tar", dict(sorted((dict(part) | beside).items())))
        elif kind == "binary":
            write_parquet(folder / f"{number}.parquet", {"img": [data for _, data in part], "label": range(len(part))})
        else:
            cells = [{"bytes": data, "path": name} for name, data in part]
            write_parquet(folder / f"{number}.parquet", {"label": range(len(part)), "image": cells})
    return folder


KINDS = ["webdataset", "binary", "struct"]


def config_kind(kind: str) -> str:
    return "webdataset" if kind == "webdataset" else "parquet"


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


# -- damage --------------------------------------------------------------------------------------------------------------


def test_bad_members_are_counted_by_reason(tmp_path: Path) -> None:
    whole = encoded(2)
    members = {
        "good.jpg": encoded(1),
        "cut.jpg": whole[: len(whole) // 2],
        "noise.png": bytes(range(256)),
        "empty.jpg": b"",
        "bomb.png": making.huge_png(),
        "notes.txt": b"a caption",
        "data.json": b"{}",
    }
    small = io.BytesIO()
    making.picture(3, (8, 8)).save(small, "PNG")
    found = opened(write_tar(tmp_path / "a.tar", members | {"small.webp": small.getvalue()}))
    assert [item.source.name for item in found.items] == [f"{tmp_path}/a.tar: good.jpg"]
    assert found.skipped == {"corrupt": 2, "empty": 1, "too large": 1, "too small": 1}


@pytest.mark.parametrize("damage", ["header", "cut in a member", "cut in a header", "no end", "size"])
def test_a_damaged_tar_gives_what_lies_before_the_damage_and_is_counted(tmp_path: Path, damage: str) -> None:
    path = write_tar(tmp_path / "bad" / "a.tar", pictures(6))
    items = opened(path).items
    sources = [item.source for item in items if isinstance(item.source, Member)]
    data = bytearray(path.read_bytes())
    fourth = sources[3].offset
    if damage == "header":
        data[fourth - 512 + 150] ^= 1
    elif damage == "size":
        data[fourth - 512 + 124 : fourth - 512 + 136] = b"77777777777\0"
    else:
        last = -(-(sources[5].offset + sources[5].size) // 512) * 512
        end = {"cut in a member": fourth + 5, "cut in a header": fourth - 100, "no end": last}[damage]
        del data[end:]
    path.write_bytes(data)
    write_tar(tmp_path / "bad" / "b.tar", {"whole.jpg": encoded(50)})
    found = opened(tmp_path / "bad")
    assert len(found.items) == (7 if damage == "no end" else 4)
    assert found.skipped == {"damaged archive": 1}


def test_compressed_tars_are_no_tars(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz") as archive:
        archive.add(making.save(tmp_path / "a.png", making.picture(1)), "a.png")
    with pytest.raises(UsageError, match=r"no usable picture \(0 pictures; skipped: 1 damaged archive\)"):
        opened(tmp_path / "a.tar")


def test_damaged_parquet_files_are_counted_and_the_others_used(tree: Path) -> None:
    folder = shards(tree / "shards", "binary")
    data = (folder / "0.parquet").read_bytes()
    (folder / "2.parquet").write_bytes(data[: len(data) // 2])
    (folder / "3.parquet").write_bytes(b"PAR1")
    (folder / "4.parquet").touch()
    found = opened(folder, "parquet")
    assert len(found.items) == COUNT
    assert found.skipped == {"damaged archive": 3}


def test_bad_cells_are_counted_by_reason(tmp_path: Path) -> None:
    whole = encoded(2)
    data = [encoded(1), None, b"", whole[:200], making.huge_png(), b"some text"]
    cells = [*({"bytes": one, "path": "../../etc/passwd"} for one in data), None]
    found = opened(write_parquet(tmp_path / "a.parquet", {"image": cells}), "parquet")
    assert len(found.items) == 1
    assert found.skipped == {"corrupt": 1, "empty": 3, "not a picture": 1, "too large": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_never_ends_a_scan(tree: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    good = shards(tree / "good", kind)
    (source,) = (path for path in good.iterdir() if path.stem.endswith("0") and not path.name.startswith("."))
    (tree / "bad").mkdir()
    (tree / "bad" / f"good{source.suffix}").write_bytes(source.read_bytes())
    data = source.read_bytes()
    for number in range(60):
        damaged = bytearray(data)
        # Half of the places where what describes the pictures is.
        for place in random.integers(0, len(data), 40):
            damaged[place] = int(random.integers(256))
        for place in random.integers(0, min(len(data), 4000), 20):
            damaged[-1 - place if kind != "webdataset" else place] = int(random.integers(256))
        (tree / "bad" / f"{number}{source.suffix}").write_bytes(damaged)
    found = opened(tree / "bad", config_kind(kind))
    assert len(found.items) >= 10
    assert found.skipped["damaged archive"] >= 1


# -- hostile archives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_are_never_paths(tmp_path: Path, kind: int) -> None:
    names = [
        "../../evil.jpg",
        "/etc/evil.jpg",
        "new\nline\x1b[31m.jpg",
        "\u202egpj.exe.jpg",
        "a.b.left.JPG",
        "d/e/f.jpeg",
    ]
    if kind != tarfile.USTAR_FORMAT:
        names.append("x" * 5000 + ".jpg")
    given = {name: encoded(seed) for seed, name in enumerate(names)}
    before = sorted(tmp_path.rglob("*"))
    found = opened(write_tar(tmp_path / "in" / "a.tar", given, kind))
    assert len(found.items) == len(names)
    assert all(item.load().size == (96, 72) for item in found.items)
    assert all(item.source.name.isprintable() and len(item.source.name) < 400 for item in found.items)
    made = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - set(before)}
    assert made == {"in"}
    assert not (tmp_path.parent / "evil.jpg").exists()


def test_links_devices_and_folders_that_call_themselves_pictures_are_not_followed(tmp_path: Path) -> None:
    outside = making.save(tmp_path / "outside.png", making.picture(7))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, kind in enumerate(
            (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
        ):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.type, member.linkname = kind, str(outside)
            archive.addfile(member)
        sparse = tarfile.TarInfo("sparse.jpg")
        sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 60)}
        sparse.size = 1024
        archive.addfile(sparse, io.BytesIO(bytes(1024)))
        good = encoded(1)
        member = tarfile.TarInfo("good.jpg")
        member.size = len(good)
        archive.addfile(member, io.BytesIO(good))
    found = opened(tmp_path / "a.tar")
    assert len(found.items) == 1
    assert found.skipped == {"not a picture": 5}, "tar writes the name of a folder with a slash behind"


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


LONG_PAX = b"%d path=" % (3 << 20) + b"x" * (3 << 20)
HOSTILE = {
    "a negative size": header(b"a.jpg", b"-0000001000\0") + bytes(2048),
    "a negative binary size": header(b"a.jpg", b"\xff" * 11 + b"\x00") + bytes(2048),
    "an endless binary size": header(b"a.jpg", b"\x80" + b"\xff" * 11) + bytes(2048),
    "a size that is no number": header(b"a.jpg", b"0o17") + bytes(2048),
    "a long extension": header(b"x", b"%011o\0" % len(LONG_PAX), b"x") + LONG_PAX + bytes(4096),
    "a chain of extensions": (header(b"x", b"00000000002\0", b"L") + b"a\0".ljust(512, b"\0")) * 5000 + bytes(1024),
    "a record that ends before it begins": header(b"x", b"00000000010\0", b"x") + b"0 path=a".ljust(512, b"\0"),
    "a record of no length": header(b"x", b"00000000010\0", b"x") + b"path=abc".ljust(512, b"\0"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers_end_an_archive_and_nothing_else(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.tar").write_bytes(HOSTILE[what])
    write_tar(tmp_path / "b.tar", {"good.jpg": encoded(1)})
    found = opened(tmp_path)
    assert len(found.items) == 1
    assert found.skipped == ({} if what == "a chain of extensions" else {"damaged archive": 1})


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
