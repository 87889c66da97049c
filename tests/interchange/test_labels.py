"""Labels of other methods, lists of units and synthetic ground truth, in every dialect that is published."""

import json
from pathlib import Path
from typing import Any

import pytest

from openmaia.errors import StoreError
from openmaia.interchange import baselines, labels, synthetic, unit_lists
from openmaia.interchange.labels import Label
from openmaia.interchange.reading import Refused
from openmaia.store.files import Files
from openmaia.units import TargetInfo, select

TABLES = {
    "milan.csv": ("MILAN", "layer,unit,description\nlayer4,0,Faces of dogs\nlayer4,17,\"Insects, birds\"\n",
                  [("layer4", 0, ("Faces of dogs",), None), ("layer4", 17, ("Insects, birds",), None)]),
    "annotations.csv": ("MILANNOTATIONS", "layer,unit,summary\nlayer1,3,dogs\nlayer1,3,a dog\nlayer1,3,paws\n",
                        [("layer1", 3, ("dogs", "a dog", "paws"), None)]),
    "scored.csv": ("CLIP-Dissect", "layer,unit,description,similarity\nlayer4,0,\"prayer rug, prayer mat\",0.16\n",
                   [("layer4", 0, ("prayer rug, prayer mat",), 0.16)]),
    "CLIP_Dissect_results.csv": ("CLIP-Dissect", "layer,unit,description\nlayer4,0,rug\n", [("layer4", 0, ("rug",), None)]),
    "resnet18-layer4.csv": ("INVERT", "neuron,concept,concept_id,metric\n0,lhasa,n02098413,0.9336\n",
                            [("layer4", 0, ("lhasa",), 0.9336)]),
    "vit_b_16-features.csv": ("INVERT", "neuron,concept,concept_id,metric\n7,crib,n03131574,\n",
                              [("features", 7, ("crib",), None)]),
    "resnet18-layer2_original.csv": (
        "FALCON",
        "group,Unnamed: 0,concept_set_words,concept_set_noun_phrases\n"
        "\"41,43\",0,\"[('green', 0.5), ('iron', 0.25)]\",\"[('yellow bananas', 0.06)]\"\n9,1,[],[]\n",
        [("layer2", 41, ("green", "iron"), 0.5), ("layer2", 43, ("green", "iron"), 0.5)]),
    "resnet152_imagenet_layer1.csv": (
        "Describe-and-Dissect", "Neuron ID,Label 1,Label 2,Label 3\n5,Water,Lakes,Water\n", [("layer1", 5, ("Water", "Lakes"), None)]),
    "rn50_fc.csv": ("Describe-and-Dissect", "Neuron ID,label\n5,Water\n", [("fc", 5, ("Water",), None)]),
    "resnet18_places365_layer3.csv": (
        "NetDissect", "unit,category,label,score,color-label\n1,color,green-c,0.01,green-c\n2,scene,ball_pit-s,0.02,red-c\n",
        [("layer3", 0, ("green",), 0.01), ("layer3", 1, ("ball pit",), 0.02)]),
    "linear.csv": (
        "Linear-Explanations",
        "layer,unit,val correlation,weight0,concept0,weight1,concept1,weight2,concept2,bias,sim correlation\n"
        "classifier[4],510,0.5,4.5,paradise,3.6,flower,0.0,0,0.7,0.41\n",
        [("classifier[4]", 510, ("paradise", "flower"), 0.41)]),
    "prism.csv": (
        "PRISM", "layer,unit,description,mean_activation,highlights\n0,31,Names,16.3,\"['a (8.7)']\"\n0,31,Places,14.5,[]\n",
        [("0", 31, ("Names", "Places"), 16.3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_published_table_is_known_by_its_header(tmp_path: Path, name: str):
    method, text, expected = TABLES[name]
    (tmp_path / name).write_text(text)
    found = baselines.read(tmp_path / name, "net", name)
    assert {(label.method, label.target, label.source) for label in found} == {(method, "net", name)}
    assert [(label.layer, label.unit, label.labels, label.score) for label in found] == expected
    assert all(bool(label.score_kind) == (label.score is not None) for label in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no format known here"),
        ("", "no format known here"),
        ("layer,unit,description\n", "no label below"),
        ("layer,unit,description\nlayer4,x,dogs\n", "MILAN in row 2"),
        ("layer,unit,description\nlayer4,1.5,dogs\n", "no whole number"),
        ("layer,unit,description\nlayer4,inf,dogs\n", "row 2"),
        ("layer,unit,description\nlayer4,-1,dogs\n", "no label below"),
        ("neuron,concept,metric\n1,dogs,high\n", "INVERT in row 2"),
        ("group,concept_set_words\n1,\"[('a', 0.5)\"\n", "FALCON in row 2"),
        ("group,concept_set_words\n1,\"__import__('os').mkdir('executed')\"\n", "FALCON in row 2"),
        (f"group,concept_set_words\n1,\"{'(' * 5000}\"\n", "FALCON in row 2"),
        (f"layer,unit,description\nlayer4,1,{'x' * 200_000}\n", "field larger"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(Refused, match=said):
        baselines.read(tmp_path / "table.csv", "", "")
    assert not (tmp_path / "executed").exists()


def test_a_table_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "table.csv").write_bytes(b"layer,unit,description\nlayer4,1,\xff\xfe\n")
    with pytest.raises(Refused, match="UTF-8"):
        baselines.read(tmp_path / "table.csv", "", "")


# -- the common file -----------------------------------------------------------------------------------------------------


def label(**changes: Any) -> Label:
    values: dict[str, Any] = {"method": "MILAN", "target": "net", "layer": "layer4", "unit": 1, "labels": ("dögs",)}
    return Label(**(values | changes))


def test_labels_read_back_and_later_ones_replace_earlier_ones(tmp_path: Path):
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
        "method": "MILAN", "target": "net", "layer": "layer4", "unit": 0, "labels": ["dögs"],
        "score": 0.5, "score_kind": "AUC", "source": "a.csv",
    }  # fmt: skip


def test_half_an_emoji_can_be_written(tmp_path: Path):
    labels.add(Files(str(tmp_path)), [label(labels=("dogs \ud83d",))])
    assert labels.read(Files(str(tmp_path)))[0].labels == ("dogs ?",)


@pytest.mark.parametrize("text", ["{", "[1]", '{"method": "MILAN"}', '{"labels": [], "colour": 1}', "3"])
def test_a_damaged_file_of_labels_is_a_store_error(tmp_path: Path, text: str):
    (tmp_path / "labels.jsonl").write_text(text)
    with pytest.raises(StoreError, match="labels.jsonl"):
        labels.read(Files(str(tmp_path)))


# -- lists of units ------------------------------------------------------------------------------------------------------


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_a_list_is_named_after_its_file_and_repeats_are_dropped(tmp_path: Path):
    found = unit_lists.read(write(tmp_path / "clip-RN50.json", {"layer2": [18, 3, 18], "layer4": [122]}))
    assert found.models == {"clip-RN50": {"layer2": (18, 3), "layer4": (122,)}}
    assert found.repeated == ("clip-RN50/layer2/18",)


def test_a_nested_list_names_its_models(tmp_path: Path):
    found = unit_lists.read(
        write(tmp_path / "test.json", {"a": {"layer2": [1]}, "b": {"layer2": [1, 2], "layer3": []}})
    )
    assert found.models == {"a": {"layer2": (1,)}, "b": {"layer2": (1, 2), "layer3": ()}}
    assert found.repeated == ()


def test_both_forms_select_the_units_of_the_list(tmp_path: Path):
    info = TargetInfo(name="a", layers={"layer2": 20, "blocks.1.mlp.fc1": 9}, digest="", input_size=(8, 8))
    layers = {"layer2": (18, 3), "blocks.1.mlp.fc1": (8,)}
    (tmp_path / "a.json").write_bytes(unit_lists.as_json(layers))
    expected = [("layer2", 18), ("layer2", 3), ("blocks.1.mlp.fc1", 8)]
    for spec in (unit_lists.grammar(layers), str(tmp_path / "a.json")):
        assert [(unit.layer, unit.index) for unit in select(spec, info).units] == expected


@pytest.mark.parametrize(
    "data", [{}, [], 3, {"layer4": 3}, {"layer4": ["1"]}, {"layer4": [True]}, {"layer4": [-1]}, {"a": {"b": {"c": [1]}}},
             {"layer4": [1.0]}, {"layer4": [2**40]}, {"x" * 81: {"layer4": [1]}}, {"\ud800": [1]}, {"\n": [1]}],
)  # fmt: skip
def test_what_is_no_list_of_units_is_refused(tmp_path: Path, data: Any):
    with pytest.raises(Refused, match="no list of units"):
        unit_lists.read(write(tmp_path / "a.json", data))


@pytest.mark.parametrize(("text", "said"), [("{", "no JSON"), ("[" * 200_000, "deeply|JSON"), ("1" * 5000, "JSON")])
def test_hostile_json_is_refused(tmp_path: Path, text: str, said: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(Refused, match=said):
        unit_lists.read(tmp_path / "a.json")


# -- synthetic units -----------------------------------------------------------------------------------------------------

MADE_FOR = [
    {"label": "car window_dog", "image_names": ["a.png", "b.png"], "activations": [0.9, 0.4]},
    {"label": "red_orange", "image_names": ["c.png"], "activations": [11.26]},
]


def test_synthetic_units_are_read_with_their_concepts(tmp_path: Path):
    first, second = synthetic.read(write(tmp_path / "or.json", MADE_FOR))
    assert (first.mode, first.index, first.concepts) == ("or", 0, ("car window", "dog"))
    assert first.image_names == ("a.png", "b.png")
    assert first.activations == (0.9, 0.4)
    assert synthetic.as_label(first, "synthetic_neurons", "or.json").labels == ("car window or dog",)
    assert (second.index, second.activations) == (1, (11.26,))


def test_summed_activations_are_not_comparable(tmp_path: Path):
    units = synthetic.read(write(tmp_path / "or.json", MADE_FOR))
    assert [unit.comparable for unit in units] == [True, False]


@pytest.mark.parametrize(
    "data", [[], {}, ["a"], [{"label": 3}], [{"label": "a", "activations": ["1"]}], [{"label": "a", "activations": [True]}],
             [{"label": "a", "image_names": "b"}], [{"label": ""}], [{"label": "a", "activations": [float("nan")]}]],
)  # fmt: skip
def test_what_is_no_list_of_synthetic_units_is_refused(tmp_path: Path, data: Any):
    with pytest.raises(Refused):
        synthetic.read(write(tmp_path / "mono.json", data))
