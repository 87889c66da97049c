"""Biases of classifiers on Ray: investigations as in any sweep, then the tests of what they claim."""

from collections.abc import Callable

from openmaia.apps.bias.run import is_tested, put_to_test
from openmaia.biases import design, matcher, writer
from openmaia.pictures.library import Library
from openmaia.remote.investigator import Job
from openmaia.remote.sweep import Outcome, Testing, sweep
from openmaia.remote.view import View
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore


def bias(config: Config, view: View) -> Outcome:
    """Raises UsageError for what the user can mend."""
    return sweep(config, view, Testing(test=_test, is_done=is_tested))


def _test(job: Job, store: ExemplarStore, library: Library, progress: Callable[[int, int], None]) -> None:
    if is_tested(job.run):
        return
    generator, target = job.pools.generator("bias"), job.pools.target("bias")
    made = matcher(job.config, generator, target)
    put_to_test(job.run, writer(job.config), made, design(job.config, job.config.ray.investigations), progress)
