"""What a run and a job look at before anything starts."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openmaia.checks import named, stages
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from tests.conftest import REPOSITORY
from tests.helpers.http import answering

CLOSED = str(REPOSITORY / "configs/closed-form.yaml")
VENDOR = ["backbone.kind=openai", "backbone.model=m"]


def problems(*sources: str) -> list[str]:
    return [
        each.message
        for stage in stages.of_run([load([CLOSED, *sources])], [])
        for each in stage
        if each.state == "missing"
    ]


def test_modules_of_the_current_folder_are_found_as_the_program_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "my_quick_tools.py").write_text("def look(image):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    with answering(200, "application/json", b'{"data": []}') as address:
        sources = [*VENDOR, f"backbone.base_url={address}/v1", "tools=['my_quick_tools:look']"]
        assert not [each for each in problems(*sources) if "my_quick_tools" in each]
        assert not list(named.inputs(load([CLOSED, *sources])))
        [message] = [each for each in problems(*VENDOR, "tools=['my_other.tools:look']") if "my_other" in each]
    assert "needs the module my_other.tools" in message and "PYTHONPATH" in message


def test_run_without_a_key_ends_before_anything_starts(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    given = [*VENDOR, "evaluate.writer.kind=anthropic", "evaluate.writer.model=m", f"paths.runs={tmp_path}/runs"]
    command = [sys.executable, "-m", "openmaia.cli.main", "run", CLOSED, *given]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=100)
    assert done.returncode == 2, done.stderr
    assert "OPENAI_API_KEY" in done.stderr and "ANTHROPIC_API_KEY" in done.stderr
    assert done.stderr.startswith("error: 2 problems:") and "starting Ray" not in done.stdout
    assert not (tmp_path / "runs").exists()


def test_server_that_is_not_there_is_missing():
    began = time.monotonic()
    [message] = problems(*VENDOR, "backbone.base_url=http://127.0.0.1:9/v1")
    assert "backbone.base_url=http://127.0.0.1:9/v1 does not answer" in message
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("status", [403, 404, 429, 503])
def test_server_that_answers_otherwise_is_no_obstacle_to_a_run(status: int):
    with answering(status, "application/json", b'{"error": {"message": "no"}}') as address:
        assert problems(*VENDOR, f"backbone.base_url={address}/v1") == []


def test_servers_of_nodes_elsewhere_are_not_asked():
    assert problems(*VENDOR, "backbone.base_url=http://127.0.0.1:9/v1", "ray.address=10.0.0.1:6379") == []


def test_all_that_is_missing_is_one_error(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    shut = ["backbone.base_url=http://127.0.0.1:9/v1", f"paths.runs={tmp_path}/file/runs"]
    config = load([CLOSED, *VENDOR, *shut, "pictures.kind=folder", f"pictures.folder={tmp_path}/none"])
    with pytest.raises(UsageError, match=r"2 problems:\n.*none does not exist.*\n.*cannot be written") as caught:
        stages.require(*stages.of_run([config], []))
    assert "does not answer" not in caught.value.message  # a server is asked once the rest is in order


def test_part_of_several_gpus_is_refused():
    with pytest.raises(UsageError, match=r"pools\.backbone\.num_gpus=1\.5 is out of range.*whole GPUs only"):
        load([CLOSED, "pools.backbone.num_gpus=1.5"])


def test_later_stage_is_not_looked_at_if_an_earlier_one_lacks_something():
    config = load([CLOSED, "units=nowhere=1", "tools=[no_such_package.things:tool]", *VENDOR])
    with pytest.raises(UsageError, match="no_such_package") as raised:
        stages.require(named.packages(config, named.installed()), named.inputs(config))
    assert "nowhere" not in raised.value.message
