"""`openmaia run … --estimate`: what the sweep would take, without running any of it."""

from pathlib import Path
from typing import Annotated

import typer

from openmaia.core.errors import UsageError

EstimateFlag = Annotated[
    bool, typer.Option("--estimate", help="Predict duration and GPU hours. Runs and loads nothing.")
]
RatesOption = Annotated[
    str, typer.Option(help="With --estimate: take service times from the records of this run, or from this YAML file.")
]
GpusOption = Annotated[
    str, typer.Option(help="With --estimate: balance the replicas over so many GPUs, such as 8,64,512.")
]
UnitsOption = Annotated[str, typer.Option(help="With --estimate: for so many units, such as 3904,100000.")]
MAX_NUMBER = 1_000_000
"""Largest number of GPUs or units for which an estimate is made."""

FigureOption = Annotated[str, typer.Option(help="With --estimate and --gpus: draw the durations into this SVG file.")]


def print_estimate(config: list[str], rates: str, gpus: str, units: str, figure: str) -> None:
    """Predicts duration and costs of a sweep without loading any model, and prints them.

    A sweep is the execution of all investigations of one config.

    Args:
        config: YAML files and key=value overrides.
        rates: A run directory or a YAML file from which service times (seconds that a request takes) are taken.
            If it is empty, they are taken from the records of the config's own run, or from a built-in table.
        gpus: Numbers of GPUs, separated by commas. A prediction is made for each: that many GPUs are divided among the
            models such that the sweep is fastest. If it is empty, the number of replicas (copies) of each model is
            within the limits of the config.
        units: Numbers of units, separated by commas. If it is empty, the pending investigations of the config count.
        figure: The SVG file into which the durations are drawn. If it is empty, none is drawn.

    No duration is printed if the times of a component are not known.

    Raises:
        UsageError: An argument is invalid, or a number cannot be known without loading the target.
    """
    from openmaia.cli.terminal.costs import show_predictions, show_unknown, show_workload
    from openmaia.config.loading import load
    from openmaia.reporting.costs.estimate import estimate
    from openmaia.reporting.costs.workload import find_workload, pending_units, without_rates

    settings = load(config)
    gpu_counts, unit_counts = _numbers("--gpus", gpus), _numbers("--units", units)
    if figure and len(set(gpu_counts)) < 2:
        raise UsageError("--figure draws durations over numbers of GPUs; give at least two, such as --gpus 8,64,512")
    if figure and not Path(figure).absolute().parent.is_dir():
        raise UsageError(
            f"--figure {figure}: there is no folder {Path(figure).parent}; create it, or give another path"
        )
    source = "as given by --units"
    if not unit_counts:
        pending, source = pending_units(settings)
        if not pending:
            print(f"nothing is pending: {source}")
            return
        unit_counts = [pending]
    work = find_workload(settings, rates)
    if unknown := without_rates(settings, work, is_on_gpus=bool(gpu_counts)):
        show_unknown(unknown, source)
        return
    show_workload(settings, work, source)
    predictions = [estimate(settings, work, count, number) for count in unit_counts for number in gpu_counts or [None]]
    show_predictions(predictions)
    if figure:
        from openmaia.reporting.figures.scaling import scaling

        try:
            Path(figure).write_bytes(scaling(predictions, work.source))
        except (OSError, ValueError) as error:
            raise UsageError(f"--figure {figure} cannot be drawn: {error}") from error
        print(f"figure: {figure}")


def refuse_without_estimate(rates: str, gpus: str, units: str, figure: str) -> None:
    """Raises UsageError if one of these options is not empty. They have no effect without --estimate."""
    for name, given in (("--rates", rates), ("--gpus", gpus), ("--units", units), ("--figure", figure)):
        if given:
            raise UsageError(f"{name} {given} is for --estimate; add that, or leave {name} out")


def _numbers(option: str, given: str) -> list[int]:
    try:
        numbers = [int(part) for part in given.split(",")] if given else []
    except ValueError:
        numbers = [0]
    if any(not 0 < number <= MAX_NUMBER for number in numbers):
        raise UsageError(
            f"{option} {given!r}: expected whole numbers from 1 to {MAX_NUMBER}, such as {option} 8,64,512"
        )
    return numbers
