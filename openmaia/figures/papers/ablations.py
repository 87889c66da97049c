"""The table of an ablation as CSV: ours and the published ones, told apart by the column `source`."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from openmaia.evaluate.ablation import Row
from openmaia.evaluate.bootstrap import Interval
from openmaia.figures.papers import published

INTERVALS = ("positive", "neutral", "auc", "positive_against", "against")


def as_csv(found: Sequence[Row], network: str) -> bytes:
    columns = ["source", "network", "tool_set", "units", "tested"]
    columns += [f"{name}{end}" for name in INTERVALS for end in ("", "_low", "_high")]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    for row in found:
        line: dict[str, Any] = {"source": "ours", "network": network, "tool_set": row.name}
        line |= {"units": row.units, "tested": row.tested}
        for name in INTERVALS:
            one: Interval | None = getattr(row, name)
            line |= dict(
                zip([name, f"{name}_low", f"{name}_high"], one.as_list() if one else ["", "", ""], strict=True)
            )
        writer.writerow(line)
    for cell in published.ablations():
        line = {"source": cell.source, "network": cell.network, "tool_set": cell.method}
        writer.writerow(line | {"positive": cell.positive, "neutral": cell.neutral})
    return stream.getvalue().encode()
