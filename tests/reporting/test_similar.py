"""Similar descriptions: by their words, and by the embedding of a real model of sentences (all-MiniLM-L6-v2, from a package)."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from openmaia.analysis.likeness import NEIGHBOURS
from openmaia.cli.main import app
from openmaia.config.loading import restore
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.models.text_embedding import TextEmbedding, load_text_embedding
from openmaia.reporting.browser.report import Report
from openmaia.reporting.browser.serve import application
from openmaia.reporting.browser.similar import SimilarUnits
from openmaia.reporting.tables import UnitRow
from tests.helpers import minilm
from tests.reporting.making import record, run

TEXTS = ["a striped pattern", "stripes", "a steam locomotive", "railway engines", "a checkered pattern"]


@pytest.fixture(scope="module")
def model() -> str:
    return minilm.folder()


@pytest.fixture(scope="module")
def embed(model: str) -> TextEmbedding:
    return load_text_embedding(model)


@pytest.fixture
def rows(tmp_path: Path) -> list[UnitRow]:
    answered = Report([run(tmp_path, answers=len(TEXTS))]).summaries[0].rows[: len(TEXTS)]
    return [
        replace(row, header=row.header | {"labels": [text], "description": ""})
        for row, text in zip(answered, TEXTS, strict=True)
    ]


def near(found: SimilarUnits, rows: list[UnitRow]) -> dict[str, list[str]]:
    """The labels of the similar descriptions of each description, the most similar first."""
    pages: dict[str, dict[str, list[list[str]]]] = {}
    for name in found.names:
        content = (found.file(name) or b"").decode()
        pages |= json.loads(json.loads(content[content.index("(") + 1 : content.rindex(")")]))
    return {row.header["labels"][0]: [labels for _, _, labels, _, _ in pages[row.page]["words"]] for row in rows}


def test_without_a_model_descriptions_are_similar_that_share_words(rows: list[UnitRow]):
    found = near(SimilarUnits(rows), rows)
    assert found["a striped pattern"] == ["a checkered pattern"]
    assert found["a steam locomotive"] == found["stripes"] == []


def test_model_finds_descriptions_of_the_same_meaning(rows: list[UnitRow], embed: TextEmbedding):
    found = near(SimilarUnits(rows, embed), rows)
    assert found["stripes"] == ["a striped pattern"]
    assert found["a steam locomotive"] == ["railway engines"]


def test_equal_descriptions_are_similar_and_a_description_not_to_itself(rows: list[UnitRow], embed: TextEmbedding):
    same = [replace(row, header=row.header | {"labels": ["a red ball"]}) for row in rows]
    found = SimilarUnits(same, embed)
    texts = (found.file(name) or b"" for name in found.names)
    pages = {
        page: each for text in texts for page, each in json.loads(json.loads(text[text.index(b"(") + 1 : -3])).items()
    }
    for row in same:
        addresses = [address for address, *_ in pages[row.page]["words"]]
        assert len(addresses) == min(NEIGHBOURS, len(same) - 1)
        assert row.href not in addresses


def test_embeddings_have_unit_length(embed: TextEmbedding):
    assert np.linalg.norm(embed(TEXTS), axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)


def test_report_and_server_take_the_model(tmp_path: Path, model: str, embed: TextEmbedding):
    made = run(tmp_path)
    config = restore(made.config(), str(tmp_path))
    for index, text in enumerate(["a steam locomotive", "railway engines"]):
        unit = Unit(target="net", layer="layer4", index=index)
        made.publish(replace(record(unit, config), description=text, labels=(text,)))

    def written(*options: str) -> dict[str, bytes]:
        done = CliRunner().invoke(app, ["report", made.files.root, *options])
        assert done.exit_code == 0, done.output
        return {path.name: path.read_bytes() for path in (tmp_path / "tiny/report/data").glob("similar-*.js")}

    other = b'units/net/layer4/1-0.html\\",\\"layer4/1'
    assert not any(other in data for data in written().values())
    with_model = written("--embedding", model)
    assert any(other in data for data in with_model.values())
    with TestClient(application([made], embed), base_url="http://127.0.0.1") as client:
        assert {name: client.get(f"/data/{name}").content for name in with_model} == with_model


@pytest.mark.parametrize("text", ["", "no sentence model", "[]", '{"model_type": "bert"}'])
def test_folder_without_a_model_is_refused(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match="no embedding model of sentence-transformers can be loaded"):
        load_text_embedding(str(tmp_path))
