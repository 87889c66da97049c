"""Whole runs on Ray: plan, exemplars, investigations, evaluation. What is done is not done again.

Several sweeps may be driven at once, such as one for each network of a paper. Each has a run directory of its own, the
same as if it had been run alone: it can be resumed, shown, reported and compared by itself. What they share is the
cluster, the processes that investigate, and the pools of backbone, generator and editor; each has its own pool for its
target. Their investigations take turns, so that no pool stands still while another sweep ends.
"""

import threading
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from openmaia import build
from openmaia.agent.attempt import Result
from openmaia.errors import StoreError, UsageError
from openmaia.evaluate.run import evaluate
from openmaia.instruments import design, instruments
from openmaia.pictures.library import Library
from openmaia.remote import exemplars
from openmaia.remote.cluster import cluster
from openmaia.remote.drive import UnderWay, drive
from openmaia.remote.investigator import Job
from openmaia.remote.preflight import preflight
from openmaia.remote.services import shared
from openmaia.remote.view import View
from openmaia.remote.watch import Watched, sampled
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.lease import LEASE_SECONDS
from openmaia.store.progress import Progress
from openmaia.store.run import Owed, Run
from openmaia.tasks.task import load
from openmaia.tracking import start
from openmaia.units import TargetInfo, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    run: Run
    done: int
    was_complete: bool
    """Nothing had to be done."""

    @property
    def failed(self) -> dict[Owed, str]:
        """What failed for good, and why."""
        return self.run.failures()


Test = Callable[[Job, ExemplarStore, Library, Callable[[int, int], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Testing:
    """How what agents found out is put to the test, while the pools are there. is_done: whether no record lacks its test."""

    test: Test
    is_done: Callable[[Run], bool]


def sweep(config: Config, view: View, testing: Testing | None = None) -> Outcome:
    """Runs what is owed. testing: None for the predictive protocol. Raises UsageError for what the user can mend."""
    return sweeps([config], view, testing)[0]


def sweeps(configs: Sequence[Config], view: View, testing: Testing | None = None) -> list[Outcome]:
    """Runs what any of them owes. configs: equal in their machine sections and in what the pools are made from
    (openmaia.config.load_sweeps sees to it)."""
    testing = testing or PREDICTIVE
    runs = [Run.create(config) for config in configs]
    open_ones = [at for at, run in enumerate(runs) if not is_complete(run, testing)]
    if open_ones:
        with ExitStack() as open_now:
            for at in open_ones:
                open_now.enter_context(held(runs[at]))
            watched = [
                Watched(view, open_now.enter_context(start(configs[at], runs[at], view.say))) for at in open_ones
            ]
            _carry_out([configs[at] for at in open_ones], [runs[at] for at in open_ones], view, watched, testing)
    return [
        Outcome(run=run, done=len(run.files.names("records")), was_complete=at not in open_ones)
        for at, run in enumerate(runs)
    ]


def _carry_out(
    configs: Sequence[Config], runs: Sequence[Run], view: View, watched: Sequence[Watched], testing: Testing
) -> None:
    view.say("starting Ray and loading the models")
    libraries = [build.library(config, view.say) for config in configs]
    with cluster(configs[0]):
        for config, run in zip(configs, runs, strict=True):
            preflight(config, run, view.say)
        stores = [
            exemplars.make(
                config, partial(_plan, config, run, view), partial(each.progress, _stage("exemplars", run, runs))
            )
            for config, run, each in zip(configs, runs, watched, strict=True)
        ]
        with shared(configs, view.say) as pools, ExitStack() as sampling:
            for config, each, one in zip(configs, pools, watched, strict=True):
                sampling.enter_context(sampled(each, one.tracker, config.tracking.every))
            jobs = [
                Job(config=config, run=run, pools=each, exemplars=store)
                for config, run, each, store in zip(configs, runs, pools, stores, strict=True)
            ]
            _investigate(jobs, view, watched)
            for job, store, library, one in zip(jobs, stores, libraries, watched, strict=True):
                testing.test(job, store, library, partial(one.progress, _stage("evaluation", job.run, runs)))
    for run in runs:
        run.write_summary()


def _stage(name: str, run: Run, runs: Sequence[Run]) -> str:
    return f"{name} {run.name}" if len(runs) > 1 else name


def is_complete(run: Run, testing: Testing) -> bool:
    return bool(run.planned()) and next(run.to_do(), None) is None and testing.is_done(run)


def _is_verdict(run: Run) -> bool:
    """A choice between given answers says nothing that pictures could be drawn of, and is not tested with any."""
    return bool(load(run.config()["task"]["name"]).answer.choices)


def _plan(config: Config, run: Run, view: View, info: TargetInfo) -> list[str]:
    """Settles which units the run is about; gives the layers whose exemplars are needed."""
    selection = select(config.units, info, load(config.task.name).scope)
    if selection.duplicates:
        view.say(f"warning: {selection.duplicates} units were named more than once and run once")
    run.set_plan(selection.units, config.replicates)
    return sorted({owed.unit.layer for owed in run.to_do()})


def _investigate(jobs: Sequence[Job], view: View, watched: Sequence[Watched]) -> None:
    totals = [job.run.planned() for job in jobs]
    done = [total - sum(1 for _ in job.run.to_do()) for total, job in zip(totals, jobs, strict=True)]
    view.progress("investigations", sum(done), sum(totals))
    written = [Progress(job.run) for job in jobs]

    def look(running: Sequence[UnderWay]) -> None:
        for number, one in enumerate(written):
            one.write([(each.owed, each.since) for each in running if each.job == number])

    try:
        for number, result in drive(jobs[0].config, jobs, look):
            done[number] += 1
            written[number].ended += 1
            watched[number].ended(result)
            watched[number].tracker.progress("investigations", done[number], totals[number])
            view.progress("investigations", sum(done), sum(totals), _said(result))
    finally:
        for one in written:
            one.close()


def _said(result: Result) -> str:
    if result.summary is None:
        return f"{result.owed.unit}: failed: {result.cause}"
    return f"{result.owed.unit}: {', '.join(result.summary['labels']) or '(abstained)'}"


def evaluate_job(job: Job, store: ExemplarStore, library: Library, progress: Callable[[int, int], None]) -> None:
    if _is_verdict(job.run) or job.run.done() <= job.run.evaluated():
        return
    generator, target = job.pools.generator("evaluation"), job.pools.target("evaluation")
    tested = instruments(job.config, generator, target, store, library)
    evaluate(job.run, tested, design(job.config, job.config.ray.investigations), progress)


PREDICTIVE = Testing(test=evaluate_job, is_done=lambda run: _is_verdict(run) or run.done() <= run.evaluated())
UNTESTED = Testing(test=lambda job, store, library, progress: None, is_done=lambda run: True)
"""For runs that are tested elsewhere."""


@contextmanager
def held(run: Run) -> Iterator[None]:
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
        with suppress(StoreError):  # it runs out by itself, too
            lease.release()
