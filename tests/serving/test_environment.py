"""`openmaia.environment`: the loop, with an agent that calls it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import openmaia
from openmaia.core.errors import UsageError
from openmaia.core.messages import Reply, Role, TurnKind
from openmaia.runs.records import Record, Stop
from tests.helpers.commands import refused
from tests.helpers.investigating import ANSWER, LISTED, TESTED, code
from tests.helpers.samples import comparable

Opened = Callable[..., openmaia.Environment]


@pytest.fixture
def opened(given: list[str]):
    """Opens an environment, and closes it after the test."""
    environments: list[openmaia.Environment] = []

    def go(*more: str) -> openmaia.Environment:
        environments.append(openmaia.environment([*given, *more]))
        return environments[-1]

    yield go
    for each in environments:
        each.close()


def without_tokens(record: Record) -> dict[str, object]:
    """What two records have in common if one backbone counted tokens and the other did not."""
    found = comparable(record)
    return found | {"turns": [turn | {"tokens": 0} for turn in found["turns"]]}


def test_replies_of_a_record_give_the_same_record(opened: Opened, recorded: Record, replies: tuple[str, ...]):
    environment = opened()
    step = environment.reset("mono=0")
    assert [message.role for message in step.messages] == [Role.SYSTEM, Role.USER] and not step.done
    for reply in replies:
        assert not step.done
        step = environment.step(reply)
    assert step.done and step.record is not None and step.messages == ()
    assert without_tokens(step.record) == without_tokens(recorded)
    assert step.record.images.keys() == recorded.images.keys()
    assert (step.record.backbone, step.reward) == ("external", 1.0)
    environment.close()
    (stored,) = openmaia.load(environment.run.files.root).units().to_dict("records")
    assert (stored["description"], stored["stop"]) == ("red things", "answer")
    assert environment.run.pending() == [] and Path(step.path).is_file()


def test_message_after_a_reply_holds_what_the_experiment_showed(opened: Opened):
    environment = opened()
    environment.reset("mono=0")
    assert environment.run.files.exists("network.json")
    step = environment.step(code("tools.display('seen', *tools.text2image(['a red circle']))"))
    (message,) = step.messages
    assert step.conversation[-1] == message and len(step.conversation) == 4
    assert "seen" in message.text and len(message.images) == 1
    assert step.turn is not None and step.turn.calls[0].name == "text2image"
    (content,) = (each["content"] for each in step.openai_messages)
    assert [part["type"] for part in content] == ["text", "image_url"]


def test_answer_without_evidence_is_refused_as_by_the_loop(opened: Opened):
    environment = opened("task.evidence.experiments=1")
    step = environment.reset("mono=0")
    assert step.expected is TurnKind.EXPERIMENT
    step = environment.step(ANSWER)
    assert not step.done and "not accepted yet" in step.messages[0].text
    environment.step(TESTED)
    assert environment.step(LISTED).done


def test_wrong_answer_has_no_reward(opened: Opened):
    environment = opened()
    environment.reset("mono=0")
    step = environment.step(ANSWER.replace("red", "blue"))
    assert step.reward == 0.0 and step.match is not None and step.match.truth == ("red",)


def test_limits_end_it(opened: Opened):
    environment = opened("limits.turns=2", "limits.soft_turns=1", "limits.tokens=1000")
    environment.reset("mono=0")
    step = environment.step(Reply(text=code("print(1)"), generated_tokens=999))
    assert not step.done
    step = environment.step(code("print(2)"))
    assert step.done and step.record is not None
    assert (step.record.stop, step.record.cause, step.reward) == (Stop.LIMIT, "limits.turns=2", 0.0)
    environment.reset("mono=0")
    assert environment.step(Reply(text=code("print(1)"), generated_tokens=1000)).done


def test_each_investigation_is_a_replicate_with_images_of_its_own(opened: Opened):
    environment = opened()
    digests: list[str] = []
    for number in range(2):
        environment.reset("mono=0")
        step = environment.step(code("tools.text2image(['a red circle'])"))
        assert step.turn is not None
        digests += [entry.original for entry in step.turn.calls[0].entries]
        assert environment.investigation is not None and environment.investigation.replicate == number
        assert environment.stop().done
    assert len(set(digests)) == 2
    assert [record.stop for record in environment.run.records()] == [Stop.STOPPED] * 2


def test_one_that_was_left_goes_on_with_its_variables(opened: Opened):
    environment = opened()
    environment.reset("mono=0")
    environment.step(code("kept = 41"))
    environment.reset("mono=1")
    environment.close()
    environment = opened()
    step = environment.reset("mono=0", replicate=0)
    assert [message.role for message in step.messages][2:] == [Role.ASSISTANT, Role.USER]
    step = environment.step(code("print(kept + 1)"))
    assert "42" in step.messages[-1].text
    assert environment.step(ANSWER).done
    with pytest.raises(UsageError, match="has the record"):
        environment.reset("mono=0", replicate=0)


def test_text_agent_reads_descriptions(opened: Opened):
    environment = opened("backbone.sees=text", "viewer.kind=none", "backbone.agent=mine")
    environment.reset("mono=0")
    step = environment.step(code("tools.display(*tools.text2image(['a red circle']))"))
    assert "(no description)" in step.messages[0].text and not step.messages[0].images
    record = environment.stop().record
    assert record is not None and record.backbone == "mine, sees no images"


@pytest.mark.parametrize("reply", [None, 3, "x" * 1_000_001], ids=["none", "number", "long"])
def test_what_is_no_reply_is_refused(opened: Opened, reply: str):
    environment = opened()
    with pytest.raises(UsageError, match="no investigation is in progress"):
        environment.step("too early")
    environment.reset("mono=0")
    with pytest.raises(UsageError, match="a reply is a text"):
        environment.step(reply)
    assert not environment.step(code("print(1)")).done


def test_two_environments_do_not_share_a_run(opened: Opened):
    environment = opened()
    with pytest.raises(UsageError, match="used by another environment or command"):
        opened()
    environment.close()
    with pytest.raises(UsageError, match="was closed"):
        environment.reset("mono=0")
    opened().reset("mono=0")


def test_backbone_external_is_refused_where_nothing_calls_it(given: list[str]):
    assert "calls OpenMAIA" in refused("investigate", *given, "backbone.kind=external", "--unit", "mono=0")
