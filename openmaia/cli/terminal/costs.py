"""Prints the cost of a run, and lower bounds of the cost of a sweep."""

from collections.abc import Mapping, Sequence

from openmaia.analysis.costs.beside import count_tested_images
from openmaia.analysis.costs.estimate import CORES, Estimate, PoolWork
from openmaia.analysis.costs.forecast import Forecast
from openmaia.analysis.costs.needs import Needs
from openmaia.analysis.costs.totals import ServiceTime, costs
from openmaia.analysis.costs.workload import Workload
from openmaia.cli.terminal.output import console, say, show_table
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, pools_by_role
from openmaia.core.money import Bill
from openmaia.runs.purse import stored_spending
from openmaia.runs.run import Run


def show_costs(run: Run) -> None:
    """Prints the cost of a run's investigations in one line, if any is finished."""
    total = costs(run.headers())
    if not total.investigations:
        return
    of_gpus, of_replicas = (_listed(total.times, is_on_gpus) for is_on_gpus in (True, False))
    seconds = {"GPU-seconds": of_gpus, "replica-seconds": of_replicas or ("" if of_gpus else "none")}
    spent = "; ".join(f"{unit}: {services}" for unit, services in seconds.items() if services)
    say(
        f"investigations: {spent}; tokens: {total.prompt_tokens:,} prompt ({total.cached_tokens:,} cached), "
        f"{total.generated_tokens:,} generated"
    )
    show_money(run)


def show_money(run: Run) -> None:
    """Prints what a run has cost in money in one line, if it has cost anything."""
    total = costs(run.headers())
    spent = stored_spending(run, total.bill)
    if not spent:
        return
    by_service = ", ".join(
        f"{service} {Bill(usage.dollars, usage.unpriced).words}"
        for service, usage in total.services.items()
        if usage.dollars or usage.unpriced
    )
    each = f", ${total.bill.dollars / total.investigations:,.4f} each" if total.investigations else ""
    say(
        f"cost: {spent.words} in all, with tests and failed calls; {total.investigations} finished investigations "
        f"{total.bill.words}{each}{f' ({by_service})' if by_service else ''}"
    )


def _listed(times: Sequence[ServiceTime], is_on_gpus: bool) -> str:
    return ", ".join(f"{each.service} {each.seconds:,.1f}" for each in times if each.is_on_gpus is is_on_gpus)


def show_workload(config: Config, work: Workload, units: str) -> None:
    """Prints the numbers on which an estimate is based. `units` says how the number of units was determined."""
    say(f"units: {units}")
    say(f"service times: {work.source}")
    for service, pool in work.timed.items():
        fixed = f"{pool.fixed:.3g} s a batch + " if pool.fixed else ""
        calls, requests = work.asked[service]
        measured = f" ({work.sources[service]})" if service in work.sources else ""
        say(
            f"  {service:<10} {fixed}{pool.per_item:.3g} s a request{measured}; an investigation asks {calls:.3g} times, in "
            f"all for {requests:.3g}"
        )
    if not work.timed:
        return
    images = count_tested_images(config)
    first, last = images[0], images[-1]
    looks = f", as if none were decided before the last look ({first} to {last})" if first < last else ""
    say(f"included: the test of each description on 2 x {last} images{looks}")
    # Records of investigations hold no time of a generator that draws test images only.
    drawing = pools_by_role(config)[TEST_GENERATOR]
    if unknown := [service for service in (drawing, "target") if service not in work.timed]:
        say(f"not included in these tests, as no times are known: {', '.join(unknown)}")


def show_unknown(work: Workload, units: str) -> None:
    """Prints that there is no duration, and of which components no times are known. `units` says how their number was
    determined."""
    say(f"units: {units}")
    for service, source in work.sources.items():
        say(f"  {service:<10} {source}")
    for service, words in work.unrated.items():
        say(f"  {service:<10} {words}")
    say(
        "no duration. Investigate a few units (units=… name=pilot), and take the times from their records: --estimate --rates "
        "runs/pilot; or give a file of rates"
    )


def show_forecast(units: int, money: Forecast) -> None:
    """Prints the cost of a sweep in money, if it has any."""
    if money.parts:
        parts = ", ".join(f"{name} ${dollars:,.2f}" for name, dollars in money.parts.items())
        say(f"money: ${money.dollars:,.2f} for {units:,} investigations and their tests ({parts})")
    if money.unknown:
        say(f"money: no price is known for {', '.join(money.unknown)}")
    if money.left_out and (money.parts or money.unknown):
        say(f"money: not included, as its use is not known before: {', '.join(money.left_out)}")


def show_needs(needs: Mapping[int, Needs]) -> None:
    """Prints what sweeps need of cards, memory and disks, by their number of units. Only the run's disk depends on it."""
    one = next(iter(needs.values()))
    if one.memory:
        say(f"memory of a replica: {_figures(one.memory, 'GiB')}; a backbone also needs its KV cache")
    if one.download:
        say(f"weights on disk: {_figures(one.download, 'GB')}; `openmaia doctor CONFIG` asks what is still to download")
    runs = ", ".join(f"{_number(each.disk)} GB for {units:,} investigations" for units, each in needs.items())
    exemplars = "not measured" if one.exemplars is None else f"{_number(one.exemplars)} GB"
    bank = "as large as its photographs" if one.bank is None else f"{_number(one.bank)} GB"
    say(f"disk: {runs} and their tests ({one.disk_source}); exemplars of all units of the layers: {exemplars}")
    say(
        f"disk that runs share: {f'bank {bank}, ' if one.bank != 0 else ''}cached images at most {_number(one.spilled)} GB"
    )
    say(
        f"main memory beside the models: cached images at most {_number(one.cached)} GiB, agents' code at most "
        f"{_number(one.code)} GiB"
    )


def _figures(figures: Mapping[str, float | None], unit: str) -> str:
    return ", ".join(
        f"{service} {'not measured' if figure is None else f'{figure:g} {unit}'}" for service, figure in figures.items()
    )


def show_estimates(estimates: Sequence[Estimate], uncounted: Sequence[str]) -> None:
    """Prints a table with a row for each estimate. If there is only one, also prints a table of its pools. `uncounted`: what
    they leave out, in words.
    """
    columns = ("units", "GPUs", "replicas", "at\nonce", "takes at\nleast", "GPU h\nat least", "bottleneck")
    show_table("", columns, map(_cells, estimates), left=0, whole=columns)
    console.print()
    if estimates[0].services:
        say(f"replicas: {'/'.join(estimates[0].services)}")
    say("at once: investigations that run at the same time")
    if all(each.bottleneck == CORES for each in estimates):
        say("at least: all cores are busy until the end. Start, exemplars, tests and the report are included")
    else:
        say(
            "at least: the bottleneck is busy until the end, and its batches are full. A sweep takes longer: not counted are "
            f"{', '.join(uncounted)}"
        )
    if len(estimates) == 1:
        _show_pools(estimates[0])


def _cells(one: Estimate) -> list[str]:
    return [
        f"{one.units:,}",
        f"{one.gpus:g}" if one.gpus else "none",
        "/".join(str(work.pool.replicas) for work in one.services.values()),
        f"{one.at_once:,}",
        _format_duration(one.seconds),
        _number(one.gpus * one.seconds / 3600) if one.gpus else "",
        one.bottleneck,
    ]


def _show_pools(one: Estimate) -> None:
    def cells(service: str, work: PoolWork) -> tuple[str, ...]:
        hours = work.replica_seconds / 3600
        gpu_hours = _number(hours * work.pool.gpus) if work.pool.gpus else "no GPU"
        replicas, requests = str(work.pool.replicas), f"{work.requests:,.0f}"
        return (
            service,
            replicas,
            requests,
            f"{work.pool.per_request:.3g}",
            _number(hours),
            gpu_hours,
            _format_duration(work.seconds),
        )

    if one.cpu_seconds:
        cores = _format_duration(one.bounds[CORES])
        say(f"the cores: {one.cpu_seconds:,.0f} CPU seconds on {one.cores}: at least {cores}")
    if not one.services:
        return
    columns = ("pool", "replicas", "requests", "s a request", "replica h", "GPU h", "takes at least")
    show_table("", columns, [cells(service, work) for service, work in one.services.items()])
    say(
        f"the agents: {_format_duration(one.alone)} for an investigation that never waits, {one.at_once:,} at once: at least "
        f"{_format_duration(one.agents_seconds)}"
    )
    prompt, cached, generated = one.tokens
    say(f"tokens: {prompt:,.0f} prompt ({cached:,.0f} cached), {generated:,.0f} generated")


def _format_duration(seconds: float) -> str:
    """Formats a duration in seconds, minutes, hours or days, depending on its length."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.2g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} d"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
