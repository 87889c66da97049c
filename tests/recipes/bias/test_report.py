"""From records to tests, verdicts and pages, in one process."""

from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.datasets.library import ImageDataset
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.vocabulary.contexts import RuleContextWriter
from openmaia.recipes.bias.effects import BiasVerdict
from openmaia.recipes.bias.page import write_pages
from openmaia.recipes.bias.pairs import Matcher
from openmaia.recipes.bias.study import checked, is_tested, put_to_test
from openmaia.reporting.browser.write import write_report
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.helpers.investigating import pictures
from tests.recipes.bias.circles import UNIT, CircleClassifier

__all__ = ["pictures"]

BIAS = str(REPOSITORY / "configs/bias.yaml")
SETTINGS = load([BIAS, "bias.pairs=12", "bias.failures=6", "evaluate.bootstrap=100", "ray.investigations=1"])
UNUSED = Matcher(writer=RuleContextWriter(), generator=None, target=CircleClassifier(0))  # pyright: ignore[reportArgumentType]
HOSTILE = "+ <script>alert(1)</script>"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a claim of a planted bias, and one with a hostile claim."""
    made = Run.create(load([BIAS, f"paths.runs={tmp_path}"]))
    made.set_plan([UNIT], 2)
    for replicate, labels in enumerate([("- red background",), (HOSTILE,)]):
        made.publish(
            Record(
                unit=UNIT,
                replicate=replicate,
                stop=Stop.ANSWER,
                cause="",
                description="the ground matters",
                labels=labels,
                backbone="nobody",
                task="bias",
                sandbox="none",
                prompts=("a", "b"),
                turns=(),
                config=made.config(),
                started=0.0,
            )
        )
    return made


def matching(pictures: Path) -> Matcher:
    generator = CollageGenerator(ImageDataset.open(pictures), 64)
    return Matcher(writer=RuleContextWriter(), generator=generator, target=CircleClassifier(-3.0))


@pytest.fixture
def found(run: Run, pictures: Path) -> list[BiasVerdict]:
    matcher = matching(pictures)
    return put_to_test(run, matcher, SETTINGS, lambda done, total: None)


def test_claims_of_a_run_are_tested_and_stored(run: Run, found: list[BiasVerdict]):
    assert [one.supported for one in found] == [True, False]
    assert is_tested(run)
    assert len(run.artifacts("bias")) == 2 and len(run.artifacts("bias-failures")) == 1
    assert b'"supported":true' in (run.files.read("bias.json") or b"")


def test_stored_tests_are_reused(run: Run, found: list[BiasVerdict]):
    again = put_to_test(run, UNUSED, SETTINGS, lambda done, total: None)
    assert again == found


def test_new_records_make_earlier_verdicts_stale(run: Run, found: list[BiasVerdict], pictures: Path):
    """Until all claims are tested together again, the run does not count as tested, whatever interrupts that."""
    run.set_plan([UNIT], 3)
    first = run.record(InvestigationId(unit=UNIT, replicate=0))
    run.publish(replace(first, replicate=2))
    with pytest.raises(AttributeError):
        put_to_test(run, UNUSED, SETTINGS, lambda done, total: None)
    assert not is_tested(run) and not run.files.exists("bias.json") and not run.artifacts("bias-failures")
    matcher = matching(pictures)
    again = put_to_test(run, matcher, SETTINGS, lambda done, total: None)
    assert [one.supported for one in again] == [True, False, True]
    assert is_tested(run) and len(run.artifacts("bias-failures")) == 2


def test_run_without_claims_is_tested(tmp_path: Path):
    made = Run.create(load([BIAS, f"paths.runs={tmp_path}"]))
    put_to_test(made, UNUSED, SETTINGS, lambda done, total: None)
    write_pages(made, [])
    assert is_tested(made)
    assert "Nothing was claimed" in page(made, "biases")


def page(run: Run, name: str) -> str:
    data = run.files.read(f"report/applications/{name}.html")
    assert data is not None
    return data.decode()


def test_report_has_cards_and_failure_modes(run: Run, found: list[BiasVerdict]):
    write_pages(run, found)
    index = write_report([run]).read_text()
    assert 'href="applications/biases.html"' in index and 'href="applications/failure%20modes.html"' in index
    card = page(run, "biases")
    assert card.count('<article class="turn"') == 2
    assert card.index("circle: - red background") < card.index("circle: + &lt;script&gt;"), (
        "what is supported comes first"
    )
    assert "collage" in card and "12 of 12 sound" in card
    assert card.count('class="pair"') == 12
    gallery = page(run, "failure modes")
    assert "predicted: <b>square</b>" in gallery and "Base rate, without" in gallery


def test_claims_are_escaped(run: Run, found: list[BiasVerdict]):
    write_pages(run, found)
    assert "<script" not in page(run, "biases") and "<script" not in page(run, "failure modes")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("target.layers=[_conv_head]", r"target.layers=\['_conv_head'\]: biases are those of classes"),
        ("target.kind=synthetic", "no classes"),
        ("target.kind=closed_form", "target.family='small' has no classes"),
        ("bias.pairs=0", "bias.pairs=0 is out of range"),
        ("bias.rate=2", "bias.rate=2"),
    ],
)
def test_config_without_classes_is_refused(override: str, message: str):
    with pytest.raises(UsageError, match=message):
        checked(load([BIAS, override]))
