"""A whole run on Ray: plan, exemplars, investigations, evaluation. What is done is not done again."""

import threading
from _thread import interrupt_main
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from openmaia import build
from openmaia.agent.attempt import Result
from openmaia.errors import StoreError, UsageError
from openmaia.evaluate.run import evaluate
from openmaia.remote import exemplars
from openmaia.remote.cluster import cluster
from openmaia.remote.drive import drive
from openmaia.remote.preflight import preflight
from openmaia.remote.services import Pools, pools
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.lease import LEASE_SECONDS
from openmaia.store.run import Owed, Run
from openmaia.units import TargetInfo, select

AT_ONCE = 4
"""Units evaluated at once, so that pools get batches to fill."""


class View(Protocol):
    """Whoever looks on: a terminal, a test, nobody."""

    def say(self, line: str) -> None: ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    run: Run
    done: int
    failed: dict[Owed, str]
    was_complete: bool
    """Nothing had to be done."""


def sweep(config: Config, view: View) -> Outcome:
    """Runs what is owed. Raises UsageError for what the user can mend."""
    run = Run.create(config)
    if is_complete(run):
        return Outcome(run=run, done=len(run.done()), failed={}, was_complete=True)
    with _lease(run):
        view.say("starting Ray and loading the models")
        build.library(config, view.say)
        with cluster(config):
            preflight(config, run, view.say)
            plan = partial(_plan, config, run, view)
            store = exemplars.make(config, plan, partial(view.progress, "exemplars"))
            with pools(config) as services:
                results = _investigate(config, run, services, store, view)
                _evaluate(config, run, services, view)
        run.write_summary()
    failed = {result.owed: result.cause for result in results if result.summary is None}
    return Outcome(run=run, done=len(run.done()), failed=failed, was_complete=False)


def is_complete(run: Run) -> bool:
    plan = run.plan()
    return bool(plan) and not run.owed() and run.done() <= run.evaluated()


def _plan(config: Config, run: Run, view: View, info: TargetInfo) -> list[str]:
    """Settles which units the run is about; gives the layers whose exemplars are needed."""
    selection = select(config.units, info)
    if selection.duplicates:
        view.say(f"warning: {selection.duplicates} units were named more than once and run once")
    run.set_plan(selection.units, config.replicates)
    return sorted({owed.unit.layer for owed in run.owed()})


def _investigate(config: Config, run: Run, services: Pools, store: ExemplarStore, view: View) -> list[Result]:
    owed = run.owed()
    total = len(run.plan())
    before = total - len(owed)
    results: list[Result] = []
    view.progress("investigations", before, total)
    for result in drive(config, run, owed, services, store):
        results.append(result)
        labels = ", ".join(result.summary["labels"]) or "(abstained)" if result.summary else f"failed: {result.cause}"
        view.progress("investigations", before + len(results), total, f"{result.owed.unit}: {labels}")
    return results


def _evaluate(config: Config, run: Run, services: Pools, view: View) -> None:
    def progress(done: int, total: int) -> None:
        view.progress("evaluation", done, total)

    evaluate(
        run,
        services.generator("evaluation"),
        services.target("evaluation"),
        n=config.evaluate.n,
        seed=config.seed,
        at_once=AT_ONCE,
        progress=progress,
    )


@contextmanager
def _lease(run: Run) -> Iterator[None]:
    """Held and renewed while the run is driven. Raises UsageError where another driver takes over."""
    lease = run.take_lease()
    ended = threading.Event()
    lost: list[UsageError] = []

    def renew() -> None:
        while not ended.wait(LEASE_SECONDS / 4):
            try:
                lease.renew()
            except StoreError:
                continue  # a moment without the disk; the next renewal may work, and the lease lasts four times as long
            except UsageError as error:
                lost.append(error)
                interrupt_main()
                return

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if lost:
            raise lost[0] from None
        raise
    finally:
        ended.set()
        thread.join()
        lease.release()
