"""Finds the exemplars of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.files import safe
from openmaia.runs.run import Run


@dataclass(frozen=True, slots=True)
class RunExemplars:
    """The exemplars of a run's dataset, as far as they still exist."""

    place: str
    """The folder or URL of the store."""
    store: ExemplarStore | None
    """None if it is missing, damaged, or of another version."""
    layers: frozenset[str]
    _known: dict[str, Mapping[Unit, UnitExemplars]] = field(default_factory=dict[str, Mapping[Unit, UnitExemplars]])
    """By layer."""

    def statistics(self, units: Sequence[Unit]) -> dict[Unit, UnitExemplars]:
        """Returns the units that have exemplars with their statistics, in their order. Layers are read once.

        Raises:
            StoreError: The store is damaged.
        """
        for target, layer in dict.fromkeys((unit.target, unit.layer) for unit in units):
            if self.store is not None and layer in self.layers and layer not in self._known:
                self._known[layer] = self.store.statistics(target, layer)
        nothing: Mapping[Unit, UnitExemplars] = {}
        found = {unit: self._known.get(unit.layer, nothing).get(unit) for unit in units}
        return {unit: known for unit, known in found.items() if known is not None}

    def missing(self, layers: Sequence[str]) -> str:
        """Says which of the layers have no exemplars here; empty if all have."""
        lacking = [layer for layer in layers if layer not in self.layers]
        if not lacking:
            return ""
        return (
            f"No exemplars of {', '.join(lacking)} are in {self.place} (any more): "
            "only units whose agent looked at exemplars have images here."
        )


def find_exemplars(run: Run) -> RunExemplars:
    """Finds the store that the config of a run names."""
    config = run.config()
    target, dataset = config["target"]["name"], config["exemplars"]["dataset"] or config["pictures"]["kind"]
    place = f"{config['paths']['exemplars']}/{safe(target)}/{safe(dataset)}"
    try:
        store = ExemplarStore.at(exemplars_root(run, config["paths"]), target, dataset)
        if store.is_current():
            return RunExemplars(place, store, frozenset(store.layers()))
    except (StoreError, UsageError, OSError):
        pass
    return RunExemplars(place, None, frozenset())


def exemplars_root(run: Run, paths: Mapping[str, str]) -> str:
    """Returns the folder of all exemplars that a run's config names.

    A relative path refers to the folder in which the run was started. It is derived from the place of the run
    directory, so that the report can be made in any folder.
    """
    if "://" in paths["exemplars"]:
        return paths["exemplars"]
    folder, runs = user_path(paths["exemplars"]), user_path(paths["runs"])
    root = run.investigations.local
    if folder.is_absolute() or root is None or runs.is_absolute():
        return str(folder)
    start = root.parents[len(runs.parts)] if len(runs.parts) < len(root.parents) else root
    # A folder of this name may lie here, too, with exemplars of another network of that name.
    return str(start / folder if (start / folder).is_dir() or not folder.is_dir() else folder)
