"""The reliability of a run: agreement of its replicates, and what their certainty is worth. Kept in the run directory."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from openmaia.evaluate.asking import Asker
from openmaia.evaluate.bootstrap import Interval
from openmaia.evaluate.claims import claims
from openmaia.evaluate.reliability import Agreement, Asked, Words, agreement
from openmaia.evaluate.selective import Selective, selective
from openmaia.store.run import Run
from openmaia.units import Unit

FILE = "reliability.json"
RESAMPLES = 2000

BY_AGREEMENT = "agreement between runs"
BY_CONFIRMATION = "AUC of the loop's own test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """agreements: by each who compared, empty without replicates. selective: by each measure of certainty; the risk of a
    unit is 1 minus its AUC in the predictive protocol, over its runs."""

    agreements: tuple[Agreement, ...]
    selective: tuple[Selective, ...]

    @property
    def is_empty(self) -> bool:
        return not self.agreements and not self.selective


def measure(run: Run, asker: Asker | None, resamples: int = RESAMPLES) -> Reliability:
    """asker: judges the descriptions, besides the comparison by words."""
    found = claims(run)
    by = [Words(), *([Asked(asker)] if asker else [])]
    agreements = tuple(one for each in by if (one := agreement(found, each, resamples)) is not None)
    risk = {unit: 1 - auc for unit, auc in _means((o.unit, s["auc"]) for o, s in run.scores().items()).items()}
    certainties = {f"{BY_AGREEMENT} ({one.by})": one.by_unit for one in agreements}
    certainties[BY_CONFIRMATION] = _means((_unit(row), row["confirm_auc"]) for row in run.headers())
    curves = [selective(certain, risk, by, resamples) for by, certain in certainties.items()]
    return Reliability(agreements=agreements, selective=tuple(curve for curve in curves if curve))


def _unit(row: Mapping[str, Any]) -> Unit:
    return Unit(target=row["target"], layer=row["layer"], index=row["index"])


def _means(values: Iterable[tuple[Unit, float | None]]) -> dict[Unit, float]:
    found: dict[Unit, list[float]] = defaultdict(list)
    for unit, value in values:
        if value is not None:
            found[unit].append(value)
    return {unit: float(np.mean(each)) for unit, each in found.items()}


def keep(run: Run, asker: Asker | None) -> None:
    made = measure(run, asker)
    document = {
        "agreements": [_plain(one) | {"by_unit": [[asdict(u), v] for u, v in one.by_unit.items()]} for one in made.agreements],
        "selective": [_plain(one) | {"risks": [[at, i.as_list()] for at, i in one.risks]} for one in made.selective],
    }  # fmt: skip
    run.files.write(FILE, json.dumps(document).encode())


def kept(run: Run) -> Reliability:
    """As it was when the run was last evaluated; empty before that."""
    document: dict[str, Any] = run.files.read_json(FILE) or {}
    return Reliability(
        agreements=tuple(
            Agreement(**_intervals(one, by_unit={Unit(**unit): value for unit, value in one["by_unit"]}))
            for one in document.get("agreements", [])
        ),
        selective=tuple(
            Selective(**_intervals(one, risks=tuple((at, Interval.of(i)) for at, i in one["risks"])))
            for one in document.get("selective", [])
        ),
    )


def _plain(one: Agreement | Selective) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in one.__dataclass_fields__ if name not in ("by_unit", "risks")}
    return {name: value.as_list() if isinstance(value, Interval) else _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _intervals(one: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """Lists of three are intervals; a number that was none is none again. others: what stands in place of the document's."""
    made: dict[str, Any] = dict(others)
    for name, value in one.items():
        if name not in others:
            is_interval = isinstance(value, list)
            made[name] = Interval.of(cast(list[Any], value)) if is_interval else math.nan if value is None else value
    return made
