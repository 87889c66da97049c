"""Executes complete runs on Ray: plan, exemplars, investigations and evaluation. Finished parts are not repeated.

Sweeps that run together share the cluster, the worker processes and all pools but that of the target. The run directory
of each has the same content as if it had run alone.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from openmaia.agent.loop import InvestigationResult
from openmaia.agent.tasks.task import load
from openmaia.agent.tools.effects import checked_effects
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, prompt_writer
from openmaia.core.errors import OpenMaiaError, OutOfBudget, ServiceError
from openmaia.core.selection import select
from openmaia.core.services import Effects
from openmaia.core.units import TargetInfo
from openmaia.distributed import exemplars
from openmaia.distributed.assembly import Assembly, Progress
from openmaia.distributed.bank import make_bank
from openmaia.distributed.cluster.connection import cluster
from openmaia.distributed.cluster.preflight import preflight
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.kept import kept_or_own_pools
from openmaia.distributed.purse import shared_purse
from openmaia.distributed.scheduler import ActiveInvestigation, Scheduler
from openmaia.distributed.tracking import TrackedProgress, sampled
from openmaia.distributed.worker import SweepContext
from openmaia.evaluation.analysis.agreement import Agreement
from openmaia.evaluation.analysis.reliability import has_reliability, read_agreements
from openmaia.evaluation.analysis.significance import is_current
from openmaia.evaluation.analysis.verdict import write_summary
from openmaia.evaluation.damage import foreign_tests
from openmaia.evaluation.run import compare_claims, needs_models, score_run, unevaluated_claims, untested_claims
from openmaia.exemplars.bank import MeasuredBank
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.tracking import start
from openmaia.runs.control import obeyed, take_retries
from openmaia.runs.lease import held
from openmaia.runs.progress import ProgressFile
from openmaia.runs.purse import RunPurse
from openmaia.runs.run import SUMMARY, InvestigationId, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """The result of a sweep."""

    run: Run
    done: int
    """Number of investigations that have a record."""
    was_complete: bool
    """Whether the run was complete before, so that nothing was done."""
    is_unpaid: bool = False
    """Whether its budget is spent, with investigations or tests that are left."""

    @property
    def failed(self) -> dict[InvestigationId, str]:
        """The investigations that have failed and have no record, each with its error message."""
        return self.run.failures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Testing:
    """Selects how the answers of a sweep are tested."""

    is_done: Callable[[Run], bool]
    """Returns whether the answers in all records of a run have been tested."""
    test: Callable[["Sweep"], None] = lambda sweep: None
    """Tests the answers of a sweep after the last investigation, before the pools end."""
    streams: bool = False
    """Whether each description is tested with generated images as soon as its investigation has ended."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sweep:
    """The state of one sweep."""

    config: Config
    run: Run
    assembly: Assembly
    view: TrackedProgress
    alone: bool = True
    """Whether no other sweep is executed together with it."""
    store: ExemplarStore = field(init=False)
    """Set by `compute_exemplars`."""
    bank: MeasuredBank | None = None
    """Set likewise. None: the config has no bank, or no investigation is pending."""
    preprocessing: str = ""
    """`TargetInfo.preprocessing`."""
    effects: Effects | None = None
    """Set likewise. None: the agent cannot ask for effects."""
    purse: RunPurse | None = None
    """Pays for the bank and for what uses the pools. None: nothing costs anything."""
    pools: Pools = field(init=False)
    total: int = 0
    """Number of planned investigations."""
    done: int = 0
    """Number of investigations that were finished before, or have ended in this sweep."""
    is_unpaid: bool = False
    """See `SweepOutcome.is_unpaid`."""

    def compute_exemplars(self) -> None:
        """Saves the plan of the run, and computes the missing exemplars that its pending investigations need, and the bank."""
        self.view.say(f"loading {self.config.target.name} for its layers and exemplars")
        with exemplars.team(self.config, self.assembly, self.view.say) as workers:
            info = workers.info()
            self.run.bind(info)
            self.preprocessing = info.preprocessing
            if info.preprocessing:
                self.view.say(f"preprocessing of {info.name}: {info.preprocessing}")
            for sentence in info.understood:
                self.view.say(f"{info.name}, {sentence}")
            layers = self.plan(info)
            if self.config.task.effects and layers:
                checked_effects(workers.effects(), layers)
            for remark in workers.remarks():
                self.view.say(remark)
            self.store = workers.compute(layers, partial(self.view.progress, self.stage("exemplars")))
            if self.config.task.effects and layers:
                self.effects = workers.drives(layers)
        if layers:
            self.bank = make_bank(
                self.config, self.assembly, list(info.layers), self.view.say, self._progress, self.purse
            )
        self.total = self.run.planned()
        self.done = self.total - sum(1 for _ in self.run.iter_pending())

    def _progress(self, stage: str, done: int, total: int) -> None:
        self.view.progress(self.stage(stage), done, total)

    def plan(self, info: TargetInfo) -> list[str]:
        """Saves the plan of the run, and returns the layers whose units have pending investigations."""
        selection = select(self.config.units, info, load(self.config.task.name).scope)
        if selection.duplicates:
            self.view.say(f"warning: {selection.duplicates} units were named more than once and run once")
        self.run.set_plan(selection.units, self.config.replicates)
        return sorted({investigation.unit.layer for investigation in self.run.iter_pending()})

    def context(self) -> SweepContext:
        """Returns what worker processes need for this sweep. Its pools must have been set."""
        return SweepContext(
            config=self.config,
            run=self.run,
            pools=self.pools,
            exemplars=self.store,
            bank=self.bank,
            withheld=self.assembly.design(self.config).withheld,
            assembly=self.assembly,
            preprocessing=self.preprocessing,
            effects=self.effects,
        )

    def stage(self, name: str) -> str:
        """Returns the name of a stage for progress messages: with that of the run where several sweeps run together."""
        return name if self.alone else f"{name} {self.run.name}"


def run_sweep(config: Config, assembly: Assembly, view: Progress, testing: Testing | None = None) -> SweepOutcome:
    """Carries out one sweep, as `run_sweeps` does for several."""
    return run_sweeps([config], assembly, view, testing)[0]


def run_sweeps(
    configs: Sequence[Config], assembly: Assembly, view: Progress, testing: Testing | None = None
) -> list[SweepOutcome]:
    """Carries out several sweeps together. What the run directories already hold is not repeated.

    Args:
        configs: One config for each run. Their sections about machines and shared pools must be equal, which
            `load_sweeps` checks.
        assembly: Builds the objects that the configs describe.
        view: Receives messages and progress.
        testing: How the answers are tested; None: with generated images, see `Testing.streams`.

    Returns:
        The outcomes, in the order of the configs.

    Raises:
        UsageError: If a config, the cluster or the environment does not permit the run.
    """
    testing = testing or PREDICTIVE
    runs = [Run.create(config) for config in configs]
    for run in runs:
        take_retries(run, view.say)
    unpaid: set[str] = set()
    incomplete = [at for at, run in enumerate(runs) if not is_complete(run, testing)]
    if incomplete:
        with ExitStack() as leases:
            for at in incomplete:
                leases.enter_context(held(runs[at].investigations))
                leases.enter_context(obeyed(runs[at], view.say))
            sweeps = [
                Sweep(
                    config=configs[at],
                    run=runs[at],
                    assembly=assembly,
                    view=TrackedProgress(view, leases.enter_context(start(configs[at], runs[at], view.say))),
                    alone=len(incomplete) == 1,
                )
                for at in incomplete
            ]
            _run_together(sweeps, view, testing)
            unpaid = {sweep.run.name for sweep in sweeps if sweep.is_unpaid}
    for at, run in enumerate(runs):
        if at not in incomplete and not run.files.exists(SUMMARY):
            write_summary(run)  # the command before was interrupted just there
    return [
        SweepOutcome(
            run=run,
            done=len(run.files.names("records")),
            was_complete=at not in incomplete,
            is_unpaid=run.name in unpaid,
        )
        for at, run in enumerate(runs)
    ]


def _run_together(sweeps: Sequence[Sweep], view: Progress, testing: Testing) -> None:
    for sweep in sweeps:
        sweep.run.files.delete(SUMMARY)  # it lacks what follows, and would look complete after an interruption
    tested = [sweep for sweep in sweeps if testing.streams and not needs_models(sweep.run, sweep.config)]
    others = [sweep for sweep in sweeps if sweep not in tested]
    unscored = _test_together(others, view, testing) if others else Unscored((), ())
    unscored.beside(compare_tested(tested, view)).score(view)
    for sweep in sweeps:
        write_summary(sweep.run)


def _test_together(sweeps: Sequence[Sweep], view: Progress, testing: Testing) -> "Unscored":
    view.say("starting Ray")
    for sweep in sweeps:
        sweep.assembly.dataset(sweep.config, view.say)  # downloads it; other processes would not say so
    with cluster(sweeps[0].config):
        configs = [sweep.config for sweep in sweeps]
        preflight(configs, [sweep.run for sweep in sweeps], view.say)
        for sweep in sweeps:
            sweep.purse = shared_purse(sweep.run, sweep.config)
            sweep.compute_exemplars()
        with kept_or_own_pools(configs, sweeps[0].assembly, view.say) as pools, ExitStack() as sampling:
            for sweep, its_pools in zip(sweeps, pools, strict=True):
                sweep.pools = replace(its_pools, purse=sweep.purse)
                sampling.enter_context(sampled(its_pools, sweep.view.tracker, sweep.config.tracking.every))
            unscored = carry_out(sweeps, view, testing)
            for sweep in sweeps:
                if not sweep.is_unpaid:
                    testing.test(sweep)
            view.say("ending the models and Ray")
    return unscored


@dataclass(frozen=True, slots=True)
class Unscored:
    """What is left to do for sweeps when all tests have ended. It needs no models and no Ray."""

    agreements: Sequence[tuple[Run, tuple[Agreement, ...]]]
    """Runs that are not scored, with the result of `openmaia.evaluation.run.compare_claims`."""
    errors: Sequence[OpenMaiaError]

    def beside(self, other: "Unscored") -> "Unscored":
        """Returns what is left to do for the runs of both."""
        return Unscored([*self.agreements, *other.agreements], [*self.errors, *other.errors])

    def score(self, view: Progress) -> None:
        """Scores the runs. Raises OpenMaiaError if a test of any sweep, or a score, failed; finished tests are kept."""
        errors = list(self.errors)
        for run, agreements in self.agreements:
            view.say(f"comparing the descriptions of {run.name} with each other: scores, p-values, agreement")
            try:
                score_run(run, agreements)
            except OpenMaiaError as error:
                errors.append(error)
        if len(errors) > 1:
            text = f"{len(errors)} descriptions, or runs, were not tested or scored. The first: {errors[0].message}"
            raise ServiceError(text, detail=errors[0].detail) from errors[0]
        if errors:
            raise errors[0]


def compare_tested(sweeps: Sequence[Sweep], view: Progress) -> Unscored:
    """Compares the claims of sweeps for which `needs_models` is False, unless that is stored. Needs no Ray."""
    found: list[tuple[Run, tuple[Agreement, ...]]] = []
    errors: list[OpenMaiaError] = []
    for sweep in sweeps:
        view.say(f"all descriptions of {sweep.run.name} are tested: neither Ray nor its pools are started")
        try:
            agreements = read_agreements(sweep.run)
            if agreements is None:
                agreements = compare_claims(sweep.run, *sweep.assembly.comparison(sweep.config))
            found.append((sweep.run, agreements))
        except OpenMaiaError as error:
            errors.append(error)
    return Unscored(found, errors)


def carry_out(sweeps: Sequence[Sweep], view: Progress, testing: Testing, *, investigates: bool = True) -> Unscored:
    """Investigates and tests the units of sweeps whose pools are up.

    `investigates` is False for descriptions of finished investigations only. Without `Testing.streams` nothing is left
    to score.
    """
    total = sum(sweep.total for sweep in sweeps)
    if investigates:
        view.progress("investigations", sum(sweep.done for sweep in sweeps), total)
    files = [ProgressFile(sweep.run) for sweep in sweeps if investigates]
    untested = _untested(sweeps) if testing.streams else {}
    known = {number: set(left) for number, left in untested.items()}
    """Of each tested sweep, what is or was to be tested. A unit that is investigated again counts once."""
    tested: dict[int, set[InvestigationId]] = {number: set() for number in untested}

    def observe(running: Sequence[ActiveInvestigation]) -> None:
        for number, file in enumerate(files):
            file.write([(one.investigation, one.since) for one in running if one.sweep == number])

    def on_tested(number: int, investigation: InvestigationId, problem: str) -> None:
        sweep = sweeps[number]
        tested[number].add(investigation)
        if problem:
            sweep.view.say(f"not tested: {problem}")
        sweep.view.progress(sweep.stage("evaluation"), len(tested[number]), len(known[number]))

    def on_retried(number: int) -> None:
        sweeps[number].done -= 1
        view.progress("investigations", sum(one.done for one in sweeps), total, "one is investigated again")

    contexts = [sweep.context() for sweep in sweeps]
    scheduler = Scheduler(
        sweeps[0].config, contexts, observe, untested, on_tested, on_retried, investigates=investigates
    )
    try:
        if investigates and all(sweep.done == sweep.total for sweep in sweeps):
            _release_pools(sweeps, testing)
        for number, result in scheduler.results():
            sweep = sweeps[number]
            sweep.done += 1
            files[number].ended += 1
            sweep.view.ended(result)
            if sweep.view.tracker is not None:
                sweep.view.tracker.progress("investigations", sweep.done, sweep.total)
            view.progress("investigations", sum(one.done for one in sweeps), total, _note(result))
            if result.summary is not None and number in known:
                known[number].add(result.investigation)
                tested[number].discard(result.investigation)  # its earlier answer was
            if all(one.done == one.total for one in sweeps):
                _release_pools(sweeps, testing)
        found = scheduler.compare(number for number in untested if not is_evaluated(sweeps[number].run))
        errors = [error for error in scheduler.errors if not isinstance(error, OutOfBudget)]
        return Unscored([(sweeps[number].run, agreements) for number, agreements in found.items()], errors)
    finally:
        for number in scheduler.unpaid:
            sweeps[number].is_unpaid = True
        scheduler.stop()
        for file in files:
            file.close()


def _untested(sweeps: Sequence[Sweep]) -> dict[int, list[InvestigationId]]:
    """Returns the sweeps whose descriptions are tested, by index, each with what an interrupted command left untested."""
    chosen = {number: sweep for number, sweep in enumerate(sweeps) if not is_choice(sweep.run)}
    for sweep in chosen.values():
        if sentence := foreign_tests(sweep.run):
            sweep.view.say(f"{sentence}; what the records hold is tested")
    return {number: [claim.investigation for claim in untested_claims(sweep.run)] for number, sweep in chosen.items()}


def _release_pools(sweeps: Sequence[Sweep], testing: Testing) -> None:
    # The pools that make and measure test images can take the GPUs of those that the tests do not use.
    writes = not testing.streams or any(prompt_writer(sweep.config) is sweep.config.backbone for sweep in sweeps)
    needed = ("target", TEST_GENERATOR, *(["backbone"] if writes else []))
    sweeps[0].pools.release_all_but(needed)  # the sweeps share all of them but the target


def _note(result: InvestigationResult) -> str:
    if result.summary is None:
        return f"{result.investigation.unit}: failed: {result.cause}"
    return f"{result.investigation.unit}: {', '.join(result.summary['labels']) or '(abstained)'}"


def is_complete(run: Run, testing: Testing) -> bool:
    """Returns whether a run has a plan, no pending investigation and no answer that is still untested."""
    return bool(run.planned()) and next(run.iter_pending(), None) is None and testing.is_done(run)


def is_choice(run: Run) -> bool:
    """Returns whether the task of a run is a choice between given answers, which cannot be tested with images."""
    return bool(load(run.config()["task"]["name"]).answer.choices)


def is_evaluated(run: Run) -> bool:
    """Returns whether all finished investigations are evaluated, and p-values and reliability of the run are up to date.

    Investigations with damaged records do not count. Choices between given answers are not evaluated: always True.
    """
    if is_choice(run):
        return True
    is_scored = run.done() <= run.evaluated() or not unevaluated_claims(run)  # damaged records have no claim
    return is_scored and (not run.evaluated() or (is_current(run) and has_reliability(run)))


PREDICTIVE = Testing(streams=True, is_done=is_evaluated)
"""Tests with generated images."""
UNTESTED = Testing(is_done=lambda run: True)
"""Tests nothing: the caller of `run_sweeps` evaluates the run later."""
