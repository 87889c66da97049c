"""Reads claims by other methods, for `openmaia evaluate --claims`.

They are stored in the directory of the run with whose descriptions they are compared, in a folder for each method.
"""

from collections.abc import Sequence

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.units import TargetInfo
from openmaia.interop.claim_files import read_claim_file
from openmaia.runs.claimed import add_claims, claim_record, claim_runs
from openmaia.runs.records import Record
from openmaia.runs.run import Run


def store_claims(run: Run, paths: Sequence[str], info: TargetInfo) -> tuple[list[Run], str]:
    """Stores the claims of other methods about the units that a run has described.

    Args:
        paths: CSV tables, labels that `openmaia import` imported, or other run directories, such as one with a
            person's investigations.

    Returns:
        A run for each method with stored claims about these units, those of earlier calls included, and a sentence that
        says how many claims this call has read.

    Raises:
        UsageError: A file cannot be read, a row is wrong, or there is no claim about a unit of the run.
    """
    given: dict[str, list[Record]] = {}
    for path in paths:
        for method, records in _read(run, path, info).items():
            if method in given:
                raise UsageError(f"--claims {path}: claims of {method} were given before; give each method once")
            given[method] = records
    described = {each.unit for each in run.done() if each.replicate == 0}
    kept = {method: [each for each in records if each.unit in described] for method, records in given.items()}
    for method, records in kept.items():
        if not records:
            raise UsageError(
                f"--claims: {method} says nothing about the {len(described)} units that {run.files.root} has described, such as "
                f"{min(described)}; give claims about the same units"
            )
    for method, records in kept.items():
        add_claims(run, method, records)
    count, all_given = (sum(map(len, each.values())) for each in (kept, given))
    left_out = f"; {all_given - count} about other units are left out" if all_given > count else ""
    return claim_runs(run), f"{count} claims of {', '.join(sorted(kept))}{left_out}"


def _read(run: Run, path: str, info: TargetInfo) -> dict[str, list[Record]]:
    """Returns records by the name of their method."""
    if (user_path(path) / "config.yaml").is_file():
        return _of_run(run, path)
    by_method: dict[str, list[Record]] = {}
    for claim in read_claim_file(path, info):
        record = claim_record(run, claim.unit, claim.method, claim.description, claim.labels)
        by_method.setdefault(claim.method, []).append(record)
    return by_method


def _of_run(run: Run, path: str) -> dict[str, list[Record]]:
    """Returns the first replicate of each unit, by the name of the run. Raises UsageError if it has another target."""
    other = Run.open(path)
    one, two = ({**each.config()["target"], "layers": None} for each in (other, run))
    if one != two:
        raise UsageError(
            f"--claims {path} is a run about another target than {run.files.root}; its units are not the same ones"
        )
    return {other.name: list(other.records(sorted(each for each in other.done() if each.replicate == 0)))}
