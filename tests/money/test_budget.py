"""A run spends no more than its budget, and goes on with a larger one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openmaia.agent.loop import InvestigationResult, investigate_and_publish
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import exemplars, investigations, targets
from openmaia.assembly.backbones import backbone
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.money import Bill
from openmaia.core.selection import select
from openmaia.runs.purse import RunBook, read_spending
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.helpers.misbehaving import Server
from tests.helpers.paid import REPLY, TURNS, paid_server, paid_sources

INVESTIGATIONS = 24
BUDGET = 0.8
AT_ONCE = 12
"""Investigations at the same time. Were it all of them, each would answer in its last turn, and none be left."""
UNDER_WAY = AT_ONCE * REPLY + 1e-9


@pytest.fixture
def server() -> Iterator[Server]:
    with paid_server() as started:
        yield started


def billed(server: Server) -> float:
    return len(server.asked) * REPLY


def test_24_investigations_without_ray_stop_at_the_budget_and_go_on(server: Server, tmp_path: Path):
    given = paid_sources(tmp_path, server)
    first = in_process(load([*given, f"budget={BUDGET}"]))
    run = Run.of(load(given))
    assert read_spending(run).dollars == pytest.approx(billed(server))
    under_way = AT_ONCE * REPLY + 1e-9
    assert BUDGET - under_way <= billed(server) <= BUDGET + under_way
    stopped = [result for result in first if result.is_unpaid]
    assert stopped and all("budget" in result.cause for result in stopped)
    assert not run.failures()
    assert all(result.summary or result.is_unpaid for result in first)
    recorded = sum(usage["dollars"] for header in run.headers() for usage in header["spent"].values())
    left = sum(turn.bill.dollars for each in run.pending() for turn in run.journal(each).turns())
    assert recorded + left == pytest.approx(billed(server))
    second = in_process(load([*given, "budget=10"]))
    assert len(second) == len(stopped) and all(result.summary for result in second)
    assert len(run.done()) == INVESTIGATIONS
    assert read_spending(run).dollars == pytest.approx(billed(server))


def in_process(config: Config) -> list[InvestigationResult]:
    """Investigates all pending units, AT_ONCE of them at the same time."""
    target, agent, run = targets.target(config), backbone(config), Run.create(config)
    run.set_plan(select(config.units, target.info()).units, config.replicates)
    store = exemplars.make(config, sorted({each.unit.layer for each in run.plan()}))
    purse, options, task = investigations.purse(run, config), investigations.options(config), load_task("description")

    def investigate(investigation: InvestigationId) -> InvestigationResult:
        services = investigations.services(config, store, measured=target, agent=agent)
        services.ledger.terms = purse.terms(str(investigation))
        try:
            return investigate_and_publish(investigation, task, services, options, run)
        finally:
            purse.leave(str(investigation))

    pending = run.pending()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(investigate, pending))


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_on_ray_that_is_killed_stops_at_its_budget_and_goes_on(server: Server, tmp_path: Path):
    given = [*paid_sources(tmp_path, server), f"ray.investigations={AT_ONCE}"]
    run = Run.of(load(given))
    killed = command(given, f"budget={BUDGET}")
    wait_until(lambda: len(server.asked) >= 10, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = len(server.asked)
    kept = read_spending(run).dollars
    assert billed(server) - UNDER_WAY <= kept <= billed(server)

    stopped = command(given, f"budget={BUDGET}")
    _, said = stopped.communicate(timeout=300)
    assert stopped.returncode == 4, said
    # What was under way when the driver was killed is known to the server alone.
    assert len(server.asked) > before
    assert BUDGET - UNDER_WAY <= read_spending(run).dollars <= BUDGET + UNDER_WAY
    assert billed(server) <= BUDGET + 2 * UNDER_WAY
    left = len(run.pending())
    assert f"{left} of {INVESTIGATIONS} investigations are left" in said and "budget=0.8" in said

    # What is left goes on in this process, where the same code reads the budget: a third Ray costs as much as the others.
    assert all(result.summary for result in in_process(load([*given, "budget=10"])))
    assert len(run.done()) == INVESTIGATIONS and not run.pending()
    assert billed(server) - UNDER_WAY <= read_spending(run).dollars <= billed(server)
    print(
        f"killed at ${kept:.2f}, stopped with {left} left, in all ${billed(server):.2f} of {INVESTIGATIONS * TURNS} replies"
    )


def command(sources: list[str], *more: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "openmaia.cli.main", "run", *sources, *more]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OPENAI_API_KEY": "none"}
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "the run has not come so far"
        time.sleep(0.05)


def test_a_budget_without_a_price_is_refused(server: Server, tmp_path: Path):
    given = [each for each in paid_sources(tmp_path, server) if "_price" not in each]
    load(given)
    for key in ("budget", "limits.budget"):
        with pytest.raises(UsageError, match=f"{key}=3 needs .*backbone.input_price, backbone.output_price"):
            load([*given, f"{key}=3"])
    load([*given, "budget=3", "backbone.input_price=0", "backbone.output_price=0"])


def test_an_investigation_ends_at_its_own_budget(server: Server, tmp_path: Path):
    config = load([*paid_sources(tmp_path, server), "limits.budget=0.05", "replicates=1", "units=mono=0"])
    result = in_process(config)[0]
    record = Run.of(config).record(result.investigation)
    assert [turn.bill.dollars for turn in record.turns] == pytest.approx([REPLY] * 3)
    assert record.stop == "answer", "it was asked for its answer while money for one turn was left"


def test_a_book_goes_on_with_what_was_spent(server: Server, tmp_path: Path):
    run = Run.create(load(paid_sources(tmp_path, server)))
    book = RunBook(run, 1.0)
    assert book.may_go_on("a", 0.0)
    book.pay(Bill(0.5, 1))
    assert book.may_go_on("a", 0.2) and not book.is_empty()
    again = RunBook(run, 1.0)
    again.pay(Bill(0.25))
    assert not again.may_go_on("a", 0.25) and not again.is_empty()
    again.leave("a")
    assert not again.may_go_on("", 0.0), "it does not open again"
    again.pay(Bill(0.25))
    assert again.is_empty()
    assert read_spending(run) == Bill(1.0, 1)
