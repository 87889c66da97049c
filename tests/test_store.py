"""Files that are whole or absent, records that read back exactly, and journals that end where the damage begins."""

import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from openmaia.errors import StoreError, UsageError
from openmaia.services import Exemplar, UnitExemplars
from openmaia.store import tables
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.files import Files, safe
from openmaia.store.journal import FolderJournal
from openmaia.store.parquet import read_record, read_turn, write_record, write_turn
from openmaia.store.records import Stop, Turn, comparable
from openmaia.units import Unit
from tests.samples import UNIT, noise, record, turn

HOSTILE = [
    "../../x", "a/b", "..", ".", ".hidden", "…/☃", "日本", "a b", "a%2Fb", "~", "-rf", "x\ny", "x\0y", "C:\\x", "*", "a.b",
    "/etc/passwd", "%2E%2E",
]  # fmt: skip
ROOTS = ["local", "memory"]


@pytest.fixture(params=ROOTS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A local folder, and a file system in memory, which is written as an object store is."""
    made = Files(str(tmp_path / "root") if request.param == "local" else f"fsspec+memory://{tmp_path}")
    made.create()
    return made


# -- files ---------------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(files: Files):
    files.write("a/b/c", b"\x00data")
    assert files.read("a/b/c") == b"\x00data"


def test_a_missing_file_reads_as_none(files: Files):
    assert files.read("nowhere/at/all") is None


def test_a_later_write_replaces_an_earlier_one(files: Files):
    files.write("a", b"long before")
    files.write("a", b"now")
    assert files.read("a") == b"now"


def test_names_are_relative_sorted_and_of_whole_files(files: Files):
    for name in ("f/b/2", "f/a", "f/b/.writing-x", "g/c"):
        files.write(name, b"")
    assert files.names("f") == ["f/a", "f/b/2"]


def test_a_missing_folder_has_no_names(files: Files):
    assert files.names("nowhere") == []


def test_deleting_what_is_not_there_is_no_error(files: Files):
    files.delete("nowhere")
    files.delete_folder("nowhere")
    assert files.names("") == []


def test_a_deleted_folder_is_gone(files: Files):
    files.write("f/a", b"")
    files.delete_folder("f")
    assert files.names("f") == []


def test_a_failed_write_is_a_store_error_and_leaves_nothing(tmp_path: Path):
    files = Files(str(tmp_path))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        files.write("file/below", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writing_over_a_folder_leaves_no_temporary_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError):
        Files(str(tmp_path)).write("folder", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("root", ["/proc/openmaia", "/dev/null/x", "s4://bucket/x", "://", "file:///proc/x"])
def test_a_root_that_cannot_be_written_is_the_users_mistake(root: str):
    with pytest.raises(UsageError) as caught:
        Files(root).create()
    assert root in caught.value.message


WRITER = """
import sys
from openmaia.store.files import Files
files = Files(sys.argv[1])
print("ready", flush=True)
count = 0
while True:
    count += 1
    for name in ("a", "b/c"):
        files.write(name, bytes([count % 256]) * 300_000)
"""


def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path):
    files = Files(str(tmp_path))
    for kill in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.013 * kill)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for name in files.names(""):
            data = files.read(name)
            assert data is not None
            assert len(data) == 300_000
            assert len(set(data)) == 1
    assert set(files.names("")) <= {"a", "b/c"}
    assert files.names("")


# -- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_plain_component(name: str):
    assert "/" not in safe(name)
    assert not safe(name).startswith(".")
    assert safe(name).isprintable()


def test_no_two_names_share_a_component():
    assert len({safe(name) for name in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize("name", HOSTILE)
def test_exemplars_of_hostile_names_stay_below_the_root(tmp_path: Path, name: str):
    root = tmp_path / "a" / "b" / "root"
    store = ExemplarStore.at(str(root), name, name)
    unit = Unit(target=name, layer=name, index=1)
    store.claim({})
    store.write(name, [exemplars(unit)])
    assert store.read(unit).unit == unit
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []
    assert len([path for path in root.rglob("*") if path.is_file()]) == 4


# -- records -------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A turn as plain data, pictures by digest, sources and recipe."""
    return {
        **{key: field for key, field in asdict(value).items() if key not in ("pictures", "calls", "observation")},
        "calls": [asdict(replace(call, shown=())) for call in value.calls],
        "shown": [[getattr(part, "digest", part) for part in call.shown] for call in value.calls],
        "observation": [getattr(part, "digest", part) for part in value.observation],
        "pictures": {digest: (p.digest, p.sources, p.recipe) for digest, p in value.pictures.items()},
    }


def test_a_record_reads_back_exactly():
    before = record()
    after = read_record(write_record(before))
    assert [plain(t) for t in after.turns] == [plain(t) for t in before.turns]
    assert replace(after, turns=()) == replace(before, turns=())


def test_a_record_compares_equal_to_what_was_read_back():
    assert comparable(read_record(write_record(record()))) == comparable(record())


def test_kept_pictures_bear_the_digest_of_the_exact_pixels():
    after = read_record(write_record(record()))
    assert set(after.pictures) == {noise(0).digest, noise(1).digest}
    assert all(picture.digest == digest for digest, picture in after.pictures.items())


def test_kept_pictures_look_like_the_originals():
    smooth = np.tile(np.linspace(0, 255, 64, dtype=np.uint8)[:, None, None], (1, 64, 3))
    from openmaia.images import Picture

    picture = Picture.of(smooth)
    kept = record(turns=(turn(0, pictures={picture.digest: picture}),))
    after = read_record(write_record(kept)).pictures[picture.digest]
    assert np.abs(after.pixels.astype(int) - smooth).mean() < 3


def test_a_picture_mentioned_again_later_has_its_pixels():
    again = read_record(write_record(record())).turns[1].observation[2]
    assert not isinstance(again, str)
    assert again.pixels.shape == (24, 32, 3)


def test_a_record_without_turns_is_kept():
    bare = record(turns=(), stop=Stop.LIMIT, labels=(), notes=(), description="")
    assert read_record(write_record(bare)) == bare


@pytest.mark.parametrize("stop", list(Stop))
def test_every_ending_is_kept(stop: Stop):
    assert read_record(write_record(record(stop=stop, turns=()))).stop is stop


def test_sums_are_derived_from_the_turns():
    made = record()
    assert (made.seconds, made.tokens) == (4.0, 240)
    assert made.tool_calls == {"call_neuron": 2, "text2image": 2}


def test_the_journals_turn_keeps_every_pixel():
    after = read_turn(write_turn(turn(0)))
    assert plain(after) == plain(turn(0))
    assert np.array_equal(after.pictures[noise(0).digest].pixels, noise(0).pixels)


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_record_of_another_version_is_refused(version: int):
    with pytest.raises(StoreError, match=f"version {version}"):
        read_record(write_record(record(version=version)))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"no Parquet at all, but long enough"])
def test_what_is_no_parquet_is_a_store_error(data: bytes):
    with pytest.raises(StoreError):
        read_record(data)


def test_a_parquet_file_of_somebody_else_is_a_store_error():
    sink = pa.BufferOutputStream()
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), sink)  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(StoreError):
        read_record(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("header", [{"version": 1}, {"version": 1, "unit": 3}, {}])
def test_a_header_that_lacks_things_is_a_store_error(header: dict[str, Any]):
    with pytest.raises(StoreError):
        read_record(tables.dump([], pa.schema([]), header))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_record_is_a_store_error(share: float):
    data = write_record(record())
    with pytest.raises(StoreError):
        read_record(data[: int(len(data) * share)])


def test_a_zeroed_block_never_gives_another_record():
    data = write_record(record())
    for start in range(0, len(data) - 512, 512):
        try:
            after = read_record(data[:start] + bytes(512) + data[start + 512 :])
        except StoreError:
            continue
        assert [plain(t) for t in after.turns] == [plain(t) for t in record().turns]


def test_flipped_bytes_never_give_another_turn():
    data, refused = write_turn(turn(0)), 0
    random = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(data)
        at = random.integers(len(data))
        broken[at] ^= int(random.integers(1, 256))
        try:
            assert plain(read_turn(bytes(broken))) == plain(turn(0))
        except StoreError:
            refused += 1
    assert refused > 30


# -- journals ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(files: Files) -> FolderJournal:
    made = FolderJournal(files, "journal/net/layer4/7-0")
    for index in range(4):
        made.append(turn(index))
    return made


def numbers(journal: FolderJournal) -> list[int]:
    return [turn.index for turn in journal.turns()]


def test_a_new_journal_has_no_turns(files: Files):
    assert FolderJournal(files, "journal/x").turns() == []


def test_a_journal_gives_back_its_turns(journal: FolderJournal):
    assert [plain(t) for t in journal.turns()] == [plain(turn(index)) for index in range(4)]


def test_a_picture_of_an_earlier_turn_has_its_exact_pixels(journal: FolderJournal):
    again = journal.turns()[1].observation[2]
    assert not isinstance(again, str)
    assert np.array_equal(again.pixels, noise(0).pixels)


def test_a_cleared_journal_is_empty(journal: FolderJournal):
    journal.clear()
    assert journal.turns() == []


def test_a_journal_resumes_before_a_gap(journal: FolderJournal):
    journal.files.delete(f"{journal.folder}/0002.arrow")
    assert numbers(journal) == [0, 1]


def test_a_journal_without_its_first_turn_starts_over(journal: FolderJournal):
    journal.files.delete(f"{journal.folder}/0000.arrow")
    assert numbers(journal) == []


def test_a_journal_resumes_before_a_damaged_file(journal: FolderJournal):
    data = journal.files.read(f"{journal.folder}/0001.arrow")
    assert data is not None
    journal.files.write(f"{journal.folder}/0001.arrow", data[: len(data) // 2])
    assert numbers(journal) == [0]


@pytest.mark.parametrize("at", [0, 100, -1000, -1])
def test_a_journal_resumes_before_a_file_with_a_wrong_bit(journal: FolderJournal, at: int):
    data = bytearray(journal.files.read(f"{journal.folder}/0001.arrow") or b"")
    data[at] ^= 1
    journal.files.write(f"{journal.folder}/0001.arrow", bytes(data))
    assert numbers(journal) == [0]


def test_a_journal_resumes_before_a_file_of_another_format(journal: FolderJournal):
    journal.files.write(f"{journal.folder}/0001.arrow", write_record(record()))
    assert numbers(journal) == [0]


def test_a_journal_resumes_before_an_empty_file(journal: FolderJournal):
    journal.files.write(f"{journal.folder}/0003.arrow", b"")
    assert numbers(journal) == [0, 1, 2]


def test_a_turn_under_a_foreign_number_is_not_taken(journal: FolderJournal):
    journal.files.write(f"{journal.folder}/0002.arrow", write_turn(turn(3)))
    assert numbers(journal) == [0, 1]


def test_turns_behind_a_gap_do_not_return_when_it_is_filled(journal: FolderJournal):
    journal.files.delete(f"{journal.folder}/0001.arrow")
    again: Turn = turn(1, reply="another reply")
    journal.append(again)
    assert [t.reply for t in journal.turns()] == [turn(0).reply, "another reply"]


# -- exemplars -----------------------------------------------------------------------------------------------------------


def exemplars(unit: Unit = UNIT, scale: float = 1.0, vector: bool = False) -> UnitExemplars:
    random = np.random.default_rng(unit.index)
    maps = [(random.random((7, 9)) * scale).astype(np.float32) for _ in range(6)]
    rows = [
        Exemplar(kind=kind, rank=rank, activation=float(maps[n].max()), picture=noise(n), map=None if vector else maps[n])
        for kind, numbers in (("top", (0, 1, 2)), ("bottom", (5, 4)), ("random", (2, 3)), ("ladder", (5, 0)))
        for rank, n in enumerate(numbers)
    ]  # fmt: skip
    return UnitExemplars(
        unit=unit,
        threshold=0.9 * scale,
        maxima=np.linspace(0, scale, 101),
        mean=0.5 * scale,
        std=0.1 * scale,
        exemplars=tuple(rows),  # pyright: ignore[reportArgumentType]
    )


def test_exemplars_read_back(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "pictures")
    units = [Unit(target="net", layer="l", index=index) for index in (3, 1, 2)]
    store.claim({"k": 3})
    store.write("l", [exemplars(unit) for unit in units])
    assert store.units("l") == {1, 2, 3}
    after, before = store.read(units[1]), exemplars(units[1])
    assert (after.unit, after.threshold, after.mean, after.std) == (units[1], 0.9, 0.5, 0.1)
    assert np.array_equal(after.maxima, before.maxima)
    assert [e.picture.sources for e in after.exemplars] == [e.picture.sources for e in before.exemplars]
    assert [(e.kind, e.rank, e.activation, e.picture.digest) for e in after.exemplars] == [
        (e.kind, e.rank, e.activation, e.picture.digest) for e in before.exemplars
    ]


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e3, 1e6, 1e30])
def test_kept_maps_are_close_whatever_their_scale(tmp_path: Path, scale: float):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars(scale=scale)])
    for kept, made in zip(store.read(UNIT).exemplars, exemplars(scale=scale).exemplars, strict=True):
        assert kept.map is not None
        assert made.map is not None
        assert np.abs(kept.map - made.map).max() <= 1e-3 * scale


def test_exemplars_of_a_layer_without_space_have_no_maps(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars(vector=True)])
    assert all(exemplar.map is None for exemplar in store.read(UNIT).exemplars)


def test_a_unit_without_exemplars_is_named(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    with pytest.raises(StoreError, match="net/layer4/8"):
        store.read(replace(UNIT, index=8))


def test_an_empty_store_is_a_store_error(tmp_path: Path):
    with pytest.raises(StoreError):
        ExemplarStore.at(str(tmp_path), "net", "p").read(UNIT)


@pytest.mark.parametrize("part", ["units.parquet", "rows.parquet", "pictures.arrow", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "gone", "empty"])
def test_a_damaged_exemplar_file_is_a_store_error(tmp_path: Path, part: str, damage: str):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    path = next(path for path in tmp_path.rglob(f"*{part}"))
    path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-7])
    if damage == "gone":
        path.unlink()
    with pytest.raises(StoreError):
        store.read(UNIT)


def test_a_damaged_list_of_units_is_a_store_error(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(UNIT.layer, [exemplars()])
    path = next(tmp_path.rglob("*units.parquet"))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(StoreError):
        store.units(UNIT.layer)
