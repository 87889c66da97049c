"""From records to tests, verdicts and pages, in one process."""

from pathlib import Path

import pytest

from openmaia.apps.bias.contexts import RuleWriter
from openmaia.apps.bias.effects import Verdict
from openmaia.apps.bias.matched import Matcher
from openmaia.apps.bias.pages import write_pages
from openmaia.apps.bias.run import Design, is_tested, put_to_test
from openmaia.biases import checked
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.generators.collage import CollageGenerator
from openmaia.pictures.library import Library
from openmaia.report import write_report
from openmaia.store.records import Record, Stop
from openmaia.store.run import Run
from tests.bias.reds import UNIT, Reds
from tests.conftest import REPOSITORY
from tests.test_loop import pictures

__all__ = ["pictures"]

BIAS = str(REPOSITORY / "configs/bias.yaml")
DESIGN = Design(pairs=12, failures=6, resamples=100)
HOSTILE = "+ <script>alert(1)</script>"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A finished investigation that claims a bias, one that says nothing of use, and what is there of it."""
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


@pytest.fixture
def found(run: Run, pictures: Path) -> list[Verdict]:
    matcher = Matcher(generator=CollageGenerator(Library.open(pictures), 64), target=Reds(-3.0))
    return put_to_test(run, RuleWriter(), matcher, DESIGN, lambda done, total: None)


def test_claims_of_a_run_are_tested_and_kept(run: Run, found: list[Verdict]):
    assert [one.supported for one in found] == [True, False]
    assert is_tested(run)
    assert len(run.all_beside("bias")) == 2 and len(run.all_beside("bias-failures")) == 1
    assert b'"supported":true' in (run.files.read("bias.json") or b"")


def test_what_is_tested_is_not_tested_again(run: Run, found: list[Verdict]):
    dead = Matcher(generator=None, target=Reds(0))  # pyright: ignore[reportArgumentType]
    again = put_to_test(run, RuleWriter(), dead, DESIGN, lambda done, total: None)
    assert again == found


def test_a_run_without_claims_is_done(tmp_path: Path):
    made = Run.create(load([BIAS, f"paths.runs={tmp_path}"]))
    put_to_test(made, RuleWriter(), Matcher(generator=None, target=Reds(0)), DESIGN, lambda done, total: None)  # pyright: ignore[reportArgumentType]
    write_pages(made, [])
    assert is_tested(made)
    assert "Nothing was claimed" in page(made, "biases")


def page(run: Run, name: str) -> str:
    data = run.files.read(f"report/applications/{name}.html")
    assert data is not None
    return data.decode()


def test_the_report_has_a_card_for_each_claim_and_a_gallery(run: Run, found: list[Verdict]):
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
    assert "said: <b>square</b>" in gallery and "Base rate, without" in gallery


def test_what_agents_write_is_text(run: Run, found: list[Verdict]):
    write_pages(run, found)
    assert "<script" not in page(run, "biases") and "<script" not in page(run, "failure modes")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("target.layers=[_conv_head]", r"target.layers=\['_conv_head'\]: biases are those of classes"),
        ("target.kind=synthetic", "no classes"),
        ("target.kind=closed_form", "target.family='small' has no classes"),
        ("bias.pairs=0", "bias.pairs=0 is out of range"),
        ("bias.rate=2", "bias.rate=2"),
    ],
)
def test_what_has_no_classes_is_refused_before_anything_runs(override: str, said: str):
    with pytest.raises(UsageError, match=said):
        checked(load([BIAS, override]))
