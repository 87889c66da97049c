"""How many files the views of a whole run open."""

import os
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import openmaia
from measure.benchmarks.large_run import large_run
from openmaia.config.loading import restore
from openmaia.evaluation.analysis.significance import write_significance
from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.runs.run import Run
from openmaia.runs.snapshot import Snapshot
from tests.reporting.making import record, run


class CountingFiles(LocalFileSystem):
    """Counts how often each file is opened to read."""

    protocol = "counted"
    opened: ClassVar = Counter[str]()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("counted://"))

    def open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        if "r" in mode:
            self.opened[path] += 1
        return super().open(path, mode, *arguments, **options)


fsspec.register_implementation("counted", CountingFiles, clobber=True)


def opened(path: str, work: Any) -> Counter[str]:
    """How often `work` opens the files of each folder of a run."""
    CountingFiles.opened.clear()
    work(f"fsspec+counted://{path}")
    names = [os.path.relpath(each, path).split("/")[0] for each in CountingFiles.opened.elements()]
    return Counter(names)


@pytest.mark.parametrize(
    ("work", "records", "evaluations"),
    [(lambda url: openmaia.load(url).units(), 1, 2), (lambda url: write_summary(Run.open(url)), 1, 1)],
)
def test_a_table_of_all_units_opens_each_file_a_fixed_number_of_times(
    tmp_path: Path, work: Any, records: int, evaluations: int
):
    small = run(tmp_path / "runs")
    write_significance(small)
    for count in (6, 24):
        made = large_run(small, count, 2, tmp_path / f"large{count}")
        tested = len(made.evaluated())
        found = opened(made.files.root, work)
        assert tested == count * 2 // 3
        assert found["records"] == records * count
        assert found["evaluation"] == evaluations * tested
        assert (found["significance.parquet"], found["config.yaml"]) == (1, 2)


def test_a_snapshot_keeps_the_records_of_its_first_question(tmp_path: Path):
    made = run(tmp_path)
    snapshot = Snapshot.of_run(made)
    before = snapshot.done()
    (pending,) = set(made.plan()) - before - made.failed()
    made.publish(record(pending.unit, restore(made.config(), "")))
    assert (made.is_done(pending), snapshot.is_done(pending), snapshot.summary(pending)) == (True, False, None)
    assert Snapshot.of_run(snapshot) is snapshot
