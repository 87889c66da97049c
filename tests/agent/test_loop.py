"""The loop on a closed-form unit, driven by recorded replies: limits, errors of the agent, stopped experiments."""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools.user_tools import import_tools
from openmaia.assembly import investigations
from openmaia.config.loading import load
from openmaia.core.errors import ReplayDiverged, ServiceError, UsageError
from openmaia.core.messages import Chat, Reply, assistant, system, user
from openmaia.core.services import Backbone
from openmaia.models.backbones.context import fit
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, code, heard, repeated, said
from tests.helpers.samples import comparable


def test_answer_ends_it(run: Investigate):
    record = run(code("print(1)"), ANSWER)
    assert (record.stop, record.description, record.labels) == (Stop.ANSWER, "red things", ("red",))
    assert record.turns[0].hypotheses == ("red",)
    assert said(record, 0) == "1\n"


def test_gate_is_passed_before_each_turn_and_its_time_is_no_time_of_a_turn(run: Investigate):
    passed: list[float] = []

    def gate() -> None:
        time.sleep(1.0)
        passed.append(time.monotonic())

    began = time.monotonic()
    record = run(code("print(1)"), ANSWER, gate=gate)
    assert len(passed) == len(record.turns) == 2
    assert time.monotonic() - began - record.seconds > 2.0


def test_lone_surrogate_in_a_reply_is_stored_as_a_question_mark(run: Investigate):
    record = run(code("print('\ud83d')"), ANSWER.replace("red things", "red \ud800things"))
    assert record.stop is Stop.ANSWER and record.description == "red ?things" and said(record, 0) == "?\n"


def test_reasoning_is_recorded_and_neither_parsed_nor_sent_back(run: Investigate):
    heard: list[str] = []

    class Reasoning:
        def __init__(self, own: Backbone):
            self._own = own

        def reply(self, chats: Sequence[Chat]) -> list[Reply]:
            heard.extend(message.text for chat in chats for message in chat.messages)
            return [replace(reply, reasoning=code("print('a draft')")) for reply in self._own.reply(chats)]

    record = run(code("print(1)"), ANSWER, backbone=Reasoning)
    assert [turn.reasoning for turn in record.turns] == [code("print('a draft')")] * 2
    assert said(record, 0) == "1\n" and "a draft" not in "".join(heard)


def test_reasoning_in_the_text_of_any_backbone_is_not_run(run: Investigate):
    draft = code("print('a draft')")
    record = run(f"<think>\n{draft}</think>\n{code('print(1)')}", ANSWER)
    assert said(record, 0) == "1\n" and "a draft" in record.turns[0].reasoning


def test_abstention_is_an_ending_of_its_own(run: Investigate):
    record = run("[DESCRIPTION]: NONE")
    assert (record.stop, record.description, record.labels) == (Stop.ABSTAIN, "", ())


@pytest.mark.parametrize(
    ("limit", "turns"), [("limits.turns=2", 2), ("limits.minutes=0.000001", 1), ("limits.tokens=10", 1)]
)
def test_limit_ends_it_with_what_it_has(run: Investigate, limit: str, turns: int):
    record = run(*[code("print(1)")] * 5, overrides=(limit, "limits.soft_turns=1"))
    assert record.stop is Stop.LIMIT
    assert record.cause.startswith(limit.split("=")[0])
    assert len(record.turns) == turns
    assert record.turns[-1].hypotheses == ("red",)


def test_third_empty_reply_in_a_row_fails_the_investigation(run: Investigate):
    with pytest.raises(ServiceError, match=r"3 empty replies in a row.*limits\.reply_tokens="):
        run(code("print(1)"), "", " ", "", ANSWER)


def test_reply_without_code_gets_a_hint(run: Investigate):
    record = run("I think it is red.", ANSWER)
    heard = record.turns[1].prompt_tokens - record.turns[0].prompt_tokens
    assert heard == len("I think it is red.".split()) + len(load_task("description").no_code.split())


def test_exception_is_an_observation(run: Investigate):
    record = run(code("x = 5\n1 / 0"), code("print(x)"), ANSWER)
    assert record.turns[0].status == "error"
    assert "ZeroDivisionError" in said(record, 0)
    assert "openmaia" not in said(record, 0)
    assert said(record, 1) == "5\n", "what was assigned before the exception is kept"


def test_wrong_call_is_an_observation(run: Investigate):
    record = run(code("tools.text2image([])"), ANSWER)
    assert "give at least one text" in said(record, 0)
    assert record.turns[0].calls[0].error


def test_displayed_text_is_bounded_like_printed_text(run: Investigate):
    long = code(
        "for _ in range(3):\n    tools.display('A' * 500_000)\ntools.display(tools.text2image(['a red circle']))"
    )
    record = run(long, ANSWER, overrides=("sandbox.output_bytes=2000",))
    assert record.turns[0].status == "ok" and record.stop is Stop.ANSWER
    assert said(record, 0).count("A") == 2000
    assert said(record, 0).count("[more than 2000 bytes of displayed text: the rest is dropped]") == 1
    assert any(not isinstance(part, str) for part in record.turns[0].observation), "images are still shown"


def test_text_of_a_turn_takes_a_quarter_of_the_context(run: Investigate):
    """Printed and displayed text together; the agent is told of both. Of a backbone without a context, the output counts."""
    long = code("print('P' * 500_000)\ntools.display('D' * 500_000)")
    served = ("backbone.kind=openai", "backbone.model=m", "backbone.context_tokens=8192")
    limit = investigations.options(load(["name=x", "units=all", "target.name=t", *served])).sandbox.output_bytes
    assert 2 * limit == 8192 * investigations.TURN_SHARE * investigations.BYTES_PER_TOKEN
    record = run(long, ANSWER, overrides=(f"sandbox.output_bytes={limit}",))
    text = said(record, 0)
    assert (text.count("P"), text.count("D")) == (limit, limit)
    assert f"at most {limit} are shown" in text and f"[more than {limit} bytes of displayed text" in text
    tokens = fit(
        [system("x"), user("y"), assistant(long), user(text), assistant(long), user(text)],
        room=8192 - 2048,
        images=1,
        text_tokens=lambda part: len(part) // investigations.BYTES_PER_TOKEN,
        image_tokens=lambda image: 0,
    )
    assert tokens.left_out == "", "two such turns fit beside a reply of 2048 tokens, and nothing is shortened"
    small = ["name=x", "units=all", "target.name=t", *served, "sandbox.output_bytes=100"]
    assert investigations.options(load(small)).sandbox.output_bytes == 100
    assert investigations.options(load(["name=x", "units=all", "target.name=t"])).sandbox.output_bytes == 64_000


def test_timeout_replays_completed_experiments(run: Investigate):
    record = run(
        code("a, images = system.call_neuron(tools.text2image(['a red circle', 'a blue circle']))\nkept = 7"),
        code("lost = 1\nwhile True: pass"),
        code("print(kept, [round(v, 2) for v in a], 'lost' in globals())\ntools.display(images[0])"),
        ANSWER,
        overrides=("sandbox.seconds=2",),
    )
    assert record.turns[1].status == "timeout"
    assert "earlier ones are kept" in said(record, 1)
    assert said(record, 2).startswith("7 [1.0, 0.0] False")
    assert len(record.turns[2].calls) == 1, "the replay asked no service again"
    assert not record.notes


class KillsInReplay:
    """The same backbone. With its third reply, it begins to wait for a replayed experiment, and kills that one's process."""

    def __init__(self, backbone: Backbone):
        self._backbone, self._replies, self._thread = backbone, 0, threading.Thread(target=self._kill_once)
        self.has_killed = False

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self._replies += 1
        if self._replies == 3:
            self._thread.start()
        return self._backbone.reply(chats)

    def _kill_once(self) -> None:
        until = time.monotonic() + 60
        while not self.has_killed and time.monotonic() < until:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if os.path.exists(f"/proc/{process.pid}/cwd/in-progress") and not process.children():
                        process.kill()
                        self.has_killed = True
            time.sleep(0.02)


def test_process_that_dies_in_a_replay_is_no_divergence(run: Investigate):
    killers: list[KillsInReplay] = []
    record = run(
        code("import os, time\nopen('in-progress', 'w').close()\ntime.sleep(1)\nos.unlink('in-progress')\nkept = 7"),
        code("import os\nos._exit(1)"),
        code("print(kept)"),
        ANSWER,
        backbone=lambda own: killers.append(KillsInReplay(own)) or killers[0],
    )
    assert killers[0].has_killed
    assert [turn.status for turn in record.turns[:3]] == ["ok", "died", "ok"]
    assert said(record, 2) == "7\n" and not record.notes


def test_variables_are_kept_after_a_memory_error(run: Investigate):
    record = run(
        code("kept = 5\nbig = bytes(10**12)"),
        code("while True: pass"),
        code("print(kept)"),
        ANSWER,
        overrides=("sandbox.seconds=2",),
    )
    assert [turn.status for turn in record.turns[:2]] == ["memory", "timeout"]
    assert said(record, 2) == "5\n" and not record.notes


@pytest.mark.parametrize("limit", ["limits.minutes=0.02", "limits.wall_minutes=0.02"])
def test_endless_tool_calls_end_at_the_limit_of_the_investigation(run: Investigate, limit: str):
    """The time of tool calls does not count towards sandbox.seconds."""
    endless = code("while True:\n    try:\n        tools.text2image(['a red circle'])\n    except Exception: pass")
    record = run(endless, ANSWER, overrides=(limit, "limits.turns=2", "limits.soft_turns=1"))
    assert record.turns[0].status == "timeout"
    assert f"Timeout: the investigation has used up {limit}" in said(record, 0)
    assert record.turns[0].calls


def test_endless_pixels_end_at_the_limit_of_the_investigation(run: Investigate):
    endless = code("image = tools.text2image(['a red circle'])[0]\nwhile True: image.pil()")
    record = run(endless, ANSWER, overrides=("limits.wall_minutes=0.05", "limits.turns=2", "limits.soft_turns=1"))
    assert record.turns[0].status == "timeout" and "has used up limits.wall_minutes=0.05" in said(record, 0)


def test_record_of_refused_calls_is_bounded(run: Investigate):
    refused = "while True:\n    try: tools.text2image(['x' * 100_000])\n    except ToolError: pass"
    record = run(code(refused), ANSWER, overrides=("limits.turns=2", "limits.soft_turns=1"))
    assert record.turns[0].status == "timeout"
    assert "the experiment has made 2000 calls of tools; the experiment was stopped" in said(record, 0)
    assert len(record.turns[0].calls) == 2000
    assert sum(len(call.arguments) + len(call.error or "") for call in record.turns[0].calls) < 1_000_000


def test_long_texts_are_recorded_by_their_hash_and_replayed(run: Investigate):
    record = run(
        code("tools.display('x' * 200_000); kept = 5"), code("import os; os._exit(1)"), code("print(kept)"), ANSWER
    )
    assert len(record.turns[0].calls[0].arguments) < 100
    assert said(record, 2) == "5\n" and not record.notes


def test_lingering_threads_lose_the_variables(run: Investigate):
    threads = "import threading, time\nlost = 1\nthreading.Thread(target=time.sleep, args=(30,)).start()"
    record = run(code("kept = 1"), code(threads), code("print(kept, 'lost' in globals())"), ANSWER)
    assert record.turns[1].status == "lost"
    assert said(record, 2) == "1 False\n"


def test_failed_service_resumes_from_the_journal(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    first = code("a, images = system.call_neuron(tools.text2image(['a red circle'] * 2))\nprint(a)")
    second = code("print(sum(a))\ntools.display(tools.text2image(['a red circle'])[0])")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(first, journal=journal)
    assert len(journal.turns()) == 1
    resumed = run(first, second, ANSWER, journal=journal)
    assert comparable(resumed) == comparable(run(first, second, ANSWER))
    assert not resumed.notes


def test_effects_of_a_failed_call_are_known_after_a_resume(run: Investigate, tmp_path: Path):
    """The first edit is made before the second argument is refused, so that the same edit later has another seed."""
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    failing = code(
        "image = tools.text2image(['a red circle'])[0]\n"
        "try: tools.edit_images([image, 'nothing like an image'], ['make it blue'] * 2)\n"
        "except Exception as error: print(type(error).__name__)"
    )
    again = code("tools.display(*tools.edit_images([image], ['make it blue'])[1], tools.text2image(['red', 'red'])[1])")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(failing, journal=journal)
    resumed = run(failing, again, ANSWER, journal=journal)
    assert comparable(resumed) == comparable(run(failing, again, ANSWER))


def test_repetition_is_known_after_a_resume(run: Investigate, tmp_path: Path):
    """Also where the output holds an image, which the journal stores in another form."""
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    looking = code("tools.display(*tools.dataset_exemplars(system)[0])")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(looking, journal=journal)
    resumed = run(looking, looking, code("print(1)"), ANSWER, journal=journal)
    assert heard(resumed)[1] == len(repeated(can_generate=True).split())
    assert comparable(resumed) == comparable(run(looking, looking, code("print(1)"), ANSWER))


def test_diverging_replay_starts_over(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError):
        run(code("import time\nprint(time.perf_counter_ns())"), journal=journal)
    record = run(code("print(1)"), ANSWER, journal=journal)
    assert "restarted from the first turn" in record.notes[0]
    assert said(record, 0) == "1\n"


def test_replay_diverging_twice_fails(run: Investigate):
    with pytest.raises(ReplayDiverged):
        run(
            code("import time\nprint(time.perf_counter_ns())"),
            code("while True: pass"),
            code("print(1)"),
            ANSWER,
            overrides=("sandbox.seconds=1",),
        )


def test_user_tool_is_described_and_callable(run: Investigate):
    record = run(
        code(
            "out = tools.brightest(tools.text2image(['white', 'black']), 'a note')\nprint(out['note'])\ntools.display(out['image'])"
        ),
        ANSWER,
        overrides=("tools=[tests.helpers.networks:brightest]",),
    )
    assert "tools.brightest(" in record.prompts[0]
    assert "The brightest of some images" in record.prompts[0]
    assert said(record, 0).startswith("a note: 2 images")
    shown = [part for part in record.turns[0].observation if not isinstance(part, str)]
    assert shown[0].pixels.mean() > 200


def test_user_tool_may_return_numpy_and_what_json_lacks_is_an_error_of_its_call(run: Investigate):
    measured = code("print(tools.statistics('all'))")
    unusual = [code(f"print(tools.statistics({name!r}))") for name in ("nan", "blob")]
    record = run(measured, *unusual, ANSWER, overrides=("tools=[tests.helpers.networks:statistics]",))
    assert said(record, 0) == "{'mean': 0.5, 'counts': [1, 2], 'found': True}\n"
    assert all("the result of user_tool cannot be returned" in said(record, turn) for turn in (1, 2))
    assert record.stop is Stop.ANSWER


def test_half_a_character_of_a_user_tool_is_a_question_mark(run: Investigate):
    calls = "print(tools.statistics('half'))\ntools.statistics('half of an error')"
    record = run(code(calls), ANSWER, overrides=("tools=[tests.helpers.networks:statistics]",))
    assert said(record, 0).startswith("{'?': '?'}\n") and "ValueError: ?" in said(record, 0)
    assert record.stop is Stop.ANSWER


HALVES = [
    "tools.text2image(['\\ud83d\\ude00'])",
    "tools.display('\\ud83d')",
    "tools.describe_images(drawn, ['\\udc00'])",
    "tools.edit_images(drawn, ['\\udc00'])",
    "system.call_neuron(drawn, hypothesis='\\ud800')",
    "tools.log_experiment([1], drawn, ['\\ud800'])",
    "tools.statistics(**{'\\ud800': 1})",
]


def test_half_a_character_is_an_error_of_the_code_and_loses_nothing(run: Investigate):
    tried = [f"try: {call}\nexcept ValueError as error: print(error)\n" for call in HALVES]
    record = run(
        code("kept = 5; drawn = tools.text2image(['a red circle'])\n" + "".join(tried)),
        code("print(kept, '\\ud83d')"),
        ANSWER,
        overrides=("tools=[tests.helpers.networks:statistics]",),
    )
    assert said(record, 0).count("half a character") == len(HALVES)
    assert [call.name for call in record.turns[0].calls] == ["text2image"]
    assert said(record, 1) == "5 \\ud83d\n"


def test_two_tools_of_one_name_are_refused():
    for names in (["tests.helpers.networks:brightest"] * 2, ["os.path:join", "posixpath:join"]):
        with pytest.raises(UsageError, match="another tool named"):
            import_tools(names)


def test_withheld_tool_cannot_be_called(run: Investigate):
    record = run(code("tools.text2image(['red'])"), ANSWER, overrides=("without=[text2image]",))
    assert "there is no tool 'text2image'" in (record.turns[0].calls[0].error or "")
    assert "Not available in this investigation: tools.text2image." in record.prompts[0]


def test_edit_draws_nothing_without_text2image(run: Investigate):
    tried = code("tools.edit_images(['a red circle'], ['make it blue'])")
    record = run(tried, ANSWER, overrides=("without=[text2image]",))
    assert "prompts cannot be drawn here" in (record.turns[0].calls[0].error or "")


def test_every_turn_is_journaled(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    record = run(code("print(1)"), ANSWER, overrides=("task.evidence.confirm=0",), journal=journal)
    assert [turn.reply for turn in journal.turns()] == [turn.reply for turn in record.turns]
    again = run(overrides=("task.evidence.confirm=0",), journal=journal)  # the backbone has no reply left
    assert comparable(again) == comparable(record)
