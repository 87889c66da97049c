"""`openmaia benchmark`: a table of agents."""

from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import UNPAID, fail, print_failures, print_left
from openmaia.cli.commands.completion import complete_config

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.distributed.sweep import SweepOutcome
    from openmaia.reporting.agents_table import AgentRow
    from openmaia.runs.run import Run


def benchmark(
    agent: Annotated[
        list[str],
        typer.Argument(
            metavar="AGENT", help="Configs, one for each agent (`openmaia configs`).", autocompletion=complete_config
        ),
    ],
    known: Annotated[
        str, typer.Option(help="Config that names the units. What they respond to has to be known.")
    ] = "scene-graphs",
    units: Annotated[int, typer.Option(min=1, help="Number of units.")] = 20,
    to: Annotated[str, typer.Option(help="CSV file to which rows are added, with a page (.md) beside it.")] = "",
    shared: Annotated[
        list[str] | None, typer.Option("--with", help="YAML file or key=value that holds for all agents.")
    ] = None,
) -> None:
    """Compares agents on units of known truth.

    Each agent investigates the same units, in a run directory of its own. Continues what was stopped, and more --units add to what is done.

    Example: openmaia benchmark searcher plain-search --units 40 --to agents.csv
    """
    from openmaia.assembly.benchmark import benchmark_configs
    from openmaia.assembly.sweeps import run_sweeps
    from openmaia.cli.terminal.benchmark import show_agents
    from openmaia.cli.terminal.output import Terminal, say
    from openmaia.reporting.agents_table import add_rows, check_table

    if to:
        check_table(to)
    configs = benchmark_configs(agent, known, shared or [], units)
    outcomes: dict[str, SweepOutcome] = {}
    for name, settings in configs.items():
        say(f"agent: {name}")
        with Terminal() as terminal:
            outcomes[name] = run_sweeps([settings], terminal)[0]
    rows = [
        _row(known, name, configs[name], each.run)
        for name, each in outcomes.items()
        if not (each.is_unpaid or each.run.pending())
    ]
    show_agents(rows)
    if to and rows:
        print(f"table: {add_rows(to, rows)}")
    any_failed = [name for name, each in outcomes.items() if print_failures(each.run)]
    unpaid = [configs[name] for name, each in outcomes.items() if each.is_unpaid]
    for each in unpaid:
        print_left(each)
    if any_failed:
        fail(f"no row for {', '.join(any_failed)}; run the same command again to repeat what failed", 1)
    if unpaid:
        raise SystemExit(UNPAID)


def _row(known: str, agent: str, settings: "Config", run: "Run") -> "AgentRow":
    from datetime import date

    from openmaia.analysis.benchmark import score_agent
    from openmaia.assembly.backbones import backbone_name
    from openmaia.assembly.benchmark import source_name
    from openmaia.reporting.agents_table import AgentRow

    return AgentRow(
        known=source_name(known),
        agent=agent,
        backbone=backbone_name(settings),
        units=run.planned(),
        measured=date.today().isoformat(),
        values=score_agent(run, settings.evaluate.bootstrap),
    )
