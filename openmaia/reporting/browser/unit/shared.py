"""What the pages of a run's units show beside their own record and evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from openmaia.core.errors import StoreError
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.evaluation.effects import EFFECTS_FILE, UnitEffect, read_effects
from openmaia.evaluation.faithfulness import FAITHFULNESS_FILE, UnitFaithfulness, read_faithfulness
from openmaia.evaluation.steering import STEERING_FILE, Said, Steering, read_steering
from openmaia.evaluation.storage import StoredTrials
from openmaia.evaluation.trials import Trial
from openmaia.reporting.browser.stores import RunExemplars, find_exemplars
from openmaia.runs.files import safe
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.shared import SharedStore


class RunSources:
    """Exemplars, trials and effects of a run, each read when the first page needs it."""

    def __init__(self, run: Run):
        self._run = run

    @cached_property
    def stored(self) -> RunExemplars:
        """The exemplars of the run's dataset."""
        return find_exemplars(self._run)

    def exemplars(self, unit: Unit) -> UnitExemplars:
        """Returns a unit's exemplars. Raises StoreError if they are missing, outdated or damaged."""
        store = self.stored.store
        if store is None or unit.layer not in self.stored.layers:
            raise StoreError(f"no exemplars of {unit.layer} that this version can read are in {self.stored.place}")
        return store.read(unit)

    def top_pictures(self, layer: str) -> Mapping[int, Sequence[int]]:
        """Returns the numbers of the images that excite each unit of a layer most; empty without exemplars."""
        try:
            return self.stored.store.top_pictures(layer) if self.stored.store else {}
        except StoreError:
            return {}

    @property
    def shared(self) -> SharedStore:
        """The images that agents drew, with the activations of all units of their layer."""
        return SharedStore(self._run.investigations)

    def trials_of(self, target: str, layer: str) -> Iterator[Trial]:
        """Yields the trials of a layer that have images, without these."""
        for trial in self.trials:
            if (trial.claim.unit.target, trial.claim.unit.layer) == (target, layer) and len(trial.matrix):
                yield trial

    @cached_property
    def trials(self) -> StoredTrials:
        """The trials of the run."""
        return StoredTrials(self._run)

    @cached_property
    def effects(self) -> dict[InvestigationId, UnitFaithfulness]:
        """What ablating each unit does; empty if it was not measured."""
        found = read_faithfulness(self._run)
        return (
            {InvestigationId(unit=each.unit, replicate=each.replicate): each for each in found.units} if found else {}
        )

    @cached_property
    def named_effects(self) -> dict[InvestigationId, UnitEffect]:
        """The tests of effects that answers name; empty if none was tested."""
        found = read_effects(self._run)
        return (
            {InvestigationId(unit=each.unit, replicate=each.replicate): each for each in found.units} if found else {}
        )

    @cached_property
    def _steering(self) -> Steering | None:
        return read_steering(self._run)

    @cached_property
    def steered(self) -> dict[Unit, tuple[tuple[Said, ...], ...]]:
        """`SteeredUnit.said` of each unit; empty if it was not measured."""
        return {each.unit: each.said for each in self._steering.units} if self._steering else {}

    @cached_property
    def steered_images(self) -> tuple[tuple[str, bytes], ...]:
        """The digest and the file of each image of `steered`; the file is empty if it is lost."""
        if (found := self._steering) is None:
            return ()
        trial = self.trials.readable(found.trial, images=True)
        kept = {} if trial is None else {each.digest: each.data for each in trial.stimuli}
        return tuple((digest, kept.get(digest, b"")) for digest in found.images)

    def read_times(self, layer: str) -> list[int]:
        """Returns the modification times in nanoseconds of the files that pages of a layer are made from; 0 for a missing
        one."""
        store, own = self.stored.store, self._run.files.local
        root = store.files.local if store else None
        paths = [root / f"{safe(layer)}.{name}.parquet" for name in ("units", "rows")] if root else []
        paths += [own / name for name in (FAITHFULNESS_FILE, EFFECTS_FILE, STEERING_FILE)] if own else []
        return [path.stat().st_mtime_ns if path.exists() else 0 for path in paths]
