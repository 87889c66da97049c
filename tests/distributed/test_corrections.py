"""A run is corrected, extended and evaluated again by the same commands: nothing is lost, nothing is repeated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.assembly.sweeps import run_sweeps
from openmaia.cli.commands.evaluate import evaluate
from openmaia.cli.terminal.output import Terminal
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.distributed.sweep import SweepOutcome
from openmaia.runs.run import Run
from tests.helpers.misbehaving import Act, Asked, Server, misbehaving
from tests.helpers.sweeping import EXPERIMENTS, sources

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

NO_MODEL = Act(status=404, body={"error": {"message": "no such model"}})


def answer(asked: Asked) -> Act:
    """Answers as an agent does, if the name of the model is right."""
    if asked.body["model"] != "agent":
        return NO_MODEL
    return Act(pieces=(EXPERIMENTS[len(asked.turns) // 2 - 1],))


def answer_once(asked: Asked) -> Act:
    """Answers the first turn of a conversation only, as a server that breaks down."""
    return answer(asked) if len(asked.turns) == 2 else Act(status=400, body={"error": {"message": "broken"}})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with misbehaving() as started:
        started.otherwise = answer
        yield started


def carry_out(tmp_path: Path, server: Server, *overrides: str) -> SweepOutcome:
    given = [
        *sources(tmp_path),
        "backbone.kind=openai",
        "backbone.model=agent",
        f"backbone.base_url={server.base}/v1",
        "backbone.tries=1",
        "backbone.outage_minutes=0.01",
        "evaluate.writer.kind=rules",
        "evaluate.judge.kind=none",
        "evaluate.pictures=0",
        "retries=0",
        "units=mono=0-1",
    ]
    with Terminal() as terminal:
        return run_sweeps([load([*given, *overrides])], terminal)[0]


def stamps(run: Run, *folders: str) -> dict[str, int]:
    root = run.files.local
    assert root is not None
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns
        for folder in folders
        for path in sorted((root / folder).rglob("*.parquet"))
    }


@pytest.mark.nightly
def test_run_is_corrected_extended_and_evaluated_again(tmp_path: Path, server: Server):
    # A typo fails every unit, and the corrected command runs them all.
    wrong = carry_out(tmp_path, server, "backbone.model=agnt")
    assert len(wrong.failed) == 2 and wrong.done == 0
    run = carry_out(tmp_path, server).run
    assert (len(run.done()), run.failures(), len(run.evaluated())) == (2, {}, 2)
    before = stamps(run, "records", "evaluation")

    # A unit is added, and its server breaks down in the second turn.
    server.otherwise = answer_once
    broken = carry_out(tmp_path, server, "units=mono=0-2")
    [added] = broken.failed
    [kept] = run.journal(added).turns()

    # Another server on another port, a layer and a replicate more: the first turn and the first units stay as they were.
    with misbehaving() as other:
        other.otherwise = answer
        extended = ["units=mono=0-2:or=0", "sandbox.seconds=30"]
        corrected = carry_out(tmp_path, other, *extended)
    assert corrected.failed == {} and corrected.done == 4
    assert run.record(added).turns[0].backbone_seconds == kept.backbone_seconds
    after = stamps(run, "records", "evaluation")
    assert len(after) == 8
    # Evaluations of earlier units are scored again, because they are compared with the added unit as well.
    records = {name: stamp for name, stamp in before.items() if name.startswith("records/")}
    assert len(records) == 2 and after.items() >= records.items()

    # The descriptions are tested with more images, beside the first evaluation.
    for _ in range(2):
        evaluate([run.files.root, "evaluate.n=3"], name="n3")
        further = Run.open(f"{run.files.root}/evaluations/n3")
        stamps_of_further = stamps(further, "evaluation")
    assert further.evaluated() == run.done() and further.name == "closed-form as n3"
    assert [sum(score["n"]) for score in further.scores().values()] == [6] * 4
    assert [sum(score["n"]) for score in run.scores().values()] == [4] * 4
    assert stamps(run, "records", "evaluation") == after
    evaluate([run.files.root], name="n3")
    assert stamps(further, "evaluation") == stamps_of_further, "done already"
    with pytest.raises(UsageError, match="evaluate.n differ"):
        evaluate([run.files.root, "evaluate.n=4"], name="n3")
