"""Archives that are damaged, or made to do harm."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from openmaia.errors import UsageError
from openmaia.pictures.places import Member
from tests.pictures.archiving import (
    COUNT,
    KINDS,
    config_kind,
    encoded,
    opened,
    pictures,
    shards,
    write_parquet,
    write_tar,
)

from . import making

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
