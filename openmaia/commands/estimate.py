"""`openmaia run … --estimate`: what the sweep would take, without running any of it."""

from pathlib import Path
from typing import Annotated

import typer

from openmaia.errors import UsageError

Estimate = Annotated[bool, typer.Option("--estimate", help="predict duration and GPU hours; runs and loads nothing")]
Rates = Annotated[str, typer.Option(help="with --estimate: service times from a run's records, or from a YAML file")]
Gpus = Annotated[str, typer.Option(help="with --estimate: balance the replicas over so many GPUs, such as 8,64,512")]
Units = Annotated[str, typer.Option(help="with --estimate: for so many units, such as 3904,100000")]
Figure = Annotated[str, typer.Option(help="with --estimate, --gpus: draw the durations into this SVG file")]


def estimate(config: list[str], rates: str, gpus: str, units: str, figure: str) -> None:
    """Raises UsageError for what cannot be told without loading something."""
    from openmaia.config import load
    from openmaia.costs import sweep
    from openmaia.terminal.costs import show_estimates, show_source

    settings = load(config)
    cards = _numbers("--gpus", gpus)
    counts = _numbers("--units", units)
    if figure and len(cards) < 2:
        raise UsageError("--figure draws durations over numbers of GPUs; give at least two, such as --gpus 8,64,512")
    known = sweep.owed(settings) if not counts else None
    if known is not None and not known.units:
        print(f"nothing is owed: {known.about}")
        return
    found = sweep.workload(settings, rates)
    show_source(settings, found, known.about if known else "units as given by --units")
    predictions = [
        sweep.estimate(settings, found, count, number)
        for count in counts or ([known.units] if known else [])
        for number in cards or [None]
    ]
    show_estimates(predictions)
    if figure:
        from openmaia.figures.scaling import scaling

        Path(figure).write_bytes(scaling(predictions, found.source))
        print(f"figure: {figure}")


def refuse(rates: str, gpus: str, units: str, figure: str) -> None:
    """Options that belong to an estimate do nothing for a run."""
    for name, given in (("--rates", rates), ("--gpus", gpus), ("--units", units), ("--figure", figure)):
        if given:
            raise UsageError(f"{name} {given} is for --estimate; add that, or leave {name} out")


def _numbers(option: str, given: str) -> list[int]:
    try:
        numbers = [int(part) for part in given.split(",")] if given else []
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise UsageError(f"{option} {given!r}: expected whole numbers above 0, such as {option} 8,64,512")
    return numbers
