"""What people say of descriptions: a file for each person and investigation in the folder `votes` of a run directory."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.text import printable
from openmaia.core.typed import find_mistyped
from openmaia.runs.ids import InvestigationId
from openmaia.runs.people import checked_name, checked_text
from openmaia.runs.records import dumps
from openmaia.runs.results import basis
from openmaia.runs.run import Run

FOLDER = "votes"
_VERSION = 1
LONGEST_LABEL = 200
"""Number of characters of a correction."""
_LARGEST = 4_000
"""Size in bytes from which on a file is no vote."""


class Fit(StrEnum):
    """What a vote says of a description."""

    YES = "fits"
    PARTLY = "fits in part"
    NO = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A person's vote on the description of an investigation."""

    person: str
    fit: str
    """A `Fit`."""
    correction: str
    """A label that the person thinks fits better; may be empty."""
    time: float
    """In seconds since 1970."""
    basis: str
    """The digest of what was voted on (`openmaia.runs.results.basis`)."""
    version: int = _VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of a run."""

    by_investigation: Mapping[InvestigationId, tuple[Vote, ...]]
    """Those on the present descriptions, in order of the people's names."""
    outdated: int
    """Number of votes on descriptions that were replaced since then."""
    refused: tuple[str, ...]
    """Why files of the folder are no votes."""


def cast_vote(
    run: Run, investigation: InvestigationId, person: str, fit: str, correction: str = "", seen: str = ""
) -> Vote:
    """Stores a vote, in place of an earlier one of the same person on the same investigation.

    `seen` is the digest of what the person saw; empty for the present description. Raises UsageError if the investigation has
    no record, the description was replaced since then, or a value is not allowed.
    """
    name, better = checked_name(person), checked_text(correction, LONGEST_LABEL, "label")
    if fit not in set(Fit):
        raise UsageError(f"expected one of {', '.join(Fit)}")
    row = run.summary(investigation) if run.is_done(investigation) else None
    if row is None:
        raise UsageError(f"{investigation.name} has no description to vote on")
    now = basis(row, run.identity())
    if seen not in ("", now):
        raise UsageError("the description was replaced since this page was loaded; load it again")
    vote = Vote(person=name, fit=fit, correction=better, time=time.time(), basis=now)
    run.investigations.write(_file(investigation, name), dumps(asdict(vote)).encode())
    return vote


def _file(investigation: InvestigationId, person: str) -> str:
    # A name may be longer, encoded, than a file's name may be.
    return f"{FOLDER}/{investigation.path}/{hashlib.sha256(person.casefold().encode()).hexdigest()[:32]}.json"


def read_votes(run: Run, investigation: InvestigationId | None = None) -> Votes:
    """Reads the votes of a run, or on one investigation. Never raises for damaged files: they are in `Votes.refused`."""
    folder = FOLDER if investigation is None else f"{FOLDER}/{investigation.path}"
    found: dict[InvestigationId, list[Vote]] = {}
    refused: list[str] = []
    outdated, identity = 0, ""
    try:
        names = sorted(run.investigations.names(folder))
    except StoreError as error:
        return Votes(by_investigation={}, outdated=0, refused=(printable(error.message),))
    for name in names:
        about = InvestigationId.of_path(name.rpartition("/")[0])
        try:
            if about is None:
                raise StoreError("no vote has this name")
            vote = _read(run, name)
            row = run.summary(about) if run.is_done(about) else None
        except StoreError as error:
            refused.append(printable(f"{run.investigations.path(name)} is no vote: {error.message}"))
            continue
        identity = identity or run.identity()
        if row is not None and vote.basis == basis(row, identity):
            found.setdefault(about, []).append(vote)
        else:
            outdated += 1
    ordered = {each: tuple(sorted(votes, key=lambda vote: vote.person)) for each, votes in sorted(found.items())}
    return Votes(by_investigation=ordered, outdated=outdated, refused=tuple(refused))


def _read(run: Run, name: str) -> Vote:
    data = run.investigations.read(name) or b""
    if len(data) > _LARGEST:
        raise StoreError(f"it has {len(data):,} bytes")
    try:
        values: Any = parse_json(data)
    except ValueError as error:
        raise StoreError(str(error)) from error
    if (problem := find_mistyped(values, Vote)) is not None:
        raise StoreError(f"its values have wrong types ({problem})")
    vote = Vote(**values)
    if vote.version != _VERSION or vote.fit not in set(Fit):
        raise StoreError(f"it is not of version {_VERSION}")
    return vote


def corrections(votes: Votes) -> Iterator[dict[str, str | int]]:
    """Yields a row for each label that a person thinks fits better, as `openmaia evaluate --claims` reads them."""
    for investigation, cast in votes.by_investigation.items():
        for vote in cast:
            if vote.correction:
                unit = investigation.unit
                yield {
                    "layer": unit.layer,
                    "unit": unit.index,
                    "method": f"{vote.person}, correcting #{investigation.replicate}",
                    "description": vote.correction,
                }
