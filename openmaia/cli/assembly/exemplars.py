"""Computes the exemplars of a config in this process."""

from collections.abc import Callable, Sequence

from openmaia.cli.assembly import hosts
from openmaia.config.schema import Config
from openmaia.exemplars.compute import ExemplarWorker, ProgressCallback, compute_exemplars
from openmaia.exemplars.store import ExemplarStore


def worker(config: Config, say: Callable[[str], None] = lambda line: None) -> ExemplarWorker:
    """Loads the target and the images, and returns a worker that computes exemplars. `say` receives messages."""
    return ExemplarWorker(config, hosts.target(config), hosts.library(config, say))


def make(
    config: Config,
    layers: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
    progress: ProgressCallback = lambda done, total: None,
) -> ExemplarStore:
    """Computes exemplars where they are missing, and returns the store of exemplars.

    Args:
        config: The config of the run.
        layers: The names of the layers. Layers whose exemplars are in the store are not computed again.
        say: Receives messages for the user.
        progress: Called with the number of finished and of all images.
    """
    return compute_exemplars(worker(config, say), layers, progress)
