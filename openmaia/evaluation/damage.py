"""Finds the files of a run that do not count, and sets them aside so that their investigations or tests are repeated.

A file is damaged if it is truncated, was changed, is of another version of OpenMAIA, or is the record of another
investigation than its name says. A test is foreign if it is not one of the description in the record beside it. Code
that reads a run skips such files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from openmaia.core.errors import StoreError
from openmaia.evaluation.storage import check_header
from openmaia.runs import tables
from openmaia.runs.aside import move_tests
from openmaia.runs.further import further_evaluations
from openmaia.runs.ids import InvestigationId
from openmaia.runs.parquet import check_record
from openmaia.runs.run import RANDOM_WORDS, TEST_FOLDERS, Run

DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file that cannot be read, or a test that does not belong to the record beside it."""

    investigation: InvestigationId
    name: str
    """Path relative to the run directory."""
    reason: str
    is_foreign: bool = False
    """Whether the file can be read, but is not a test of the description in the record. The next evaluation repeats the
    test without being asked to."""

    @property
    def is_record(self) -> bool:
        """Whether the whole investigation has to be repeated."""
        return self.name.startswith("records/")


def damaged_files(run: Run) -> list[DamagedFile]:
    """Returns unreadable records, followed by tests that do not count. Only the footers of the files are checked."""
    records = list(_damaged(run, "records"))
    unreadable = {each.investigation for each in records}
    tests = [each for folder in TEST_FOLDERS for each in _damaged(run, folder)]
    return [*records, *(each for each in tests if not (each.is_foreign and each.investigation in unreadable))]


def _damaged(run: Run, folder: str) -> Iterator[DamagedFile]:
    files = run.investigations if folder == "records" else run.files
    for name in files.names(folder):
        investigation = InvestigationId.of_path(name)
        if investigation is None:
            continue
        if folder == "records" and run.summary(investigation) is not None:
            continue
        try:
            header = tables.header(files, name)
            if folder == "records":
                check_record(header, investigation)
            elif folder != "bias":
                check_header(header)
        except StoreError as error:
            yield DamagedFile(investigation=investigation, name=name, reason=error.message)
            continue
        if folder != "records" and (reason := run.misfit(folder, investigation, header)):
            yield DamagedFile(investigation=investigation, name=name, reason=reason, is_foreign=True)


def foreign_tests(run: Run) -> str:
    """Returns a sentence about the stored tests that do not belong to the records; empty if all do."""
    found = [(each, reason) for folder in TEST_FOLDERS for each, reason in sorted(run.misfits(folder).items())]
    if not found:
        return ""
    first, reason = found[0]
    return (
        f"{len(found)} stored tests of {run.files.root} do not belong to its records and do not count, such as that of "
        f"{first.unit}: {reason}"
    )


def set_aside(run: Run, damaged: Sequence[DamagedFile]) -> None:
    """Moves damaged files to the folder DAMAGED. Beside a damaged record, its journal is deleted and its tests are
    moved, because the repeated investigation may end with another description.
    """
    for each in damaged:
        if each.is_record:
            run.investigations.move(each.name, f"{DAMAGED}/{each.name}")
            run.journal(each.investigation).clear()
            for tested in (run, *further_evaluations(run)):
                move_tests(tested, each.investigation, DAMAGED)
        else:
            # The first random word of a layer stands for all: without it, they are measured again.
            names = {each.name, *_first_word(each)}
            for name in filter(run.files.exists, sorted(names)):
                run.files.move(name, f"{DAMAGED}/{name}")


def _first_word(damaged: DamagedFile) -> set[str]:
    first = replace(damaged.investigation, replicate=0)
    is_word = damaged.name.startswith(f"{RANDOM_WORDS}/")
    return {f"{RANDOM_WORDS}/{first.path}.parquet"} if is_word else set()
