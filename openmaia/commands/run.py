"""`openmaia run`."""

import sys

from openmaia.commands import estimate as estimates
from openmaia.commands.common import Config, stoppable
from openmaia.commands.report import write


def run(
    config: Config,
    estimate: estimates.Estimate = False,
    rates: estimates.Rates = "",
    gpus: estimates.Gpus = "",
    units: estimates.Units = "",
    figure: estimates.Figure = "",
) -> None:
    """A whole sweep on Ray: exemplars, investigations, evaluation, report. Resumes by itself."""
    if estimate:
        estimates.estimate(config, rates, gpus, units, figure)
        return
    estimates.refuse(rates, gpus, units, figure)
    from openmaia.config import load

    settings = load(config)
    from openmaia.remote.sweep import sweep
    from openmaia.terminal.costs import show_costs
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.tables import table

    with stoppable(), Terminal() as terminal:
        outcome = sweep(settings, terminal)
        terminal.say("everything was done already" if outcome.was_complete else f"{outcome.done} investigations done")
    page = write([outcome.run.files.root])
    table(outcome.run, settings.evaluate.bootstrap)
    show_costs(outcome.run)
    for owed, cause in outcome.failed.items():
        print(f"failed: {owed.unit}: {cause.splitlines()[0]}", file=sys.stderr)
    print(f"report: {page}")
    if outcome.failed:
        raise SystemExit(1)
