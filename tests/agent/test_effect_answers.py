"""Answers that name the classes that a unit raises."""

import pytest

from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import load
from openmaia.agent.tools.effects import find_classes
from openmaia.core.messages import AnswerFormat, assistant
from openmaia.models.backbones.tool_calls import convert_to_calls, convert_to_text, functions
from openmaia.models.backbones.turn_grammar import turn_grammar
from openmaia.runs.parquet import read_record, write_record
from tests.helpers.samples import record

ASKED = AnswerFormat(effect="EFFECT")
CLASSES = ("tench, Tinca tinca", "goldfish", "great white shark", "Border collie")


def test_effect_is_read_beside_the_description():
    found = parse("[DESCRIPTION]: fish\n[LABEL 1]: fish\n[EFFECT]: goldfish; great white shark", ASKED)
    assert (found.description, found.labels, found.effect) == ("fish", ("fish",), "goldfish; great white shark")
    listed = parse("[DESCRIPTION]: fish\n[LABEL 1]: fish\n**[EFFECT]**:\n- goldfish;\n- great white shark\n", ASKED)
    assert listed.effect == "goldfish; great white shark"


@pytest.mark.parametrize("effect", ["NONE", "", "<the classes that the unit raises most, separated by semicolons>"])
def test_answer_without_an_effect_has_none(effect: str):
    answer = load("description").with_effects().answer
    found = parse(f"[DESCRIPTION]: fish\n[LABEL 1]: fish\n[EFFECT]: {effect}", answer)
    assert (found.description, found.labels, found.effect) == ("fish", ("fish",), "")
    assert parse("[DESCRIPTION]: NONE\n[EFFECT]: goldfish", answer).effect == ""


def test_effect_that_was_not_asked_for_is_no_section():
    reply = "[DESCRIPTION]: fish\n[LABEL 1]: fish\n[EFFECT]: goldfish"
    assert parse(reply).sections == {"DESCRIPTION": "fish", "LABEL 1": "fish\n[EFFECT]: goldfish"}
    assert parse(reply).labels == ("fish",)


def test_only_tasks_about_a_unit_ask_for_effects():
    described, bias = load("description"), load("bias")
    assert "[EFFECT]" in described.with_effects().user
    assert "[EFFECT]" not in described.user
    assert load("spurious").answer.choices
    assert load("spurious").with_effects() == load("spurious")
    assert bias.answer.effect == ""


def test_classes_are_found_by_name():
    text = "Goldfish; tench, tinca tinca; 'border collie', a boat, great white shark.; goldfish"
    named, unknown = find_classes(text, CLASSES)
    assert named == ("goldfish", "tench, Tinca tinca", "Border collie", "great white shark")
    assert unknown == ("a boat",)
    assert find_classes("", CLASSES) == ((), ())


def test_effects_are_stored_and_records_without_are_as_before():
    without = record(labels=("fish",), description="fish")
    assert read_record(write_record(without)).effects == ()
    assert b'"effects"' not in write_record(without)
    named = record(labels=("fish",), description="fish", effects=("goldfish",))
    assert read_record(write_record(named)).effects == ("goldfish",)


def test_functions_and_grammars_may_name_effects():
    call = {
        "function": {"name": "answer", "arguments": '{"description": "fish", "labels": ["fish"], "effect": "goldfish"}'}
    }
    text = convert_to_text([call], ASKED)
    assert parse(text, ASKED).effect == "goldfish"
    (again,) = [each for each in convert_to_calls([assistant(text)], ASKED, lambda _: {}) if "tool_calls" in each]
    assert convert_to_text(again["tool_calls"], ASKED) == text
    assert "effect" in functions(ASKED)[1]["function"]["parameters"]["properties"]
    assert "effect" not in functions(AnswerFormat())[1]["function"]["parameters"]["properties"]
    assert '("[EFFECT]: " sentence "\\n")?' in turn_grammar(ASKED)
    assert "EFFECT" not in turn_grammar(AnswerFormat())
