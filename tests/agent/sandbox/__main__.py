"""Writes docs/sandbox-checks.md: what holds at which level of protection, as seen on this machine."""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from openmaia.agent.sandbox import SandboxLevel
from openmaia.agent.sandbox.policy import find_packages
from tests.agent.sandbox.checks import CHECKS, PRELUDE, Check
from tests.agent.sandbox.conftest import Agent, make

LEVELS = (SandboxLevel.FULL, SandboxLevel.DEGRADED)
TABLE = Path(__file__).parents[3] / "docs/sandbox-checks.md"
INTRODUCTION = """# What the sandbox refuses

The agent's code is written by a language model and runs in a process of its own. Each line is one property, which a test
checks at the levels `full` (Landlock ABI 6, Linux 6.12) and `degraded` (ABI 3, Linux 6.2): "yes" means that it holds. The
lines below "Granted" are what experiments need. Those of "Existence of files outside" hold where user namespaces are allowed.
The level `none`, which a user has to allow with `sandbox.allow_none=true`, limits memory and time and refuses sockets, and nothing
else. `python -m tests.agent.sandbox` writes this page of {count}
properties from `tests/agent/sandbox/checks.py`.

| kind | property | full | degraded |
|---|---|---|---|
"""


class Victim:
    """A file outside of the sandbox, which no check may change."""

    def __init__(self, folder: Path):
        self.path = folder / "victim"
        self.path.write_text("untouched")
        self.path.chmod(0o600)
        self._before = self._state()

    def _state(self) -> tuple[object, ...]:
        status = self.path.stat()
        names = sorted(each.name for each in self.path.parent.iterdir())
        return self.path.read_text(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_mtime, names

    def assert_untouched(self) -> None:
        assert self._state() == self._before


def holds(agent: Agent, victim: Victim, check: Check) -> str:
    """Runs a check. Returns an empty string if its property holds, or else what happened."""
    names = {"outside": str(victim.path), "folder": str(victim.path.parent), "parent": os.getpid()}
    paths = {"{source!r}": repr(__file__), "{packages!r}": repr(str(Path(find_packages()["numpy"]).parent))}
    paths["{beside!r}"] = repr(f"{os.path.dirname(os.__file__)}/site-packages/pip/__init__.py")
    code = check.code
    for name, path in paths.items():
        code = code.replace(name, path)
    outcome, text = agent.run(PRELUDE.format(**names) + code)
    ended = outcome.error.strip().splitlines()[-1] if outcome.error.strip() else text.strip()
    return "" if re.search(check.ends, ended) else f"{check.name}: {outcome} {text!r}"


def table(results: Mapping[str, Mapping[SandboxLevel, bool]]) -> str:
    """Returns the page, with the results by the name of a check."""
    rows = []
    for check in CHECKS:
        seen = ["yes" if results.get(check.name, {}).get(level) else "no" for level in LEVELS]
        rows.append(f"| {check.group} | {check.what} | {' | '.join(seen)} |\n")
    return INTRODUCTION.format(count=len(CHECKS)) + "".join(rows)


def main() -> None:
    """Runs every check at both levels and writes the page. Not at the level `none`, where the checks could do harm."""
    results: dict[str, dict[SandboxLevel, bool]] = {check.name: {} for check in CHECKS}
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder))
        for level in LEVELS:
            with make(level) as sandbox:
                for check in CHECKS:
                    ended = holds(Agent(sandbox), victim, check)
                    results[check.name][level] = not ended
                    print(ended, end="\n" if ended else "", file=sys.stderr)
                    victim.assert_untouched()
    TABLE.write_text(table(results))


if __name__ == "__main__":
    main()
