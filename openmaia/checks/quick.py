"""The checks that take about a second and load nothing. `openmaia doctor` prints them, and a run begins with them."""

from collections.abc import Container, Sequence

from openmaia.checks import server
from openmaia.config.schema import Config
from openmaia.core.checks import Check
from openmaia.core.errors import UsageError
from openmaia.distributed.launchers.requirements import installed, missing_files, missing_packages

HERE = ("local", "auto")
"""Values of `ray.address` with which models run on this machine. The nodes of other clusters may reach other servers."""


def quick_checks(config: Config, distributions: Container[str], *, waits: bool = False) -> list[Check]:
    """Checks packages, modules of the user, files, disks, and whether the servers of models and Ray answer.

    Args:
        config: The config.
        distributions: The canonical names of the installed distributions.
        waits: Whether to tolerate a server that is slow or overloaded, as a run does, which waits for it.
    """
    results = [*missing_packages(config, distributions), *missing_files(config)]
    if waits:  # a run connects to Ray next, and says itself if nobody answers
        return [*results, *(server.components(config, waits=True) if config.ray.address in HERE else ())]
    return [*results, *server.components(config), *server.ray_cluster(config.ray.address)]


def require(configs: Sequence[Config]) -> None:
    """Checks what a run of these configs needs, before anything is started.

    Raises:
        UsageError: Something is missing. The message names all of it.
    """
    distributions = installed()
    found = [result for config in configs for result in quick_checks(config, distributions, waits=True)]
    if missing := list(dict.fromkeys(result.message for result in found if result.state == "missing")):
        raise UsageError(
            missing[0] if len(missing) == 1 else "\n".join([f"{len(missing)} things are missing:", *missing])
        )
