"""Labels that nothing can be drawn of, and labels that are too long, go back before an answer is accepted."""

import pytest

from openmaia.agent.vocabulary import find_nearest
from openmaia.offline.collage.host import CollageVocabulary
from openmaia.runs.evidence import CheckState
from openmaia.runs.records import Record, Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import code

RULE = ("task.evidence.words=5", "task.evidence.drawable=1")
VOCABULARY = CollageVocabulary()


def answer(*labels: str) -> str:
    lines = "\n".join(f"[LABEL {n}]: {label}" for n, label in enumerate(labels, start=1))
    return f"[DESCRIPTION]: It responds to these.\n{lines}"


def unmet(record: Record) -> dict[str, str]:
    return {check.what: check.detail for check in record.evidence.checks if check.state is not CheckState.MET}


def test_label_that_cannot_be_drawn_goes_back(run: Investigate):
    record = run(answer("xylophones"), answer("musical instrument"), overrides=RULE)
    assert (record.stop, record.labels, record.evidence.sent_back) == (Stop.ANSWER, ("musical instrument",), 1)
    assert not unmet(record)


def test_long_label_goes_back(run: Investigate):
    record = run(answer("a red circle on a white background"), answer("red circle"), overrides=RULE)
    assert (record.labels, record.evidence.sent_back) == (("red circle",), 1)


def test_label_goes_back_twice_and_is_then_accepted_with_a_note(run: Investigate):
    record = run(*[answer("zyzzyva")] * 5, overrides=(*RULE, "limits.turns=12"))
    assert (record.stop, record.labels, record.evidence.sent_back) == (Stop.ANSWER, ("zyzzyva",), 2)
    assert "'zyzzyva' cannot be drawn" in unmet(record)["drawable"]


def test_label_goes_back_although_the_answer_was_asked_for(run: Investigate):
    looking = code("print(1)")
    rule = (*RULE, "limits.soft_turns=1", "limits.turns=5")
    record = run(looking, answer("zyzzyva"), answer("red"), overrides=rule)
    assert (record.labels, len(record.turns)) == (("red",), 3)


def test_last_turn_is_accepted_as_it_is(run: Investigate):
    record = run(code("print(1)"), answer("zyzzyva"), overrides=(*RULE, "limits.soft_turns=2", "limits.turns=2"))
    assert (record.stop, record.labels, record.evidence.sent_back) == (Stop.ANSWER, ("zyzzyva",), 0)
    assert "drawable" in unmet(record)


def test_reworded_answer_still_needs_its_evidence(run: Investigate):
    rule = (*RULE, "task.evidence.labels=1", "limits.turns=12")
    tested = code("system.call_neuron(tools.text2image(['a red circle']))")
    long, other = answer("a red circle on a white background"), answer("blue star")
    record = run(tested, long, other, answer("red circle"), overrides=rule)
    assert (record.labels, record.evidence.sent_back, unmet(record)) == (("red circle",), 2, {})


@pytest.mark.parametrize(
    "label", ["lion", "two small red circles", "A lion on grass", "chickens", "tomcat next to a tool"]
)
def test_vocabulary_is_what_the_generator_parses(label: str):
    assert VOCABULARY.missing(label) == (("tomcat",) if "tomcat" in label else ())


def test_instructions_list_what_can_be_drawn(run: Investigate):
    instructions = " ".join(run(answer("red")).prompts[0].split())
    assert ", ".join(VOCABULARY.words) in instructions


@pytest.mark.parametrize(
    ("label", "near"),
    [
        ("striped pattern of a lion's mane", "lion"),
        ("musician", "musical instrument"),
        ("stripes", "vertical stripes"),
        ("girafe", "giraffe"),
    ],
)
def test_nearest_words_share_a_word_or_its_spelling(label: str, near: str):
    assert near in find_nearest(label, VOCABULARY.words)


def test_label_without_a_near_word_names_none():
    assert find_nearest("qqq", VOCABULARY.words) == []
