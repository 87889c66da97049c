"""What a run has cost, and what one would."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from openmaia.costs.estimate import Prediction
from openmaia.costs.sample import Range
from openmaia.costs.totals import costs
from openmaia.costs.workload import Workload
from openmaia.schema import Config
from openmaia.store.run import Run
from openmaia.terminal.progress import console

INVESTIGATIONS = "ray.investigations"
"""What services wait for where too few investigations are under way."""


def show_costs(run: Run) -> None:
    """One line; nothing where nothing was recorded."""
    found = costs(run.headers())
    if not found.investigations:
        return
    unit = "GPU-seconds" if found.is_on_gpus else "replica-seconds"
    services = ", ".join(
        f"{service} {spent.gpu_seconds if found.is_on_gpus else spent.seconds:,.1f}"
        for service, spent in found.services.items()
    )
    _say(
        f"investigations: {unit}: {services or 'none'}; tokens: {found.prompt_tokens:,} prompt "
        f"({found.cached_tokens:,} cached), {found.generated_tokens:,} generated"
    )


def show_source(config: Config, workload: Workload, about: str) -> None:
    _say(f"units: {escape(about)}")
    _say(f"service times: {escape(workload.source)}")
    for service, times in workload.times.items():
        each = f"{times.per_item:.3g} s a request"
        _say(f"  {service:<10} {f'{times.fixed:.3g} s a batch + ' if times.fixed else ''}{each}")
    images = config.evaluate.n
    _say(f"included: the test of each description on 2 x {images} images. Not included: exemplars, loading, failures")


def show_estimates(predictions: Sequence[Prediction]) -> None:
    """A table of all, and for a single one a table of its services."""
    services = list(predictions[0].services)
    names: dict[str, JustifyMethod] = {"units": "right", "GPUs": "right", "replicas": "left", "at once": "right"}
    names |= {"duration": "right", "GPU h": "right", "busy": "right", "one by one": "right", "waits for": "left"}
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for name, justify in names.items():
        shown.add_column(name, justify=justify, overflow="fold", no_wrap=name in ("duration", "replicas", "waits for"))
    for prediction in predictions:
        serial = prediction.serial
        shown.add_row(
            f"{prediction.units:,}",
            f"{prediction.gpus:g}" if prediction.gpus else "none",
            "/".join(str(prediction.services[service].pool.replicas) for service in services),
            f"{prediction.at_once:,}",
            _interval(prediction.duration),
            _number(prediction.reserved) if prediction.gpus else "",
            f"{prediction.gpu_hours / prediction.reserved:.0%}" if prediction.gpus else "",
            "" if serial is None else clock(serial),
            prediction.bottleneck or INVESTIGATIONS,
        )
    console.print(shown, "")
    _say(f"replicas: {'/'.join(services)}. at once: investigations under way")
    if any(prediction.gpus for prediction in predictions):
        _say(
            "GPU h: all GPUs until the end, and which share of them is busy. one by one: as many GPUs, each with all "
            "models, if they fit, and one investigation after the other"
        )
    if len(predictions) == 1:
        _show_services(predictions[0])


def _show_services(prediction: Prediction) -> None:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("service", "replicas", "requests", "replica h", "GPU h", "busy"):
        shown.add_column(name, justify="left" if name == "service" else "right")
    for service, use in prediction.services.items():
        shown.add_row(
            service,
            str(use.pool.replicas),
            f"{use.requests:,.0f}",
            _hours(use.hours),
            _hours(use.gpu_hours) if use.pool.gpus else "no GPU",
            f"{use.utilisation:.0%}",
        )
    console.print(shown)
    prompt, cached, generated = prediction.tokens
    _say(f"tokens: {prompt.value:,.0f} prompt ({cached.value:,.0f} cached), {generated.value:,.0f} generated")
    _say(f"of the duration, testing descriptions: {clock(prediction.evaluation)}")


def clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.2g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} d"


def _interval(seconds: Range) -> str:
    value = clock(seconds.value)
    return f"{value} ({clock(seconds.low)} to {clock(seconds.high)})" if seconds.is_known else value


def _hours(hours: Range) -> str:
    value = _number(hours.value)
    return f"{value} ({_number(hours.low)} to {_number(hours.high)})" if hours.is_known else value


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _say(line: str) -> None:
    console.print(line, highlight=False)
