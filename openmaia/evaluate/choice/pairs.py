"""What is to be chosen between: two statements about one unit, and its exemplars."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from openmaia.errors import UsageError
from openmaia.evaluate.claims import Claim, claims
from openmaia.images import Picture, darken_outside
from openmaia.store.records import ImageEntry, Record
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

SHOWN = 10
"""Exemplars of a unit."""
SIDE = 192

OWN, FOREIGN = "own", "of another unit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """exemplars: WebP, darkened outside the unit's mask, the highest first. texts: of the two methods, in their order."""

    unit: Unit
    replicate: int
    exemplars: tuple[bytes, ...]
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """left_out: why units are not among them -> how many."""

    methods: tuple[str, str]
    pairs: tuple[Pair, ...]
    left_out: Mapping[str, int]


def pairs(runs: Sequence[tuple[Run, str]]) -> Pairs:
    """Of one run: each unit's labels against those of the next unit of its layer. Of two: against the other run's of the
    same unit. Raises UsageError for more, and where nothing is left to choose between."""
    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs were given; a choice is between the labels of two runs, or within one")
    methods = (OWN, FOREIGN) if len(runs) == 1 else (runs[0][1], runs[1][1])
    first = _said(runs[0][0])
    other = _foreign(first) if len(runs) == 1 else _said(runs[1][0])
    made: list[Pair] = []
    left_out: dict[str, int] = {}
    for owed, text in sorted(first.items()):
        against = other.get(owed, "")
        why = _unfit(text, against)
        exemplars = () if why else shown_exemplars(runs[0][0].record(owed))
        why = why or ("" if exemplars else "their records show no exemplars")
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            made.append(Pair(unit=owed.unit, replicate=owed.replicate, exemplars=exemplars, texts=(text, against)))
    if not made:
        reasons = "; ".join(f"{count} {why}" for why, count in left_out.items()) or "no investigation is finished"
        raise UsageError(f"{runs[0][0].files.root} gives nothing to choose between: of its units {reasons}")
    return Pairs(methods=methods, pairs=tuple(made), left_out=left_out)


def _said(run: Run) -> dict[Owed, str]:
    return {Owed(unit=claim.unit, replicate=claim.replicate): statement(claim) for claim in claims(run)}


def statement(claim: Claim) -> str:
    """Its labels, or its description where there are none; "" for an abstention."""
    labels = [" ".join(label.split()) for label in claim.labels if label.strip()]
    return "; ".join(labels) or " ".join(claim.description.split())


def _foreign(said: Mapping[Owed, str]) -> dict[Owed, str]:
    """Of the next unit of the layer that says something else, starting over at the end."""
    found: dict[Owed, str] = {}
    for owed, text in said.items():
        same = [
            (one.unit.index, words)
            for one, words in said.items()
            if (one.unit.target, one.unit.layer, one.replicate) == (owed.unit.target, owed.unit.layer, owed.replicate)
            and words
            and words.casefold() != text.casefold()
        ]
        found[owed] = min(same, key=lambda one: (one[0] < owed.unit.index, one[0]))[1] if same else ""
    return found


def _unfit(text: str, against: str) -> str:
    if not text:
        return "without labels"
    if not against:
        return "without labels to choose between"
    return "with the same labels" if text.casefold() == against.casefold() else ""


def shown_exemplars(record: Record) -> tuple[bytes, ...]:
    """The highest, as far as the agent asked for them."""
    pictures = record.pictures
    for call in (call for turn in record.turns for call in turn.calls):
        if call.name == "dataset_exemplars" and json.loads(call.arguments) == ["top"]:
            return tuple(_shown(call.entries, pictures))
    return ()


def _shown(entries: Sequence[ImageEntry], pictures: Mapping[str, Picture]) -> Iterator[bytes]:
    for entry in entries[:SHOWN]:
        picture = pictures.get(entry.original)
        if picture is None or not picture.data:
            continue
        pixels = picture.pixels
        height, width = pixels.shape[:2]
        if entry.mask is not None and len(entry.mask) == height * ((width + 7) // 8):
            rows = np.frombuffer(entry.mask, np.uint8).reshape(height, -1)
            pixels = darken_outside(pixels, np.unpackbits(rows, axis=1, count=width).astype(bool))
        image = Image.fromarray(pixels)
        image.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        # Drawn anew: nothing of the file that it came from is left in it.
        image.save(buffer, "WEBP", quality=80)
        yield buffer.getvalue()
