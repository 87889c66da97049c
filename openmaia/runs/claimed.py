"""Stores descriptions by other methods in run directories RUN/claims/METHOD, each with the config of RUN."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from openmaia.config.loading import restore, to_dict, to_yaml
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.runs.files import safe
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import InvestigationId, Run

_CLAIMS = "claims"


def claim_runs(run: Run) -> list[Run]:
    """Returns the run directories in RUN/claims, sorted by name."""
    found = [Run(run.files.inside(f"{_CLAIMS}/{name}")) for name in run.files.folders(_CLAIMS)]
    return [each for each in found if each.files.exists("config.yaml")]


def with_claim_runs(runs: Iterable[Run]) -> list[Run]:
    """Returns each run, followed by the run directories in its folder `claims`."""
    return [each for run in runs for each in (run, *claim_runs(run))]


def claim_record(run: Run, unit: Unit, method: str, description: str, labels: tuple[str, ...]) -> Record:
    """Returns a record without turns of a claim."""
    config = run.config()
    return Record(
        unit=unit,
        replicate=0,
        stop=Stop.ANSWER,
        cause="",
        description=description,
        labels=labels,
        backbone=method,
        task=str(config["task"]["name"]),
        sandbox="none (no agent)",
        prompts=(),
        turns=(),
        config=config,
        started=time.time(),
        notes=(f"The description was given as a claim of {method}; no agent of this program made it.",),
    )


def add_claims(run: Run, method: str, records: Sequence[Record]) -> Run:
    """Stores a method's claims beside a run, and returns the method's run directory.

    Raises UsageError if that directory holds a different description of one of the units.
    """
    made = Run(run.files.inside(f"{_CLAIMS}/{safe(method)}"))
    made.files.create()
    config = replace(restore(run.config(), run.files.root), name=safe(method))
    made.files.write("config.yaml", to_yaml(config).encode())
    known = {InvestigationId.of_row(row): row for row in made.headers()}
    for record in records:
        investigation = InvestigationId(unit=record.unit, replicate=record.replicate)
        row = known.get(investigation)
        if row is None:
            made.publish(replace(record, config=to_dict(config)))
        elif (row["description"], tuple(row["labels"])) != (record.description, record.labels):
            raise UsageError(
                f"{made.files.root} holds another description of {record.unit}, {row['description'][:80]!r}; give the new one "
                "under another method, or remove that folder"
            )
    made.set_plan(sorted({each.unit for each in made.done()}), 1)
    return made
