"""The answers of published investigations, from whatever files they left."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmaia.interop import answers
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused
from tests.interop.published import ANSWER, SCORES, history, page, result

DESCRIPTION = "The unit fires for bow ties, worn around a neck."
NO_CONVERSATION: dict[str, Any] = {"history_json": None, "experiment_html": None}


def place(root: Path, agent: str = "claude") -> Path:
    return root / agent / "resnet152" / "layer4" / "122"


def read(root: Path, **changes: Any) -> tuple[Label, list[str]]:
    return answers.read(result(place(root), **changes), root)


def test_answer_becomes_label(tmp_path: Path):
    label, problems = read(tmp_path)
    assert label == Label(
        method="claude",
        target="resnet152",
        layer="layer4",
        unit=122,
        labels=("bow ties", "neckwear"),
        description="The unit fires for bow ties, worn around a neck.",
        score=8.0,
        score_kind=answers.SCORE_KIND,
        positive=(("a bow tie", 7.0), ("a man in a bow tie", 9.0)),
        negative=(("a lake", 1.0), ("a wall", 2.0)),
        source="claude/resnet152/layer4/122",
    )
    assert problems == []


@pytest.mark.parametrize("agent", ["claude", "local-google/gemma-3-27b-it", "a/b/c"])
def test_agent_name_may_have_slashes(tmp_path: Path, agent: str):
    assert answers.read(result(place(tmp_path, agent)), tmp_path)[0].method == agent


def test_page_replaces_missing_history(tmp_path: Path):
    assert read(tmp_path / "a", history_json=None)[0].labels == read(tmp_path / "b")[0].labels


def test_truncated_page_gives_complete_replies(tmp_path: Path):
    whole = page(history())
    truncated = whole[: whole.index("Enough seen") + 5]
    with pytest.raises(Refused, match="no answer"):
        read(tmp_path, history_json=None, description_txt=None, experiment_html=truncated)


def test_notes_replace_missing_conversation(tmp_path: Path):
    described, _ = read(tmp_path / "a", **NO_CONVERSATION)
    labelled, _ = read(tmp_path / "b", **NO_CONVERSATION, label_txt="bow ties\n")
    assert (described.labels, labelled.labels) == (("The unit fires for bow ties,",), ("bow ties",))
    assert {described.text, labelled.text} == {"The unit fires for bow ties,"}


@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        ("[DESCRIPTION]: dogs\n[LABEL]: dogs", ("dogs",)),
        ("**[DESCRIPTION]:** dogs\n**[LABEL 1]: dogs**", ("dogs",)),
        ("[DESCRIPTION]: dogs\n[LABEL 1]:\na dog", ("a dog",)),
        ("[DESCRIPTION]: only a description", ("only a description",)),
        (ANSWER, ("bow ties", "neckwear")),
    ],
)
def test_answer_is_found_as_models_write_it(tmp_path: Path, reply: str, labels: tuple[str, ...]):
    assert read(tmp_path, history_json=json.dumps(history(reply)))[0].labels == labels


def test_instructions_are_no_answer(tmp_path: Path):
    with pytest.raises(Refused, match="no answer"):
        read(tmp_path, history_json=json.dumps(history()[:4]), experiment_html=None, description_txt=None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 200_000, "levels deep"),
        ('{"role": "user"}', "no list of messages"),
        ("[3]", "without role"),
        ('[{"role": "assistant"}]', "without role"),
        ('[{"role": "assistant", "content": [{"text": ["x"]}]}]', "without role"),
    ],
)
def test_hostile_history_is_refused(tmp_path: Path, text: str, reason: str):
    with pytest.raises(Refused, match=reason) as caught:
        read(tmp_path, history_json=text, experiment_html=None, description_txt=None)
    assert "\n" not in caught.value.message


def test_huge_history_is_not_read(tmp_path: Path):
    folder = result(place(tmp_path), history_json="", experiment_html=None, description_txt=None)
    with (folder / "history.json").open("wb") as stream:
        stream.truncate(10**11)
    with pytest.raises(Refused, match="100,000,000,000 bytes"):
        answers.read(folder, tmp_path)


def test_damaged_files_are_reported_and_the_others_used(tmp_path: Path):
    label, problems = read(tmp_path, history_json="[", eval_results_json="{}")
    assert (label.labels, label.score) == (("bow ties", "neckwear"), None)
    assert [problem.split(" (")[0] for problem in problems] == [
        "history.json is not JSON",
        "eval_results.json has no average_positive_score",
    ]


DAMAGES: list[dict[str, Any]] = [
    {"average_positive_score": float("nan")},
    {"positive_prompts": ["a bow tie"]},
    {"negative_scores": 3},
    {"negative_scores": [1.0, float("inf")]},
]


@pytest.mark.parametrize("text", ["[]", "{", "3", *(json.dumps(SCORES | damage) for damage in DAMAGES)])
def test_damaged_scores_are_reported(tmp_path: Path, text: str):
    label, problems = read(tmp_path, eval_results_json=text)
    assert label.score is None
    assert len(problems) == 1


@pytest.mark.parametrize("name", ["unit122", "-3", "1" * 12])
def test_folder_without_unit_number_is_refused(tmp_path: Path, name: str):
    folder = result(tmp_path / "claude" / "resnet152" / "layer4" / name)
    with pytest.raises(Refused, match="expected a unit's number"):
        answers.read(folder, tmp_path)


@pytest.mark.parametrize("text", ["[DESCRIPTION]" * 20_000, "[LABEL 1]" * 20_000, "[DESCRIPTION]" + "\n* *_" * 50_000])
def test_hostile_answer_is_read_in_linear_time(tmp_path: Path, text: str):
    read(tmp_path, history_json=json.dumps(history(text)))


@pytest.mark.parametrize("tag", ["<pre>", "<h2>MAIA</h2>", "<h2>MAIA</h2><pre>"])
def test_hostile_page_is_read_in_linear_time(tmp_path: Path, tag: str):
    read(tmp_path, history_json=None, experiment_html=tag * 200_000)
