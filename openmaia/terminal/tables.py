"""Tables and lists: units, exemplars, the state of a run, findings."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from openmaia.doctor import Finding
from openmaia.evaluate.run import differences
from openmaia.evaluate.sanity import notes
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.run import Run
from openmaia.store.state import counts, rows
from openmaia.terminal.progress import console
from openmaia.units import Unit

LONGEST = 40
"""Rows that a table of units shows."""


def table(run: Run, resamples: int, *, overall: bool = True) -> None:
    """Units with their labels and both AUCs, as many as a person reads. overall: with the paired difference over all, for
    which all evaluations are read."""
    found = counts(run)
    shown = Table(title=f"run {escape(run.name)}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, justify in _COLUMNS:
        shown.add_column(name, justify=justify, no_wrap=name != "labels", overflow="fold")
    for row in rows(run, found, LONGEST):
        shown.add_row(*_cells(row))
    console.print(shown)
    if found.planned > LONGEST:
        console.print(
            f"{found.planned - LONGEST} units more: openmaia show {escape(run.files.root)} --json, or summary.parquet there",
            highlight=False,
        )
    if any(row["auc"] is not None for row in rows(run, found, LONGEST)):
        _sanity("auc", "auc_minus_other", "difference")
    if not overall:
        return
    difference = differences(run, resamples)
    if difference.mean == difference.mean:
        console.print(
            f"AUC on a description's own images minus AUC on another unit's: mean {difference.mean:+.3f} "
            f"(95 % bootstrap interval {difference.low:+.3f} to {difference.high:+.3f}, over units)",
            highlight=False,
        )
    sizes = run.files.sizes("records")
    if sizes:
        console.print(f"records: {len(sizes)}, {sum(sizes) / len(sizes) / 1e6:.2f} MB per unit", highlight=False)


def _sanity(*metrics: str) -> None:
    if said := notes(metrics):
        console.print(f"by our sanity tests {'; '.join(said)}", highlight=False, style="dim")


_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("unit", "left"),
    ("stop", "left"),
    ("labels", "left"),
    ("pos.", "right"),
    ("neutr.", "right"),
    ("AUC", "right"),
    ("other", "right"),
    ("diff.", "right"),
)
"""Mean activation of positive and of neutral images, AUC on them, AUC on another unit's, and the difference."""


def _cells(row: dict[str, Any]) -> list[str]:
    def number(value: float | None, spec: str) -> str:
        return "" if value is None else format(value, spec)

    paired = None if row["auc"] is None or row["auc_other"] is None else row["auc"] - row["auc_other"]
    return [
        escape(f"{row['layer']}/{row['index']}" + (f" #{row['replicate']}" if row["replicate"] else "")),
        row["stop"] if row["outcome"] in (None, "tested", "abstained") else f"{row['stop']}, {row['outcome']}",
        escape("; ".join(row["labels"])[:60]),
        number(row["positive"], ".3g"),
        number(row["neutral"], ".3g"),
        number(row["auc"], ".2f"),
        number(row["auc_other"], ".2f"),
        number(paired, "+.2f"),
    ]


def exemplars_table(store: ExemplarStore, target: str) -> None:
    """What is there of each layer, and what it takes to read one unit."""
    shown = Table(title=f"exemplars of {escape(target)}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("layer", "units", "dead", "not finite", "ms to read a unit"):
        shown.add_column(name, justify="left" if name == "layer" else "right", overflow="fold")
    count = 0
    for layer in store.layers():
        states = store.states(layer)
        count += len(states)
        began = time.perf_counter()
        read = [Unit(target=target, layer=layer, index=index) for index in sorted(states)[:: max(len(states) // 8, 1)]]
        for unit in read:
            store.read(unit)
        each = (time.perf_counter() - began) / max(len(read), 1) * 1000
        how = Counter(states.values())
        shown.add_row(escape(layer), str(len(states)), str(how["dead"]), str(how["not finite"]), f"{each:.1f}")
    console.print(shown)
    size = store.size()
    console.print(
        f"{escape(store.files.root)}: {size / 1e6:.1f} MB, {size / max(count, 1) / 1e3:.1f} kB per unit",
        highlight=False,
    )


def show_findings(findings: Sequence[Finding]) -> bool:
    """True where nothing is missing."""
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]missing[/]"}
    for finding in findings:
        console.print(f"{marks[finding.state]:<8} {escape(finding.what)}", highlight=False)
        if finding.remedy:
            console.print(f"         {escape(finding.remedy)}", highlight=False, style="dim")
    return all(finding.state != "missing" for finding in findings)
