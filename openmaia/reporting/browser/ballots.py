"""The votes that people cast on pages of `openmaia view --votes`: POST /vote.

Threat model. Who knows the token may vote under any name. A vote is a small file in the run directory; the request names no
file, and nothing else is written. Pages of other sites may not (`openmaia.reporting.browser.guard`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import Route

from openmaia.reporting.browser.orders import find_run, make_order_route
from openmaia.runs.control import find_investigation
from openmaia.runs.run import Run
from openmaia.runs.votes import cast_vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """The JSON object that a page sends."""

    run: str
    """The name of the run in the report."""
    unit: str
    """See `openmaia.runs.control.find_investigation`."""
    person: str
    fit: str
    correction: str
    seen: str
    """The digest of the description on the page (`openmaia.runs.results.basis`)."""


def make_vote_route(runs: Sequence[tuple[Run, str]], headers: Mapping[str, str]) -> Route:
    """Returns the route that takes votes on descriptions of these runs, each with its name in the report."""
    named = {name: run for run, name in runs}

    def store(ballot: Ballot) -> None:
        run = find_run(named, ballot.run)
        cast_vote(run, find_investigation(run, ballot.unit), ballot.person, ballot.fit, ballot.correction, ballot.seen)

    return make_order_route("/vote", Ballot, store, headers)
