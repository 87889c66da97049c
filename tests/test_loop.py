"""The loop on a closed-form unit, driven by recorded replies: limits, errors of the agent, stopped experiments."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.config import load
from openmaia.errors import ReplayDiverged, ServiceError, UsageError
from openmaia.generators.collage import paint
from openmaia.schema import Config
from openmaia.store.files import Files
from openmaia.store.journal import FolderJournal
from openmaia.store.records import Record, Stop, comparable
from openmaia.tasks.task import load as load_task
from openmaia.units import Unit
from tests.conftest import REPOSITORY

UNIT = Unit(target="closed_form", layer="mono", index=0)
ANSWER = "[DESCRIPTION]: red things\n[LABEL 1]: red"


def code(text: str) -> str:
    return f"[HYPOTHESIS LIST]:\n1. red\n\n[CODE]:\n```python\n{text}\n```"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn pictures, so that these tests need no package."""
    folder = tmp_path_factory.mktemp("drawn")
    random = np.random.default_rng(0)
    names = sorted(paint.COLOURS)
    for index in range(40):
        ground = paint.plain(paint.COLOURS[names[index % len(names)]], 224, random)
        fill = paint.plain(paint.COLOURS[names[index * 7 % len(names)]], 90, random)
        stamp = paint.shape(("circle", "square", "star")[index % 3], fill, 90, random)
        ground.paste(stamp, (index * 3, 40), stamp)
        ground.save(folder / f"{index}.png")
    return folder


Run = Callable[..., Record]


@pytest.fixture
def run(pictures: Path, tmp_path: Path, exemplars_folder: Path) -> Run:
    """Runs an investigation in which the agent says these things."""

    def go(*replies: str, overrides: tuple[str, ...] = (), journal: FolderJournal | None = None) -> Record:
        config = configured(pictures, exemplars_folder, tmp_path, replies, overrides)
        services = build.services(config, exemplars.make(config, [UNIT.layer]))
        return investigate(UNIT, load_task(config.task.name), services, build.options(config), journal=journal)

    return go


def configured(
    pictures: Path, exemplars: Path, tmp_path: Path, replies: tuple[str, ...], more: tuple[str, ...]
) -> Config:
    history = tmp_path / "history.json"
    history.write_text(json.dumps([{"role": "assistant", "content": reply} for reply in replies]))
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "pictures.kind=folder",
            f"pictures.folder={pictures}",
            f"paths.exemplars={exemplars}",
            "backbone.kind=replay",
            f"backbone.record={history}",
            *more,
        ]
    )


def said(record: Record, turn: int) -> str:
    return "".join(part for part in record.turns[turn].observation if isinstance(part, str))


def test_an_answer_ends_it(run: Run):
    record = run(code("print(1)"), ANSWER)
    assert (record.stop, record.description, record.labels) == (Stop.ANSWER, "red things", ("red",))
    assert record.turns[0].hypotheses == ("red",)
    assert said(record, 0) == "1\n"


def test_an_abstention_is_an_ending_of_its_own(run: Run):
    record = run("[DESCRIPTION]: NONE")
    assert (record.stop, record.description, record.labels) == (Stop.ABSTAIN, "", ())


@pytest.mark.parametrize(
    ("limit", "turns"), [("limits.turns=2", 2), ("limits.minutes=0.000001", 1), ("limits.tokens=10", 1)]
)
def test_a_limit_ends_it_with_what_it_has(run: Run, limit: str, turns: int):
    record = run(*[code("print(1)")] * 5, overrides=(limit, "limits.soft_turns=1"))
    assert record.stop is Stop.LIMIT
    assert record.cause.startswith(limit.split("=")[0])
    assert len(record.turns) == turns
    assert record.turns[-1].hypotheses == ("red",)


def test_at_the_soft_limit_the_agent_is_asked_for_its_answer(run: Run, pictures: Path, tmp_path: Path):
    record = run(code("print(1)"), code("print(2)"), ANSWER, overrides=("limits.soft_turns=2",))
    final = load_task("description").final.split()
    # What the backbone hears is counted in words: the request for an answer is what the third turn hears beyond the
    # replies, observations and prompts.
    heard = [turn.prompt_tokens for turn in record.turns]
    added = [len(record.turns[n].reply.split()) + len(said(record, n).split()) for n in (0, 1)]
    assert heard[1] - heard[0] == added[0]
    assert heard[2] - heard[1] == added[1] + len(final)


def test_a_reply_without_code_or_answer_is_told_so(run: Run):
    record = run("I think it is red.", ANSWER)
    heard = record.turns[1].prompt_tokens - record.turns[0].prompt_tokens
    assert heard == len("I think it is red.".split()) + len(load_task("description").no_code.split())


def test_an_exception_in_the_agents_code_is_its_observation(run: Run):
    record = run(code("x = 5\n1 / 0"), code("print(x)"), ANSWER)
    assert record.turns[0].status == "error"
    assert "ZeroDivisionError" in said(record, 0)
    assert "openmaia" not in said(record, 0)
    assert said(record, 1) == "5\n", "what was assigned before the exception is kept"


def test_a_wrong_call_is_the_agents_error_and_not_ours(run: Run):
    record = run(code("tools.text2image([])"), ANSWER)
    assert "give at least one text" in said(record, 0)
    assert record.turns[0].calls[0].error


def test_after_a_timeout_the_completed_experiments_are_replayed(run: Run):
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


def test_threads_that_outlive_an_experiment_cost_it_its_variables(run: Run):
    threads = "import threading, time\nlost = 1\nthreading.Thread(target=time.sleep, args=(30,)).start()"
    record = run(code("kept = 1"), code(threads), code("print(kept, 'lost' in globals())"), ANSWER)
    assert record.turns[1].status == "lost"
    assert said(record, 2) == "1 False\n"


def test_a_failing_service_is_ours_and_the_journal_goes_on(run: Run, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    first = code("a, images = system.call_neuron(tools.text2image(['a red circle'] * 2))\nprint(a)")
    second = code("print(sum(a))\ntools.display(tools.text2image(['a red circle'])[0])")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(first, journal=journal)
    assert len(journal.turns()) == 1
    resumed = run(first, second, ANSWER, journal=journal)
    assert comparable(resumed) == comparable(run(first, second, ANSWER))
    assert not resumed.notes


def test_a_replay_that_diverges_starts_over_and_says_so(run: Run, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError):
        run(code("import time\nprint(time.perf_counter_ns())"), journal=journal)
    record = run(code("print(1)"), ANSWER, journal=journal)
    assert "restarted from the first turn" in record.notes[0]
    assert said(record, 0) == "1\n"


def test_a_replay_that_always_diverges_is_a_failure(run: Run):
    with pytest.raises(ReplayDiverged):
        run(
            code("import time\nprint(time.perf_counter_ns())"),
            code("while True: pass"),
            code("print(1)"),
            ANSWER,
            overrides=("sandbox.seconds=1",),
        )


def test_a_users_own_tool_is_in_the_prompt_and_can_be_called(run: Run):
    record = run(
        code(
            "out = tools.brightest(tools.text2image(['white', 'black']), 'a note')\nprint(out['note'])\ntools.display(out['image'])"
        ),
        ANSWER,
        overrides=("tools=[tests.networks:brightest]",),
    )
    assert "tools.brightest(" in record.prompts[0]
    assert "The brightest of some images" in record.prompts[0]
    assert said(record, 0).startswith("a note: 2 images")
    shown = [part for part in record.turns[0].observation if not isinstance(part, str)]
    assert shown[0].pixels.mean() > 200


def test_two_tools_of_one_name_are_refused():
    for names in (["tests.networks:brightest"] * 2, ["os.path:join", "posixpath:join"]):
        with pytest.raises(UsageError, match="another tool named"):
            build.user_tools(names)
