"""What the suite and the lock files promise: skips are seen in CI, and what is installed is pinned with its hash."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_skip_of_an_end_to_end_test_fails_in_ci_only(tmp_path: Path, ci: str, code: int):
    (tmp_path / "chromium").mkdir()  # a PATH without the program
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    command = [sys.executable, "-m", "pytest", "tests/reporting/test_browser.py", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, done.stdout
    assert "no chromium on this machine" in done.stdout


@pytest.mark.parametrize("name", ["demo.lock", "cluster/requirements.lock"])
def test_locked_package_has_a_version_and_a_hash(name: str):
    text = re.sub(r"\\\n", " ", (REPOSITORY / name).read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "--"))]
    assert lines
    for line in lines:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?==[^\s;]+", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), line
