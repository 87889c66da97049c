"""`openmaia doctor`."""

from typing import Annotated

import typer


def doctor(
    config: Annotated[list[str] | None, typer.Argument(help="YAML files and key=value overrides")] = None,
) -> None:
    """What this machine can run, what is missing, and the command that mends it."""
    from openmaia.doctor import examine
    from openmaia.terminal.tables import show_findings

    if not show_findings(examine(config or [])):
        raise SystemExit(1)
