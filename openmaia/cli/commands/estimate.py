"""`openmaia run … --estimate`: what the sweep would take at least, without running any of it."""

from typing import Annotated

import typer

from openmaia.core.errors import UsageError

EstimateFlag = Annotated[
    bool, typer.Option("--estimate", help="Bound duration and GPU hours from below. Runs and loads nothing.")
]
RatesOption = Annotated[
    str, typer.Option(help="With --estimate: take service times from the records of this run, or from this YAML file.")
]
GpusOption = Annotated[
    str, typer.Option(help="With --estimate: balance the replicas over so many GPUs, such as 8,64,512.")
]
UnitsOption = Annotated[str, typer.Option(help="With --estimate: for so many units, such as 3904,100000.")]
CardOption = Annotated[
    str, typer.Option(help="With --estimate: the card of the GPUs, such as h200. Default: any that was measured.")
]
_MAX_NUMBER = 1_000_000


def print_estimate(config: list[str], rates: str, gpus: str, units: str, card: str) -> None:
    """Prints lower bounds of the duration and costs of a sweep, or of which component no time is known, and what it needs.

    Args:
        rates: A run directory or a YAML file with service times. If it is empty, they come from the records of the config's
            own run, or from a built-in table.
        gpus: Numbers separated by commas; each is divided among the pools. If it is empty, the config sets the numbers of
            replicas.
        units: Numbers separated by commas. If it is empty, the pending investigations of the config count.
        card: The card of the GPUs. If it is empty, any card on which a component was measured.

    Raises:
        UsageError: An argument is invalid, or a number cannot be known without loading the target.
    """
    from openmaia.analysis.costs.beside import list_uncounted
    from openmaia.analysis.costs.estimate import Estimate, estimate
    from openmaia.analysis.costs.forecast import forecast
    from openmaia.analysis.costs.needs import find_needs
    from openmaia.analysis.costs.workload import count_pending, find_workload
    from openmaia.cli.terminal.costs import show_estimates, show_forecast, show_needs, show_unknown, show_workload
    from openmaia.config.loading import load

    settings = load(config)
    gpu_counts, unit_counts = _numbers("--gpus", gpus), _numbers("--units", units)
    source = "as given by --units"
    if not unit_counts:
        pending, source = count_pending(settings)
        if not pending:
            print(f"nothing is pending: {source}")
            return
        unit_counts = [pending]
    work = find_workload(settings, rates, card, is_on_gpus=bool(gpu_counts))
    found: list[Estimate] = []
    if work.unrated:
        show_unknown(work, source)
    else:
        show_workload(settings, work, source)
        found = [estimate(settings, work, count, number) for count in unit_counts for number in gpu_counts or [None]]
        show_estimates(found, list_uncounted(settings, work))
    timed = {each.units: each for each in found}
    for count in unit_counts:
        show_forecast(count, forecast(settings, work, count, timed.get(count)))
    show_needs({count: find_needs(settings, work, count) for count in unit_counts})


def refuse_without_estimate(rates: str, gpus: str, units: str, card: str) -> None:
    """Raises UsageError if one of these options is not empty. They have no effect without --estimate."""
    for name, given in (("--rates", rates), ("--gpus", gpus), ("--units", units), ("--card", card)):
        if given:
            raise UsageError(f"{name} {given} is for --estimate; add that, or leave {name} out")


def _numbers(option: str, given: str) -> list[int]:
    try:
        numbers = [int(part) for part in given.split(",")] if given else []
    except ValueError:
        numbers = [0]
    if any(not 0 < number <= _MAX_NUMBER for number in numbers):
        raise UsageError(
            f"{option} {given!r}: expected whole numbers from 1 to {_MAX_NUMBER}, such as {option} 8,64,512"
        )
    return numbers
