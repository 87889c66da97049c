"""Measures how similar replicates are, and how well measures of certainty predict the AUC.

Such a measure is the agreement between replicates, or the AUC of the contrasts that confirmed an answer. The predicted
AUC is that of the evaluation, a later test with other images.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from openmaia.core.errors import StoreError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import Agreement, ClaimSimilarity, agreement
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.selective import RiskCoverage, selective
from openmaia.evaluation.claims import read_claims
from openmaia.evaluation.scores import RESAMPLES
from openmaia.evaluation.storage import compute_stamp
from openmaia.runs.run import Run

_FILE = "reliability.json"


_BY_AGREEMENT = "agreement between runs"
BY_CONFIRMATION = "AUC of the loop's own test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Agreements and risk-coverage curves of a run."""

    agreements: tuple[Agreement, ...]
    """One for each method that compares claims; empty if no unit has several replicates."""
    selective: tuple[RiskCoverage, ...]
    """One curve for each measure of certainty. The risk of a unit is 1 minus the mean AUC of its replicates."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be measured."""
        return not self.agreements and not self.selective


def compare_replicates(
    run: Run, similarities: Iterable[ClaimSimilarity], resamples: int = RESAMPLES
) -> tuple[Agreement, ...]:
    """Returns the agreement of a run's replicates by each of `similarities`. It does not depend on tests."""
    claims = read_claims(run)
    measured = [agreement(claims, similarity, resamples) for similarity in similarities]
    return tuple(each for each in measured if each is not None)


def measure_reliability(run: Run, agreements: tuple[Agreement, ...], resamples: int = RESAMPLES) -> Reliability:
    """Measures the reliability of an evaluated run. Each of `agreements` gives a risk-coverage curve."""
    scores = run.scores().items()
    risk = {unit: 1 - auc for unit, auc in _means((key.unit, values.get("auc")) for key, values in scores).items()}
    certainties = {f"{_BY_AGREEMENT} ({each.by})": each.by_unit for each in agreements}
    certainties[BY_CONFIRMATION] = _means((_unit(row), row["confirm_auc"]) for row in run.headers())
    curves = [selective(certainty, risk, by, resamples) for by, certainty in certainties.items()]
    return Reliability(agreements=agreements, selective=tuple(curve for curve in curves if curve))


def _unit(row: Mapping[str, Any]) -> Unit:
    return Unit(target=row["target"], layer=row["layer"], index=row["index"])


def _means(values: Iterable[tuple[Unit, float | None]]) -> dict[Unit, float]:
    by_unit: dict[Unit, list[float]] = defaultdict(list)
    for unit, value in values:
        if value is not None:
            by_unit[unit].append(value)
    return {unit: float(np.mean(each)) for unit, each in by_unit.items()}


def write_agreements(run: Run, agreements: tuple[Agreement, ...]) -> None:
    """Stores agreements in place of the reliability, until `write_reliability` adds what needs scores."""
    _write(run, Reliability(agreements=agreements, selective=()), stamp="")


def write_reliability(run: Run, reliability: Reliability) -> None:
    """Stores the reliability in the run directory."""
    _write(run, reliability, compute_stamp(run, RESAMPLES))


def _write(run: Run, reliability: Reliability, stamp: str) -> None:
    document = {
        "stamp": stamp,
        "claims": _claims_stamp(run),
        "agreements": [
            _plain(each) | {"by_unit": [[asdict(unit), value] for unit, value in each.by_unit.items()]}
            for each in reliability.agreements
        ],
        "selective": [
            _plain(each) | {"risks": [[coverage, risk.as_list()] for coverage, risk in each.risks]}
            for each in reliability.selective
        ],
    }
    run.files.write(_FILE, json.dumps(document).encode())


def _claims_stamp(run: Run) -> str:
    bases = sorted(claim.basis for claim in read_claims(run))
    return hashlib.sha256("\n".join(bases).encode()).hexdigest()


def read_agreements(run: Run) -> tuple[Agreement, ...] | None:
    """Reads the agreements of a run, which need not be scored. None if the file is missing, damaged or of other claims
    than those of the records.
    """
    try:
        stored: dict[str, Any] = run.files.read_json(_FILE) or {}
        is_current = bool(stored) and stored.get("claims") == _claims_stamp(run)
        return _reliability(stored).agreements if is_current else None
    except (StoreError, AttributeError, KeyError, TypeError, ValueError):
        return None


def has_reliability(run: Run) -> bool:
    """Returns whether the reliability is stored, and no evaluation was added or changed after that."""
    try:
        stored: dict[str, Any] = run.files.read_json(_FILE) or {}
        return bool(stored) and stored.get("stamp") == compute_stamp(run, RESAMPLES)
    except (StoreError, AttributeError):
        return False


def read_reliability(run: Run) -> Reliability:
    """Reads the reliability; without agreements and curves if the file is missing, damaged or older than the run's
    evaluations.
    """
    try:
        return _reliability(run.files.read_json(_FILE) or {}) if has_reliability(run) else _reliability({})
    except (StoreError, AttributeError, KeyError, TypeError, ValueError):
        return Reliability(agreements=(), selective=())


def _reliability(document: dict[str, Any]) -> Reliability:
    return Reliability(
        agreements=tuple(
            Agreement(**_restored(each, by_unit={Unit(**unit): value for unit, value in each["by_unit"]}))
            for each in document.get("agreements", [])
        ),
        selective=tuple(
            RiskCoverage(**_restored(each, risks=tuple((share, Interval.of(risk)) for share, risk in each["risks"])))
            for each in document.get("selective", [])
        ),
    )


def _plain(result: Agreement | RiskCoverage) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in result.__dataclass_fields__ if name not in ("by_unit", "risks")}
    return {name: value.as_list() if isinstance(value, Interval) else _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _restored(stored: Mapping[str, Any], **replaced: Any) -> dict[str, Any]:
    """Converts the result of `_plain` to constructor arguments. Fields in `replaced` get the given values."""
    fields: dict[str, Any] = dict(replaced)
    for name, value in stored.items():
        if name not in replaced:
            is_interval = isinstance(value, list)
            fields[name] = Interval.of(cast(list[Any], value)) if is_interval else math.nan if value is None else value
    return fields
