"""Two-alternative forced choice: a page that gives nothing away, answers read back, and a model that is no person."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from openmaia.cli.commands.choices import score_files, write_page
from openmaia.cli.commands.evaluate import evaluate as command
from openmaia.cli.terminal.scores import show_choice
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.language_model import MalformedAnswer
from openmaia.interop.label_backbone import read_truths
from openmaia.recipes.choices.answers import (
    ChoiceAnswers,
    ask_model,
    parse_choice,
    read_answers,
    score_answers,
)
from openmaia.recipes.choices.page import render_page
from openmaia.recipes.choices.questions import (
    CHECK,
    FOREIGN,
    OWN_UNIT,
    AnswerKey,
    ChoicePairs,
    QuestionSource,
    add_checks,
    choice_pairs,
    make_blind,
    read_key,
    write_key,
)
from openmaia.runs.run import Run
from tests.evaluation.scripted_model import ScriptedModel, model
from tests.reporting.making import HOSTILE, Page, record

RESAMPLES = 200


def unit(index: int) -> Unit:
    return Unit(target="secret-net", layer="secret-layer", index=index)


def made(folder: Path, texts: list[str], name: str = "secret-run") -> Run:
    """An investigation for each text, whose only label it is."""
    config = load([f"name={name}", "units=all", "target.name=secret-net", f"paths.runs={folder}"])
    found = Run.create(config)
    for index, text in enumerate(texts):
        labels = (text,) if text else ()
        found.publish(dataclasses.replace(record(unit(index), config), description=text, labels=labels))
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ChoicePairs:
    return choice_pairs([(made(tmp_path_factory.mktemp("runs"), ["dogs", "cats", "", "cups"]), "secret-run")])


# -- pairs -----------------------------------------------------------------------------------------------------------------


def test_pairs_within_a_run_use_the_next_unit(found: ChoicePairs):
    assert found.methods == (OWN_UNIT, FOREIGN)
    assert [one.texts for one in found.pairs] == [("dogs", "cats"), ("cats", "cups"), ("cups", "dogs")]
    assert found.left_out == {"without labels": 1}


def test_pairs_between_runs_use_the_same_unit(tmp_path: Path):
    runs = [(made(tmp_path, ["dogs", "cats", "cups"], "a"), "a"), (made(tmp_path, ["wolves", "Cats"], "b"), "b")]
    found = choice_pairs(runs)
    assert [one.texts for one in found.pairs] == [("dogs", "wolves")]
    assert found.left_out == {"with the same labels": 1, "without labels to choose between": 1}


def test_exemplars_are_darkened_outside_mask(found: ChoicePairs):
    """The masks of making.record keep the upper half."""
    pixels = np.asarray(Image.open(io.BytesIO(found.pairs[0].exemplars[0])).convert("RGB")).astype(float)
    assert pixels[32:].mean() < 0.4 * pixels[:32].mean()


def test_pairs_refuse_equal_labels(tmp_path: Path):
    with pytest.raises(UsageError, match="2 with the same labels|without labels to choose"):
        choice_pairs([(made(tmp_path, ["dogs", "dogs"]), "x")])


def test_pairs_refuse_three_runs(tmp_path: Path):
    run = made(tmp_path, ["dogs"])
    with pytest.raises(UsageError, match="3 runs"):
        choice_pairs([(run, "a"), (run, "b"), (run, "c")])


TRUE_LABELS = """\
layer,unit,description,method
secret-layer,0,canines,ground truth
secret-layer,0,x,MILAN
secret-layer,1,felines,ground truth
"""


def test_true_labels_take_the_place_of_pictures(tmp_path: Path):
    """As in Table 1 of the MAIA paper for synthetic neurons: only what the unit was built for is shown."""
    (tmp_path / "true.csv").write_text(TRUE_LABELS)
    truths = read_truths(str(tmp_path / "true.csv"), "secret-net", "--2afc-truth")
    assert truths == {("secret-layer", 0): "canines", ("secret-layer", 1): "felines"}
    runs = [
        (made(tmp_path, ["dogs", "cats", "cups"], "a"), "a"),
        (made(tmp_path, ["wolves", "lions", "jugs"], "b"), "b"),
    ]
    found = choice_pairs(runs, truths)
    assert [(one.truth, one.texts, one.exemplars) for one in found.pairs] == [
        ("canines", ("dogs", "wolves"), ()),
        ("felines", ("cats", "lions"), ()),
    ]
    assert found.left_out == {"without a true label": 1}
    questions, key = make_blind(found)
    html = render_page(questions, key.name).decode()
    assert "Which description fits this label better?" in html and "these pictures" not in html
    items = json.loads(html.split('id="questions">')[1].split("</script>")[0])["items"]
    assert {item["truth"] for item in items} == {"canines", "felines"}
    backbone = ScriptedModel(lambda question, _: "1" if "built to respond to this: felines\n" in question else "2")
    answers = ask_model(questions, key.name, model(backbone))
    assert score_answers([answers], key, RESAMPLES).answered == 4
    assert not any(chat.messages[1].images for chat in backbone.chats)


def test_true_labels_are_written_to_a_page_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = made(tmp_path / "runs", ["dogs", "cats"])
    (tmp_path / "true.csv").write_text(TRUE_LABELS)
    command([run.files.root], page=tmp_path / "page.html", truth=str(tmp_path / "true.csv"))
    assert "2 units, 4 questions and 3 attention checks" in capsys.readouterr().out
    assert "canines" in (tmp_path / "page.html").read_text()
    with pytest.raises(UsageError, match="give --2afc-page or --2afc-judge with it"):
        command([run.files.root], truth=str(tmp_path / "true.csv"))
    (tmp_path / "two.csv").write_text(TRUE_LABELS.replace("ground truth", "a").replace("MILAN", "b"))
    with pytest.raises(UsageError, match="labels by a, b of secret-net; expected the true labels"):
        command([run.files.root], page=tmp_path / "other.html", truth=str(tmp_path / "two.csv"))


# -- blind -----------------------------------------------------------------------------------------------------------------


def test_each_pair_is_asked_in_both_orders(found: ChoicePairs):
    questions, key = make_blind(found)
    count = len(found.pairs)
    for half in (questions[:count], questions[count:]):
        assert {one.pair.unit for one in half} == {one.unit for one in found.pairs}
    for pair in found.pairs:
        texts = [one.texts for one in questions if one.pair.unit == pair.unit]
        assert sorted(texts) == sorted([pair.texts, pair.texts[::-1]])
    for one in questions:
        assert one.texts[0] == one.pair.texts[key.items[one.name].first]


def test_sides_are_random(found: ChoicePairs):
    sides = [one.texts == one.pair.texts for _ in range(40) for one in make_blind(found)[0][:3]]
    assert 20 < sum(sides) < 100


def test_page_reveals_nothing(found: ChoicePairs):
    """Two pages of one run, from which the answers differ, differ in nothing but random names and orders."""
    questions, key = make_blind(found)
    html = render_page(questions, key.name).decode()
    for word in ("secret", f'"{OWN_UNIT}"', FOREIGN, '"first"', '"unit"', '"index"', "methods", "replicate"):
        assert word not in html
    questions = json.loads(html.split('id="questions">')[1].split("</script>")[0])
    assert set(questions) == {"page", "pictures", "items"}
    assert {frozenset(item) for item in questions["items"]} == {frozenset({"name", "pictures", "truth", "texts"})}
    assert list(questions["pictures"]) == sorted(questions["pictures"])


def test_page_images_have_no_metadata(found: ChoicePairs):
    for data in found.pairs[0].exemplars:
        image = Image.open(io.BytesIO(data))
        assert not image.getexif() and not {"exif", "xmp", "icc_profile"} & set(image.info)


def test_page_is_offline_and_escapes_labels(found: ChoicePairs):
    hostile = dataclasses.replace(found.pairs[0], texts=(HOSTILE, "</script><b>x</b>"))
    questions, key = make_blind(dataclasses.replace(found, pairs=(hostile,)))
    html = Page(render_page(questions, key.name).decode())
    assert not html.all("img") and not html.all("b") and not html.all("link")
    assert [script.get("type", "") for script in html.all("script")] == ["application/json", ""]
    assert "default-src 'none'" in html.all("meta")[1]["content"]


def test_key_is_stored_apart_from_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = made(tmp_path / "runs", ["dogs", "cats"])
    write_page([run.files.root], tmp_path / "hand-out" / "page.html")
    assert [path.name for path in (tmp_path / "hand-out").iterdir()] == ["page.html"]
    assert "not to be handed out" in capsys.readouterr().out
    _, key = add_checks(*make_blind(choice_pairs([(run, "x")])))
    write_key(run, key)
    assert len(key.checks) == 3 and read_key(run, key.name) == key
    assert read_key(run, "../../config") is None
    with pytest.raises(UsageError, match="exists, and people may be answering it"):
        write_page([run.files.root], tmp_path / "hand-out" / "page.html")


# -- answers ---------------------------------------------------------------------------------------------------------------


def key(units: int) -> AnswerKey:
    """Question f3 shows the first method's text first for unit 3, s3 the second's."""
    items = {f"{order}{at}": QuestionSource(unit=unit(at), replicate=0, first="fs".index(order)) for at in range(units) for order in "fs"}  # fmt: skip
    return AnswerKey(name="page", methods=("a", "b"), items=items)


def said(chosen: dict[str, int], who: str = "ann") -> ChoiceAnswers:
    return ChoiceAnswers(page="page", who=who, chosen=chosen)


def test_share_by_hand():
    """Unit 0: the first method in both orders; unit 1: what stood first in both, which is one of each."""
    found = score_answers([said({"f0": 1, "s0": 2, "f1": 1, "s1": 1})], key(2), RESAMPLES)
    assert found.share.mean == pytest.approx((1 + 0.5) / 2)
    assert (found.units, found.answered, found.questions) == (2, 4, 4)
    assert (found.consistent, found.first) == (0.5, 0.75)


def test_first_side_preference_scores_half():
    found = score_answers([said({f"{order}{at}": 1 for at in range(9) for order in "fs"})], key(9), RESAMPLES)
    assert (found.share.mean, found.first, found.consistent) == (0.5, 1.0, 0.0)


def test_share_of_one_unit_has_wide_interval():
    found = score_answers([said({"f0": 1, "s0": 2}), said({"f0": 1}, "bob")], key(1), RESAMPLES)
    assert (found.participants, found.share.mean) == (("ann", "bob"), 1.0)
    assert found.share.low == pytest.approx(wilson(1.0, 1)[0])
    assert found.share.low < 0.25


def test_more_units_narrow_interval():
    def width(units: int) -> float:
        chosen = {f"{order}{at}": ("fs".index(order) ^ (at % 4 == 0)) + 1 for at in range(units) for order in "fs"}
        share = score_answers([said(chosen)], key(units), RESAMPLES).share
        assert share.mean == pytest.approx(0.75)
        return share.high - share.low

    assert width(64) < 0.6 * width(8)


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (3, 7), (7, 7), (1, 1)])
def test_wilson_is_scipys(hits: int, n: int):
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert wilson(hits / n, n) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff", "no JSON"),
        (b"[1]", "no page, person and answers"),
        (b'{"page": 1, "answers": {}}', "no page"),
        (b'{"page": "p", "person": "x", "answers": {"q": 3}}', "expected 1 or 2"),
        (b'{"page": "p", "person": "x", "answers": {"q": true}}', "expected 1 or 2"),
        (b'{"page": "p", "person": "x", "answers": {"q": [1]}}', "expected 1 or 2"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_answers_refuse_other_files(data: bytes, why: str):
    with pytest.raises(UsageError, match=f"(?s)ann.json.*{why}"):
        read_answers(data, "ann.json")


def test_answers_without_name_use_file_name():
    assert read_answers(b'{"page": "p", "person": " ", "answers": {}}', "ann.json").who == "ann.json"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([said({"f7": 1})], "does not ask"),
        ([ChoiceAnswers(page="other", who="ann", chosen={"f0": 1})], "does not ask"),
        ([said({"f0": 1}), said({"f0": 2})], "ann answered more than once"),
        ([said({})], "nobody"),
    ],
)
def test_score_refuses_other_answers(answers: list[ChoiceAnswers], why: str):
    with pytest.raises(UsageError, match=why):
        score_answers(answers, key(1), RESAMPLES)


def test_answer_files_are_scored_by_page_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = made(tmp_path / "runs", ["dogs", "cats", "cups"])
    questions, key = make_blind(choice_pairs([(run, "x")]))
    write_key(run, key)
    right = {one.name: one.texts.index(one.pair.texts[0]) + 1 for one in questions}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"page": key.name, "person": "ann", "answers": right}))
    score_files([run.files.root], [file])
    out = " ".join(capsys.readouterr().out.split())
    assert "by 1 person: labels own over labels of another unit 1.00" in out
    assert "6 of 6 questions answered" in out
    file.write_text(json.dumps({"page": "0" * 16, "person": "ann", "answers": right}))
    with pytest.raises(UsageError, match="made no page '0000"):
        score_files([run.files.root], [file])


# -- attention ---------------------------------------------------------------------------------------------------------------


def test_checks_hide_among_questions(found: ChoicePairs):
    questions, key = make_blind(found)
    mixed, checked = add_checks(questions, key)
    assert [one for one in mixed if one.name in key.items] == questions and checked.items == key.items
    for name, right in checked.checks.items():
        (one,) = [one for one in mixed if one.name == name]
        assert one.texts[right - 1] == CHECK and one.texts[2 - right] in one.pair.texts
    assert len(checked.checks) == 3
    items = json.loads(render_page(mixed, key.name).decode().split('id="questions">')[1].split("</script>")[0])["items"]
    assert {frozenset(item) for item in items} == {frozenset({"name", "pictures", "truth", "texts"})}
    many = dataclasses.replace(found, pairs=found.pairs * 20)
    assert len(add_checks(*make_blind(many))[1].checks) == 12


def test_who_fails_the_checks_is_left_out_and_named(capsys: pytest.CaptureFixture[str]):
    checked = dataclasses.replace(key(2), checks={f"c{n}": 1 + n % 2 for n in range(5)})
    right = dict(checked.checks)
    careful, slip = said({"f0": 1, "s0": 2} | right), said({"f1": 1} | right | {"c0": 2}, "bob")
    careless = said({"f0": 2, "s0": 1} | right | {"c0": 2, "c1": 1}, "eve")
    found = score_answers([careful, slip, careless], checked, RESAMPLES)
    assert (found.participants, found.inattentive) == (("ann", "bob"), ("eve",))
    assert (found.share.mean, found.answered, found.questions, found.first) == (1.0, 3, 8, pytest.approx(2 / 3))
    show_choice(found)
    assert "left out, because they failed the attention checks: eve" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(UsageError, match="eve failed the attention checks"):
        score_answers([careless], checked, RESAMPLES)
    assert score_answers([said({"f0": 1}, "dan")], checked, RESAMPLES).inattentive == ()  # stopped before any check


def test_people_agree_by_krippendorffs_alpha(capsys: pytest.CaptureFixture[str]):
    """Ann and Bob agree on two of four questions, and choose both methods as often: alpha is 1 - 7 x 4 / 32."""
    ann, bob = said({"f0": 1, "s0": 2, "f1": 2, "s1": 1}), said({"f0": 1, "s0": 1, "f1": 2, "s1": 2}, "bob")
    found = score_answers([ann, bob], key(2), RESAMPLES)
    assert found.alpha == pytest.approx(1 - 7 * 4 / 32)
    show_choice(found)
    assert "Krippendorff's alpha): 0.12" in " ".join(capsys.readouterr().out.split())
    assert score_answers([ann], key(2), RESAMPLES).alpha is None


# -- a model ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "expected"), [("1", 1), ("2.", 2), ("Both fit.\n**Answer: 2**", 2), ("Label 1", 1)])
def test_choice_parses(answer: str, expected: int):
    assert parse_choice(answer) == expected


@pytest.mark.parametrize("answer", ["", "I cannot help with that.", "3", "1 or 2", "12", "1\nbut also 2 perhaps"])
def test_choice_refuses_other_answers(answer: str):
    with pytest.raises(MalformedAnswer):
        parse_choice(answer)


def test_model_sees_images_in_both_orders(found: ChoicePairs):
    questions, key = make_blind(found)
    backbone = ScriptedModel(lambda question, _: "1" if "1: dogs\n" in question else "2")
    answers = ask_model(questions, key.name, model(backbone))
    assert len(backbone.chats) == 2 * len(found.pairs)
    seen = [tuple(image.data for image in chat.messages[1].images) for chat in backbone.chats]
    assert seen == [one.pair.exemplars for one in questions]
    assert score_answers([answers], key, RESAMPLES).answered == len(questions)


def test_model_refusals_are_left_out(found: ChoicePairs):
    questions, key = make_blind(found)
    refused = questions[0].texts[0]
    backbone = ScriptedModel(lambda question, _: "I cannot judge this." if f"1: {refused}\n" in question else "2")
    answers = ask_model(questions, key.name, model(backbone))
    assert 0 < len(answers.chosen) < len(questions)
    assert "was asked 3 times" in answers.cause
    assert score_answers([answers], key, RESAMPLES).answered == len(answers.chosen)


def test_model_is_never_shown_as_people(capsys: pytest.CaptureFixture[str]):
    found = score_answers([said({"f0": 1, "s0": 2}, "judge-7b")], key(1), RESAMPLES)
    show_choice(found, "judge-7b")
    by_model = " ".join(capsys.readouterr().out.split())
    show_choice(found)
    by_people = " ".join(capsys.readouterr().out.split())
    assert "by a model, judge-7b" in by_model and "not comparable" in by_model
    assert "people:" not in by_model.split("paper")[0]
    assert "by 1 person" in by_people and "ten people" in by_people
