"""An exported run is replayed unit by unit from its folder, as are folders of the published code."""

import json
from pathlib import Path

import pytest

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.messages import Chat, assistant, system, user
from openmaia.interop import histories
from openmaia.models.backbones.replay import ReplayBackbone
from tests.agent.conftest import Investigate, run  # noqa: F401  (fixture)
from tests.helpers.investigating import ANSWER, TESTED, pictures  # noqa: F401  (fixture)
from tests.interop.published import history, result


def reply(backbone: ReplayBackbone, unit: str, given: int = 0) -> str:
    messages = [system("x"), user("y"), *(assistant("z") for _ in range(given))]
    return backbone.reply([Chat(conversation=f"{unit}/0", messages=messages, seed=0, max_tokens=1)])[0].text


def test_each_unit_repeats_its_own_published_history(tmp_path: Path):
    for layer, unit, label in (
        ("layer4", 7, "ties"),
        ("layer4", 8, "dogs"),
        ("blocks%2F1", 7, "cats"),
        ("1", 7, "cups"),
    ):
        said = json.dumps(history(f"[DESCRIPTION]: {label}\n[LABEL 1]: {label}"))
        result(tmp_path / "agent" / "net" / layer / str(unit), history_json=said)
    (tmp_path / "agent" / "net" / "layer4" / "notes").mkdir()
    (tmp_path / "agent" / "net" / "layer4" / "notes" / "history.json").write_text("[]")
    backbone = ReplayBackbone(str(tmp_path))
    for unit, label in (("layer4/7", "ties"), ("layer4/8", "dogs"), ("blocks/1/7", "cats"), ("1/7", "cups")):
        assert "tools.display" in reply(backbone, f"resnet152/{unit}")
        assert reply(backbone, f"resnet152/{unit}", given=1) == f"[DESCRIPTION]: {label}\n[LABEL 1]: {label}"
    with pytest.raises(ServiceError, match=r"holds no LAYER/UNIT/history\.json of resnet152/layer4/9"):
        reply(backbone, "resnet152/layer4/9")


def test_folder_without_histories_or_with_two_of_a_unit_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"holds no LAYER/UNIT/history\.json; give a folder of results"):
        ReplayBackbone(str(tmp_path))
    for agent in ("one", "two"):
        result(tmp_path / agent / "net" / "layer4" / "7")
    with pytest.raises(UsageError, match="two histories of unit 7 of layer4"):
        ReplayBackbone(str(tmp_path))


def test_exported_investigation_is_the_same_when_it_is_replayed(run: Investigate, tmp_path: Path):  # noqa: F811
    first = run(TESTED, TESTED.replace("* 3", "* 2"), ANSWER)
    folder = histories.locate_folder(tmp_path / "published", first.backbone, first.unit)
    histories.write(folder, first)
    again = run(overrides=(f"backbone.record={tmp_path / 'published'}",))
    assert [turn.reply for turn in again.turns] == [turn.reply for turn in first.turns]
    assert [turn.observation for turn in again.turns] == [turn.observation for turn in first.turns]
    assert (again.description, again.labels, again.stop) == (first.description, first.labels, first.stop)
