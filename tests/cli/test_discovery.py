"""Commands that say what a config means and what its target has; the help of all commands."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from openmaia import __version__
from openmaia.cli.main import app
from tests.conftest import REPOSITORY
from tests.helpers.commands import output

DEMO = str(REPOSITORY / "configs/efficientnet-lite0.yaml")
RUNNER = CliRunner()


def commands(group: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = getattr(group, "commands", None)
    return [path] if inner is None else [each for name, one in inner.items() for each in commands(one, (*path, name))]


def test_version_is_printed():
    assert output("--version") == f"openmaia {__version__}\n"


@pytest.mark.parametrize("command", commands(get_command(app)), ids=" ".join)
def test_help_has_an_example(command: tuple[str, ...]):
    text = " ".join(output(*command, "--help").split())
    assert "Example" in text and f"openmaia {' '.join(command)}" in text.partition("Example")[2]


def test_help_imports_nothing_slow():
    command = [sys.executable, "-X", "importtime", "-m", "openmaia.cli", "--help"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert "openmaia.cli.main" in modules
    assert not modules & {"numpy", "omegaconf", "pandas", "PIL", "pyarrow", "ray", "torch", "wandb", "rich.progress"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_completes_commands(shell: str):
    environment = {"_OPENMAIA_COMPLETE": f"complete_{shell}", "COMP_WORDS": "openmaia inv", "COMP_CWORD": "1"}
    environment |= {"_TYPER_COMPLETE_ARGS": "openmaia inv", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = RUNNER.invoke(app, [], env=environment, prog_name="openmaia")
    assert "investigate" in result.output and "report" not in result.output


def test_config_says_where_values_come_from(tmp_path: Path):
    text = output("config", DEMO, "limits.turns=20")
    assert f"name: efficientnet-lite0                  # {DEMO}:3\n" in text
    assert "  turns: 20                               # override\n" in text
    assert "seed: 0                                   # default\n" in text
    assert "default" not in output("config", DEMO, "--given")


def test_config_of_several_sweeps_is_divided():
    assert output("config", str(REPOSITORY / "configs/papers.yaml"), "--given").count("\n---\n") == 3


def test_layers_are_listed_without_weights():
    lines = output("config", DEMO, "target.weights=/nowhere.pt", "--layers").splitlines()
    rows = {line.split()[-2]: line for line in lines[:-1]}
    assert rows["_conv_head"].startswith("* ") and rows["_conv_head"].endswith(" 1280")
    assert rows["_bn1"].startswith("  ")
    assert "modules have no units" in lines[-1]


def test_layers_of_known_units_are_listed():
    text = output("config", str(REPOSITORY / "configs/synthetic.yaml"), "--layers")
    assert [line.split() for line in text.splitlines()] == [["mono", "47"], ["or", "18"], ["and", "20"]]
