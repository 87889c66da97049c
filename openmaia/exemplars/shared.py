"""What processes without a network need of the computation of exemplars: the driver of a sweep imports this and no torch."""

from collections.abc import Callable, Sequence

from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.lease import held

PORTION_GPU = 4096
"""Number of images of a portion where images of equal shape share a batch: those that wait for others are processed after so
many."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of processed images and the total. Each image counts twice, once in each pass."""


def compute_alone(
    store: ExemplarStore,
    missing: Callable[[], list[str]],
    compute: Callable[[list[str]], None],
    say: Callable[[str], None],
) -> None:
    """Calls `compute` with the layers that a store lacks, under the store's lease.

    While another process computes for the store, this function waits. It then computes what is still missing.
    """
    if missing():
        with held(store.files, say):
            # The other process may have computed some of them.
            if left := missing():
                compute(left)


def attributing(layers: Sequence[str]) -> str:
    """Returns a sentence about what `ExemplarWorker.keep_drives` computes, which may take minutes."""
    return f"computing which classes the units of {', '.join(layers)} raise, once"
