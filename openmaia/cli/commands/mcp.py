"""`openmaia mcp`."""

import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Annotated

import typer

from openmaia.cli.commands.common import ConfigSources, print_left_out


def mcp(config: ConfigSources, unit: Annotated[str, typer.Option(help="The unit, such as layer4=122.")]) -> None:
    """Serves one unit to an agent of your own, as tools of MCP.

    The tools are those of OpenMAIA's agents, with the same limits. A conversation is an investigation: its record is in the
    run NAME-external-LAYER-INDEX. Messages for people go to stderr.

    Example: openmaia mcp configs/demo.yaml --unit stage4=66
    """
    # stdout belongs to the protocol.
    with redirect_stdout(sys.stderr):
        from openmaia.agent.tasks.task import load as load_task
        from openmaia.checks import named, stages
        from openmaia.config.loading import given_keys, load, refuse_unused_by
        from openmaia.core.errors import UsageError
        from openmaia.core.shipped import install_command
        from openmaia.core.units import Scope
        from openmaia.runs.files import safe

        if find_spec("mcp") is None:
            raise UsageError(f"openmaia mcp needs the package mcp: {install_command('mcp')}")
        sources = [*config, *([] if "backbone.kind" in given_keys(config) else ["backbone.kind=external"])]
        settings = load([*sources, f"units={unit}"])
        refuse_unused_by("openmaia mcp", config)
        if settings.backbone.kind != "external":
            raise UsageError(
                f"backbone.kind={settings.backbone.kind}: the agent of openmaia mcp is its client; leave the key out"
            )
        task = load_task(settings.task.name)
        if task.scope is not Scope.UNIT or task.answer.choices:
            raise UsageError(
                f"task.name={settings.task.name}: openmaia mcp takes tasks about what a unit responds to; openmaia.environment "
                "takes others"
            )
        print_left_out(sources)
        stages.require(named.files(settings), named.inputs(settings))
        settings.name = safe(f"{settings.name}-external-{unit.replace('=', '-')}")
        from openmaia.serving.mcp_server import serve

    serve(settings, unit, lambda line: print(line, file=sys.stderr, flush=True))
