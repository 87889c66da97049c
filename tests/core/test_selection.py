"""The language in which people name units."""

import hashlib
import json
from pathlib import Path

import pytest

from openmaia.core.errors import UsageError
from openmaia.core.selection import count, select
from openmaia.core.units import TargetInfo, Unit, unknown_layer

INFO = TargetInfo(name="net", layers={"layer3": 40, "layer4": 300, "output": 10}, digest="d", input_size=(224, 224))
CLASSES = TargetInfo(
    name="net", layers={"output": 4}, digest="0", input_size=(8, 8), classes=("pig", "tiger cat", "crane", "crane")
)


def indices(spec: str, info: TargetInfo = INFO) -> list[tuple[str, int]]:
    return [(unit.layer, unit.index) for unit in select(spec, info).units]


def refused(spec: str, info: TargetInfo = INFO) -> str:
    with pytest.raises(UsageError) as caught:
        select(spec, info)
    return caught.value.message


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("layer4=122,210:layer3=5-8", [("layer4", 122), ("layer4", 210), *(("layer3", n) for n in range(5, 9))]),
        ("output=8-9", [("output", 8), ("output", 9)]),
        (" layer3 = 1 , 2-3 : output = 4 ", [("layer3", 1), ("layer3", 2), ("layer3", 3), ("output", 4)]),
        ("output=all", [("output", n) for n in range(10)]),
        ("all", [(layer, n) for layer, size in INFO.layers.items() for n in range(size)]),
    ],
)
def test_selection_follows_the_spec(spec: str, expected: list[tuple[str, int]]):
    assert indices(spec) == expected


@pytest.mark.parametrize(
    ("slashed", "plain"),
    [
        ("layer4/122", "layer4=122"),
        ("net/layer4/122", "layer4=122"),
        ("layer4/122,210:layer3/5-8", "layer4=122,210:layer3=5-8"),
        ("layer4/random:3:layer3=7", "layer4=random:3:layer3=7"),
        (" layer3 / all ", "layer3=all"),
        ("output/3", "output=3"),
    ],
)
def test_slash_may_stand_for_the_equals_sign(slashed: str, plain: str):
    assert indices(slashed) == indices(plain)
    layers = dict.fromkeys(INFO.layers)
    assert count(slashed, layers, "net") == count(plain, layers, "net")


def test_output_may_be_named_behind_a_slash():
    assert indices("output/tiger cat,Pig", CLASSES) == indices("output=tiger cat,Pig", CLASSES)


@pytest.mark.parametrize(
    "data", [b"layer;unit;note\nlayer4;122.0;x\nlayer3;5;\n", "layer\tunit\nlayer4\t122\nlayer3\t5\n".encode("utf-16")]
)
def test_table_lists_units(tmp_path: Path, data: bytes):
    (tmp_path / "units.csv").write_bytes(data)
    assert indices(str(tmp_path / "units.csv")) == [("layer4", 122), ("layer3", 5)]


@pytest.mark.parametrize(
    ("text", "message"), [("unit\n3\n", "lacks the column layer"), ("layer,unit\nlayer4,x\n", "row 2: unit 'x'")]
)
def test_table_of_another_form_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "units.csv").write_text(text)
    assert message in refused(str(tmp_path / "units.csv"))


@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"layer4": [122]}', '{"layer4": [122.0]}'.encode("utf-16")])
def test_json_file_of_any_unicode_is_read(tmp_path: Path, data: bytes):
    (tmp_path / "units.json").write_bytes(data)
    assert indices(str(tmp_path / "units.json")) == [("layer4", 122)]


def test_selected_units_have_the_name_of_the_target():
    (unit,) = select("layer3=1", INFO).units
    assert unit == Unit(target="net", layer="layer3", index=1)
    assert str(unit) == "net/layer3/1"


def test_units_sort_by_number():
    units = [Unit(target="t", layer="l", index=index) for index in (10, 9, 100)]
    assert [unit.index for unit in sorted(units)] == [9, 10, 100]


def test_duplicates_are_removed_and_counted():
    chosen = select("layer3=1,2,1-3:layer3=3", INFO)
    assert [unit.index for unit in chosen.units] == [1, 2, 3]
    assert chosen.duplicates == 3


def test_random_units_follow_the_hash_of_the_weights():
    def key(index: int) -> bytes:
        return hashlib.sha256(f"d/layer4/{index}".encode()).digest()

    assert indices("layer4=random:20") == [("layer4", index) for index in sorted(sorted(range(300), key=key)[:20])]
    other = TargetInfo(name="net", layers=INFO.layers, digest="e", input_size=(224, 224))
    assert indices("layer4=random:20", other) != indices("layer4=random:20")
    assert set(indices("layer4=random:5")) < set(indices("layer4=random:20"))


def test_random_units_of_every_layer_and_beside_a_list():
    layers = [layer for layer, _ in indices("random:4")]
    assert [layers.count(name) for name in INFO.layers] == [4, 4, 4]
    mixed = indices("layer4=random:2:layer3=7")
    assert len(mixed) == 3 and mixed[-1] == ("layer3", 7)


@pytest.mark.parametrize(
    "content",
    [
        {"layer4": [122, 210], "layer3": [5]},
        {"net": {"layer4": [122, 210], "layer3": [5]}},
        {"layer4": [122, 210], "layer3": [5], "output": []},
    ],
)
def test_json_file_lists_units(tmp_path: Path, content: object):
    file = tmp_path / "units.json"
    file.write_text(json.dumps(content))
    assert indices(str(file)) == [("layer4", 122), ("layer4", 210), ("layer3", 5)]


@pytest.mark.parametrize(
    "content", ["[1, 2]", '{"layer3": "1"}', '{"layer3": [1.5]}', '{"layer3": [true]}', "{", "\x00", "3", '{"a": {}}']
)
def test_json_file_of_another_form_is_refused(tmp_path: Path, content: str):
    file = tmp_path / "units.json"
    file.write_text(content)
    assert str(file) in refused(str(file))


@pytest.mark.parametrize("content", ['{"layer3": [-1]}', '{"layer3": [40]}'])
def test_json_index_out_of_range_is_refused(tmp_path: Path, content: str):
    file = tmp_path / "units.json"
    file.write_text(content)
    assert "layer3" in refused(str(file))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("/nowhere/units.json", "/nowhere/units.json"),
        ("layr4=1", "did you mean 'layer4'? It has: layer3, layer4, output"),
        ("layer3=39,40", "unit 40 is out of range: layer 'layer3' of net has units 0 to 39"),
    ],
)
def test_refusal_says_what_exists(spec: str, message: str):
    assert message in refused(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "", "   ", ":", "=", "layer3", "layer3=", "layer3=,", "layer3=1,", "layer3=1,,2", "layer3=-1", "layer3=1-", "layer3=a",
        "layer3=1.5", "layer3=1;2", "layer3=1 2", "layer3==1", "=3", "layer3=5-3", "layer3=1:2", "layer3=random:",
        "layer3=random:-1", "layer3=random:41", "layer3=random:2,3", "layer3=0-99999999999999", "layer3=" + "9" * 5000,
        "layer3=random:" + "9" * 5000, "random:0", "random:11", "random:" + "9" * 5000, "ALL", "layer3=1:layer9=2",
        "../../etc/passwd",
    ],
)  # fmt: skip
def test_bad_spec_is_refused_in_one_line(spec: str):
    message = refused(spec)
    assert message and "\n" not in message


@pytest.mark.parametrize(("spec", "expected"), [("output=tiger cat, Pig,3", [1, 0, 3]), ("output=crane", [2, 3])])
def test_outputs_are_named_by_their_classes(spec: str, expected: list[int]):
    assert [index for _, index in indices(spec, CLASSES)] == expected


def test_class_whose_name_holds_a_comma_is_found():
    info = TargetInfo(
        name="net", layers={"output": 2}, digest="0", input_size=(8, 8), classes=("tench, Tinca tinca", "pig")
    )
    assert [unit.index for unit in select("output=tench, tinca tinca", info).units] == [0]


def test_unknown_class_is_refused():
    assert "net has no class 'tiger'; the nearest of its 4 are tiger cat" in refused("output=tiger", CLASSES)
    assert "names of net's classes are not known; give indices" in refused("output=pig")


def test_unknown_layer_of_many_names_the_nearest_and_the_outermost():
    layers = ["stem", *(f"layer{n}.conv" for n in range(498)), "head"]
    message = unknown_layer("layer_7_conv", "net", layers).message
    assert "did you mean 'layer7.conv'" in message and "500 layers" in message and len(message) < 400
    assert message.endswith("outermost stem, head")
    assert unknown_layer("a", "", []).message == "unknown layer 'a' of the target; it has: "


@pytest.mark.parametrize(
    ("spec", "layers", "expected"),
    [
        ("all", [], None),
        ("mono=0", [], None),
        ("nowhere=random:3", [], None),
        ("output=pig,tiger cat,3-4:a=1", ["output", "a"], 5),
        ("output=pig:output=tiger,pig", ["output"], 2),
        ("a=random:3:output=1-2", ["output", "a"], 5),
        ("a=random:3:a=1", ["output", "a"], None),
    ],
)
def test_count_needs_no_target(spec: str, layers: list[str], expected: int | None):
    assert count(spec, dict.fromkeys(layers), "net") == expected


def test_units_in_a_list_below_the_name_of_the_target_are_counted(tmp_path: Path):
    path = tmp_path / "units.json"
    path.write_text('{"net": {"a": [1, 2, 3]}}')
    assert count(str(path), {"a": None}, "net") == 3
