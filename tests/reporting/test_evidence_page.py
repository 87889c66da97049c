"""What a unit's page says about the evidence, and that texts of others stay texts."""

import dataclasses
from pathlib import Path

from openmaia.config.loading import load
from openmaia.reporting.browser.write import write_report
from openmaia.runs.evidence import (
    CheckState,
    Confirmation,
    ConfirmationSample,
    Evidence,
    EvidenceCheck,
    FailedTest,
    Fault,
    HypothesisEvidence,
)
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.samples import record
from tests.reporting.making import HOSTILE, sample_image

CHECK = EvidenceCheck(
    what="controls", wanted=2, found=1, state=CheckState.MISSING, detail=f"1 of 2 controls of {HOSTILE}"
)
TESTED = HypothesisEvidence(hypothesis=HOSTILE, images=3, controls=1, mean=4.5, control_mean=0.25)
SHOTS = tuple(
    ConfirmationSample(
        label=HOSTILE,
        prompt=HOSTILE,
        near_miss=near,
        control=near and HOSTILE,
        seed=1,
        digest=sample_image(at).digest,
        activation=value,
        percentile=50.0,
    )
    for at, (near, value) in enumerate((("", 2.0), (HOSTILE, 1.0)))
)


def page(folder: Path, **changes: object) -> str:
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), f"paths.runs={folder}"])
    run = Run.create(config)
    whole: Record = dataclasses.replace(record(), **changes)  # pyright: ignore[reportArgumentType]
    run.set_plan([whole.unit], 1)
    run.publish(whole)
    write_report([run])
    return (folder / "closed-form" / "report" / "units" / "net" / "layer4" / "7-0.html").read_text()


def test_rule_and_test_stand_on_the_page_and_texts_of_others_stay_texts(tmp_path: Path):
    found = Confirmation(samples=SHOTS, images={sample_image(at).digest: sample_image(at) for at in (0, 1)})
    shown = page(tmp_path, evidence=Evidence(checks=(CHECK,), tested=(TESTED,), sent_back=1), confirmation=found)
    assert "not met" in shown and "Answers sent back</b> 1" in shown
    assert "AUC, labels against near misses</b> 1.00" in shown
    assert shown.count("data:image/webp") >= 2
    assert "<script>document" not in shown and "<img src=x" not in shown


def test_rounds_stand_on_the_page(tmp_path: Path):
    found = Confirmation(samples=SHOTS, images={sample_image(at).digest: sample_image(at) for at in (0, 1)})
    whole = record()
    failed = dataclasses.replace(
        whole.turns[0],
        failed_test=FailedTest(confirmation=found, faults={HOSTILE: Fault.NEAR_MISSES}, seconds=1.0),
        images=whole.turns[0].images | found.images,
    )
    shown = page(tmp_path, turns=(failed, *whole.turns[1:]), labels=("cat", "dog"), stop=Stop.ANSWER)
    assert 'Round 1: the answer in <a href="#turn-1">turn 1</a>' in shown
    assert "AUC 1.00, its near misses excite the unit as much" in shown
    assert "<b>Then</b> another answer: cat, dog" in shown
    assert "<script>document" not in shown and "<img src=x" not in shown


def test_page_without_evidence_says_nothing_of_it(tmp_path: Path):
    assert "What the answer rests on" not in page(tmp_path)
