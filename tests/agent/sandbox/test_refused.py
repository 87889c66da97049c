"""What hostile code tries beyond the list in `checks.py`, at both levels of protection."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.agent.sandbox import Sandbox, SandboxLevel
from openmaia.agent.sandbox.policy import best_level
from tests.agent.sandbox.conftest import Agent, make

REFUSED = "PermissionError"


@pytest.fixture(scope="module", params=[SandboxLevel.FULL, SandboxLevel.DEGRADED])
def shared(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param is SandboxLevel.FULL and best_level()[0] is not SandboxLevel.FULL:
        pytest.skip(f"full protection is not to be had here: {best_level()[1]}")
    with make(request.param) as sandbox:
        assert sandbox.level is request.param
        yield sandbox


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("untouched")
    path.chmod(0o600)
    return path


def test_process_it_starts_is_confined_too(agent: Agent, victim: Path):
    command = f"import sys; print(open({str(victim)!r}).read())"
    start = f"[sys.executable, '-S', '-c', {command!r}]"
    outcome, text = agent.run(f"import subprocess, sys\nprint(subprocess.run({start}, capture_output=True))")
    assert "untouched" not in text
    assert REFUSED in text or "FileNotFoundError" in text  # where user namespaces are allowed, it does not exist
    outcome, text = agent.run("import subprocess; print(subprocess.check_output(['/bin/cat', '/etc/passwd']))")
    assert "root:" not in text and outcome.status == "error"


def test_proxies_expose_only_the_pipe(agent: Agent):
    code = """
import gc, sys
seen, todo = [], [system.call]
while todo:
    f = todo.pop()
    for cell in (getattr(f, "__closure__", None) or ()):
        value = cell.cell_contents
        seen.append(type(value).__name__)
        if callable(value) and value not in todo: todo.append(value)
frame, depth = sys._getframe(), 0
while frame: frame, depth = frame.f_back, depth + 1
names = {type(o).__name__ for o in gc.get_objects()}
print("int" in seen, depth > 2, names & {"Sandbox", "Child", "Experiment", "Process"})
"""
    assert agent.text(code) == "True True set()"


def test_call_from_a_second_thread(agent: Agent):
    code = """
import threading
def f():
    try: tools.echo(1)
    except RuntimeError as e: print(e)
t = threading.Thread(target=f); t.start(); t.join()
"""
    outcome, text = agent.run(code)
    assert outcome.status == "ok" and text.startswith("tools can only be called") and not outcome.replaced


def test_argument_of_a_gigabyte(agent: Agent):
    outcome, text = agent.run("import numpy\ntools.echo(memoryview(numpy.broadcast_to(numpy.uint8(0), (1 << 30,))))")
    assert outcome.status == "error" and "can be sent at once" in outcome.error and "<echo>" not in text


def test_oversized_result_is_an_error(agent: Agent):
    outcome, _ = agent.run("tools.big(9 << 20)")
    assert (
        outcome.status == "error"
        and "cannot be returned" in outcome.error
        and "can be sent at once" in outcome.error
        and not outcome.replaced
    )
