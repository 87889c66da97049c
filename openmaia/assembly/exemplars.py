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
    """Returns an object that computes exemplars.

    The target network and the dataset images are loaded if they are not given. See `make` for the arguments.
    """
    return ExemplarWorker(config, target or targets.target(config), dataset or datasets.image_dataset(config, say))


def make(
    config: Config,
    layers: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
    progress: ProgressCallback = lambda done, total: None,
    target: "targets.ReadableTarget | None" = None,
    dataset: ImageDataset | None = None,
) -> ExemplarStore:
    """Computes the missing exemplars of layers, and returns the store of exemplars.

    Args:
        config: The config of the run.
        layers: Names of layers of the target network. Layers whose exemplars are in the store are not computed again.
        say: Receives messages for the user.
        progress: Called with the number of finished images and the number of all images.
        target: The target network, if it is loaded already.
        dataset: The dataset images, if they are loaded already.
    """
    made = worker(config, say, target, dataset)
    say(made.remark())
    return compute_exemplars(made, layers, progress, say)
