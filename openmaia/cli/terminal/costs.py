"""Prints the cost of a run, and the predicted cost of a sweep."""

from collections.abc import Sequence

from openmaia.cli.terminal.output import console, say, show_table
from openmaia.config.schema import Config
from openmaia.reporting.costs.estimate import Prediction, tested_images
from openmaia.reporting.costs.workload import Workload
from openmaia.reporting.totals import costs
from openmaia.runs.run import Run

INVESTIGATIONS = "ray.investigations"
"""The config key that is shown as the bottleneck if no service is one: too few investigations run at the same time."""


def show_costs(run: Run) -> None:
    """Prints the cost of a run's investigations in one line. Prints nothing if none is finished."""
    total = costs(run.headers())
    if not total.investigations:
        return
    seconds = {
        service: usage.gpu_seconds if total.gpu_seconds else usage.seconds for service, usage in total.services.items()
    }
    services = ", ".join(f"{service} {spent:,.1f}" for service, spent in seconds.items())
    say(
        f"investigations: {'GPU-seconds' if total.gpu_seconds else 'replica-seconds'}: {services or 'none'}; "
        f"tokens: {total.prompt_tokens:,} prompt ({total.cached_tokens:,} cached), {total.generated_tokens:,} generated"
    )


def show_workload(config: Config, work: Workload, units: str) -> None:
    """Prints the numbers on which the estimated cost of a sweep (all investigations of one config) is based.

    Args:
        config: The config of the sweep.
        work: The requests to the models, and the seconds per request, on which the estimate is based.
        units: Says how the number of units was determined.
    """
    say(f"units: {units}")
    say(f"service times: {work.source}")
    for service, pool in work.timed.items():
        fixed = f"{pool.fixed:.3g} s a batch + " if pool.fixed else ""
        say(f"  {service:<10} {fixed}{pool.per_item:.3g} s a request")
    images = tested_images(config)
    first, last = images[0], images[-1]
    looks = f", as if none were decided before the last look ({first} to {last})" if first < last else ""
    say(
        f"included: the test of each description on 2 x {last} images{looks}. Not included: exemplars, loading, failures"
    )


def show_unknown(components: Sequence[str], units: str) -> None:
    """Prints that the duration of a sweep cannot be estimated, because the times of some components are not known.

    Args:
        components: The settings that choose these components.
        units: Says how the number of units was determined.
    """
    say(f"units: {units}")
    say(f"no duration: no service times are known for {', '.join(components)}")
    say(
        "investigate a few units (units=… name=pilot), and take the times from their records: --estimate --rates "
        "runs/pilot; or give a file of rates"
    )


def show_predictions(predictions: Sequence[Prediction]) -> None:
    """Prints a table of predicted durations and costs of a sweep (all investigations of one config).

    Each prediction has a row. If there is only one, also prints a table of the models that the sweep calls.
    """
    columns = ("units", "GPUs", "replicas", "at\nonce", "duration", "GPU h", "busy", "one by\none", "waits for")
    show_table("", columns, map(_cells, predictions), left=0, whole=columns)
    console.print()
    say(f"replicas: {'/'.join(predictions[0].services)}. at once: investigations that run at the same time")
    if any(prediction.gpus for prediction in predictions):
        say(
            "GPU h: all GPUs until the end, and which share of them is busy. one by one: as many GPUs, each with all "
            "models, if they fit, and one investigation after the other"
        )
    if len(predictions) == 1:
        _show_services(predictions[0])


def _cells(prediction: Prediction) -> list[str]:
    reserved = prediction.gpus * prediction.seconds / 3600
    busy = sum(use.hours * use.pool.gpus for use in prediction.services.values())
    low, high = prediction.interval
    return [
        f"{prediction.units:,}",
        f"{prediction.gpus:g}" if prediction.gpus else "none",
        "/".join(str(use.pool.replicas) for use in prediction.services.values()),
        f"{prediction.at_once:,}",
        clock(prediction.seconds) + (f"\n({clock(low)} to {clock(high)})" if low < high else ""),
        _number(reserved) if prediction.gpus else "",
        f"{busy / reserved:.0%}" if reserved else "",
        "" if prediction.serial is None else clock(prediction.serial),
        prediction.bottleneck or INVESTIGATIONS,
    ]


def _show_services(prediction: Prediction) -> None:
    cells = [
        (
            service,
            str(use.pool.replicas),
            f"{use.requests:,.0f}",
            _number(use.hours),
            _number(use.hours * use.pool.gpus) if use.pool.gpus else "no GPU",
            f"{use.hours / (prediction.seconds / 3600 * use.pool.replicas):.0%}" if prediction.seconds else "",
        )
        for service, use in prediction.services.items()
    ]
    show_table("", ("service", "replicas", "requests", "replica h", "GPU h", "busy"), cells)
    prompt, cached, generated = prediction.tokens
    say(f"tokens: {prompt:,.0f} prompt ({cached:,.0f} cached), {generated:,.0f} generated")
    say(f"of the duration, testing descriptions: {clock(prediction.evaluation)}")


def clock(seconds: float) -> str:
    """Formats a duration in seconds, minutes, hours or days, depending on its length."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.2g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} d"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
