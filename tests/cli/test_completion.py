"""What the shell offers for an unfinished argument, and what --help says beside options."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmaia.cli.commands.completion import complete_config, complete_run
from openmaia.cli.main import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    for name in ("demo.yaml", "notes.txt", "bad\x1b[31m.yaml", ".hidden.yaml"):
        (tmp_path / "configs" / name).write_text("")
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "config.yaml").write_text("")
    return tmp_path


def test_configs_are_completed_to_files_and_folders(folder: Path):
    assert complete_config("") == ["configs/", "runs/"]
    assert complete_config("configs/") == ["configs/demo.yaml"]
    assert complete_config(f"{folder}/con") == [f"{folder}/configs/"]
    assert complete_config("nowhere/x") == []


def test_config_keys_are_completed_with_an_equals_sign(folder: Path):
    assert complete_config("limits.turn") == ["limits.turns="]
    assert "pictures.folder=" in complete_config("pictures.f")


def test_run_directories_are_completed_without_a_slash(folder: Path):
    assert complete_run("ru") == ["runs/"]
    assert complete_run("runs/d") == ["runs/demo"]


def test_bash_receives_what_is_completed(folder: Path):
    done = subprocess.run(
        [str(Path(sys.executable).with_name("openmaia"))],
        env=os.environ
        | {"_OPENMAIA_COMPLETE": "complete_bash", "COMP_WORDS": "openmaia run configs/d", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["configs/demo.yaml"], done.stderr


@pytest.mark.parametrize(
    "command", [[], ["run"], ["show"], ["doctor"], ["export"], ["submit", "slurm"], ["study", "ablate"]]
)
def test_help_names_no_type_of_a_flag_and_fits_80_columns(command: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, [*command, "--help"]).output
    assert "--help" in text and "<bool>" not in text
    assert max(map(len, text.splitlines())) <= 80
