"""Answers that fail the loop's own test, and go back to the agent."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openmaia.agent.rounds import find_faults
from openmaia.agent.tools.seeds import seed
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone, GeneratedImage, Generation
from openmaia.runs.evidence import Confirmation, ConfirmationSample, Fault, failed_test_to_json
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.parquet import read_drawn_prompts, read_record, write_record
from openmaia.runs.records import Record, Stop, Turn
from tests.agent.conftest import Investigate, first_requests
from tests.helpers.investigating import ANSWER, code
from tests.helpers.samples import comparable

WRONG = ANSWER.replace("1]: red", "1]: circle")
"""The unit responds to red: few images of a circle excite it."""
OTHER = ANSWER.replace("1]: red", "1]: star")
ROUNDS = ("task.evidence.rounds=2",)


def drawn(record: Record) -> list[tuple[str, int]]:
    """The prompts and seeds of all images of all tests."""
    return [(sample.prompt, sample.seed) for test in record.tests for sample in test.samples]


def rounds_of(record: Record) -> list[tuple[int, dict[str, Fault]]]:
    return [(turn.index, turn.failed_test.faults) for turn in record.turns if turn.failed_test]


def stored(record: Record) -> list[dict[str, Any]]:
    return [failed_test_to_json(turn.failed_test) for turn in record.turns if turn.failed_test]


class Heard:
    """A backbone that keeps what it was asked."""

    def __init__(self, own: Backbone):
        self.own = own
        self.chats: list[Chat] = []

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.chats += chats
        return self.own.reply(chats)


def listening(heard: list[Heard]):
    def make(own: Backbone) -> Backbone:
        heard.append(Heard(own))
        return heard[-1]

    return make


def test_failed_answer_goes_back_and_the_next_one_counts(run: Investigate):
    record = run(WRONG, ANSWER, overrides=ROUNDS)
    assert (record.stop, record.labels, len(record.turns)) == (Stop.ANSWER, ("red",), 2)
    assert rounds_of(record) == [(0, {"circle": Fault.IMAGES})]
    assert record.evidence.sent_back == 1
    assert record.confirmation is not None and record.confirmation.auc() == 1.0


def test_observer_sees_each_turn_once_with_its_test(run: Investigate):
    seen: list[Turn] = []
    record = run(WRONG, ANSWER, overrides=ROUNDS, observer=seen.append)
    assert tuple(seen) == record.turns


def test_without_rounds_a_failed_answer_stands(run: Investigate):
    record = run(WRONG, ANSWER)
    assert (record.labels, len(record.turns), rounds_of(record)) == (("circle",), 1, [])
    assert b"failed_tests" not in write_record(record)


def test_agent_reads_the_images_and_their_activations(run: Investigate):
    heard: list[Heard] = []
    record = run(WRONG, ANSWER, overrides=ROUNDS, backbone=listening(heard))
    failed = record.turns[0].failed_test
    assert failed is not None
    message = heard[0].chats[1].messages[-1]
    shown = [part.digest for part in message.parts if isinstance(part, EncodedImage)]
    assert shown == [sample.digest for sample in failed.confirmation.samples]
    assert "the label 'circle' failed: its images excite the unit no more than most of the dataset" in message.text
    for sample in failed.confirmation.samples:
        assert f"activation {sample.activation:.5g}" in message.text and sample.prompt in message.text
        assert sample.near_miss in message.text


def test_agent_without_eyes_reads_descriptions(run: Investigate):
    heard: list[Heard] = []
    run(WRONG, ANSWER, *["a shape"] * 20, overrides=ROUNDS, backbone=listening(heard), sees_images=False)
    messages = [chat.messages[-1] for chat in heard[0].chats if len(chat.messages) > 3]
    assert messages and not any(isinstance(part, EncodedImage) for part in messages[0].parts)
    assert "prompt " in messages[0].text and "; " in messages[0].text


def test_each_round_has_fresh_images(run: Investigate):
    record = run(WRONG, WRONG, WRONG, overrides=ROUNDS)
    assert len(rounds_of(record)) == 2 and len(drawn(record)) == 3 * 8
    assert len(set(drawn(record))) == 3 * 8
    assert len({prompt for prompt, _ in drawn(record)}) < 3 * 8, "prompts recur, with other seeds"


def test_same_answer_again_is_heard_and_ends_with_the_rounds(run: Investigate):
    heard: list[Heard] = []
    record = run(WRONG, WRONG, WRONG, WRONG, overrides=ROUNDS, backbone=listening(heard))
    assert (record.stop, record.labels, len(record.turns)) == (Stop.ANSWER, ("circle",), 3)
    assert record.confirmation is not None and record.confirmation.auc() == 0.5
    assert [chat.messages[-1].text.startswith("[TEST]") for chat in heard[0].chats] == [False, True, True]


def test_abstention_after_a_round_is_accepted(run: Investigate):
    record = run(WRONG, "[DESCRIPTION]: NONE", overrides=ROUNDS)
    assert (record.stop, record.description, len(rounds_of(record))) == (Stop.ABSTAIN, "", 1)


def test_empty_reply_in_a_round_is_no_answer(run: Investigate):
    record = run(WRONG, "", ANSWER, overrides=ROUNDS)
    assert (record.labels, len(record.turns), len(rounds_of(record))) == (("red",), 3, 1)


def test_agent_goes_on_experimenting_in_a_round(run: Investigate):
    record = run(
        WRONG, code("print(system.call_neuron(tools.text2image(['a red star']))[0])"), ANSWER, overrides=ROUNDS
    )
    assert record.labels == ("red",) and record.turns[1].completed


def test_turns_end_within_a_round(run: Investigate):
    record = run(
        WRONG, code("print(1)"), code("print(2)"), overrides=(*ROUNDS, "limits.turns=3", "limits.soft_turns=3")
    )
    assert (record.stop, record.cause, record.labels) == (Stop.LIMIT, "limits.turns=3", ())
    assert len(rounds_of(record)) == 1


def test_answer_in_the_last_turn_stands(run: Investigate):
    record = run(WRONG, overrides=(*ROUNDS, "limits.turns=1", "limits.soft_turns=1"))
    assert (record.stop, record.labels, rounds_of(record)) == (Stop.ANSWER, ("circle",), [])
    assert record.confirmation is not None and record.confirmation.auc() == 0.5


def test_time_of_tests_counts(run: Investigate):
    record = run(WRONG, ANSWER, overrides=ROUNDS)
    turn = record.turns[0]
    assert turn.failed_test is not None
    tested = sum(usage.seconds for usage in turn.failed_test.confirmation.spent.values())
    own = sum(usage.seconds for usage in turn.spent.values())
    assert tested > 0 and turn.work_seconds == pytest.approx(own + tested)
    assert turn.seconds > turn.failed_test.seconds >= tested
    assert record.spent["generator"].requests == len(drawn(record)) == 16


def test_label_that_cannot_be_drawn_is_not_refuted(run: Investigate):
    record = run(ANSWER.replace("1]: red", "1]: zeitgeist"), ANSWER, overrides=ROUNDS)
    assert (record.labels, rounds_of(record)) == (("zeitgeist",), [])


def test_labels_fail_one_by_one(run: Investigate):
    record = run(f"{ANSWER}\n[LABEL 2]: circle", ANSWER, overrides=ROUNDS)
    assert rounds_of(record) == [(0, {"circle": Fault.IMAGES})]
    text = record.turns[0].observation[0]
    assert isinstance(text, str) and "the label 'red' passed" in text


def test_record_keeps_each_round(run: Investigate):
    record = run(WRONG, OTHER, ANSWER, overrides=ROUNDS)
    data = write_record(record)
    again = read_record(data)
    assert comparable(again) == comparable(record)
    assert stored(again) == stored(record) and len(stored(record)) == 2
    assert {sample.digest for test in again.tests for sample in test.samples} <= again.images.keys()
    assert again.tests[0].images.keys() == record.tests[0].images.keys() != set()
    assert read_drawn_prompts(data) == record.drawn_prompts()
    assert {prompt for prompt, _ in drawn(record)} <= set(read_drawn_prompts(data)), "the evaluation avoids them"


def test_images_of_rounds_are_not_of_the_test_split(run: Investigate):
    requests = first_requests(run, WRONG, overrides=ROUNDS)
    assert {request.split for request in requests} == {"explore"}
    evaluated = {seed(0, "evaluate", request.prompt, n) for request in requests for n in range(50)}
    assert not {request.seed for request in requests} & evaluated


class Dying:
    """A backbone that fails at its nth call."""

    def __init__(self, own: Backbone, calls: int):
        self.own, self.calls = own, calls

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.calls -= 1
        if self.calls < 0:
            raise ServiceError("gone")
        return self.own.reply(chats)


@pytest.mark.parametrize("calls", [1, 2])
def test_interrupted_rounds_are_resumed(run: Investigate, tmp_path: Path, calls: int):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    replies = (WRONG, OTHER, ANSWER)
    with pytest.raises(ServiceError, match="gone"):
        run(*replies, overrides=ROUNDS, journal=journal, backbone=lambda own: Dying(own, calls))
    kept = [failed_test_to_json(turn.failed_test) for turn in journal.turns() if turn.failed_test]
    assert len(kept) == calls
    record = run(*replies, overrides=ROUNDS, journal=journal)
    assert comparable(record) == comparable(run(*replies, overrides=ROUNDS))
    assert stored(record)[:calls] == kept, "with its times, so it was not measured again"


class Killed(Heard):
    """Ends its process at its second call, as an outage of the machine would."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        if self.chats:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reply(chats)


def test_killed_process_loses_no_round(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    replies = (WRONG, ANSWER)

    def start() -> None:
        run(*replies, overrides=ROUNDS, journal=journal, backbone=Killed)

    child = multiprocessing.get_context("fork").Process(target=start)
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    kept = [failed_test_to_json(turn.failed_test) for turn in journal.turns() if turn.failed_test]
    record = run(*replies, overrides=ROUNDS, journal=journal, backbone=Heard)
    assert len(kept) == 1 and stored(record) == kept
    assert comparable(record) == comparable(run(*replies, overrides=ROUNDS))
    assert len(set(drawn(record))) == len(drawn(record)) == 16


def test_interrupted_test_is_measured_again(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")

    class Dead:
        def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
            raise ServiceError("dead")

    with pytest.raises(ServiceError, match="dead"):
        run(WRONG, ANSWER, overrides=ROUNDS, journal=journal, generator=Dead())
    record = run(WRONG, ANSWER, overrides=ROUNDS, journal=journal)
    assert comparable(record) == comparable(run(WRONG, ANSWER, overrides=ROUNDS))


def measured(
    own: Sequence[float], near: Sequence[float], percentile: float | None = 90.0, lacks: str = ""
) -> Confirmation:
    samples = [
        ConfirmationSample(
            label="dog",
            prompt="p",
            near_miss=shows,
            seed=0,
            digest="",
            activation=value,
            percentile=percentile,
            missing_terms=(lacks,) if lacks else (),
        )
        for pair in zip(own, near, strict=True)
        for value, shows in zip(pair, ("", "cat"), strict=True)
    ]
    return Confirmation(samples=tuple(samples))


def test_faults_of_a_label():
    assert find_faults([measured([2, 2], [1, 1])]) == {}
    assert find_faults([measured([2, 2], [2, 2])]) == {"dog": Fault.NEAR_MISSES}
    assert find_faults([measured([2, 2], [1, 1], percentile=49.0)]) == {"dog": Fault.IMAGES}
    assert find_faults([measured([2, 2], [1, 1], percentile=None)]) == {}, "imported exemplars know no percentiles"
    assert find_faults([measured([1, 1], [2, 2], lacks="dog")]) == {}, "nothing was drawn, so nothing speaks against it"
    assert find_faults([Confirmation(samples=())]) == {}


def test_label_is_judged_by_the_images_of_all_rounds():
    unlucky, lucky = measured([1, 1, 1, 1], [2, 2, 2, 2]), measured([2, 2, 2, 2], [1, 1, 1, 1])
    assert find_faults([unlucky, lucky]) == {"dog": Fault.NEAR_MISSES}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("task.evidence.confirm=0",), "evidence.confirm=0"),
        (("task.name=published",), "evidence.confirm=0"),
        (("task.name=spurious", "task.evidence.confirm=2"), "no labels of a unit"),
    ],
)
def test_rounds_without_a_test_are_refused(run: Investigate, overrides: tuple[str, ...], words: str):
    with pytest.raises(UsageError, match=words):
        run(ANSWER, overrides=(*ROUNDS, *overrides))
