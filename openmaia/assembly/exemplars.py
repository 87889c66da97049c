"""Computes the exemplars of a config in this process."""

from collections.abc import Callable, Sequence

from openmaia.assembly import datasets, targets
from openmaia.config.schema import Config
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.compute import ExemplarWorker, ProgressCallback, compute_exemplars
from openmaia.exemplars.store import ExemplarStore


def worker(
    config: Config,
    say: Callable[[str], None] = lambda line: None,
    target: "targets.ReadableTarget | None" = None,
    dataset: ImageDataset | None = None,
) -> ExemplarWorker:
    """Returns what computes exemplars. Loads target and images unless they are given."""
    return ExemplarWorker(config, target or targets.target(config), dataset or datasets.image_dataset(config, say))


def make(
    config: Config,
    layers: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
    progress: ProgressCallback = lambda done, total: None,
    target: "targets.ReadableTarget | None" = None,
    dataset: ImageDataset | None = None,
) -> ExemplarStore:
    """Computes the exemplars that the store lacks, and returns it. Loads target and images unless they are given."""
    made = worker(config, say, target, dataset)
    say(made.remark())
    return compute_exemplars(made, layers, progress, say)
