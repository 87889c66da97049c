"""Descriptions as Neuronpedia and delphi keep them."""

import gzip
import json
from pathlib import Path

import pytest

from openmaia.core.errors import UsageError
from openmaia.interop.explanations import write_delphi, write_neuronpedia
from openmaia.runs.records import Stop
from openmaia.runs.run import Run
from tests.helpers.commands import output
from tests.reporting import making

# The columns of Neuronpedia's export of its table of explanations.
COLUMNS = {
    "id", "modelId", "layer", "index", "authorId", "description", "embedding", "typeName", "explanationModelName",
    "umap_x", "umap_y", "umap_cluster", "umap_log_feature_sparsity",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return making.run(tmp_path / "runs", layer="blocks.1/features")


def described(run: Run) -> dict[int, str]:
    records = run.records(sorted(run.done()))
    return {record.unit.index: record.description for record in records if record.stop is Stop.ANSWER}


def test_neuronpedia_gets_one_line_per_description(run: Run, tmp_path: Path):
    lines = write_neuronpedia(run.records(sorted(run.done())), tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.gz")
    assert file.relative_to(tmp_path / "out").as_posix() == "net/blocks.1--features/explanations/batch-0.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
    assert {int(row["index"]): row["description"] for row in rows} == described(run)
    assert all(row.keys() == COLUMNS for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)
    assert f"{len(rows)} explanations" in lines[0]


def test_delphi_gets_one_file_per_description(run: Run, tmp_path: Path):
    write_delphi(run.records(sorted(run.done())), tmp_path / "out")
    found = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "out/explanations").iterdir()}
    assert found == {f"blocks.1--features_latent{index}": text for index, text in described(run).items()}


def test_what_exists_is_not_written_over(run: Run, tmp_path: Path):
    for write in (write_neuronpedia, write_delphi):
        write(run.records(sorted(run.done())), tmp_path / write.__name__)
        with pytest.raises(UsageError, match="exists already; give another folder"):
            write(run.records(sorted(run.done())), tmp_path / write.__name__)
        with pytest.raises(UsageError, match="the run holds no description"):
            write([], tmp_path / "none")


@pytest.mark.parametrize("program", ["neuronpedia", "delphi"])
def test_command_writes_and_says_where(program: str, run: Run, tmp_path: Path):
    said = output("export", program, str(tmp_path / "runs/tiny"), "--to", str(tmp_path / "out"))
    assert str(tmp_path / "out") in said
