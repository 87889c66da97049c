"""A run of which config and records are read once, for views that show it as a whole."""

from dataclasses import dataclass, field
from typing import Any

from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import Run


@dataclass(slots=True)
class _Read:
    done: set[InvestigationId] | None = None
    summaries: dict[InvestigationId, dict[str, Any]] | None = None
    identities: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])


@dataclass(frozen=True, slots=True)
class Snapshot(Run):
    """A run whose records are those at the time of the first question for them. Tests are read each time."""

    _read: _Read = field(default_factory=_Read, init=False, repr=False, compare=False)

    @classmethod
    def of_run(cls, run: Run) -> "Snapshot":
        """Returns `run` itself if it is one."""
        return run if isinstance(run, Snapshot) else cls(run.files, run.source)

    def identity(self, *without: str) -> str:
        if without not in self._read.identities:
            self._read.identities[without] = Run.identity(self, *without)
        return self._read.identities[without]

    def done(self) -> set[InvestigationId]:
        if self._read.done is None:
            self._read.done = Run.done(self)
        return self._read.done

    def is_done(self, investigation: InvestigationId) -> bool:
        return investigation in self.done()

    def headers(self) -> list[dict[str, Any]]:
        return list(self._summaries().values())

    def summary(self, investigation: InvestigationId) -> dict[str, Any] | None:
        return self._summaries().get(investigation)

    def _summaries(self) -> dict[InvestigationId, dict[str, Any]]:
        if self._read.summaries is None:
            done = self.done()  # first: a record that is written meanwhile is left out of both
            found = {InvestigationId.of_row(row): row for row in Run.headers(self)}
            self._read.summaries = {each: row for each, row in found.items() if each in done}
        return self._read.summaries
