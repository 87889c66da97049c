"""Records and turns: what is written is read back exactly, and damage never gives another record."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.runs import tables
from openmaia.runs.parquet import read_record, read_turn, write_record, write_turn
from openmaia.runs.records import Stop
from tests.helpers.samples import comparable, noise, plain, record, turn


def test_record_reads_back_exactly():
    before = record()
    after = read_record(write_record(before))
    assert [plain(t) for t in after.turns] == [plain(t) for t in before.turns]
    assert replace(after, turns=()) == replace(before, turns=())
    assert comparable(after) == comparable(before)


@pytest.mark.parametrize("stop", list(Stop))
def test_record_without_turns_reads_back(stop: Stop):
    bare = record(turns=(), stop=stop, labels=(), notes=(), description="")
    assert read_record(write_record(bare)) == bare


def test_images_keep_every_pixel():
    after = read_record(write_record(record()))
    assert set(after.images) == {noise(0).digest, noise(1).digest}
    assert all(EncodedImage(data=image.data).digest == digest for digest, image in after.images.items())


def test_image_that_is_mentioned_again_has_pixels():
    again = read_record(write_record(record())).turns[1].observation[2]
    assert isinstance(again, EncodedImage)
    assert again.pixels.shape == (24, 32, 3)


def test_sums_are_derived_from_the_turns():
    made = record()
    assert (made.seconds, made.tokens) == (4.0, 240)
    assert made.tool_calls == {"call_neuron": 2, "text2image": 2}


def test_turn_of_the_journal_keeps_every_pixel():
    after = read_turn(write_turn(turn(0)))
    assert plain(after) == plain(turn(0))
    assert np.array_equal(after.images[noise(0).digest].pixels, noise(0).pixels)


def foreign_table() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)  # pyright: ignore[reportUnknownMemberType]
    return sink.getvalue().to_pybytes()


BAD = {
    "empty": b"",
    "short": b"PAR1",
    "zeros": b"PAR1" + bytes(100) + b"PAR1",
    "text": b"no Parquet at all, but long enough",
    "foreign": foreign_table(),
    "header without fields": tables.dump([], pa.schema([]), {"version": 6}),
    "header with a wrong unit": tables.dump([], pa.schema([]), {"version": 6, "unit": 3}),
    "empty header": tables.dump([], pa.schema([]), {}),
} | {
    f"cut to {share}": write_record(record())[: int(len(write_record(record())) * share)] for share in (0.1, 0.5, 0.999)
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_record_is_a_store_error(kind: str):
    with pytest.raises(StoreError):
        read_record(BAD[kind])


@pytest.mark.parametrize("version", [0, 1, 99])
def test_record_of_another_version_is_refused(version: int):
    with pytest.raises(StoreError, match=f"version {version}"):
        read_record(write_record(record(version=version)))


def test_zeroed_block_never_gives_another_record():
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
        broken[random.integers(len(data))] ^= int(random.integers(1, 256))
        try:
            assert plain(read_turn(bytes(broken))) == plain(turn(0))
        except StoreError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("value", [3, "x"])
def test_table_selects_rows_by_value(tmp_path: Any, value: object):
    files = tables.Files(str(tmp_path))
    files.write("t", tables.dump([{"n": n, "v": value} for n in range(9)], header={"a": 1}, group=2))
    assert tables.select(files, "t", "n", 5) == ([{"n": 5, "v": value}], {"a": 1})
