"""Runs one investigation: the same record in a notebook, on the command line and in a Ray worker."""

import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from openmaia.agent.context import InvestigationContext, InvestigationOptions
from openmaia.agent.investigation import Investigation
from openmaia.agent.patience import PatientBackbone, PatientEditor, PatientGenerator
from openmaia.agent.sharing import share
from openmaia.agent.tasks.task import Task
from openmaia.agent.tools.seeds import seed
from openmaia.core.errors import OpenMaiaError, OutOfBudget, ReplayDiverged
from openmaia.core.messages import Chat, Reply
from openmaia.core.secrets import redacted
from openmaia.core.services import Services
from openmaia.core.units import Scope, Unit
from openmaia.runs.control import wait_while_paused
from openmaia.runs.journal import Journal, NoJournal
from openmaia.runs.records import Record, Turn
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.shared import SharedStore
from openmaia.runs.summary import summary

TurnObserver = Callable[[Turn], None]
TurnGate = Callable[[], None]
"""Called before each turn, which begins when it returns."""
Dialogue = Generator[Chat, Reply | None, Record]
"""What `converse` returns."""


def investigate(
    unit: Unit,
    task: Task,
    services: Services,
    options: InvestigationOptions,
    *,
    replicate: int = 0,
    journal: Journal | None = None,
    observer: TurnObserver = lambda turn: None,
    gate: TurnGate = lambda: None,
) -> Record:
    """Lets an agent run experiments on a unit until it answers or reaches a limit, then confirms its answer. An answer
    that fails goes back to the agent, at most `StoppingRule.rounds` times.

    Args:
        replicate: Counts from 0. Each replicate has a seed of its own.
        journal: If it holds turns already, the investigation continues after them.
        observer: Called with each new completed turn, an answer after its test. Not with those of the journal.
        gate: The time that it takes counts for no limit.

    Raises:
        ServiceError: A service failed, or the budget of the run is spent (OutOfBudget). The journal holds the completed
            turns.
        SandboxError: The sandbox failed. The journal holds the completed turns.
    """
    backbone = PatientBackbone(backbone=services.backbone, minutes=options.outage_minutes)
    dialogue = converse(
        unit, task, services, options, replicate=replicate, journal=journal, observer=observer, gate=gate
    )
    with closing(dialogue):
        reply: Reply | None = None
        while True:
            try:
                chat = dialogue.send(reply)
            except StopIteration as end:
                return end.value
            reply = backbone.reply([chat])[0]


def converse(
    unit: Unit,
    task: Task,
    services: Services,
    options: InvestigationOptions,
    *,
    replicate: int = 0,
    journal: Journal | None = None,
    observer: TurnObserver = lambda turn: None,
    gate: TurnGate = lambda: None,
) -> Dialogue:
    """The investigation of `investigate`, turned inside out: yields what the agent is asked, is sent its replies, and
    returns the record. `services.backbone` answers only what tools ask about images.

    Sent None in place of a reply, it ends without an answer. Closed, it ends without a record; the journal holds the
    completed turns.
    """
    journal = journal or NoJournal()
    minutes = options.outage_minutes
    patient = replace(
        services,
        backbone=PatientBackbone(backbone=services.backbone, minutes=minutes),
        generator=PatientGenerator(generator=services.generator, minutes=minutes),
        editor=PatientEditor(editor=services.editor, minutes=minutes),
    )
    asked = task.under(options.evidence)
    context = InvestigationContext(
        unit=unit,
        task=asked.with_effects() if options.has_effects(unit) else asked,
        services=patient,
        options=options,
        run_seed=seed(options.run_seed, "explore", f"replicate {replicate}", 0) if replicate else options.run_seed,
    )
    try:
        return (yield from _conduct(Investigation(context, replicate, journal), observer, gate))
    # Experiments whose variables cannot be restored have lost their meaning, and a repetition costs less than a failed
    # unit.
    except ReplayDiverged as divergence:
        journal.clear()
        notes = (f"restarted from the first turn: {divergence.message}",)
        return (yield from _conduct(Investigation(context, replicate, journal, notes), observer, gate))


def _conduct(investigation: Investigation, observer: TurnObserver, gate: TurnGate) -> Dialogue:
    ledger = investigation.context.services.ledger
    with investigation:
        investigation.resume()
        investigation.confirm()  # the journal may end with an answer
        while not investigation.ended:
            gate()
            investigation.ask_for_money()
            started, spent_before = time.monotonic(), ledger.spent()
            reply = yield investigation.request()
            if reply is None:
                break
            investigation.turn(reply, time.monotonic() - started, spent_before)
            investigation.confirm()
            observer(investigation.turns[-1])
        return investigation.record()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationResult:
    """The summary of one investigation of a run, or the error with which it failed."""

    investigation: InvestigationId
    summary: dict[str, Any] | None
    """See `openmaia.runs.summary`. None if the investigation failed."""
    cause: str = ""
    is_unpaid: bool = False
    """Whether it did not end because the budget of the run is spent, which is no failure."""


def investigate_and_publish(
    investigation: InvestigationId,
    task: Task,
    services: Services,
    options: InvestigationOptions,
    run: Run,
    observer: TurnObserver = lambda turn: None,
) -> InvestigationResult:
    """Investigates a unit and saves the record in the run, with no turn while that is paused, and before it what its agent shares. Never raises: an
    error is stored as the cause of the failure, and the investigation stays pending. The end of the budget is no failure.
    """
    store = SharedStore(run.investigations)
    if options.looks_up and investigation.unit.scope is not Scope.NETWORK:
        services = replace(services, shared=store)
    try:
        record = investigate(
            investigation.unit,
            task,
            services,
            options,
            replicate=investigation.replicate,
            journal=run.journal(investigation),
            observer=observer,
            gate=partial(wait_while_paused, run),
        )
        if options.shared:
            share(record, services.target, store, options.shared)
        run.publish(record)
        return InvestigationResult(investigation=investigation, summary=summary(record))
    except OutOfBudget as error:
        return InvestigationResult(investigation=investigation, summary=None, cause=error.message, is_unpaid=True)
    except OpenMaiaError as error:
        cause = f"{type(error).__name__}: {error.message}"
    except Exception as error:  # the boundary: after any error the sweep goes on
        cause = redacted(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}")
    run.fail(investigation, cause)
    return InvestigationResult(investigation=investigation, summary=None, cause=cause)
