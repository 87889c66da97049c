"""Finds the files of a run that cannot be read, and sets them aside so that their units are repeated.

A file is damaged if it is truncated, was changed, or is of another version of OpenMAIA. It costs its investigation and
nothing else: everything that reads a run leaves it out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.core.errors import StoreError
from openmaia.evaluation.storage import check_version
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
    """Its name in the run directory."""
    reason: str

    @property
    def is_record(self) -> bool:
        """Whether it is the record, so that the investigation has to be repeated."""
        return self.name.startswith("records/")


def damaged_files(run: Run) -> list[DamagedFile]:
    """Returns the records and the results of tests that cannot be read, sorted by name.

    Only the footers of the files are read. Damage in front of them is found when a file is used.
    """
    return [*_damaged(run, "records"), *(each for folder in TESTED for each in _damaged(run, folder))]


def _damaged(run: Run, folder: str) -> Iterator[DamagedFile]:
    files = run.investigations if folder == "records" else run.files
    for name in files.names(folder):
        try:
            header = tables.header(files, name)
            if folder == "records":
                check_record(header)
            elif folder != "bias":
                check_version(header)
        except StoreError as error:
            yield DamagedFile(investigation=InvestigationId.of_path(name), name=name, reason=error.message)


def set_aside(run: Run, damaged: Sequence[DamagedFile]) -> None:
    """Moves damaged files to the folder DAMAGED, so that the next command repeats what they held.

    The tests of an investigation whose record is damaged are moved as well, because they tested another description.
    """
    for each in damaged:
        if each.is_record:
            run.investigations.move(each.name, f"{DAMAGED}/{each.name}")
            run.journal(each.investigation).clear()
            for tested in (run, *further_evaluations(run)):
                _move_tests(tested, each.investigation)
        elif run.files.exists(each.name):
            run.files.move(each.name, f"{DAMAGED}/{each.name}")


def _move_tests(run: Run, investigation: InvestigationId) -> None:
    for folder in TESTED:
        name = f"{folder}/{investigation.path}.parquet"
        if folder == RANDOM_WORDS:  # these trials are those of a layer
            continue
        if run.files.exists(name):
            run.files.move(name, f"{DAMAGED}/{name}")
