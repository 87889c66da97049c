"""A run's evaluation: every record once, resumed where it stopped, and the run as a whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.evaluate.protocol import Design, Instruments
from openmaia.evaluate.run import differences, evaluate, pooled
from openmaia.evaluate.sanity import METRICS, measured, notes, warning
from openmaia.evaluate.writers import RuleWriter
from openmaia.generators.collage import CollageGenerator
from openmaia.pictures.library import Library
from openmaia.store.records import Stop
from openmaia.store.run import Owed, Run
from openmaia.targets.closed_form import ClosedFormTarget
from openmaia.units import Unit
from tests.samples import record

RED, GREEN, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 3))
SMALL = Design(n=2)


@pytest.fixture(scope="module")
def instruments(tmp_path_factory: pytest.TempPathFactory) -> Instruments:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    generator = CollageGenerator(Library.open(folder), 224)
    return Instruments(generator=generator, target=ClosedFormTarget("t"), writer=RuleWriter())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(load(["name=demo", "units=all", "target.name=t", f"paths.runs={tmp_path}"]))
    made.set_plan([RED, GREEN, STRIPES], 1)
    for unit, labels in ((RED, ("red",)), (GREEN, ("green",)), (STRIPES, ())):
        stop = Stop.ANSWER if labels else Stop.ABSTAIN
        made.publish(record(unit, labels=labels, description=" ".join(labels), turns=(), stop=stop))
    return made


def test_every_record_gets_an_evaluation_once(run: Run, instruments: Instruments):
    told: list[tuple[int, int]] = []
    for _ in range(2):
        evaluate(run, instruments, SMALL, lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    scores = {owed.unit: values for owed, values in run.scores().items()}
    assert [scores[unit]["outcome"] for unit in (RED, GREEN, STRIPES)] == ["tested", "tested", "abstained"]
    assert (scores[RED]["others"], scores[GREEN]["others"], scores[STRIPES]["others"]) == ([1], [0], [0, 1])
    assert run.tried() == set()


def test_an_evaluation_does_not_depend_on_what_else_was_evaluated(run: Run, instruments: Instruments):
    evaluate(run, instruments, SMALL)
    before = run.scores()
    run.files.delete("evaluation/t/mono/0-0.parquet")
    evaluate(run, instruments, SMALL)
    assert run.scores() == before


class Stopping(CollageGenerator):
    """Is stopped after so many calls, as by Ctrl-C."""

    def __init__(self, generator: CollageGenerator, calls: int):
        self._inner, self._left = generator, calls

    def generate(self, requests):  # pyright: ignore[reportMissingParameterType, reportIncompatibleMethodOverride]
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._inner.generate(requests)


def test_an_interrupted_evaluation_goes_on_and_ends_the_same(run: Run, instruments: Instruments):
    assert isinstance(instruments.generator, CollageGenerator)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run, replace(instruments, generator=Stopping(instruments.generator, 2)), SMALL)
    assert len(run.tried()) == 1
    assert run.evaluated() == set()
    evaluate(run, instruments, SMALL)
    resumed = run.scores()
    run.files.delete_folder("evaluation")
    evaluate(run, instruments, SMALL)
    assert run.scores() == resumed


def test_the_mean_difference_counts_abstentions_too(run: Run, instruments: Instruments):
    evaluate(run, instruments, SMALL)
    scores = list(run.scores().values())
    expected = np.mean([values["auc"] - values["auc_other"] for values in scores])
    assert len(scores) == 3
    assert differences(run, 200).mean == pytest.approx(expected)


def test_the_whole_is_kept_until_another_evaluation_is_added(run: Run, instruments: Instruments):
    evaluate(run, instruments, SMALL)
    first = pooled(run, 200)
    # As texts: what is not a number equals nothing.
    assert repr(pooled(run, 200)) == repr(first)
    assert "NaN" not in (run.files.read("evaluation.json") or b"").decode()
    run.files.delete("evaluation/t/mono/3-0.parquet")
    assert pooled(run, 200).outcomes == {"tested": 2}


def test_a_run_without_any_description_is_chance_and_no_error(tmp_path: Path, instruments: Instruments):
    made = Run.create(load(["name=none", "units=all", "target.name=t", f"paths.runs={tmp_path}"]))
    made.publish(record(RED, labels=(), description="", turns=(), stop=Stop.ABSTAIN))
    evaluate(made, instruments, SMALL)
    assert made.scores()[Owed(unit=RED, replicate=0)]["auc"] == 0.5
    whole = pooled(made, 200)
    assert (whole.outcomes, whole.measures["auc"].mean) == ({"abstained": 1}, 0.5)
    assert np.isnan(whole.measures["d"].mean)


def test_a_run_without_records_is_evaluated_as_nothing(tmp_path: Path, instruments: Instruments):
    made = Run.create(load(["name=none", "units=all", "target.name=t", f"paths.runs={tmp_path}"]))
    evaluate(made, instruments, SMALL)
    assert made.scores() == {}


# -- what a config may ask for -------------------------------------------------------------------------------------------

BASE = ["name=x", "units=all", "target.name=t"]
SERVED = ["backbone.kind=openai", "backbone.model=org/judge-7b"]


def test_paper_refuses_the_agents_own_model_and_names_both():
    same = ["evaluate.preset=paper", "evaluate.writer.kind=vllm", "evaluate.writer.model=/models/Judge-7b"]
    with pytest.raises(UsageError, match=r"org/judge-7b \(openai\).*/models/Judge-7b \(vllm\)"):
        load([*BASE, *SERVED, *same])


def test_paper_takes_another_model():
    other = ["evaluate.preset=paper", "evaluate.writer.kind=openai", "evaluate.writer.model=other"]
    assert load([*BASE, *SERVED, *other]).evaluate.preset == "paper"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evaluate.preset=paper", "needs|language model"),
        ("evaluate.preset=pairing", "language model"),
        ("evaluate.preset=best", "labels or paper"),
        ("evaluate.judge=me", "auto or eyes"),
        ("evaluate.writer.kind=scripted", "rules or vllm"),
        ("evaluate.writer.kind=openai", "evaluate.writer.model"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(override: str, said: str):
    with pytest.raises(UsageError, match=said):
        load([*BASE, override])


# -- sanity --------------------------------------------------------------------------------------------------------------


def test_every_metric_was_put_to_both_tests():
    assert {name: set(tests) for name, tests in measured().items()} == {
        name: {"missing_label", "extra_label"} for name in METRICS
    }


def test_a_metric_that_fails_says_so_and_one_that_passes_does_not():
    for name, tests in measured().items():
        assert bool(warning(name)) == (not all(tests.values()))


def test_the_paired_difference_is_marked_as_the_auc_that_it_is_made_of():
    assert warning("auc_minus_other") == warning("auc")


def test_every_metric_that_fails_has_a_name_for_its_note():
    failing = [name for name in METRICS if warning(name)]
    assert failing
    assert [note.endswith(warning(name)) for note, name in zip(notes(METRICS), failing, strict=True)] == [True] * len(
        failing
    )
