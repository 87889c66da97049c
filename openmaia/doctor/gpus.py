"""The GPUs of this machine."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.doctor.finding import Finding, missing, note, ok, spoken

SECONDS = 4.0
QUERY = ("--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
TAKEN = 0.1
"""Of a card's memory in others' hands: more is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """total, free: bytes; free is None where it is not known."""

    name: str
    total: int
    free: int | None


def listed() -> list[Card]:
    """By nvidia-smi, those that CUDA_VISIBLE_DEVICES leaves. Empty where there is none, or no answer in time."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        said = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return cards(said, os.environ.get("CUDA_VISIBLE_DEVICES"))


def cards(said: str, visible: str | None) -> list[Card]:
    """From nvidia-smi's table. visible: numbers or UUIDs; as CUDA does, the list ends at the first that is unknown."""
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    # A card that fails answers with words in place of numbers.
    rows = [row for row in rows if len(row) == 5 and row[3].isdigit() and row[4].isdigit()]
    if visible is not None:
        chosen: list[list[str]] = []
        for wanted in visible.split(","):
            row = next((row for row in rows if wanted.strip() and _is(row, wanted.strip())), None)
            if row is None:
                break
            chosen.append(row)
        rows = chosen
    return [Card(name=name, total=int(total) << 20, free=int(free) << 20) for _, _, name, total, free in rows]


def _is(row: list[str], wanted: str) -> bool:
    return wanted == row[0] or (not wanted.isdigit() and row[1].startswith(wanted))


def findings(by_torch: Sequence[Card] | None, by_driver: Sequence[Card], torch: str) -> list[Finding]:
    """by_torch: None where torch was not asked in time. torch: its version."""
    if by_torch is not None and by_driver and not by_torch:
        return [
            missing(
                f"{_named(by_driver)}: torch {torch} does not see it: it is a build for CPUs, or newer than the driver",
                f"pip install --force-reinstall torch=={torch.partition('+')[0]}, or a newer driver",
            )
        ]
    seen = by_torch or by_driver
    if not seen:
        return [ok("no GPU: networks run on the CPU")]
    taken = [
        note(f"GPU {index} ({card.name}): others hold {spoken(card.total - card.free)} of {spoken(card.total)}")
        for index, card in enumerate(by_driver)
        if card.free is not None and card.total - card.free > TAKEN * card.total
    ]
    return [ok(_named(seen)), *taken]


def _named(seen: Sequence[Card]) -> str:
    kinds = dict.fromkeys((card.name, card.total) for card in seen)
    counts = [(sum((c.name, c.total) == kind for c in seen), *kind) for kind in kinds]
    return "GPUs: " + ", ".join(f"{count} x {name} ({spoken(total)})" for count, name, total in counts)
