"""Computes the exemplars of a config in this process."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from openmaia.assembly import datasets, targets
from openmaia.config.schema import Config
from openmaia.core.services import Effects, Generator
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.bank import MeasuredBank, keep_bank, measured_config
from openmaia.exemplars.compute import ExemplarWorker, compute_drives, compute_exemplars
from openmaia.exemplars.shared import ProgressCallback
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


def drives(
    config: Config,
    layers: Sequence[str],
    say: Callable[[str], None],
    progress: ProgressCallback,
    target: "targets.ReadableTarget",
    dataset: ImageDataset,
) -> Effects:
    """Computes what the units of layers raise, after their exemplars, unless it is stored. Returns the target's effects with it."""
    return compute_drives(worker(config, say, target, dataset), layers, progress, say)


def bank(
    config: Config,
    generator: Generator,
    target: "targets.ReadableTarget",
    dataset: ImageDataset,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> MeasuredBank | None:
    """Draws the bank of a config and measures it on all layers of the target, unless that is kept. None: it has none."""
    kept = keep_bank(config, lambda: nullcontext(generator), lambda: dataset, say, partial(progress, "bank"))
    if kept is None:
        return None
    made = worker(measured_config(config, kept), target=target, dataset=kept.dataset())
    measure = partial(progress, "measuring the bank")
    return MeasuredBank.of(kept, compute_exemplars(made, list(target.info().layers), measure, say))
