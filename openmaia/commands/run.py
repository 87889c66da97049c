"""`openmaia run`."""

import sys
from itertools import islice

from openmaia.commands import estimate as estimates
from openmaia.commands.common import Config, stoppable
from openmaia.commands.report import write

FAILURES = 20
"""So many failed units are named at the end."""


def run(
    config: Config,
    estimate: estimates.Estimate = False,
    rates: estimates.Rates = "",
    gpus: estimates.Gpus = "",
    units: estimates.Units = "",
    figure: estimates.Figure = "",
) -> None:
    """A whole sweep on Ray: exemplars, investigations, evaluation, report. Resumes by itself. A file with `sweeps: [A.yaml,
    B.yaml]` runs several side by side, with a run directory each."""
    if estimate:
        estimates.estimate(config, rates, gpus, units, figure)
        return
    estimates.refuse(rates, gpus, units, figure)
    with stoppable():
        if _run(config):
            raise SystemExit(1)


def _run(config: list[str]) -> bool:
    """Whether anything failed."""
    from openmaia.config import load_sweeps

    settings = load_sweeps(config)
    from openmaia.remote.sweep import sweeps
    from openmaia.terminal.costs import show_costs
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.tables import table

    with Terminal() as terminal:
        outcomes = sweeps(settings, terminal)
        done = sum(outcome.done for outcome in outcomes)
        complete = all(outcome.was_complete for outcome in outcomes)
        terminal.say("everything was done already" if complete else f"{done} investigations done")
    failed = 0
    for outcome, its in zip(outcomes, settings, strict=True):
        page = write([outcome.run.files.root])
        table(outcome.run, its.evaluate.bootstrap)
        show_costs(outcome.run)
        failures = outcome.failed
        for owed, cause in islice(failures.items(), FAILURES):
            print(f"failed: {owed.unit}: {cause.splitlines()[0]}", file=sys.stderr)
        if len(failures) > FAILURES:
            print(f"failed: {len(failures) - FAILURES} more (openmaia show {outcome.run.files.root})", file=sys.stderr)
        failed += len(failures)
        print(f"report: {page}")
    return failed > 0
