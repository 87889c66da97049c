"""Finds the exemplars of a run."""

from collections.abc import Mapping, Sequence

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.paths import user_path
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.files import safe
from openmaia.runs.run import Run


def find_store(run: Run) -> tuple[str, ExemplarStore | None, Sequence[str]]:
    """Returns the folder of a run's exemplars, their store (None if missing or outdated), and the layers in it."""
    config = run.config()
    target, dataset = config["target"]["name"], config["exemplars"]["dataset"] or config["pictures"]["kind"]
    place = f"{config['paths']['exemplars']}/{safe(target)}/{safe(dataset)}"
    try:
        store = ExemplarStore.at(_found(run, config["paths"]), target, dataset)
        return (place, store, store.layers()) if store.is_current() else (place, None, ())
    except (StoreError, UsageError, OSError):
        return place, None, ()


def _found(run: Run, paths: Mapping[str, str]) -> str:
    """Returns the folder of all exemplars that a run's config names.

    A relative path refers to the folder in which the run was started. It is derived from the place of the run
    directory, so that the report can be made in any folder.
    """
    if "://" in paths["exemplars"]:
        return paths["exemplars"]
    folder, runs = user_path(paths["exemplars"]), user_path(paths["runs"])
    root = run.investigations.local
    if folder.is_absolute() or folder.is_dir() or root is None or runs.is_absolute():
        return str(folder)
    start = root.parents[len(runs.parts)] if len(runs.parts) < len(root.parents) else root
    return str(start / folder)
