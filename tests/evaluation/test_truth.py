"""Labels against known truth: matches, averages, what a config knows, and the files of an evaluated run."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from openmaia.cli.commands.exports import figures
from openmaia.cli.commands.results import report, show
from openmaia.config.loading import load
from openmaia.core.components import target_class
from openmaia.core.units import OUTPUT, TargetInfo, Unit
from openmaia.evaluation.analysis.agreement import ClaimPair, WordOverlap
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.truth import TRUTH_FILE, TruthMatch, match_truth, read_truth, truth_scores
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.evaluation.test_run import make_run

OR, AND, MONO = (Unit(target="t", layer="l", index=index) for index in range(3))
TRUTHS = {OR: ("red", "green circle"), AND: ("red stripes",), MONO: ("a dog",)}
WORDS = WordOverlap()


def matched(unit: Unit, *labels: str, description: str = "") -> TruthMatch:
    (match,) = match_truth([Claim(unit=unit, labels=labels, description=description)], TRUTHS, [WORDS])
    return match


@pytest.mark.parametrize(
    ("labels", "exact", "precision", "recall"),
    [
        (("red", "a green circle"), True, 1, 1),
        (("circle, green", "Red"), True, 1, 1),
        (("red",), False, 1, 0.5),
        (("red", "blue"), False, 0.5, 0.5),
        (("red", "red things"), False, 0.5, 0.5),
        (("red", "red", "green circle"), True, 1, 1),
        (("green",), False, 0, 0),
        (("red", "green circle", "dog"), False, 2 / 3, 1),
        (("a green circle or red",), True, 1, 1),
        (("red or blue",), False, 0.5, 0.5),
        (("either a green circle or red",), True, 1, 1),
        (("a green circle, red or blue",), False, 2 / 3, 1),
    ],
)
def test_labels_match_slots_one_to_one(labels: tuple[str, ...], exact: bool, precision: float, recall: float):
    match = matched(OR, *labels)
    assert (match.exact, match.precision, match.recall) == (exact, pytest.approx(precision), pytest.approx(recall))


def test_abstention_has_no_precision_and_no_recall():
    match = matched(OR)
    assert (match.exact, match.precision, match.recall, match.labels) == (False, None, 0.0, ())
    assert matched(MONO, description="dog").exact, "a description without labels is the label"
    assert match_truth([Claim(unit=Unit(target="x", layer="l", index=0), labels=("red",))], TRUTHS, [WORDS]) == []


class Judged:
    """Knows that a puppy is a dog, and nothing about cats."""

    name = "judged"

    def compare(self, pairs: Sequence[ClaimPair]) -> list[float | None]:
        known = {"puppy": 1.0, "cat": None}
        return [known.get(first.labels[0], 0.0) for first, _ in pairs]


def test_every_method_of_comparison_is_averaged_over_units():
    claims = [
        Claim(unit=MONO, labels=("puppy",)),
        Claim(unit=MONO, labels=("dog", "cat"), replicate=1),
        Claim(unit=AND, labels=("stripes",)),
        Claim(unit=OR),
    ]
    words, judged = truth_scores(match_truth(claims, TRUTHS, [WORDS, Judged()]))
    assert (words.by, words.units, words.unknown) == ("words in common", 3, 0)
    assert (words.exact.mean, words.recall.mean, words.precision.mean) == (
        0,
        pytest.approx(0.5 / 3),
        pytest.approx(0.125),
    )
    assert (judged.exact.mean, judged.unknown) == (pytest.approx(0.5 / 3), 1)
    assert words.exact.low < 1e-9 and 0.3 < words.exact.high < 1
    (silent,) = truth_scores(match_truth([Claim(unit=OR)], TRUTHS, [WORDS]))
    assert math.isnan(silent.precision.mean) and silent.recall.mean == 0


def test_config_of_known_units_gives_their_truth():
    closed = load([str(REPOSITORY / "configs/closed-form.yaml")])
    assert ("red",) in target_class(closed.target).truths(closed.target, info("closed_form")).values()
    own = ["target.kind=synthetic", "target.labels=[cheese,lemon]", "target.name=s"]
    for mode, slots in {
        "or": ("cheese", "lemon"),
        "and": ("cheese and lemon",),
        "andnot": ("cheese without lemon",),
    }.items():
        config = load([str(REPOSITORY / "configs/synthetic.yaml"), *own, f"target.mode={mode}"])
        assert target_class(config.target).truths(config.target, info("s")) == {
            Unit(target="s", layer=mode, index=0): slots
        }


def test_class_outputs_have_the_names_of_their_classes_as_truth():
    config = load([str(REPOSITORY / "configs/efficientnet-lite0.yaml")])
    assert target_class(config.target).truths(config.target, info("n")) == {}
    assert target_class(config.target).truths(config.target, info("n", "hen", "drake (male duck)", "")) == {
        Unit(target="n", layer=OUTPUT, index=0): ("hen",),
        Unit(target="n", layer=OUTPUT, index=1): ("drake",),
    }


def info(name: str, *classes: str) -> TargetInfo:
    return TargetInfo(name=name, layers={OUTPUT: len(classes)}, digest="", input_size=(224, 224), classes=classes)


def test_evaluated_run_shows_how_its_labels_match(
    tmp_path: Path, services: EvaluationServices, capsys: pytest.CaptureFixture[str]
):
    units = [Unit(target="t", layer="mono", index=index) for index in (0, 1, 3)]
    run: Run = make_run(tmp_path, {units[0]: ("red",), units[1]: ("=blue <b>",), units[2]: ()})
    truths = dict(zip(units, [("red",), ("green",), ("stripes",)], strict=True))
    known = EvaluationServices(
        generator=services.generator,
        target=services.target,
        writer=services.writer,
        similarities=[WORDS],
        truths=truths,
    )
    evaluate_run(run, known, EvaluationDesign(n=1, random=0, random_words=0))
    assert [each.exact for each in read_truth(run)] == [True, False, False]
    run.files.delete(TRUTH_FILE)
    evaluate_run(run, known, EvaluationDesign(n=1, random=0, random_words=0))
    assert [each.hits for each in read_truth(run)] == [1, 0, 0], "an evaluated run gets what it lacks"
    show(str(run.files.local))
    printed = capsys.readouterr().out
    assert "labels against what the units are known to respond to" in printed and "0.33" in printed
    figures([str(run.files.local)], to=str(tmp_path / "figures"))
    (whole,) = csv.DictReader((tmp_path / "figures/truth.csv").read_text().splitlines())
    assert (float(whole["exact"]), float(whole["precision"]), int(whole["units"])) == (
        pytest.approx(1 / 3, abs=1e-4),
        0.5,
        3,
    )
    rows = list(csv.DictReader((tmp_path / "figures/truth-units.csv").read_text().splitlines()))
    assert [row["labels"] for row in rows] == ["red", "'=blue <b>", ""]
    report([str(run.files.local)])
    page = (Path(str(run.files.local)) / "report/papers.html").read_text()
    assert "Labels against known truth" in page and "<b>" not in page
    run.files.write(TRUTH_FILE, b"[1")
    assert read_truth(run) == []
