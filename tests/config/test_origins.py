"""Where each value of a config comes from, and what an unknown key may mean."""

from pathlib import Path

import pytest
import yaml

from openmaia.config.loading import load, sweep_sources, to_dict
from openmaia.config.origins import explain, find_origins
from openmaia.core.errors import UsageError
from tests.config.test_config import CONFIGS, LEAST


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(
        "# a comment\nlimits: {turns: 20}\n\nbackbone:\n  kind: vllm\n  model: m\n  eager: true\n  arguments: {a: {b: 1}}\nseed: 3\n"
    )
    return path


def test_origins_name_lines_and_overrides(file: Path):
    assert find_origins([str(file), "seed=4", "name=x"]) == {
        "limits.turns": f"{file}:2",
        "backbone.kind": f"{file}:5",
        "backbone.model": f"{file}:6",
        "backbone.eager": f"{file}:7",
        "backbone.arguments": f"{file}:8",
        "seed": "override",
        "name": "override",
    }


def test_later_source_wins(file: Path, tmp_path: Path):
    later = tmp_path / "b.yaml"
    later.write_text("seed: 5\nbackbone: {arguments: {c: 2}}\n")
    given = [*LEAST, "seed=4", str(file), str(later), "backbone.arguments.d=3"]
    found = find_origins(given)
    assert (found["seed"], found["backbone.arguments"]) == (f"{later}:1", "override")
    assert load(given).backbone.arguments == {"a": {"b": 1}, "c": 2, "d": 3}


@pytest.mark.parametrize("path", [path for path in CONFIGS if "name" in yaml.safe_load(path.read_text())])
def test_explained_config_reads_back_equal(path: Path):
    config = load([str(path)])
    lines = list(explain(config, [str(path)]))
    assert yaml.safe_load("\n".join(lines)) == to_dict(config)
    assert f"name: {config.name}" in lines[0] and lines[0].endswith(
        f"# {path}:{find_origins([str(path)])['name'].split(':')[1]}"
    )


def test_given_keys_make_the_same_config(file: Path, tmp_path: Path):
    given = [*LEAST, str(file), "units='1e3: #x'"]
    (tmp_path / "given.yaml").write_text("\n".join(explain(load(given), given, only_given=True)))
    assert load([str(tmp_path / "given.yaml")]) == load(given)
    assert "seed: 3" in (tmp_path / "given.yaml").read_text() and "retries" not in (tmp_path / "given.yaml").read_text()


def test_sources_of_a_file_of_sweeps(tmp_path: Path):
    both = tmp_path / "both.yaml"
    both.write_text("sweeps: [a.yaml, b.yaml]\n")
    a, b, listing = str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), str(both)
    divided = sweep_sources(["seed=1", listing, "seed=2"])
    assert divided == [(["seed=1", path, listing, "seed=2"], listing) for path in (a, b)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("run.dir", ["paths.runs"]),
        ("output_dir", ["paths.runs"]),
        ("images.folder", ["pictures.folder"]),
        ("backbone.turns", ["limits.turns"]),
        ("port", ["backbone.base_url"]),
        ("wandb.project", ["tracking.project"]),
        ("neurons", ["units"]),
        ("max_turns", ["limits.turns"]),
    ],
)
def test_key_of_another_section_is_suggested(given: str, meant: list[str]):
    with pytest.raises(UsageError) as caught:
        load([*LEAST, f"{given}=3"])
    for key in meant:
        assert repr(key) in caught.value.message
