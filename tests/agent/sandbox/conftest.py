"""A sandbox shared by the tests of one module, and the tools that its agents see."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from openmaia.agent.sandbox import Json, Sandbox, SandboxLevel, SandboxLimits, SandboxResult
from openmaia.agent.sandbox.policy import best_level
from openmaia.core.errors import ToolError

API = """
class System:
    def __init__(self, call): self.call = call
class Tools:
    def __init__(self, call): self._call = call
    def echo(self, value): return self._call("echo", value)
    def refuse(self, text): return self._call("refuse", text)
    def crash(self): return self._call("crash")
    def big(self, size): return self._call("big", size)
    def dataset_exemplars(self, system, as_lists=False): return ([1, 2], [3, 4]) if as_lists else "exemplars"
def build(call, manifest):
    return {"system": System(call), "tools": Tools(call), "manifest": manifest}
"""

LIMITS: dict[str, Any] = {
    "seconds": 60.0,  # for scipy on a busy machine
    "cpu_seconds": 60,
    "memory_mb": 300,
    "processes": 3,
    "output_bytes": 20_000,
    "scratch_mb": 8,
    "frame_mb": 8,
}


@dataclass
class Agent:
    """Runs code in a sandbox and remembers what came of it; `log` holds text and calls in their order."""

    sandbox: Sandbox
    log: list[str] = field(default_factory=list)

    def serve(self, name: str, args: list[Json], kwargs: dict[str, Json]) -> Json:
        self.log.append(f"<{name}>")
        match name, args:
            case "refuse", [str(text)]:
                raise ToolError(text)
            case "crash", _:
                raise ZeroDivisionError("ours")
            case "big", [int(size)]:
                return bytes(size)
            case _:
                return args[0] if args else None

    def run(self, code: str) -> tuple[SandboxResult, str]:
        self.log = []
        outcome = self.sandbox.run(code, self.serve, self.log.append)
        return outcome, "".join(self.log)

    def text(self, code: str) -> str:
        """The output of code that has to succeed."""
        outcome, text = self.run(code)
        assert outcome.error == "" and outcome.status == "ok", outcome
        return text.strip()


def make(level: SandboxLevel | None = None, **changed: Any) -> Sandbox:
    return Sandbox(
        api_source=API,
        manifest={"unit": 7},
        limits=SandboxLimits(**(LIMITS | changed)),
        allow_none=level is SandboxLevel.NONE,
        _level=level,
    )


@pytest.fixture(scope="session", autouse=True)
def landlock() -> None:
    best, missing = best_level()
    if best is SandboxLevel.NONE:
        pytest.skip(f"nothing can be confined here: {missing}")


@pytest.fixture(scope="module")
def shared() -> Iterator[Sandbox]:
    with make() as sandbox:
        yield sandbox


@pytest.fixture
def agent(shared: Sandbox) -> Agent:
    return Agent(shared)


@pytest.fixture
def fresh() -> Iterator[Callable[..., Agent]]:
    """Agents in sandboxes of their own, with other limits."""
    made: list[Sandbox] = []

    def build(level: SandboxLevel | None = None, **changed: Any) -> Agent:
        made.append(make(level, **changed))
        return Agent(made[-1])

    yield build
    for sandbox in made:
        sandbox.close()


_others: set[int] = set()


@pytest.fixture(autouse=True)
def what_others_started() -> None:
    """Before this test: a Ray or an engine that another module's fixture keeps up."""
    _others.clear()
    _others.update(_all())


def children() -> set[int]:
    """Processes that the test started, zombies included: children of this process, and supervisors of sandboxes, whose
    parent is the template."""
    return _all() - _others


def find_template() -> int | None:
    """The template of this process's supervisors."""
    for pid in _children(os.getpid()):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"sandbox.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def _all() -> set[int]:
    own, template = _children(os.getpid()), find_template()
    if template is None:
        return own
    while any(_is_zombie(pid) for pid in _children(template)):
        time.sleep(0.01)  # the template is about to collect it
    return own - {template} | _children(template)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # a thread or the process ended in the meantime
        for task in os.listdir(f"/proc/{pid}/task"):
            found |= {int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()}
    return found
