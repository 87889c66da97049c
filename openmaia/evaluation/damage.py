"""Finds the files of a run that cannot be read, and sets them aside so that their investigations are repeated.

A file is damaged if it is truncated, was changed, or is of another version of OpenMAIA. Only the investigation of the
file is affected: code that reads a run skips damaged files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from openmaia.core.errors import StoreError
from openmaia.evaluation.storage import check_header
from openmaia.runs import tables
from openmaia.runs.further import further_evaluations
from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import RANDOM_WORDS, TESTED, Run, check_record

DAMAGED = "damaged"
"""Folder of a run to which damaged files are moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file of an investigation that cannot be read."""

    investigation: InvestigationId
    name: str
    """Path of the file relative to the run directory."""
    reason: str

    @property
    def is_record(self) -> bool:
        """Whether the file is the record of an investigation. If it is, the whole investigation has to be repeated."""
        return self.name.startswith("records/")


def damaged_files(run: Run) -> list[DamagedFile]:
    """Returns the unreadable records of investigations, followed by unreadable results of tests of their descriptions.

    Only the footers of the Parquet files are checked. Damage in other parts is found when a file is used.
    """
    return [*_damaged(run, "records"), *(each for folder in TESTED for each in _damaged(run, folder))]


def _damaged(run: Run, folder: str) -> Iterator[DamagedFile]:
    files = run.investigations if folder == "records" else run.files
    for name in files.names(folder):
        investigation = InvestigationId.of_path(name)
        if investigation is None:
            continue
        try:
            header = tables.header(files, name)
            if folder == "records":
                check_record(header)
            elif folder != "bias":
                check_header(header)
        except StoreError as error:
            yield DamagedFile(investigation=investigation, name=name, reason=error.message)


def set_aside(run: Run, damaged: Sequence[DamagedFile]) -> None:
    """Moves damaged files to the folder DAMAGED, so that their investigations or tests are repeated.

    If a record is damaged, the journal of its investigation (the turns stored while it ran) is deleted, and the results
    of its tests are moved as well: the repeated investigation may end with another description.
    """
    for each in damaged:
        if each.is_record:
            run.investigations.move(each.name, f"{DAMAGED}/{each.name}")
            run.journal(each.investigation).clear()
            for tested in (run, *further_evaluations(run)):
                _move_tests(tested, each.investigation)
        else:
            # The first random word of a layer stands for all: without it, they are measured again.
            names = {each.name, *_first_word(each)}
            for name in filter(run.files.exists, sorted(names)):
                run.files.move(name, f"{DAMAGED}/{name}")


def _first_word(damaged: DamagedFile) -> set[str]:
    first = replace(damaged.investigation, replicate=0)
    is_word = damaged.name.startswith(f"{RANDOM_WORDS}/")
    return {f"{RANDOM_WORDS}/{first.path}.parquet"} if is_word else set()


def _move_tests(run: Run, investigation: InvestigationId) -> None:
    for folder in TESTED:
        name = f"{folder}/{investigation.path}.parquet"
        if folder == RANDOM_WORDS:  # these trials are those of a layer
            continue
        if run.files.exists(name):
            run.files.move(name, f"{DAMAGED}/{name}")
