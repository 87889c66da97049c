"""Bad input: one clear message and exit code 2. Imports: light until they are needed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from openmaia.cli.main import app
from tests.conftest import REPOSITORY, small_sources
from tests.helpers import sweeping
from tests.helpers.commands import refused
from tests.helpers.samples import turn


def run(*arguments: str, code: int = 2, **environment: str) -> str:
    """Standard error of `openmaia ARGUMENTS`, which has to end with the code."""
    done = subprocess.run(
        [sys.executable, "-m", "openmaia.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPOSITORY,
        env=os.environ | environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def sources(settings: list[str], tmp_path: Path) -> list[str]:
    return small_sources(settings, tmp_path / "runs")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("targett.name=x", ["targett.name", "did you mean 'target.name'"]),
        ("limits.turns=many", ["limits.turns", "many"]),
        ("target.layers=[_block.2]", ["_block.2", "did you mean '_blocks.2'", "_conv_head"]),
        ("target.layers=[]", ["target.layers", "_conv_head"]),
        ("units=_conv_head=1280", ["1280", "0 to 1279"]),
        ("target.network=nonesuch", ["nonesuch", "efficientnet_lite0"]),
        ("task.name=nonesuch", ["nonesuch", "description"]),
        ("backbone.eyes=efficientnet_lite0", ["backbone.eyes", "under study"]),
        ("backbone.kind=oracle", ["oracle", "scripted"]),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(sources: list[str], override: str, said: list[str]):
    unit = [] if override.startswith("units") else ["--unit", "_conv_head=66"]
    command = ["run"] if override.startswith("units") else ["investigate"]
    message = refused(*command, *sources, override, *unit)
    for words in said:
        assert words in message


def test_an_error_is_one_line_and_exit_code_2(sources: list[str]):
    message = run("run", *sources, "targett.name=x")
    assert message.startswith("error: ")
    assert message.count("\n") == 1


def test_a_missing_picture_folder_and_one_without_pictures(sources: list[str], tmp_path: Path):
    command = ["investigate", *sources, "pictures.kind=folder", "--unit", "_conv_head=66"]
    missing = tmp_path / "nowhere"
    assert str(missing) in refused(*command, f"pictures.folder={missing}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no picture")
    assert "holds no usable image" in refused(*command, f"pictures.folder={tmp_path}/empty")


def test_a_run_directory_that_cannot_be_written(sources: list[str], tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refused("run", *sources, f"paths.runs={tmp_path}/file")


def test_a_run_directory_of_another_config_names_the_keys(sources: list[str], tmp_path: Path):
    from openmaia.config.loading import load
    from openmaia.core.units import Unit
    from openmaia.runs.run import InvestigationId, Run

    run_before = Run.create(load(sources))
    unit = Unit(target="t", layer="l", index=0)
    run_before.journal(InvestigationId(unit=unit, replicate=0)).append(turn(0))
    message = refused("run", *sources, "seed=7", "exemplars.k=5")
    assert "exemplars.k, seed differ" in message


def test_a_layer_without_units(sources: list[str]):
    message = refused(
        "investigate",
        *sources,
        "target.network=tests.helpers.networks:boolean",
        "target.layers=[gate]",
        "--unit",
        "gate=0",
    )
    assert "has no units" in message


def test_a_ray_address_nobody_answers(sources: list[str]):
    assert "no Ray cluster answers" in run("run", *sources, "ray.address=127.0.0.1:1")


def test_a_folder_that_is_no_run():
    assert "not a run directory" in refused("show", "configs")


def test_a_job_whose_results_would_be_thrown_away():
    done = subprocess.run(
        [sys.executable, "-m", "ray_jobs", "run", "configs/efficientnet-lite0.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
    )
    assert done.returncode == 2
    assert "paths.runs='runs' is relative" in done.stderr


def test_a_missing_config():
    assert "neither a file nor key=value" in refused("run", "configs/nonesuch.yaml")


@pytest.mark.slow
def test_a_failing_unit_is_one_failed_unit_and_exit_code_1(tmp_path: Path):
    given = sweeping.sources(tmp_path, ["[CODE]:\n```python\nprint(1)\n```"])
    message = run("run", *given, "units=mono=1", code=1)
    assert "failed: closed_form/mono/1" in message
    assert "holds 1 replies" in message


LIGHT = "import sys; {what}; heavy = {{{names}}} & set(sys.modules); assert not heavy, heavy"


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("import openmaia.agent.loop", "'ray', 'torch', 'transformers', 'wandb'"),
        (
            "import openmaia.assembly.sweeps, openmaia.distributed.sweep",
            "'torch', 'transformers', 'wandb', 'matplotlib'",
        ),
        (
            "import openmaia.api.runs, openmaia.cli.terminal.live",
            "'torch', 'sklearn', 'jinja2', 'openmaia.reporting.browser.write'",
        ),
        ("import openmaia.offline.networks", "'torch'"),
        ("import openmaia.assembly.generators", "'torch', 'scipy', 'openmaia.agent.loop'"),
        ("import openmaia.config.loading, openmaia.core.services", "'ray', 'torch', 'transformers', 'wandb', 'scipy'"),
        ("import openmaia.cli.main", "'ray', 'torch', 'numpy', 'pyarrow', 'omegaconf', 'rich.progress'"),
        ("import openmaia", "'ray', 'torch', 'numpy', 'pyarrow', 'omegaconf'"),
    ],
)
def test_importing_stays_light(what: str, names: str):
    subprocess.run([sys.executable, "-c", LIGHT.format(what=what, names=names)], check=True, timeout=60)


def test_help_names_every_command_in_a_line_of_80_columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, ["--help"]).output
    command: Any = get_command(app)
    described = [line for line in text.partition("Investigate units")[2].splitlines() if line.startswith("│")]
    assert sorted(line.split()[1] for line in described) == sorted(command.commands)
    assert len(described) <= 21
