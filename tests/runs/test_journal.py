"""The journal: it resumes before the first turn that is missing or damaged."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.images import EncodedImage
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.parquet import write_record, write_turn
from tests.helpers.samples import noise, plain, record, turn


@pytest.fixture(params=["local", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> FolderJournal:
    """A journal of four turns."""
    files = Files(str(tmp_path) if request.param == "local" else f"fsspec+memory://{tmp_path}")
    made = FolderJournal(files, "journal/net/layer4/7-0")
    assert made.turns() == []
    for index in range(4):
        made.append(turn(index))
    return made


def name(index: int) -> str:
    return f"journal/net/layer4/7-0/{index:04d}.turn"


def test_turns_are_read_back(journal: FolderJournal):
    assert [plain(t) for t in journal.turns()] == [plain(turn(index)) for index in range(4)]


def test_image_of_an_earlier_turn_has_exact_pixels(journal: FolderJournal):
    again = journal.turns()[1].observation[2]
    assert isinstance(again, EncodedImage)
    assert np.array_equal(again.pixels, noise(0).pixels)


def test_cleared_journal_is_empty(journal: FolderJournal):
    journal.clear()
    assert journal.turns() == []


def flipped(position: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        broken = bytearray(data)
        broken[position] ^= 1
        return bytes(broken)

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        *map(flipped, (0, 100, -1000, -1)),
        lambda data: data[: len(data) // 2],
        lambda _: b"",
        lambda _: write_record(record()),
        lambda _: write_turn(turn(3)),
    ],
    ids=["bit 0", "bit 100", "bit -1000", "bit -1", "truncated", "empty", "record", "other turn"],
)
@pytest.mark.parametrize("index", [0, 2])
def test_journal_ends_before_damage(journal: FolderJournal, damage: Callable[[bytes], bytes], index: int):
    journal.files.write(name(index), damage(journal.files.read(name(index)) or b""))
    assert [turn.index for turn in journal.turns()] == list(range(index))


@pytest.mark.parametrize("index", [0, 2])
def test_journal_ends_before_a_gap(journal: FolderJournal, index: int):
    journal.files.delete(name(index))
    assert [turn.index for turn in journal.turns()] == list(range(index))


def test_turns_behind_a_filled_gap_do_not_return(journal: FolderJournal):
    journal.files.delete(name(1))
    journal.append(turn(1, reply="another reply"))
    assert [t.reply for t in journal.turns()] == [turn(0).reply, "another reply"]
