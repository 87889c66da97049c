"""What a unit's page says about the evidence, and that texts of others stay texts."""

import dataclasses
from pathlib import Path

from openmaia.config import load
from openmaia.report import write_report
from openmaia.store.evidence import Check, Confirmation, Evidence, Shot, State, Tested
from openmaia.store.records import Record
from openmaia.store.run import Run
from tests.conftest import REPOSITORY
from tests.report.making import HOSTILE, picture
from tests.samples import record

CHECK = Check(what="controls", wanted=2, found=1, state=State.MISSING, detail=f"1 of 2 controls of {HOSTILE}")
TESTED = Tested(hypothesis=HOSTILE, images=3, controls=1, mean=4.5, control_mean=0.25)
SHOTS = tuple(
    Shot(
        label=HOSTILE,
        prompt=HOSTILE,
        near_miss=near,
        control=near and HOSTILE,
        seed=1,
        digest=picture(at).digest,
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
    found = Confirmation(shots=SHOTS, pictures={picture(at).digest: picture(at) for at in (0, 1)})
    shown = page(tmp_path, evidence=Evidence(checks=(CHECK,), tested=(TESTED,), sent_back=1), confirmation=found)
    assert "not met" in shown and "Answers sent back</b> 1" in shown
    assert "AUC, labels against near misses</b> 1.00" in shown
    assert shown.count("data:image/webp") >= 2
    assert "<script>document" not in shown and "<img src=x" not in shown


def test_a_page_without_evidence_says_nothing_of_it(tmp_path: Path):
    assert "What the answer rests on" not in page(tmp_path)
