"""What commands spend that use the models of a run in their own process counts towards its budget."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.assembly.evaluation import design, in_process
from openmaia.assembly.investigations import command_ledger
from openmaia.core.errors import OutOfBudget
from openmaia.core.money import Bill
from openmaia.evaluation.run import evaluate_run, untested_claims
from openmaia.runs.purse import COMMANDS, RunBook, read_spending, stored_spending
from openmaia.runs.run import Run
from tests.helpers.misbehaving import Act, Asked, Server, answer, misbehaving
from tests.helpers.written import described, write

REPLY = 0.02
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def play(asked: Asked) -> Act:
        return Act(body=answer(asked, write(asked.texts()[-1]), usage=USAGE))

    with misbehaving() as started:
        started.otherwise = play
        yield started


def test_an_evaluation_stops_at_the_budget_of_its_run_and_goes_on(server: Server, tmp_path: Path):
    config, run = described(tmp_path, f"{server.base}/v1", {}, budget=2.5 * REPLY)

    def evaluate(budget: float) -> None:
        paid = replace(config, budget=budget)
        evaluate_run(run, in_process(paid, run), design(paid))

    with pytest.raises(OutOfBudget, match="budget"):
        evaluate(config.budget)
    assert len(server.asked) == 3, "the call under way when the budget ended was the last"
    assert read_spending(run).dollars == pytest.approx(3 * REPLY)
    before = len(server.asked)
    with pytest.raises(OutOfBudget):
        evaluate(config.budget)
    assert len(server.asked) == before
    evaluate(10)
    assert not untested_claims(run) and len(run.evaluated()) == 3
    assert read_spending(run).dollars == pytest.approx(len(server.asked) * REPLY)


def test_the_sums_of_a_run_and_of_its_commands_count_together(tmp_path: Path, server: Server):
    config, run = described(tmp_path, f"{server.base}/v1", {}, units="mono=0")
    own = RunBook(run, 1.0)
    own.pay(Bill(0.5))
    commands, beside = RunBook(run, 1.0, f"{COMMANDS}/a.json"), RunBook(run, 1.0, f"{COMMANDS}/b.json")
    commands.pay(Bill(0.125, 2))
    beside.pay(Bill(0.125))
    own.pay(Bill(0.125))
    assert read_spending(run) == stored_spending(run) == Bill(0.875, 2)
    assert not commands.is_empty() and RunBook(run, 0.875, f"{COMMANDS}/c.json").is_empty()
    again = RunBook(run, 1.0)
    again.pay(Bill(0.125))
    assert again.is_empty() and not again.may_go_on("", 0.0)
    further = Run(run.files.inside("evaluations/other"), run.files)
    command_ledger(further, config).add("backbone", 1, 1.0, 0.0, Bill(0.5))
    assert read_spending(run).dollars == 1.5 and not further.files.names(COMMANDS)
