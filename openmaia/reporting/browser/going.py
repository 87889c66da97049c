"""The data file that says how far runs are, which the first page reads once or, where a server renders it, repeatedly."""

import hashlib
import json
import urllib.parse
from collections.abc import Sequence
from typing import Any

from openmaia.reporting.browser.data import make_call
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.state import RunCounts, counts, states, time_left

_SHOWN = 12
"""Largest number of running investigations that are listed."""

ReportedRuns = Sequence[tuple[Run, str, str]]
"""Each run with its name in the report and the folder of its unit pages."""


def make_live_file(places: ReportedRuns) -> bytes:
    """Returns live.js: counts of runs that have not ended, their running investigations, and the version of the state."""
    states = [counts(run) for run, *_ in places]
    going = [
        _describe(state, name, folder, run.is_driven())
        for state, (run, name, folder) in zip(states, places, strict=True)
        if not state.is_finished
    ]
    return make_call("receiveLive", json.dumps({"version": hash_state(states), "runs": going}))


def hash_state(states: Sequence[RunCounts]) -> str:
    """Returns a hash that changes when an investigation begins or ends."""
    state = [
        [one.name, one.planned, one.done, one.failed, one.evaluated, one.repeated, len(one.running)] for one in states
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def make_turn_file(run: Run, investigation: InvestigationId) -> bytes:
    """Returns, as JSON, the state of an investigation and the number of its completed turns that have no record yet."""
    state = states(run, [investigation])[investigation].state
    return json.dumps({"state": state.value, "turns": run.turns_of(investigation)}).encode()


def _describe(state: RunCounts, name: str, folder: str, is_driven: bool) -> dict[str, Any]:
    return {
        "name": name,
        "planned": state.planned,
        "done": state.done,
        "waiting": state.pending,
        "failed": state.failed,
        "tested": state.evaluated,
        "paused": "" if state.paused is None else state.paused.words,
        "driven": is_driven,
        "left": "" if state.seconds_left is None else time_left(state.seconds_left),
        "count": len(state.running),
        "running": [
            [one.investigation.name, urllib.parse.quote(f"{folder}{one.investigation.path}"), one.turn, one.seconds]
            for one in state.running[:_SHOWN]
        ],
    }
