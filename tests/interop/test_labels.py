"""Tables of labels in every published format, ground truth of synthetic units, and the common file of labels."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmaia.core.errors import StoreError
from openmaia.interop import label_tables, labels, reading, synthetic
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused
from openmaia.runs.files import Files

TABLES = {
    "milan.csv": ("MILAN", "layer,unit,description\nlayer4,0,Faces of dogs\nlayer4,17,\"Insects, birds\"\n",
                  [("layer4", 0, ("Faces of dogs",), None), ("layer4", 17, ("Insects, birds",), None)]),
    "annotations.csv": ("MILANNOTATIONS", "layer,unit,summary\nlayer1,3,dogs\nlayer1,3,a dog\nlayer1,3,paws\nlayer1,3,dogs\n",
                        [("layer1", 3, ("dogs", "a dog", "paws"), None)]),
    "scored.csv": ("CLIP-Dissect", "layer,unit,description,similarity\nlayer4,0,\"prayer rug, prayer mat\",0.16\n",
                   [("layer4", 0, ("prayer rug, prayer mat",), 0.16)]),
    "resnet18-layer4.csv": ("INVERT", "neuron,concept,concept_id,metric\n0,lhasa,n02098413,0.9336\n",
                            [("layer4", 0, ("lhasa",), 0.9336)]),
    "vit_b_16-features.csv": ("INVERT", "neuron,concept,concept_id,metric\n7,crib,n03131574,\n",
                              [("features", 7, ("crib",), None)]),
    "evaluation_layer2.csv": ("CoSy", "neuron,concept,auc,U1,p\n3,lhasa,0.75,12,0.1\n", [("layer2", 3, ("lhasa",), 0.75)]),
    "resnet152_imagenet_layer1.csv": (
        "Describe-and-Dissect", "Neuron ID,Label 1,Label 2,Label 3\n5,Water,Lakes,Water\n", [("layer1", 5, ("Water", "Lakes"), None)]),
    "rn50_fc.csv": ("Describe-and-Dissect", "Neuron ID,label\n5,Water\n", [("fc", 5, ("Water",), None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_format_is_known_by_its_header(tmp_path: Path, name: str):
    method, text, expected = TABLES[name]
    (tmp_path / name).write_text(text)
    found = label_tables.read(tmp_path / name, "net", name)
    assert {(label.method, label.target, label.source) for label in found} == {(method, "net", name)}
    assert [(label.layer, label.unit, label.labels, label.score) for label in found] == expected
    assert all(bool(label.score_kind) == (label.score is not None) for label in found)


def test_method_can_be_given(tmp_path: Path):
    (tmp_path / "a.csv").write_text("layer,unit,description\nlayer4,0,Faces of dogs\n")
    assert label_tables.read(tmp_path / "a.csv", "net", "", "GPT4")[0].method == "GPT4"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", "no known format"),
        ("", "no known format"),
        ("layer,unit,description\n", "no label below"),
        ("layer,unit,description\nlayer4,x,dogs\n", "MILAN in row 2"),
        ("layer,unit,description\nlayer4,1.5,dogs\n", "expected a whole number"),
        ("layer,unit,description\nlayer4,inf,dogs\n", "expected a whole number"),
        ("layer,unit,description\nlayer4,-1,dogs\n", "MILAN in row 2"),
        ("neuron,concept,metric\n1,dogs,high\n", "INVERT in row 2"),
        ('layer,unit,description\nlayer4,0,"dogs\nlayer4,1,cats\nlayer4,2,birds\n', "unexpected end of data"),
        ('layer,unit,description\nlayer4,0,"dogs\nlayer4,1,"cats"\nlayer4,2,birds\n', "is no table"),
        (f"layer,unit,description\nlayer4,1,{'x' * 200_000}\n", "field larger"),
        (b"layer,unit,description\nlayer4,1,\xff\xfe\n", "UTF-8"),
    ],
)  # fmt: skip
def test_unreadable_table_is_refused(tmp_path: Path, text: str | bytes, reason: str):
    (tmp_path / "table.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Refused, match=reason):
        label_tables.read(tmp_path / "table.csv", "", "")


# -- the common file -----------------------------------------------------------------------------------------------------


def label(**changes: Any) -> Label:
    values: dict[str, Any] = {"method": "MILAN", "target": "net", "layer": "layer4", "unit": 1, "labels": ("dögs",)}
    return Label(**(values | changes))


def test_later_labels_replace_earlier_ones(tmp_path: Path):
    files = Files(str(tmp_path))
    labels.add(files, [label(), label(unit=0, score=0.5, score_kind="AUC", source="a.csv")])
    labels.add(files, [label(labels=("cats", "paws")), label(method="INVERT")])
    assert labels.read(files) == [
        label(method="INVERT"),
        label(unit=0, score=0.5, score_kind="AUC", source="a.csv"),
        label(labels=("cats", "paws")),
    ]
    lines = (tmp_path / "labels.jsonl").read_text().splitlines()
    assert json.loads(lines[1]) == {
        "method": "MILAN", "target": "net", "layer": "layer4", "unit": 0, "labels": ["dögs"], "description": "",
        "score": 0.5, "score_kind": "AUC", "positive": [], "negative": [], "source": "a.csv",
    }  # fmt: skip


def test_half_surrogate_pair_is_written_as_question_mark(tmp_path: Path):
    labels.add(Files(str(tmp_path)), [label(labels=("dogs \ud83d",))])
    assert labels.read(Files(str(tmp_path)))[0].labels == ("dogs ?",)


@pytest.mark.parametrize("text", ["{", "[1]", '{"method": "MILAN"}', '{"labels": [], "colour": 1}', "3"])
def test_damaged_label_file_is_a_store_error(tmp_path: Path, text: str):
    (tmp_path / "labels.jsonl").write_text(text)
    with pytest.raises(StoreError, match="labels.jsonl"):
        labels.read(Files(str(tmp_path)))


# -- synthetic units -----------------------------------------------------------------------------------------------------


def test_ground_truth_of_synthetic_units():
    made_for = [{"label": "car window_dog", "image_names": ["a.png"], "activations": [0.9]}, {"label": "red_orange"}]
    first, second = synthetic.read_truths(made_for, "or", "synthetic_neurons", "or.json")
    assert (first.layer, first.unit, first.labels) == ("or", 0, ("car window or dog",))
    assert (second.unit, second.labels) == (1, ("red or orange",))


@pytest.mark.parametrize("data", [[], ["a"], [{"label": 3}], [{"label": ""}], [{}]])
def test_other_lists_are_no_synthetic_units(data: list[Any]):
    with pytest.raises(Refused, match="no list of synthetic units"):
        synthetic.read_truths(data, "mono", "net", "")


@pytest.mark.parametrize(("text", "reason"), [("{", "not JSON"), ("[" * 200_000, "deeply|JSON"), ("1" * 5000, "JSON")])
def test_hostile_json_is_refused(tmp_path: Path, text: str, reason: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(Refused, match=reason):
        reading.read_json(tmp_path / "a.json")
