"""What the terminal shows: conversations, running investigations, and no control sequences of models."""

import io
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.cli.terminal import conversation, live, output, runs
from openmaia.cli.terminal.conversation import ConversationView
from openmaia.cli.terminal.live import running_investigations
from openmaia.cli.terminal.output import PrintableConsole, Terminal, say, show_table
from openmaia.config.loading import load
from openmaia.runs.files import Files
from openmaia.runs.lease import take
from openmaia.runs.progress import ProgressFile
from openmaia.runs.records import ExperimentStatus, GivenImage, Turn
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.samples import UNIT, noise, record, turn
from tests.reporting.making import run as report_run

HOSTILE = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\link",
    "\u202eevil",
    "a\x00b",
    "\x9b2J",
    "\ud800",
    "\r\x08",
]
INVESTIGATION = InvestigationId(unit=UNIT, replicate=0)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed, without colours."""
    text = io.StringIO()
    console = PrintableConsole(file=text, width=100)
    for module in (output, runs, conversation, live):
        monkeypatch.setattr(module, "console", console)
    return text


def experiment(index: int = 0, reply: str = "", **changes: object) -> Turn:
    values: dict[str, object] = {"calls": (), "hypotheses": (), "images": {}, "status": ExperimentStatus.OK} | changes
    return turn(index, reply=reply, **values)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_printed_without_control_characters(screen: io.StringIO, tmp_path: Path, text: str):
    say(text)
    show_table(text, ["unit"], [[text]])
    ConversationView(Files(str(tmp_path))).show(
        experiment(reply=f"{text}\n```python\nprint({text!r})\n{text}\n```", code=text, observation=(text,))
    )
    run = Run.create(load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    run.set_plan([UNIT], 1)
    run.fail(INVESTIGATION, text)
    runs.show_state(run, 10)
    if text != "\ud800":  # the parser lets no lone surrogate into a record
        run.publish(record(labels=(text,), description=text))
        runs.show_state(run, 10)
    shown = screen.getvalue()
    assert all(letter.isprintable() or letter == "\n" for letter in shown), shown


def test_conversation_shows_code_in_its_place_once(screen: io.StringIO, tmp_path: Path):
    reply = "[HYPOTHESIS LIST]:\n1. dogs\n\n[CODE]:\n```python\nprint(1)\n```\nThat is all."
    ConversationView(Files(str(tmp_path))).show(experiment(2, reply, code="print(1)", observation=("1\n",)))
    lines = [line.strip() for line in screen.getvalue().splitlines()]
    assert lines[0].startswith("turn 3 ")
    kept = [
        "reasoning of 1 line, which the report shows",
        "[HYPOTHESIS LIST]:",
        "1. dogs",
        "[CODE]:",
        "```python",
        "print(1)",
        "```",
        "That is all.",
        "observed (ok):",
        "1",
    ]
    assert [line for line in lines[1:] if line] == kept


def test_code_that_was_repaired_is_shown_as_it_was_run(screen: io.StringIO, tmp_path: Path):
    ConversationView(Files(str(tmp_path))).show(experiment(0, "print 1", code="print(1)", observation=()))
    lines = [line.strip() for line in screen.getvalue().splitlines()]
    assert lines[2:5] == ["print 1", "run as:", "print(1)"]


def test_displayed_images_are_written_as_files_once(screen: io.StringIO, tmp_path: Path):
    image, view = noise(1), ConversationView(Files(str(tmp_path)))
    display = replace(
        turn().calls[0], name="display", entries=(), given=(GivenImage(id="image-3", is_masked=True),), shown=()
    )
    for index in range(2):
        observation = ("0.5\n[image-3, masked]\n", image)
        view.show(experiment(index, "x", code="", calls=(display,), observation=observation))
    [file] = (tmp_path / "pictures").iterdir()
    assert file.read_bytes() == image.png and file.name.startswith("turn-1-") and file.suffix == ".png"
    text = "".join(screen.getvalue().split())
    assert text.count(f"[image-3,masked]{tmp_path}/pictures/{file.name}".replace(" ", "")) == 2


def test_long_observation_is_shortened_in_its_middle(screen: io.StringIO, tmp_path: Path):
    lines = "\n".join(f"line {n}" for n in range(500))
    images = [noise(n) for n in range(60)]
    ConversationView(Files(str(tmp_path))).show(experiment(0, "x", code="", observation=(lines,)))
    shown = screen.getvalue()
    assert "line 0" in shown and "line 499" in shown and "line 250" not in shown and "460 lines more" in shown
    ConversationView(Files(str(tmp_path))).show(experiment(0, "x", code="", observation=tuple(images)))
    assert len(list((tmp_path / "pictures").iterdir())) == 40, "only the images that are shown"


def test_running_investigations_are_shown_with_turn_and_age(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    run = Run.create(load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    text = io.StringIO()
    console = PrintableConsole(file=text, width=100, force_terminal=True)
    for module in (output, live):
        monkeypatch.setattr(module, "console", console)
    assert running_investigations([run])() is None
    run.journal(INVESTIGATION).append(turn(0))
    take(run.investigations)
    ProgressFile(run).write([(INVESTIGATION, time.time() - 65)])
    with Terminal(running_investigations([run])) as terminal:
        terminal.progress("investigations", 0, 3)
    shown = text.getvalue()
    assert "net/layer4/7" in shown and "0:01:05" in shown and "running" in shown
    assert next(iter(shown.split("net/layer4/7")[1].split())) == "2"


def test_units_are_sorted_and_coloured_by_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = io.StringIO()
    console = PrintableConsole(file=text, width=100, force_terminal=True, color_system="standard")
    for module in (output, runs):
        monkeypatch.setattr(module, "console", console)
    runs.show_units(report_run(tmp_path), 10)
    lines = [line for line in text.getvalue().splitlines() if "layer4/" in line]
    assert [line.split("layer4/")[1][0] for line in lines] == ["0", "1", "2", "4", "3"]
    assert "\x1b[2mpending" in lines[3] and "\x1b[1;31mfailed" in lines[4]


def test_words_of_labels_stay_whole_where_verdicts_take_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    columns = ("unit", "verdict", "why", "labels", "against", "AUC", "low", "SD", "shown base")
    rows = [
        ("_conv_head/505", "undecided", "q 0.0513", "fish; gravestone; building", "neutral", "0.76", "0.54", "+1.6", "2/10 0.38"),
        ("_blocks.2/20", "not supported", "below mean", "noise; rings", "photos", "0.43", "0.24", "+0.2", "0/10 0.00"),
    ]  # fmt: skip
    whole, broken = {*columns} - {"verdict", "why", "labels"}, ("verdict", "why")
    for width in (80, 120):
        text = io.StringIO()
        monkeypatch.setattr(output, "console", PrintableConsole(file=text, width=width))
        show_table("", columns, rows, left=5, whole=whole, broken=broken, tight=True)
        words = text.getvalue().split()
        assert {"gravestone;", "building", "undecided", "below", "0.0513", "_conv_head/505", "supported"} <= {*words}
        assert ("not supported" in text.getvalue()) == (width == 120)
        assert max(map(len, text.getvalue().splitlines())) <= width


def test_show_counts_what_runs_and_waits(screen: io.StringIO, tmp_path: Path):
    runs.show_state(report_run(tmp_path), 10)
    assert re.search(r"3 of 5 done, \d running, \d waiting", screen.getvalue()), screen.getvalue()
    assert "no description to test" not in screen.getvalue()


def test_only_the_first_unfinished_stage_says_how_much_time_is_left(screen: io.StringIO):
    with Terminal() as terminal:
        for done in (0, 1):
            terminal.progress("investigations", done, 4)
            terminal.progress("evaluation", done, 4)
        time.sleep(0.3)
    last = screen.getvalue().strip().splitlines()[-2:]
    assert [("left" in line, "/s" in line) for line in last] == [(True, False), (False, True)], last
