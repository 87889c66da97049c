"""The script that runs the whole program on a GPU, rehearsed on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from measure.gpu.whole import pool_shares
from tests.conftest import REPOSITORY

TABLE = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0         101     C     40      3      -      -      -      -    python
    0         102     C     20      3      -      -      -      -    python
    0         103     C     30      1      -      -      -      -    python
    0         104     C      -      -      -      -      -      -    python
    0         105     C      7      -      -      -      -      -    python
"""


def test_use_of_a_gpu_is_shared_out_to_pools_by_the_titles_of_processes():
    titles = {101: "ray::target-0", 102: "ray::target-1", 103: "ray::generator x 4", 104: "ray::editor-0", 105: ""}
    assert pool_shares(TABLE, titles.__getitem__) == {"target": 60.0, "generator": 30.0, "others": 7.0}


def test_table_without_processes_gives_no_shares():
    empty = "# gpu pid type sm\n    0          -     -      -      -      -      -      -      -    -\n"
    assert pool_shares(empty, lambda process: "") == {}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_whole_program_is_rehearsed_without_a_gpu(tmp_path: Path):
    command = [sys.executable, "-m", "measure.gpu.whole", f"out={tmp_path}", "small=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] in ("rehearsed without a GPU", "seen on a GPU")
    found = json.loads((tmp_path / "whole.json").read_text())
    assert found["run, interrupted"]["exit code"] in (0, 3)
    assert (tmp_path / "runs" / "whole" / "report" / "index.html").exists()
