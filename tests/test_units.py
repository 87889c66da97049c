"""The language in which people name units."""

import hashlib
import json
from pathlib import Path

import pytest

from openmaia.errors import UsageError
from openmaia.units import TargetInfo, Unit, count, select, unknown_layer

INFO = TargetInfo(name="net", layers={"layer3": 40, "layer4": 300, "output": 10}, digest="d", input_size=(224, 224))


def indices(spec: str) -> list[tuple[str, int]]:
    return [(unit.layer, unit.index) for unit in select(spec, INFO).units]


def refused(spec: str) -> str:
    with pytest.raises(UsageError) as caught:
        select(spec, INFO)
    return caught.value.message


def test_lists_and_ranges_of_several_layers():
    found = indices("layer4=122,210:layer3=5-8")
    assert found == [("layer4", 122), ("layer4", 210), ("layer3", 5), ("layer3", 6), ("layer3", 7), ("layer3", 8)]


def test_units_carry_the_targets_name():
    assert select("layer3=1", INFO).units == (Unit(target="net", layer="layer3", index=1),)


def test_a_range_includes_its_end_and_the_last_unit():
    assert indices("output=8-9") == [("output", 8), ("output", 9)]


def test_blanks_are_no_difference():
    assert indices(" layer3 = 1 , 2-3 : output = 4 ") == indices("layer3=1,2-3:output=4")


def test_all_units_of_one_layer():
    assert indices("output=all") == [("output", index) for index in range(10)]


def test_all_units_of_all_layers():
    assert len(indices("all")) == 350


def test_duplicates_are_removed_and_counted():
    chosen = select("layer3=1,2,1-3:layer3=3", INFO)
    assert [unit.index for unit in chosen.units] == [1, 2, 3]
    assert chosen.duplicates == 3


def test_a_random_draw_is_by_the_hash_of_the_weights():
    def place(index: int) -> bytes:
        return hashlib.sha256(f"d/layer4/{index}".encode()).digest()

    expected = sorted(sorted(range(300), key=place)[:20])
    assert indices("layer4=random:20") == [("layer4", index) for index in expected]


def test_other_weights_draw_other_units():
    other = TargetInfo(name="net", layers=INFO.layers, digest="e", input_size=(224, 224))
    assert select("layer4=random:20", other).units != select("layer4=random:20", INFO).units


def test_a_smaller_draw_is_part_of_a_larger_one():
    assert set(indices("layer4=random:5")) < set(indices("layer4=random:20"))


def test_a_random_draw_of_every_layer():
    found = indices("random:4")
    assert [sum(layer == name for layer, _ in found) for name in INFO.layers] == [4, 4, 4]


def test_a_random_draw_stands_beside_a_list():
    found = indices("layer4=random:2:layer3=7")
    assert len(found) == 3
    assert found[-1] == ("layer3", 7)


@pytest.mark.parametrize(
    "content",
    [
        {"layer4": [122, 210], "layer3": [5]},
        {"net": {"layer4": [122, 210], "layer3": [5]}},
        {"layer4": [122, 210], "layer3": [5], "output": []},
    ],
)
def test_json_lists(tmp_path: Path, content: object):
    file = tmp_path / "units.json"
    file.write_text(json.dumps(content))
    assert indices(str(file)) == [("layer4", 122), ("layer4", 210), ("layer3", 5)]


@pytest.mark.parametrize(
    "content", ["[1, 2]", '{"layer3": "1"}', '{"layer3": [1.5]}', '{"layer3": [true]}', "{", "\x00", "3", '{"a": {}}']
)
def test_a_json_file_of_another_form_is_refused(tmp_path: Path, content: str):
    file = tmp_path / "units.json"
    file.write_text(content)
    assert str(file) in refused(str(file))


def test_a_missing_json_file_is_named():
    assert "/nowhere/units.json" in refused("/nowhere/units.json")


@pytest.mark.parametrize("content", ['{"layer3": [-1]}', '{"layer3": [40]}'])
def test_a_json_index_out_of_range_is_refused(tmp_path: Path, content: str):
    file = tmp_path / "units.json"
    file.write_text(content)
    assert "layer3" in refused(str(file))


def test_an_unknown_layer_names_the_nearest_and_the_list():
    message = refused("layr4=1")
    assert "did you mean 'layer4'" in message
    assert "layer3, layer4, output" in message


def test_an_index_out_of_range_tells_the_range():
    message = refused("layer3=39,40")
    assert "40" in message
    assert "0 to 39" in message


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "   ",
        ":",
        "=",
        "layer3",
        "layer3=",
        "layer3=,",
        "layer3=1,",
        "layer3=1,,2",
        "layer3=-1",
        "layer3=1-",
        "layer3=a",
        "layer3=1.5",
        "layer3=1;2",
        "layer3=1 2",
        "layer3==1",
        "=3",
        "layer3=5-3",
        "layer3=1:2",
        "layer3=random:",
        "layer3=random:-1",
        "layer3=random:41",
        "layer3=random:2,3",
        "layer3=0-99999999999999",
        "layer3=" + "9" * 5000,
        "layer3=random:" + "9" * 5000,
        "random:0",
        "random:11",
        "random:" + "9" * 5000,
        "ALL",
        "layer3=1:layer9=2",
        "../../etc/passwd",
    ],
)
def test_what_names_no_units_is_refused_in_one_message(spec: str):
    message = refused(spec)
    assert message
    assert "\n" not in message


def test_a_unit_reads_as_a_path():
    assert str(Unit(target="net", layer="layer4", index=122)) == "net/layer4/122"


def test_units_sort_by_number():
    units = [Unit(target="t", layer="l", index=index) for index in (10, 9, 100)]
    assert [unit.index for unit in sorted(units)] == [9, 10, 100]


CLASSES = TargetInfo(
    name="net", layers={"output": 4}, digest="0", input_size=(8, 8), classes=("pig", "tiger cat", "crane", "crane")
)


def test_outputs_are_chosen_by_the_names_of_their_classes():
    assert [u.index for u in select("output=tiger cat, Pig,3", CLASSES).units] == [1, 0, 3]


def test_two_classes_of_one_name_are_both_meant():
    assert [u.index for u in select("output=crane", CLASSES).units] == [2, 3]


def test_a_class_that_the_network_does_not_have_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"net has no class 'tiger'; the nearest of its 4 are tiger cat"):
        select("output=tiger", CLASSES)


def test_where_classes_have_no_names_indices_are_asked_for():
    info = TargetInfo(name="net", layers={"output": 4}, digest="0", input_size=(8, 8))
    with pytest.raises(UsageError, match="names of net's classes are not known; give indices"):
        select("output=pig", info)


@pytest.mark.parametrize("spec", ["all", "mono=0", "nowhere=random:3"])
def test_nothing_is_counted_while_the_layers_are_not_known(spec: str):
    assert count(spec, []) is None


def test_of_many_layers_the_nearest_and_the_outermost_are_named():
    layers = ["stem", *(f"layer{n}.conv" for n in range(498)), "head"]
    message = unknown_layer("layer_7_conv", "net", layers).message
    assert "did you mean 'layer7.conv'" in message and "500 layers" in message and len(message) < 400
    assert message.endswith("outermost stem, head")
    assert unknown_layer("a", "", []).message == "unknown layer 'a' of the target; it has: "


def test_classes_are_counted_without_the_network():
    assert count("output=pig,tiger cat,3-4:a=1", ["output", "a"]) == 5
