"""The checks of each command, in stages: what one looks at needs what the one before has found. `doctor` makes them all."""

from collections.abc import Container, Iterable, Iterator, Sequence

from openmaia.checks import named, server
from openmaia.config.schema import Config
from openmaia.core.checks import Check
from openmaia.core.errors import UsageError

_HERE = ("local", "auto")
"""Values of `ray.address` with which models run on this machine. The nodes of other clusters may reach other servers."""


def require(*stages: Iterable[Check]) -> None:
    """Makes the checks of one stage after the other.

    Raises:
        UsageError: Something is missing. The message has all that the first such stage lacks.
    """
    for stage in stages:
        if found := list(dict.fromkeys(each.message for each in stage if each.state == "missing")):
            raise UsageError(found[0] if len(found) == 1 else "\n".join([f"{len(found)} problems:", *found]))


def of_run(pending: Sequence[Config], new: Sequence[Config]) -> Iterator[Iterator[Check]]:
    """Yields the stages of a command that runs several configs.

    Args:
        pending: The configs of runs that have not finished.
        new: Those of them whose inputs are read, because their units are not planned yet.
    """
    distributions = named.installed()
    yield (each for config in pending for each in of_machine(config, distributions))
    yield (each for config in new for each in named.inputs(config))
    # Last, because an answer takes longest, and a mistake in the config is the user's to mend whoever answers.
    yield (each for config in pending for each in of_servers(config, waits=True))


def of_machine(config: Config, distributions: Container[str]) -> Iterator[Check]:
    """Yields checks of packages, code, files, folders and disks.

    Args:
        config: The config.
        distributions: The canonical names of the installed distributions.
    """
    yield from named.packages(config, distributions)
    yield from named.files(config)
    yield from named.folders(config)


def of_servers(config: Config, *, waits: bool = False) -> Iterator[Check]:
    """Yields whether the servers of the components answer, and Ray.

    Args:
        config: The config.
        waits: Whether to tolerate a server that is slow or overloaded, as a run does.
    """
    if not waits or config.ray.address in _HERE:
        yield from server.components(config, waits=waits)
    if not waits:  # A run connects to Ray next, and says itself if nobody answers.
        yield from server.ray_cluster(config.ray.address)
