"""Configs that come with the program have names, and an installed package has all that a clone has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.cli.commands.completion import complete_config
from openmaia.config.loading import load, load_sweeps, to_dict
from openmaia.config.named import find_config, shipped_configs, summarize
from openmaia.core.errors import UsageError
from tests.conftest import REPOSITORY
from tests.helpers.commands import output, refused

OPENMAIA = ("-m", "openmaia.cli.main")
FILES = [file for file in (REPOSITORY / "configs").rglob("*.yaml") if file.stem != "prices"]


def test_every_config_has_a_name_of_its_own_and_says_what_it_is():
    assert sorted(shipped_configs().values()) == sorted(FILES)
    listed = " ".join(output("configs").split())
    for name, path in shipped_configs().items():
        assert name in listed and 20 < len(summarize(path)) < 200, name
        assert summarize(path).split()[0] in listed


def test_a_name_stands_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paths = [str(REPOSITORY / "configs/demo.yaml"), str(REPOSITORY / "configs/models/sd15.yaml")]
    monkeypatch.chdir(tmp_path)
    for names in (["demo", "sd15"], ["demo.yaml", "sd15.yaml"]):
        assert to_dict(load([*names, "seed=3"])) == to_dict(load([*paths, "seed=3"]))
    assert [each.name for each in load_sweeps(["papers"])] == ["resnet152", "dino_vits8", "clip_rn50", "synthetic"]
    assert {"demo"} <= {*complete_config("dem")}


def test_a_file_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("{name: mine, units: all}")
    assert load(["demo", "target.name=x"]).name == "mine"
    (tmp_path / "sd15").mkdir()
    assert find_config("sd15") == shipped_configs()["sd15"]


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("resnet-152", "did you mean resnet152?"),
        ("models/sd15.yaml", "a config of this name comes with the program: sd15"),
        ("configs/gemma-27b.yaml", "did you mean gemma3-27b?"),
        ("", "openmaia configs"),
        ("/", "openmaia configs"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(source: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="neither a file nor key=value") as caught:
        load([source])
    assert advice in caught.value.message


def test_configs_are_copied_to_be_changed(tmp_path: Path):
    output("configs", "papers", "resnet152", "--to", str(tmp_path))
    copied = tmp_path / "resnet152.yaml"
    copied.write_text(f"{copied.read_text()}\nseed: 7\n")
    # The listing takes what lies beside it, and what comes with the program for the rest.
    assert [each.seed for each in load_sweeps([str(tmp_path / "papers.yaml")])] == [7, 0, 0, 0]
    assert "exists already" in refused("configs", "resnet152", "sd15", "--to", str(tmp_path))
    assert not (tmp_path / "sd15.yaml").exists() and "seed: 7" in copied.read_text()
    assert "did you mean sd15" in refused("configs", "sd51", "--to", str(tmp_path))
    assert "--to" in refused("configs", "sd15")


@pytest.mark.nightly
@pytest.mark.slow
def test_an_installed_package_is_enough(tmp_path: Path):
    """A wheel, outside of the clone, with the packages of this environment."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(REPOSITORY)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("openmaia-*.whl")
    installed, work = tmp_path / "installed", tmp_path / "work"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True, timeout=300)
    work.mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            env=os.environ | {"PYTHONPATH": str(installed)}, cwd=work, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    paths = run("-c", "from openmaia.config.named import shipped_configs as s; print(*s().values(), sep='\\n')").split()
    assert len(paths) == len(FILES) and all(Path(path).is_relative_to(installed) for path in paths)
    shared = ["paths.runs=/shared/runs", "paths.exemplars=/shared/exemplars"]
    assert "kind: RayJob" in run(*OPENMAIA, "submit", "kuberay", "demo", "--dry-run")
    assert f"{installed}/" in run(*OPENMAIA, "submit", "slurm", "demo", *shared, "--dry-run")
    said = run("-c", "from openmaia.core.shipped import install_command as c; print(c('gpu,quantized'))")
    assert said == 'pip install "openmaia[gpu,quantized]"\n'
    assert "report:" in run(*OPENMAIA, "investigate", "closed-form", "--unit", "mono=0")
