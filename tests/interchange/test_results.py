"""What MAIA leaves of an investigation: its conversation, its answer, its scores."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmaia.interchange import results
from openmaia.interchange.reading import Refused
from openmaia.interchange.results import Result
from openmaia.messages import Role
from openmaia.units import Unit
from tests.interchange import published
from tests.interchange.published import ANSWER, SCORES, history, page, result

DESCRIPTION = "The unit fires for bow ties, worn around a neck."


def place(root: Path, agent: str = "claude") -> Path:
    return root / agent / "resnet152" / "layer4" / "122"


def read(root: Path, **changes: Any) -> Result:
    return results.read(result(place(root), **changes), root)


def test_a_published_result_reads_as_it_was(tmp_path: Path):
    found = read(tmp_path)
    assert found.unit == Unit(target="resnet152", layer="layer4", index=122)
    assert found.agent == "claude"
    assert (found.description, found.labels) == (DESCRIPTION, ("bow ties", "neckwear"))
    assert [turn.role for turn in found.turns] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT]
    assert found.turns[3].text == "activation 9.5"
    assert found.notes == ()


def test_images_keep_their_pixels_whatever_type_they_claim(tmp_path: Path):
    (picture,) = read(tmp_path).turns[3].pictures
    assert picture.digest == published.png().digest


def test_scores_are_those_of_the_published_evaluation(tmp_path: Path):
    scores = read(tmp_path).scores
    assert scores is not None
    assert (scores.average_positive, scores.average_negative) == (8.0, 1.5)
    assert (scores.positive, scores.negative) == ((7.0, 9.0), (1.0, 2.0))
    assert scores.positive_prompts == ("a bow tie", "a man in a bow tie")


@pytest.mark.parametrize("agent", ["claude", "local-google/gemma-3-27b-it", "a/b/c"])
def test_an_agents_name_may_hold_slashes(tmp_path: Path, agent: str):
    assert results.read(result(place(tmp_path, agent)), tmp_path).agent == agent


def test_the_page_stands_in_for_a_missing_history(tmp_path: Path):
    found, whole = read(tmp_path / "a", history_json=None), read(tmp_path / "b")
    assert (found.description, found.labels) == (whole.description, whole.labels)
    assert [turn.text for turn in found.turns if turn.role is Role.ASSISTANT] == [
        turn.text for turn in whole.turns if turn.role is Role.ASSISTANT
    ]
    assert [p.digest for turn in found.turns for p in turn.pictures] == [published.png().digest]


def test_replies_in_a_row_stay_apart_on_the_page(tmp_path: Path):
    messages = [*history(), *history()[-1:]]
    found = read(tmp_path, history_json=None, experiment_html=page(messages))
    assert [turn.role for turn in found.turns][-3:] == [Role.USER, Role.ASSISTANT, Role.ASSISTANT]


def test_a_page_that_breaks_off_gives_what_is_whole(tmp_path: Path):
    whole = page(history())
    cut = read(
        tmp_path, history_json=None, description_txt=None, experiment_html=whole[: whole.index("Enough seen") + 5]
    )
    assert cut.turns[-1].role is Role.USER
    assert (cut.description, cut.labels) == ("", ())
    assert cut.as_label("") is None


def test_the_notes_stand_in_for_a_missing_conversation(tmp_path: Path):
    found = read(tmp_path, history_json=None, experiment_html=None, label_txt="bow ties\n")
    assert (found.description, found.labels, found.turns) == ("The unit fires for bow ties,", ("bow ties",), ())


@pytest.mark.parametrize(
    ("reply", "description", "labels"),
    [
        ("[DESCRIPTION]: dogs\n[LABEL]: dogs", "dogs", ("dogs",)),
        ("[DESCRIPTION]\ndogs\nand cats\n\n[LABEL 1]: dogs\n[LABEL 2]: cats", "dogs and cats", ("dogs", "cats")),
        ("**[DESCRIPTION]:** dogs\n**[LABEL 1]: dogs**", "dogs", ("dogs",)),
        ("[DESCRIPTION]: dogs [LABEL 1]: a [LABEL 2]: b", "dogs [LABEL 1]: a [LABEL 2]: b", ("a", "b")),
        ("[DESCRIPTION]: dogs\n[LABEL 1]:\na dog", "dogs", ("a dog",)),
        ("[DESCRIPTION]: only a description", "only a description", ()),
        (ANSWER, DESCRIPTION, ("bow ties", "neckwear")),
    ],
)
def test_the_answer_is_found_as_models_write_it(tmp_path: Path, reply: str, description: str, labels: tuple[str, ...]):
    found = read(tmp_path, history_json=json.dumps(history(reply)))
    assert (found.description, found.labels) == (description, labels)


def test_instructions_are_no_answer(tmp_path: Path):
    found = read(tmp_path, history_json=json.dumps(history()[:4]), description_txt=None)
    assert found.description == ""


def test_a_result_becomes_a_label(tmp_path: Path):
    label = read(tmp_path).as_label("claude/resnet152")
    assert label is not None
    assert (label.method, label.target, label.layer, label.unit) == ("claude", "resnet152", "layer4", 122)
    assert (label.labels, label.score, label.source) == (("bow ties", "neckwear"), 8.0, "claude/resnet152")


# -- hostile -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[" * 200_000, "deeply"),
        ('{"role": "user"}', "no list of messages"),
        ("[3]", "message 0"),
        ('[{"role": "root", "content": []}]', "message 0"),
        ('[{"role": ["user"], "content": []}]', "message 0"),
        ('[{"role": "user", "content": {"a": 1}}]', "message 0"),
        ('[{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]', "message 0"),
        ('[{"role": "user", "content": [{"text": ["x"]}]}]', "message 0"),
    ],
)
def test_a_hostile_history_is_one_refusal(tmp_path: Path, text: str, said: str):
    with pytest.raises(Refused, match=said) as caught:
        read(tmp_path, history_json=text, experiment_html=None, description_txt=None)
    assert "\n" not in caught.value.message


def test_a_huge_history_is_not_read(tmp_path: Path):
    folder = result(place(tmp_path), history_json="", experiment_html=None, description_txt=None)
    with (folder / "history.json").open("wb") as stream:
        stream.truncate(10**11)
    with pytest.raises(Refused, match="100,000,000,000 bytes"):
        results.read(folder, tmp_path)


def test_a_damaged_history_leaves_the_page_and_a_note(tmp_path: Path):
    found = read(tmp_path, history_json="[")
    assert found.description == DESCRIPTION
    assert [note.split(" (")[0] for note in found.notes] == ["history.json is no JSON"]


@pytest.mark.parametrize("url", ["data:image/png;base64,AAAA", "data:image/png;base64,!!", "data:image/png"])
def test_an_image_that_cannot_be_read_is_noted(tmp_path: Path, url: str):
    messages = history()
    messages[3]["content"][1]["image_url"]["url"] = url
    found = read(tmp_path, history_json=json.dumps(messages))
    assert found.turns[3].pictures == ()
    assert len(found.notes) == 1


@pytest.mark.parametrize("url", ["http://example.org/x.png", "file:///etc/passwd"])
def test_no_address_is_fetched(tmp_path: Path, url: str):
    messages = history()
    messages[3]["content"][1]["image_url"]["url"] = url
    assert read(tmp_path, history_json=json.dumps(messages)).turns[3].parts == ("activation 9.5", url)


@pytest.mark.parametrize(
    "text", ["[]", "{", "3", json.dumps(SCORES | {"positive_scores": ["x"]}), json.dumps(SCORES | {"average_positive_score": float("nan")})]
)  # fmt: skip
def test_damaged_scores_are_noted_and_the_rest_is_kept(tmp_path: Path, text: str):
    found = read(tmp_path, eval_results_json=text)
    assert found.scores is None
    assert found.description == DESCRIPTION
    assert len(found.notes) == 1


def test_a_folder_that_is_no_units_is_refused(tmp_path: Path):
    folder = result(tmp_path / "claude" / "resnet152" / "layer4" / "unit-x")
    with pytest.raises(Refused, match="expected a unit's number"):
        results.read(folder, tmp_path)


@pytest.mark.parametrize(
    "text", ["[DESCRIPTION]" * 20_000, "[LABEL 1]" * 20_000, "[DESCRIPTION]" + "\n* *_" * 50_000 + "x"]
)
def test_an_answer_made_to_be_slow_is_not(tmp_path: Path, text: str):
    read(tmp_path, history_json=json.dumps(history(text)))


@pytest.mark.parametrize("tag", ["<pre>", "<h2>", '<img src="'])
def test_a_page_made_to_be_slow_is_not(tmp_path: Path, tag: str):
    read(tmp_path, history_json=None, experiment_html=tag * 200_000)
