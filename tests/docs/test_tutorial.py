"""The tutorial, as written: its files are written and its commands executed in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

BLOCK = re.compile(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
"""A block with its language, the file that it is, and its text. Blocks of the class `install` are not among them."""


def masked(line: str) -> str:
    """Returns a line without what differs between machines: numbers, verdicts, widths and the folder of a report."""
    line = re.sub(r"\d+(\.\d+)?", "#", re.sub(r"^report: .*?(?=runs/)", "", line))
    return " ".join(re.sub(r"not supported|supported|undecided|\b[pq] #|[()#]", "", line).split())


@pytest.mark.nightly
@pytest.mark.slow
def test_tutorial_commands_describe_the_network(tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "COLUMNS": "80",
    }
    output = ""
    blocks = BLOCK.findall((REPOSITORY / "docs/tutorial.md").read_text())
    for language, name, text in blocks:
        if name:
            (tmp_path / name).write_text(text)
        elif language == "bash":
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            output += done.stdout
            assert done.returncode == 0, output
    assert sum(language == "bash" for language, _, _ in blocks) == 9
    printed = {masked(line) for line in output.splitlines()}
    shown = [line for language, _, text in blocks if language == "text" for line in text.splitlines()]
    assert [line for line in shown if masked(line) not in printed and not line.startswith(("…", "ok "))] == []
    for unit, label in enumerate(("sea", "underwater", "room", "balloon")):
        assert re.search(rf"small/output/{unit}: .*\b{label}\b", output), output
    assert not re.search(r"anywhere/output/\d: .*(sea|underwater|room)", output), output
    at_home, elsewhere, anywhere = map(float, re.findall(r"(\d+\.\d)% of (?:fresh )?scenes", output))
    assert at_home > 99 and elsewhere < 60 and anywhere > 98
    assert "everything was done already" in output
    assert (tmp_path / "runs/small/report/index.html").is_file()
