"""`openmaia report`."""

from pathlib import Path

from openmaia.commands.common import Runs


def report(runs: Runs) -> None:
    """Write the report of one or several runs into the first one's directory."""
    print(f"report: {write(runs)}")


def write(runs: list[str]) -> Path:
    from openmaia.report import write_report
    from openmaia.store.run import Run

    return write_report([Run.open(path) for path in runs])
