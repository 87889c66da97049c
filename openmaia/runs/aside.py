"""Moves what is stored about an investigation out of the way, so that it is done again and nothing is lost."""

from openmaia.runs.further import further_evaluations
from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import RANDOM_WORDS, SUMMARY, TEST_FOLDERS, Run


def set_aside(run: Run, investigation: InvestigationId, folder: str) -> bool:
    """Moves record, turns, failure and tests of an investigation to a folder of the run directory. Returns whether there
    was a record, a turn or a failure.
    """
    files, path = run.investigations, investigation.path
    for tested in (run, *further_evaluations(run)):
        move_tests(tested, investigation, folder)
    # The record last: as long as it is there, the investigation is not pending, and nothing writes these files.
    names = [*files.names(f"journal/{path}"), f"failures/{path}.json", f"records/{path}.parquet"]
    found = [name for name in names if files.exists(name)]
    for name in found:
        files.move(name, f"{folder}/{name}")
    if found:
        run.files.delete(SUMMARY)  # it would show a record that is gone
    return bool(found)


def move_tests(run: Run, investigation: InvestigationId, folder: str) -> None:
    """Moves the tests of an investigation to a folder of the run directory, without those that belong to its layer."""
    for tests in TEST_FOLDERS:
        name = f"{tests}/{investigation.path}.parquet"
        if tests != RANDOM_WORDS and run.files.exists(name):
            run.files.move(name, f"{folder}/{name}")
