"""What goes wrong with what people give or models say: one clear message, and nothing of the other units is lost."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from openmaia.commands.evaluate import evaluate as command
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.evaluate.compared import compared
from openmaia.evaluate.judges import ModelJudge
from openmaia.evaluate.levels import levels
from openmaia.evaluate.protocol import Design, Instruments
from openmaia.evaluate.run import evaluate, pooled
from openmaia.evaluate.writers import PublishedWriter, RuleWriter
from openmaia.generators.collage import CollageGenerator
from openmaia.pictures.library import Library
from openmaia.services import LayerProbe
from openmaia.store import tables
from openmaia.store.records import Stop
from openmaia.store.run import Owed, Run
from openmaia.targets.closed_form import ClosedFormTarget
from openmaia.units import Unit
from tests.evaluate.talking import Talker, asker, in_turn
from tests.samples import noise, record

RED, GREEN = (Unit(target="t", layer="mono", index=index) for index in (0, 1))
SMALL = Design(n=2)


@pytest.fixture(scope="module")
def instruments(tmp_path_factory: pytest.TempPathFactory) -> Instruments:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    generator = CollageGenerator(Library.open(folder), 224)
    return Instruments(generator=generator, target=ClosedFormTarget("t"), writer=RuleWriter())


def made(folder: Path, labels: dict[Unit, tuple[str, ...]], name: str = "demo") -> Run:
    run = Run.create(load([f"name={name}", "units=all", "target.name=t", f"paths.runs={folder}"]))
    run.set_plan(sorted(labels), 1)
    for unit, said in labels.items():
        stop = Stop.ANSWER if said else Stop.ABSTAIN
        run.publish(record(unit, labels=said, description=" ".join(map(str, said)), turns=(), stop=stop))
    return run


def scores(run: Run) -> dict[Unit, dict[str, object]]:
    return {owed.unit: values for owed, values in run.scores().items()}


# -- a run without descriptions --------------------------------------------------------------------------------------------


def test_a_run_without_a_finished_investigation_is_refused_before_another_is_evaluated(tmp_path: Path):
    full, empty = made(tmp_path, {RED: ("red",)}, "full"), made(tmp_path, {}, "empty")
    with pytest.raises(UsageError, match="empty holds no finished investigation.*openmaia run makes them"):
        command([full.files.root, empty.files.root])
    assert full.evaluated() == set()


def test_a_run_of_abstentions_is_chance_and_can_be_compared(tmp_path: Path, instruments: Instruments):
    mute, full = (
        made(tmp_path, {RED: (), GREEN: ()}, "mute"),
        made(tmp_path, {RED: ("red",), GREEN: ("green",)}, "full"),
    )
    for run in (mute, full):
        evaluate(run, instruments, SMALL)
    (pair,) = compared([(full, "full"), (mute, "mute")], 100)
    assert {one.measure: one.units for one in pair.differences} == {"auc": 2, "turns": 2}
    assert next(one for one in pair.differences if one.measure == "auc").other.mean == 0.5
    assert levels(mute, 100).units == {}


# -- a label that is not a string ------------------------------------------------------------------------------------------


def test_a_label_that_is_no_text_is_named_with_its_unit(tmp_path: Path, instruments: Instruments):
    """As in a record that was made or edited by another program."""
    run = made(tmp_path, {RED: ("red",), GREEN: ("green",)})
    path = Path(run.record_path(Owed(unit=GREEN, replicate=0)))
    rows, header = tables.load(path.read_bytes())
    path.write_bytes(tables.dump(rows, None, header | {"summary": header["summary"] | {"labels": [7]}}))
    before = run.done()
    with pytest.raises(UsageError, match=r"t/mono/1.*7 is a int.*put quotes"):
        evaluate(run, instruments, SMALL)
    assert run.done() == before


# -- prompts in another language -------------------------------------------------------------------------------------------


def test_prompts_in_another_language_leave_one_unit_unwritten_and_say_why(tmp_path: Path, instruments: Instruments):
    run = made(tmp_path, {RED: ("red",), GREEN: ("green",)})

    def answer(question: str, tried: int) -> str:
        word = "красный" if "\nred\n" in question else "a green square on the ground"
        return "\n".join(f"{at}. {word} {at}" for at in range(1, 8))

    talker = Talker(answer)
    writer = PublishedWriter(asker(talker), "paper")
    evaluate(run, replace(instruments, writer=writer), Design(preset="paper", random=0, detect=0))
    found = scores(run)
    assert found[RED]["outcome"] == "unwritten"
    assert "not in English" in str(found[RED]["cause"]) and "asked 3 times" in str(found[RED]["cause"])
    assert found[RED]["auc"] is None
    assert (found[GREEN]["outcome"], found[GREEN]["cause"]) == ("undrawable", ""), "the collage draws no such scene"
    assert pooled(run, 100).outcomes["unwritten"] == 1


# -- a judge that refuses --------------------------------------------------------------------------------------------------


def test_a_judge_that_refuses_leaves_detection_out_and_the_rest_as_it_was(tmp_path: Path, instruments: Instruments):
    alone, judged = made(tmp_path, {RED: ("red",)}, "alone"), made(tmp_path, {RED: ("red",)}, "judged")
    pictures = [noise(at) for at in range(8)]
    design = Design(n=2, random=2, detect=8)
    refusing = ModelJudge(asker(in_turn("I am sorry, I cannot look at this.")))
    evaluate(alone, replace(instruments, pictures=pictures), design)
    evaluate(judged, replace(instruments, pictures=pictures, judge=refusing), design)
    detection = scores(judged)[RED].pop("detection")
    assert isinstance(detection, dict)
    assert (detection["judged"], detection["known"], "auprc" in detection) == (6, 0, False)
    for name in ("outcome", "auc", "positive", "top1"):
        assert scores(judged)[RED][name] == scores(alone)[RED][name]


# -- a constant unit -------------------------------------------------------------------------------------------------------


class Constant(ClosedFormTarget):
    """Its first unit answers every picture alike."""

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        answers = [answer.copy() for answer in super().respond(probes)]
        for answer in answers:
            answer[0] = 0.7
        return answers


def test_a_unit_with_constant_activation_is_chance_and_the_others_are_as_before(
    tmp_path: Path, instruments: Instruments
):
    both = {RED: ("red",), GREEN: ("green",)}
    plain, constant = made(tmp_path, both, "plain"), made(tmp_path, both, "constant")
    evaluate(plain, instruments, SMALL)
    evaluate(constant, replace(instruments, target=Constant("t")), SMALL)
    found = scores(constant)
    assert (found[RED]["auc"], found[RED]["difference"], found[RED]["d"], found[RED]["mad"]) == (0.5, 0.0, None, None)
    assert found[RED]["p"] == 1.0
    assert "NaN" not in json.dumps(found[RED])
    assert found[GREEN]["auc"] == scores(plain)[GREEN]["auc"]
    whole = pooled(constant, 100)
    assert whole.measures["auc"].mean == pytest.approx((0.5 + float(str(found[GREEN]["auc"]))) / 2)


# -- one of everything -----------------------------------------------------------------------------------------------------


def test_one_unit_and_one_image_of_each_kind_is_evaluated_pooled_and_compared(tmp_path: Path, instruments: Instruments):
    one, other = made(tmp_path, {RED: ("red",)}, "one"), made(tmp_path, {RED: ("green",)}, "other")
    for run in (one, other):
        evaluate(run, instruments, Design(n=1))
    found = scores(one)[RED]
    assert (found["n"], found["auc"], found["auc_other"], found["d"]) == ([1, 1], 1.0, None, None)
    whole = pooled(one, 100)
    assert (whole.units, whole.measures["auc"].mean) == (1, 1.0)
    assert np.isnan(whole.difference.mean)
    (pair,) = compared([(one, "one"), (other, "other")], 100)
    auc = next(row for row in pair.differences if row.measure == "auc")
    assert (auc.units, auc.p, auc.adjusted) == (1, None, None)
    assert levels(one, 100).units == {"mono": (0,)}
    assert one.evaluated() == {Owed(unit=RED, replicate=0)}
