"""`openmaia doctor`: what this machine lacks for a config."""

import socket
from collections.abc import Sequence
from typing import Annotated

import typer

from openmaia.cli.commands.common import fail
from openmaia.cli.commands.completion import complete_config
from openmaia.core.errors import UsageError

_DOWNLOAD_SECONDS = 6 * 3600.0
"""Time limit for the downloads of all nodes."""


def doctor(
    config: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIG", help="YAML files and key=value overrides.", autocompletion=complete_config),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Do not check, but download the weights that the config names: on this machine, or on each node of the "
            "cluster at ray.address.",
        ),
    ] = False,
) -> None:
    """Checks what a config lacks here, or downloads its weights.

    It checks this machine. Without a config, only the machine is checked. The checks say what to do, and load no weights. --download leaves out
    what is in the cache of the node already (HF_HOME, TORCH_HOME).

    Examples:

    openmaia doctor configs/resnet152.yaml configs/models/gemma3-27b.yaml

    openmaia doctor configs/resnet152.yaml ray.address=auto --download
    """
    if download:
        if not config:
            raise UsageError(
                "--download fetches the weights that a config names; give a config, such as configs/demo.yaml"
            )
        download_weights(config)
        return
    from openmaia.checks.doctor import examine
    from openmaia.cli.terminal.output import console

    results = examine(config or [])
    styles = {"ok": "green", "note": "yellow", "missing": "red"}
    for result in results:
        console.print(f"{result.state:<8}", style=styles[result.state], end="")
        console.print(result.message, highlight=False, markup=False, soft_wrap=True)
    if any(result.state == "missing" for result in results):
        raise SystemExit(1)


def download_weights(sources: Sequence[str]) -> None:
    """Downloads the weights that a config names, and prints where they are. Exits with code 1 if a download fails."""
    from openmaia import distributed
    from openmaia.checks.download import fetch
    from openmaia.checks.weights import weight_sources
    from openmaia.config.loading import load
    from openmaia.core.components import target_class

    settings = load(sources)
    wanted = list(weight_sources(settings)), target_class(settings.target).library_weights(settings.target)
    if not any(wanted):
        print("this config names no weights that could be downloaded")
        return
    if settings.ray.address == "local":
        failures = _print_downloads(socket.gethostname(), fetch(*wanted))
    else:
        distributed.prepare(settings.ray.address)
        from openmaia.distributed.cluster.connection import cluster
        from openmaia.distributed.cluster.nodes import alive, label, run_on

        with cluster(settings):
            answers = run_on(alive(), fetch, lambda node: wanted, _DOWNLOAD_SECONDS)
            failures = [
                failure
                for node, lines, problem in answers
                for failure in _print_downloads(label(node), [(False, problem)] if problem else lines)
            ]
    if failures:
        fail(f"{len(failures)} downloads failed; the lines above say why", 1)


def _print_downloads(node: str, lines: Sequence[tuple[bool, str]]) -> list[str]:
    """Prints (is_there, line) for each download of a node. Returns the lines of those that failed."""
    for is_there, line in lines:
        print(f"{node}: {'' if is_there else 'failed: '}{line}")
    return [line for is_there, line in lines if not is_there]
