"""Failed tests in the files of records and turns, also in those that somebody else wrote."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openmaia.core.errors import StoreError
from openmaia.core.services import ServiceUsage
from openmaia.runs import tables
from openmaia.runs.evidence import Confirmation, ConfirmationSample, FailedTest, Fault, failed_test_to_json
from openmaia.runs.parquet import read_drawn_prompts, read_record, read_turn, write_record, write_turn
from openmaia.runs.records import Record, Turn
from tests.helpers.samples import noise, record, turn

IMAGE = noise(5)
SAMPLE = ConfirmationSample(
    label="dog ☃", prompt="a dog", seed=7, digest=IMAGE.digest, activation=1.5, percentile=99.0, missing_terms=("wug",)
)
TEST = FailedTest(
    confirmation=Confirmation(
        samples=(SAMPLE, replace(SAMPLE, near_miss="cat", control="one word changed")),
        spent={"target": ServiceUsage(requests=2, seconds=0.5)},
        images={IMAGE.digest: IMAGE},
    ),
    faults={"dog ☃": Fault.NEAR_MISSES},
    seconds=1.25,
)


def failed() -> Turn:
    whole = turn(1)
    return replace(whole, failed_test=TEST, images=whole.images | TEST.confirmation.images)


def whole() -> Record:
    return replace(record(), turns=(turn(0), failed()))


def test_turn_of_a_journal_keeps_its_failed_test():
    found = read_turn(write_turn(failed())).failed_test
    assert found is not None and failed_test_to_json(found) == failed_test_to_json(TEST)
    assert found.confirmation.images[IMAGE.digest].pixels.tolist() == IMAGE.pixels.tolist()
    assert read_turn(write_turn(turn(1))).failed_test is None


def test_record_keeps_failed_tests():
    found = read_record(write_record(whole()))
    assert found.turns[0].failed_test is None and found.turns[1].failed_test is not None
    assert failed_test_to_json(found.turns[1].failed_test) == failed_test_to_json(TEST)
    assert found.spent["target"].requests == record().spent["target"].requests + 2
    assert read_drawn_prompts(write_record(whole()))[-2:] == ["a dog", "a dog"] == whole().drawn_prompts()[-2:]


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    data = write_record(whole())
    rows, header = tables.load(data)
    change(header["failed_tests"])
    return tables.dump(rows, pq.read_schema(pa.BufferReader(data)).remove_metadata(), header)


@pytest.mark.parametrize(
    "change",
    [
        lambda tests: tests.update({"9": tests["1"]}),
        lambda tests: tests.update({"1": None}),
        lambda tests: tests["1"].update(seconds="long"),
        lambda tests: tests["1"].update(seconds=float("nan")),
        lambda tests: tests["1"].update(faults={"dog": "ugly"}),
        lambda tests: tests["1"].update(faults=["dog"]),
        lambda tests: tests["1"].update(more=1),
        lambda tests: tests["1"].pop("confirmation"),
        lambda tests: tests["1"]["confirmation"]["samples"][0].update(activation=None),
        lambda tests: tests["1"]["confirmation"]["samples"][0].update(label=3),
    ],
)
def test_failed_test_of_another_form_is_refused(change: Callable[[dict[str, Any]], object]):
    with pytest.raises(StoreError):
        read_record(changed(change))


def test_failed_tests_that_are_no_mapping_are_refused():
    rows, header = tables.load(data := write_record(whole()))
    header["failed_tests"] = [header["failed_tests"]]
    written = tables.dump(rows, pq.read_schema(pa.BufferReader(data)).remove_metadata(), header)
    for read in (read_record, read_drawn_prompts):
        with pytest.raises(StoreError):
            read(written)
