"""Evaluating a run: every record once, resumed where it stopped, bad input named, and the run as a whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmaia.cli.commands.evaluate import evaluate as command
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.comparison import compare_runs
from openmaia.evaluation.analysis.reliability import has_reliability
from openmaia.evaluation.analysis.significance import OWN, RANDOM, SHUFFLED, is_current, supported_shares
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import run_verdicts, write_summary
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.damage import damaged_files, set_aside
from openmaia.evaluation.judging.judges import ModelJudge
from openmaia.evaluation.prompts import PublishedPromptWriter
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.offline.collage import CollageGenerator
from openmaia.runs import tables
from openmaia.runs.records import Stop
from openmaia.runs.run import RANDOM_WORDS, TRIALS, InvestigationId, Run
from tests.evaluation.scripted_model import ScriptedModel, answering, model
from tests.helpers.samples import noise, record

RED, GREEN, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 3))
SMALL = EvaluationDesign(n=2, random_words=8)
NO_WORDS = EvaluationDesign(n=2, random_words=0)


def make_run(folder: Path, labels: dict[Unit, tuple[str, ...]], name: str = "demo") -> Run:
    run = Run.create(load([f"name={name}", "units=all", "target.name=t", f"paths.runs={folder}"]))
    run.set_plan(sorted(labels), 1)
    for unit, each in labels.items():
        stop = Stop.ANSWER if each else Stop.ABSTAIN
        run.publish(record(unit, labels=each, description=" ".join(each), turns=(), stop=stop))
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, {RED: ("red",), GREEN: ("green",), STRIPES: ()})


def scores(run: Run) -> dict[Unit, dict[str, Any]]:
    return {investigation.unit: values for investigation, values in run.scores().items()}


# -- every record once ---------------------------------------------------------------------------------------------------


def test_evaluation_covers_every_record_once(run: Run, services: EvaluationServices):
    progress: list[tuple[int, int]] = []
    for _ in range(2):
        evaluate_run(run, services, SMALL, lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]
    found = scores(run)
    assert [found[unit]["outcome"] for unit in (RED, GREEN, STRIPES)] == ["tested", "tested", "abstained"]
    assert [found[unit]["others"] for unit in (RED, GREEN, STRIPES)] == [[1], [0], [0, 1]]
    assert run.artifacts(TRIALS) == set()


def test_extended_run_is_scored_like_one_of_all_units(tmp_path: Path, services: EvaluationServices):
    labels = {RED: ("red",), GREEN: ("green",), STRIPES: (), Unit(target="t", layer="mono", index=2): ("blue",)}
    whole, grown = make_run(tmp_path / "a", labels), make_run(tmp_path / "b", {RED: ("red",), STRIPES: ()})
    evaluate_run(whole, services, NO_WORDS)
    evaluate_run(grown, services, NO_WORDS)
    assert scores(grown)[RED]["others"] == []
    grown.set_plan(sorted(labels), 1)
    for unit in (GREEN, Unit(target="t", layer="mono", index=2)):
        grown.publish(whole.record(InvestigationId(unit=unit, replicate=0)))
    evaluate_run(grown, services, NO_WORDS)
    assert grown.scores() == whole.scores()
    assert scores(grown)[RED]["others"] == [1, 2] and scores(grown)[RED]["auc_other"] is not None


def test_interrupted_reliability_is_measured_again(run: Run, services: EvaluationServices):
    evaluate_run(run, services, SMALL)
    measured = run.files.read("reliability.json")
    assert has_reliability(run)
    for left in (None, b'{"agreements": [], "selective": []}', b"["):
        run.files.delete("reliability.json")
        if left:
            run.files.write("reliability.json", left)
        assert not has_reliability(run)
        evaluate_run(run, replace(services, generator=InterruptedGenerator(services.generator, 0)), SMALL)
        assert has_reliability(run) and run.files.read("reliability.json") == measured


def test_evaluation_is_independent_of_other_evaluations(run: Run, services: EvaluationServices):
    evaluate_run(run, services, SMALL)
    before = run.scores()
    run.files.delete("evaluation/t/mono/0-0.parquet")
    evaluate_run(run, services, SMALL)
    assert run.scores() == before


class InterruptedGenerator(CollageGenerator):
    """Is interrupted after some calls, as by Ctrl-C."""

    def __init__(self, generator: Any, calls: int):
        self._inner, self._left = generator, calls

    def generate(self, requests):  # pyright: ignore[reportMissingParameterType, reportIncompatibleMethodOverride]
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._inner.generate(requests)


def test_evaluation_resumes_with_equal_scores(run: Run, services: EvaluationServices):
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(run, replace(services, generator=InterruptedGenerator(services.generator, 2)), NO_WORDS)
    assert len(run.artifacts(TRIALS)) == 1
    assert run.evaluated() == set()
    evaluate_run(run, services, NO_WORDS)
    resumed = run.scores()
    run.files.delete_folder("evaluation")
    evaluate_run(run, services, NO_WORDS)
    assert run.scores() == resumed


def test_interrupted_random_words_are_measured_again(run: Run, services: EvaluationServices):
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(run, replace(services, generator=InterruptedGenerator(services.generator, 5)), SMALL)
    assert run.artifacts(RANDOM_WORDS) == set()
    evaluate_run(run, services, SMALL)
    assert len(run.artifacts(RANDOM_WORDS)) == SMALL.random_words == 8


# -- the run as a whole --------------------------------------------------------------------------------------------------


def test_means_of_tested_descriptions_and_of_all_units_stand_apart(run: Run, services: EvaluationServices):
    evaluate_run(run, services, SMALL)
    found, whole = run.scores().values(), run_scores(run, 200)
    tested = [values["auc"] - values["auc_other"] for values in found if values["outcome"] == "tested"]
    every = [values["auc_all"] - values["auc_other"] for values in found]
    assert 0 < len(tested) < len(every)
    assert whole.measures["auc_minus_other"].mean == pytest.approx(np.mean(tested))
    assert whole.measures["auc_minus_other_all"].mean == pytest.approx(np.mean(every))
    assert [whole.counts[name] for name in ("auc", "auc_all")] == [len(tested), len(every)]


def test_run_scores_are_cached_until_an_evaluation_changes(run: Run, services: EvaluationServices):
    evaluate_run(run, services, SMALL)
    first = run_scores(run, 200)
    assert repr(run_scores(run, 200)) == repr(first), "as texts, because NaN equals nothing"
    assert "NaN" not in (run.files.read("evaluation.json") or b"").decode()
    run.files.delete("evaluation/t/mono/3-0.parquet")
    assert run_scores(run, 200).outcomes == {"tested": 2}


def test_run_of_abstentions_scores_chance_and_can_be_compared(tmp_path: Path, services: EvaluationServices):
    mute = make_run(tmp_path, {RED: (), GREEN: ()}, "mute")
    full = make_run(tmp_path, {RED: ("red",), GREEN: ("green",)}, "full")
    for each in (mute, full):
        evaluate_run(each, services, SMALL)
    whole = run_scores(mute, 200)
    assert (whole.outcomes, whole.measures["auc_all"].mean) == ({"abstained": 2}, 0.5)
    assert all(np.isnan(whole.measures[name].mean) for name in ("auc", "d"))
    (pair,) = compare_runs([(full, "full"), (mute, "mute")], 100)
    assert {each.measure: each.units for each in pair.differences} == {"auc_all": 2}, "no record has turns"
    assert run_scores(mute, 100).activations.units == {}


def test_run_of_one_unit_and_one_image_is_evaluated_and_compared(tmp_path: Path, services: EvaluationServices):
    one, other = make_run(tmp_path, {RED: ("red",)}, "one"), make_run(tmp_path, {RED: ("green",)}, "other")
    for each in (one, other):
        evaluate_run(each, services, EvaluationDesign(n=1, random_words=2))
    whole = run_scores(one, 100)
    assert (whole.units, whole.measures["auc"].mean) == (1, 1.0)
    assert np.isnan(whole.measures["auc_minus_other"].mean)
    (pair,) = compare_runs([(one, "one"), (other, "other")], 100)
    auc = next(row for row in pair.differences if row.measure == "auc")
    assert (auc.units, auc.p, auc.adjusted) == (1, None, None)
    assert run_scores(one, 100).activations.units == {"mono": [0]}


# -- significance and verdicts -------------------------------------------------------------------------------------------


JUDGED = EvaluationDesign(n=8, random_words=20, seed=1)
"""Enough words for small p-values although one of them is what unit 2 responds to."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, services: EvaluationServices) -> Run:
    """Two units with their true label, one with another unit's, and one that abstained."""
    labels = {RED: ("red",), GREEN: ("green",), Unit(target="t", layer="mono", index=2): ("checkerboard",), STRIPES: ()}
    run = make_run(tmp_path_factory.mktemp("runs"), labels)
    evaluate_run(run, services, JUDGED)
    return run


def test_true_descriptions_are_supported_and_false_ones_not(judged: Run):
    found = {each.unit: verdict.verdict for each, verdict in run_verdicts(judged).items()}
    assert [found[unit] for unit in (RED, GREEN, STRIPES)] == ["supported", "supported", "abstained"]
    assert found[Unit(target="t", layer="mono", index=2)] == "undecided"


def test_significance_is_merged_into_scores_of_tested_units_only(judged: Run):
    found = scores(judged)
    assert all(0 < found[unit]["p"] <= found[unit]["q"] <= 0.05 for unit in (RED, GREEN))
    assert "p" not in found[STRIPES]
    one = InvestigationId(unit=RED, replicate=0)
    assert judged.score(one) == judged.scores()[one] == judged.scores([one])[one]


def test_wrong_descriptions_stand_beside_the_own_ones(judged: Run):
    shares = supported_shares(judged)
    assert shares[OWN][0] == pytest.approx(2 / 3)
    assert shares[SHUFFLED][0] == shares[RANDOM][0] == 0.0
    assert all(low - 1e-9 <= share <= high for share, low, high in shares.values())
    measures = run_scores(judged, 200).measures
    assert measures["auc"].mean > 0.7 > measures["auc_words"].mean


def test_summary_holds_the_verdicts(judged: Run):
    write_summary(judged)
    rows = {row["index"]: row for row in tables.load(judged.files.read("summary.parquet") or b"")[0]}
    for each, verdict in run_verdicts(judged).items():
        row = rows[each.unit.index]
        assert {name: row[name] for name in verdict.columns} == verdict.columns


def test_random_words_are_measured_once(judged: Run, services: EvaluationServices):
    before = {each: judged.artifact(RANDOM_WORDS, each) for each in judged.artifacts(RANDOM_WORDS)}
    assert len(before) == JUDGED.random_words
    evaluate_run(judged, replace(services, generator=InterruptedGenerator(services.generator, 0)), JUDGED)
    judged.files.delete("evaluation/t/mono/3-0.parquet")
    assert not is_current(judged)
    evaluate_run(judged, services, JUDGED)
    assert is_current(judged)
    assert {each: judged.artifact(RANDOM_WORDS, each) for each in judged.artifacts(RANDOM_WORDS)} == before


def test_damaged_random_words_are_measured_again(judged: Run, services: EvaluationServices):
    before = {each: judged.artifact(RANDOM_WORDS, each) for each in judged.artifacts(RANDOM_WORDS)}
    name = f"{RANDOM_WORDS}/{max(before).path}.parquet"
    judged.files.write(name, (judged.files.read(name) or b"")[:-7])
    damaged = damaged_files(judged)
    assert [each.name for each in damaged] == [name]
    set_aside(judged, damaged)
    evaluate_run(judged, services, JUDGED)
    assert not damaged_files(judged)
    assert {each: judged.artifact(RANDOM_WORDS, each) for each in judged.artifacts(RANDOM_WORDS)} == before


def test_without_random_words_other_descriptions_are_the_null(tmp_path: Path, services: EvaluationServices):
    run = make_run(tmp_path, {RED: ("red",), GREEN: ("green",)})
    evaluate_run(run, services, EvaluationDesign(n=4, random_words=0))
    assert RANDOM not in supported_shares(run)
    assert scores(run)[RED]["p"] == pytest.approx(1 / 3)
    assert scores(run)[RED]["auc_words"] is None


# -- bad input -----------------------------------------------------------------------------------------------------------


def test_run_without_records_is_refused_by_the_command(tmp_path: Path, services: EvaluationServices):
    full, empty = make_run(tmp_path, {RED: ("red",)}, "full"), make_run(tmp_path, {}, "empty")
    evaluate_run(empty, services, SMALL)
    assert empty.scores() == {}
    with pytest.raises(UsageError, match="empty holds no finished investigation.*run it with openmaia run"):
        command([full.files.root, empty.files.root])
    assert full.evaluated() == set()


def test_record_with_a_label_that_is_no_string_costs_its_unit_alone(run: Run, services: EvaluationServices):
    """As in a record that another program made or edited."""
    path = Path(run.record_path(InvestigationId(unit=GREEN, replicate=0)))
    rows, header = tables.load(path.read_bytes())
    path.write_bytes(tables.dump(rows, None, header | {"summary": header["summary"] | {"labels": [7]}}))
    evaluate_run(run, services, SMALL)
    assert set(scores(run)) == {RED, STRIPES}
    assert [each.investigation.unit for each in damaged_files(run)] == [GREEN]


def test_label_that_is_no_string_is_named_with_its_unit():
    with pytest.raises(UsageError, match=r"t/mono/1, by own: 7 is a int.*put quotes"):
        Claim(unit=GREEN, method="own", labels=(7,))  # pyright: ignore[reportArgumentType]


def test_prompts_in_another_language_leave_one_claim_unwritten(run: Run, services: EvaluationServices):
    def answer(question: str, _: int) -> str:
        word = "красный" if "\nred\n" in question else "a green square on the ground"
        return "\n".join(f"{n}. {word} {n}" for n in range(1, 8))

    writer = PublishedPromptWriter(model(ScriptedModel(answer)), "paper")
    evaluate_run(
        run, replace(services, writer=writer), EvaluationDesign(preset="paper", random=0, random_words=0, detect=0)
    )
    found = scores(run)
    assert (found[RED]["outcome"], found[RED]["auc"]) == ("unwritten", None)
    assert "not in English" in found[RED]["cause"] and "asked 3 times" in found[RED]["cause"]
    assert (found[GREEN]["outcome"], found[GREEN]["cause"]) == ("undrawable", ""), "the collage draws no such scene"
    assert run_scores(run, 100).outcomes["unwritten"] == 1


def test_judge_that_refuses_leaves_out_detection_only(tmp_path: Path, services: EvaluationServices):
    alone, judged = make_run(tmp_path, {RED: ("red",)}, "alone"), make_run(tmp_path, {RED: ("red",)}, "judged")
    services = replace(services, photographs=[noise(n) for n in range(8)])
    design = EvaluationDesign(n=2, random=2, random_words=2, detect=8)
    evaluate_run(alone, services, design)
    evaluate_run(judged, replace(services, judge=ModelJudge(model(answering("I cannot look at this.")))), design)
    detection = scores(judged)[RED].pop("detection")
    assert (detection["judged"], detection["known"], "auprc" in detection) == (6, 0, False)
    for name in ("outcome", "auc", "positive", "top1"):
        assert scores(judged)[RED][name] == scores(alone)[RED][name]


# -- what a config may ask for -------------------------------------------------------------------------------------------

BASE = ["name=x", "units=all", "target.name=t"]
SERVED = ["backbone.kind=openai", "backbone.model=org/judge-7b"]


def test_paper_preset_needs_another_model_than_the_agents():
    other = ["evaluate.preset=paper", "evaluate.writer.kind=openai", "evaluate.writer.model=other"]
    assert load([*BASE, *SERVED, *other]).evaluate.preset == "paper"
    same = ["evaluate.preset=paper", "evaluate.writer.kind=vllm", "evaluate.writer.model=/models/Judge-7b"]
    with pytest.raises(UsageError, match=r"org/judge-7b \(openai\).*/models/Judge-7b \(vllm\)"):
        load([*BASE, *SERVED, *same])
    with pytest.raises(UsageError, match=r"org/judge-7b \(openai\).*org/judge-7b \(openai\)"):
        load([*BASE, *SERVED, "evaluate.preset=paper"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluate.preset=paper", "language model"),
        ("evaluate.preset=pairing", "language model"),
        ("evaluate.preset=best", "'labels', 'paper'"),
        ("evaluate.judge.kind=me", "detector, eyes, scenes, none"),
        ("evaluate.writer.kind=scripted", "rules, vllm"),
        ("evaluate.writer.kind=openai", "evaluate.writer.model"),
    ],
)
def test_wrong_setting_is_refused_by_its_key(override: str, message: str):
    with pytest.raises(UsageError, match=message):
        load([*BASE, override])
