"""Two-alternative forced choice: a page that gives nothing away, answers read back, and a model that is no person."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from openmaia.commands.choice import read_answers, write_page
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.evaluate.asking import Malformed
from openmaia.evaluate.choice.blind import Behind, Key, blinded, read_key, write_key
from openmaia.evaluate.choice.judged import choice, judged
from openmaia.evaluate.choice.page import page
from openmaia.evaluate.choice.pairs import FOREIGN, OWN, Pairs, pairs
from openmaia.evaluate.choice.score import Answers, read, score
from openmaia.evaluate.statistics import wilson
from openmaia.store.run import Run
from openmaia.terminal.choice import show_choice
from openmaia.units import Unit
from tests.evaluate.talking import Talker, asker
from tests.report.making import HOSTILE, Page, record

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
def found(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return pairs([(made(tmp_path_factory.mktemp("runs"), ["dogs", "cats", "", "cups"]), "secret-run")])


# -- pairs -----------------------------------------------------------------------------------------------------------------


def test_within_a_run_a_unit_stands_against_the_next_one_that_says_something(found: Pairs):
    assert found.methods == (OWN, FOREIGN)
    assert [one.texts for one in found.pairs] == [("dogs", "cats"), ("cats", "cups"), ("cups", "dogs")]
    assert found.left_out == {"without labels": 1}


def test_between_runs_a_unit_stands_against_itself(tmp_path: Path):
    runs = [(made(tmp_path, ["dogs", "cats", "cups"], "a"), "a"), (made(tmp_path, ["wolves", "Cats"], "b"), "b")]
    found = pairs(runs)
    assert [one.texts for one in found.pairs] == [("dogs", "wolves")]
    assert found.left_out == {"with the same labels": 1, "without labels to choose between": 1}


def test_exemplars_are_darkened_outside_the_mask(found: Pairs):
    """The masks of making.record keep the upper half."""
    pixels = np.asarray(Image.open(io.BytesIO(found.pairs[0].exemplars[0])).convert("RGB")).astype(float)
    assert pixels[32:].mean() < 0.4 * pixels[:32].mean()


def test_a_run_without_anything_to_choose_says_why(tmp_path: Path):
    with pytest.raises(UsageError, match="2 with the same labels|without labels to choose"):
        pairs([(made(tmp_path, ["dogs", "dogs"]), "x")])


def test_three_runs_are_too_many(tmp_path: Path):
    run = made(tmp_path, ["dogs"])
    with pytest.raises(UsageError, match="3 runs"):
        pairs([(run, "a"), (run, "b"), (run, "c")])


# -- blind -----------------------------------------------------------------------------------------------------------------


def test_every_pair_is_asked_in_both_orders_and_never_twice_in_a_row_of_halves(found: Pairs):
    asked, key = blinded(found)
    count = len(found.pairs)
    for half in (asked[:count], asked[count:]):
        assert {one.pair.unit for one in half} == {one.unit for one in found.pairs}
    for pair in found.pairs:
        texts = [one.texts for one in asked if one.pair.unit == pair.unit]
        assert sorted(texts) == sorted([pair.texts, pair.texts[::-1]])
    for one in asked:
        assert one.texts[0] == one.pair.texts[key.items[one.name].first]


def test_sides_are_random(found: Pairs):
    sides = [one.texts == one.pair.texts for _ in range(40) for one in blinded(found)[0][:3]]
    assert 20 < sum(sides) < 100


def test_the_page_gives_nothing_away(found: Pairs):
    """Two pages of one run, from which the answers differ, differ in nothing but random names and orders."""
    asked, key = blinded(found)
    html = page(asked, key.name).decode()
    for word in ("secret", f'"{OWN}"', FOREIGN, '"first"', '"unit"', '"index"', "methods", "replicate"):
        assert word not in html
    questions = json.loads(html.split('id="questions">')[1].split("</script>")[0])
    assert set(questions) == {"page", "pictures", "items"}
    assert {frozenset(item) for item in questions["items"]} == {frozenset({"name", "pictures", "texts"})}
    assert list(questions["pictures"]) == sorted(questions["pictures"])


def test_pictures_on_the_page_have_no_metadata(found: Pairs):
    for data in found.pairs[0].exemplars:
        image = Image.open(io.BytesIO(data))
        assert not image.getexif() and not {"exif", "xmp", "icc_profile"} & set(image.info)


def test_the_page_fetches_nothing_and_hostile_labels_stay_texts(found: Pairs):
    hostile = dataclasses.replace(found.pairs[0], texts=(HOSTILE, "</script><b>x</b>"))
    asked, key = blinded(dataclasses.replace(found, pairs=(hostile,)))
    html = Page(page(asked, key.name).decode())
    assert not html.all("img") and not html.all("b") and not html.all("link")
    assert [script.get("type", "") for script in html.all("script")] == ["application/json", ""]
    assert "default-src 'none'" in html.all("meta")[1]["content"]


def test_the_key_lies_apart_from_the_page_and_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = made(tmp_path / "runs", ["dogs", "cats"])
    write_page([run.files.root], tmp_path / "hand-out" / "page.html")
    assert [path.name for path in (tmp_path / "hand-out").iterdir()] == ["page.html"]
    assert "not to be handed out" in capsys.readouterr().out
    _, key = blinded(pairs([(run, "x")]))
    write_key(run, key)
    assert read_key(run, key.name) == key
    assert read_key(run, "../../config") is None
    with pytest.raises(UsageError, match="is there already"):
        write_page([run.files.root], tmp_path / "hand-out" / "page.html")


# -- answers ---------------------------------------------------------------------------------------------------------------


def key(units: int) -> Key:
    """Question f3 shows the first method's text first for unit 3, s3 the second's."""
    items = {f"{order}{at}": Behind(unit=unit(at), replicate=0, first="fs".index(order)) for at in range(units) for order in "fs"}  # fmt: skip
    return Key(name="page", methods=("a", "b"), items=items)


def said(chosen: dict[str, int], who: str = "ann") -> Answers:
    return Answers(page="page", who=who, chosen=chosen)


def test_a_share_by_hand():
    """Unit 0: the first method in both orders; unit 1: what stood first in both, which is one of each."""
    found = score([said({"f0": 1, "s0": 2, "f1": 1, "s1": 1})], key(2), RESAMPLES)
    assert found.share.mean == pytest.approx((1 + 0.5) / 2)
    assert (found.units, found.answered, found.asked) == (2, 4, 4)
    assert (found.same, found.first) == (0.5, 0.75)


def test_a_habit_of_the_first_side_is_worth_nothing():
    found = score([said({f"{order}{at}": 1 for at in range(9) for order in "fs"})], key(9), RESAMPLES)
    assert (found.share.mean, found.first, found.same) == (0.5, 1.0, 0.0)


def test_people_and_units_are_crossed_and_one_unit_is_no_certainty():
    found = score([said({"f0": 1, "s0": 2}), said({"f0": 1}, "bob")], key(1), RESAMPLES)
    assert (found.who, found.share.mean) == (("ann", "bob"), 1.0)
    assert found.share.low == pytest.approx(wilson(1.0, 1)[0])
    assert found.share.low < 0.25


def test_more_units_narrow_the_interval():
    def width(units: int) -> float:
        chosen = {f"{order}{at}": ("fs".index(order) ^ (at % 4 == 0)) + 1 for at in range(units) for order in "fs"}
        share = score([said(chosen)], key(units), RESAMPLES).share
        assert share.mean == pytest.approx(0.75)
        return share.high - share.low

    assert width(64) < 0.6 * width(8)


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (3, 7), (7, 7), (1, 1)])
def test_wilsons_interval_is_scipys(hits: int, n: int):
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
def test_a_file_that_holds_no_answers_is_refused_by_name(data: bytes, why: str):
    with pytest.raises(UsageError, match=f"(?s)ann.json.*{why}"):
        read(data, "ann.json")


def test_who_left_no_name_goes_by_the_files():
    assert read(b'{"page": "p", "person": " ", "answers": {}}', "ann.json").who == "ann.json"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([said({"f7": 1})], "does not ask"),
        ([Answers(page="other", who="ann", chosen={"f0": 1})], "does not ask"),
        ([said({"f0": 1}), said({"f0": 2})], "ann answered more than once"),
        ([said({})], "nobody"),
    ],
)
def test_answers_to_something_else_are_refused(answers: list[Answers], why: str):
    with pytest.raises(UsageError, match=why):
        score(answers, key(1), RESAMPLES)


def test_answers_are_scored_by_the_key_of_their_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = made(tmp_path / "runs", ["dogs", "cats", "cups"])
    asked, key = blinded(pairs([(run, "x")]))
    write_key(run, key)
    right = {one.name: one.texts.index(one.pair.texts[0]) + 1 for one in asked}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"page": key.name, "person": "ann", "answers": right}))
    read_answers([run.files.root], [file])
    out = capsys.readouterr().out
    assert "by 1 person: labels own over labels of another unit 1.00" in out
    assert "6 of 6 questions answered" in out
    file.write_text(json.dumps({"page": "0" * 16, "person": "ann", "answers": right}))
    with pytest.raises(UsageError, match="made no page '0000"):
        read_answers([run.files.root], [file])


# -- a model ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "expected"), [("1", 1), ("2.", 2), ("Both fit.\n**Answer: 2**", 2), ("Label 1", 1)])
def test_a_choice_is_read(answer: str, expected: int):
    assert choice(answer) == expected


@pytest.mark.parametrize("answer", ["", "I cannot help with that.", "3", "1 or 2", "12", "1\nbut also 2 perhaps"])
def test_what_is_no_choice_is_refused(answer: str):
    with pytest.raises(Malformed):
        choice(answer)


def test_a_model_sees_pictures_and_both_orders_and_is_scored_alike(found: Pairs):
    asked, key = blinded(found)
    talker = Talker(lambda question, _: "1" if "1: dogs\n" in question else "2")
    answers = judged(asked, key.name, asker(talker))
    assert len(talker.chats) == 2 * len(found.pairs)
    seen = [tuple(picture.data for picture in chat.messages[1].pictures) for chat in talker.chats]
    assert seen == [one.pair.exemplars for one in asked]
    assert score([answers], key, RESAMPLES).answered == len(asked)


def test_a_model_that_refuses_has_no_answer_and_nothing_is_lost(found: Pairs):
    asked, key = blinded(found)
    refused = asked[0].texts[0]
    talker = Talker(lambda question, _: "I cannot judge this." if f"1: {refused}\n" in question else "2")
    answers = judged(asked, key.name, asker(talker))
    assert 0 < len(answers.chosen) < len(asked)
    assert "was asked 3 times" in answers.cause
    assert score([answers], key, RESAMPLES).answered == len(answers.chosen)


def test_a_model_is_never_shown_as_people(capsys: pytest.CaptureFixture[str]):
    found = score([said({"f0": 1, "s0": 2}, "judge-7b")], key(1), RESAMPLES)
    show_choice(found, "judge-7b")
    by_model = capsys.readouterr().out
    show_choice(found)
    by_people = capsys.readouterr().out
    assert "by a model, judge-7b" in by_model and "not comparable" in by_model
    assert "people:" not in by_model.split("paper")[0]
    assert "by 1 person" in by_people and "ten people" in by_people
