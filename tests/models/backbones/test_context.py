"""What a conversation loses when it outgrows the context."""

import itertools

import numpy as np
import pytest

from openmaia.core.errors import ServiceError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Message, assistant, system, user
from openmaia.models.backbones.context import IMAGE_LEFT_OUT, LATEST, NO_OUTPUT, OPENING, FittedChat, fit


def image(value: int) -> EncodedImage:
    return EncodedImage.of(np.full((4, 4, 3), value, np.uint8), [])


def conversation(turns: int, images: int = 2) -> list[Message]:
    said = [
        message
        for turn in range(turns)
        for message in (
            assistant(f"reply {turn}"),
            user(f"output {turn}" + " word" * 30, *(image(turn * images + i) for i in range(images))),
        )
    ]
    return [system("you are told"), user("your task"), *said]


def fitted(messages: list[Message], room: int = 10**6, images: int = 10**6) -> FittedChat:
    return fit(
        messages, room=room, images=images, text_tokens=lambda text: len(text.split()), image_tokens=lambda p: 50
    )


def count(messages: list[Message]) -> int:
    return sum(len(message.images) for message in messages)


def test_fitting_conversation_is_unchanged():
    messages = conversation(5)
    assert fitted(messages) == FittedChat(messages, "")


def test_oldest_images_are_replaced_by_notes_first():
    messages = conversation(8)
    result = fitted(messages, room=800)
    lost = 16 - count(result.messages)
    assert 0 < lost < 16
    assert result.left_out == f"its oldest {lost} images"
    kept = [p.digest for m in result.messages for p in m.images]
    assert kept == [p.digest for m in messages for p in m.images][lost:]
    assert sum(m.parts.count(IMAGE_LEFT_OUT) for m in result.messages) == lost
    assert [m.text.replace(IMAGE_LEFT_OUT, "").split() for m in result.messages] == [m.text.split() for m in messages]


def test_cut_stays_for_several_turns():
    cuts = [fitted(conversation(turns), images=16).left_out for turns in range(9, 25)]
    assert len(set(cuts)) <= len(cuts) / 2 + 1
    prefixes = [fitted(conversation(turns), images=16).messages for turns in range(9, 25)]
    unchanged = sum(b[: len(a)] == a for a, b in itertools.pairwise(prefixes))
    assert unchanged >= len(prefixes) / 2 - 1


def test_outputs_go_after_all_older_images():
    result = fitted(conversation(12), room=560)
    assert "experiment outputs" in result.left_out
    assert sum(m.parts == (NO_OUTPUT,) for m in result.messages) in (4, 8)


@pytest.mark.parametrize("room", [450, 500, 600, 800, 1200])
def test_task_and_latest_turns_stay(room: int):
    messages = conversation(12)
    result = fitted(messages, room=room)
    assert result.left_out
    assert result.messages[:OPENING] == messages[:OPENING]
    assert result.messages[-LATEST:] == messages[-LATEST:]


def test_replies_stay():
    result = fitted(conversation(12), room=450)
    assert [m.text for m in result.messages if m.role == "assistant"] == [f"reply {turn}" for turn in range(12)]


def test_last_images_of_a_large_turn_stay():
    messages = conversation(1, images=30)
    result = fitted(messages, images=8)
    assert count(result.messages) == 8
    assert [p.digest for p in result.messages[-1].images] == [p.digest for p in messages[-1].images][-8:]


def test_too_long_task_names_the_config_keys():
    with pytest.raises(ServiceError, match=r"backbone\.context_tokens.*limits\.reply_tokens"):
        fitted([system("word " * 50), user("task")], room=20)


def test_middle_of_a_long_output_in_the_latest_turn_is_left_out():
    messages = [*conversation(3), assistant("code"), user("begin" + " word" * 20_000 + " end", image(99))]
    short = fitted(messages, room=3_000)
    assert short.messages[-1].text.startswith("begin") and short.messages[-1].text.endswith(f"end\n{IMAGE_LEFT_OUT}")
    assert "characters were here" in short.messages[-1].text
    assert short.left_out.endswith("and the middle of outputs above 4000 characters")
    assert [m.text for m in short.messages[:OPENING]] == [m.text for m in messages[:OPENING]]


def test_images_stay_where_an_overlong_output_is_to_blame():
    messages = [*conversation(3), assistant("code"), user("begin" + " word" * 20_000 + " end", image(99))]
    short = fitted(messages, room=3_400)
    assert [p.digest for p in short.messages[-1].images] == [image(99).digest]
    assert short.left_out.endswith("and the middle of outputs above 16000 characters")
