"""The overlap of test prompts with those that the agent drew, and that none of the agent's is used again."""

from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.cli.terminal.descriptions import show_overlap
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import RunOverlap, explored, measure_overlap, run_overlap
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.controls import prepare_reference
from openmaia.evaluation.protocol import evaluate_claims, run_trials
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.runs.evidence import Confirmation, ConfirmationSample
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.samples import record, turn

DESIGN = EvaluationDesign(n=6, random=0, detect=0)


def test_overlap_by_hand():
    overlap = measure_overlap(["A  dog on grass", "a red cat", "a fish"], explored(["a dog on grass", "a red dog"]))
    assert (overlap.explored, overlap.exact) == (2, pytest.approx(1 / 3))
    assert overlap.words == pytest.approx((1 + 1 / 3 + 0) / 3)


def test_overlap_without_prompts_is_zero():
    assert measure_overlap([], explored(["a dog"])).words == 0
    assert measure_overlap(["a dog"], explored([])).words == 0


def test_trial_uses_no_prompt_of_the_investigation(services: EvaluationServices):
    claim = Claim(unit=Unit(target="t", layer="mono", index=0), labels=("red",))
    reference = prepare_reference({"mono"}, services, DESIGN)
    (free,) = run_trials([claim], services, DESIGN, reference)
    drawn = explored(stimulus.prompt for stimulus in free.stimuli)
    (trial,) = run_trials([claim], services, DESIGN, reference, drawn)
    used = explored(stimulus.prompt for stimulus in trial.stimuli)
    assert free.overlap is not None and trial.overlap is not None
    assert not used & drawn
    assert {stimulus.role for stimulus in trial.stimuli} == {"positive", "neutral"}, "all unrelated prompts were drawn"
    assert (trial.overlap.explored, trial.overlap.exact, trial.cause) == (len(drawn), 0.0, "")
    assert 0 < trial.overlap.words < 1


def test_evaluation_reads_the_prompts_of_the_record(
    tmp_path: Path, services: EvaluationServices, capsys: pytest.CaptureFixture[str]
):
    run = Run.create(load(["name=demo", "units=all", "target.name=t", f"paths.runs={tmp_path}"]))
    unit = Unit(target="t", layer="mono", index=0)
    claim = Claim(unit=unit, labels=("red",))
    first, *others = [s.prompt for s in evaluate_claims([claim], services, DESIGN)[0].trial.stimuli if s.prompt]
    asking = turn(calls=(replace(turn().calls[0], asked=(first,)),))
    samples = tuple(ConfirmationSample(label="red", prompt=each, seed=1, digest="", activation=0.0) for each in others)
    run.publish(record(unit, labels=("red",), turns=(asking,), confirmation=Confirmation(samples=samples)))
    run.set_plan([unit], 1)
    investigation = InvestigationId(unit=unit, replicate=0)
    assert run.drawn_prompts(investigation) == run.record(investigation).drawn_prompts() == [first, *others]
    evaluate_run(run, services, DESIGN)
    (scores,) = run.scores().values()
    assert (scores["outcome"], scores["overlap_exact"]) == ("tested", 0.0)
    assert 0 < scores["overlap_words"] < 1
    show_overlap(run)
    assert "test prompts that the agent drew as well: 0 %" in capsys.readouterr().out


def test_overlap_of_a_run_counts_incomplete_trials():
    trials = [
        {"overlap_exact": 0.0, "overlap_words": 0.5, "cause": ""},
        {"overlap_exact": 0.0, "overlap_words": 0.2, "cause": "4 of 10 prompts"},
        {"overlap_exact": None, "overlap_words": None, "cause": "refused"},
    ]
    assert run_overlap(trials) == RunOverlap(trials=2, exact=0.0, words=pytest.approx(0.35), incomplete=1)
    assert run_overlap(trials[2:]) is None
