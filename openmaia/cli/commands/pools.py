"""`openmaia pools`: models that stay loaded on a cluster between runs."""

from typing import TYPE_CHECKING

import typer

from openmaia.cli.commands.common import ConfigSources, stoppable
from openmaia.cli.commands.help import Command, Group

if TYPE_CHECKING:
    from openmaia.config.schema import Config

pools = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Keeps models loaded on a Ray cluster between runs.\n\n"
    "Example: openmaia pools up configs/demo.yaml ray.address=auto",
)


@pools.command("up", cls=Command)
@stoppable()
def up(config: ConfigSources) -> None:
    """Starts the pools of a config: models that stay loaded on the cluster.

    Runs with the same models use them until `openmaia pools down`.

    Example: openmaia pools up configs/demo.yaml ray.address=auto
    """
    settings = _settings(config)
    from openmaia.assembly import ConfigAssembly
    from openmaia.distributed.cluster.connection import cluster
    from openmaia.distributed.pools import kept

    with cluster(settings):
        print(f"up: {kept.up(settings, ConfigAssembly(), print)}")


@pools.command("down", cls=Command)
@stoppable()
def down(config: ConfigSources) -> None:
    """Ends the pools of a config: models that `openmaia pools up` started and that stay loaded on the cluster.

    Example: openmaia pools down configs/demo.yaml ray.address=auto
    """
    settings = _settings(config)
    from openmaia.distributed.cluster.connection import cluster
    from openmaia.distributed.pools import kept

    with cluster(settings):
        name = kept.pools_name(settings)
        print(f"down: {name}" if kept.down(settings) else f"{name} was not up")


@pools.command("list", cls=Command)
@stoppable()
def list_pools(config: ConfigSources) -> None:
    """Lists the pools (models that stay loaded) on the cluster of a config, with their replicas and requests.

    Example: openmaia pools list configs/demo.yaml ray.address=auto
    """
    settings = _settings(config)
    from openmaia.distributed.cluster.connection import cluster
    from openmaia.distributed.pools import kept

    with cluster(settings):
        for name in kept.names():
            statistics = kept.statistics(name)
            print(name if statistics else f"{name}: starting")
            for role, counts in statistics.items():
                print(f"  {role}: {counts.replicas} ready, {counts.requests} requests, {counts.waiting} waiting")


def _settings(config: list[str]) -> "Config":
    from openmaia import distributed
    from openmaia.config.loading import load

    settings = load(config)
    distributed.prepare(settings.ray.address)
    return settings
