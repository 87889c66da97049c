"""`openmaia.investigate` on modules of a user's own, in this process."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import openmaia
from openmaia.core.errors import UsageError
from openmaia.core.messages import Chat, Reply
from openmaia.runs.records import Stop
from tests.helpers import extending
from tests.helpers.mine import TRANSFORM, redness

GIVEN = {"mean": [0.5] * 3, "std": [0.25] * 3, "size": 32}


def test_unit_of_a_module_is_described_and_tested(result: openmaia.UnitResult):
    assert result.labels[0] == "red"
    assert "red" in result.description
    assert result.unit.layer == "maps"
    assert result.record.stop is Stop.ANSWER
    assert result.scores["auc"] > 0.9
    assert result.record.preprocessing.startswith("central 88.89 % of the shorter side, scaled to 32 x 32 pixels")
    assert result.record.config["target"]["mean"] == [0.5, 0.5, 0.5]


def test_frames_hold_what_was_measured(result: openmaia.UnitResult):
    images = result.images()
    assert images.activation.max() == max(
        max(call.activations, default=0) for t in result.record.turns for call in t.calls
    )
    assert "a plain red picture" in set(images.prompt)
    assert isinstance(images.picture[0], Image.Image)
    turns = result.turns()
    assert len(turns) == len(result.record.turns)
    assert turns.images.sum() == len(images)


def test_saved_results_form_a_run_and_replace_nothing(result: openmaia.UnitResult, tmp_path: Path):
    first, second = result.save(tmp_path / "mine"), result.save(tmp_path / "mine")
    assert first != second
    run = openmaia.load(tmp_path / "mine")
    assert list(run.units().replicate) == [0, 1]
    assert run.record("maps=0", 1).description == result.description
    assert list(run.scores().auc) == [result.scores["auc"]] * 2
    assert len(run.images(("maps", 0))) == len(result.images())
    with pytest.raises(UsageError, match=r"no finished investigation of 'maps=7' .*it has maps=0"):
        run.record("maps=7")


@pytest.fixture
def threads() -> Iterator[int]:
    """A number of threads of PyTorch that nothing else sets."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_module_is_left_as_it_was(
    photos: list[Path], places: dict[str, Any], threads: int, capsys: pytest.CaptureFixture[str]
):
    model = redness().train()
    model.get_submodule("head").eval()
    before = {name: module.training for name, module in model.named_modules()}
    openmaia.investigate(
        model,
        "maps",
        1,
        images=photos,
        preprocess=TRANSFORM,
        evaluate=False,
        limits={"turns": 1, "soft_turns": 1},
        **places,
    )
    assert {name: module.training for name, module in model.named_modules()} == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert "in training mode; it is measured in evaluation mode" in printed
    assert printed.count("preprocessing of redness:") == 1
    assert "backbone: scripted (no language model" in printed


class Reserved:
    """A backbone of the user's own, which abstains at once."""

    name = "reserved"

    def reply(self, chats: list[Chat]) -> list[Reply]:
        return [Reply(text="[DESCRIPTION]: NONE") for _ in chats]


def short(
    model: Any, layer: str, unit: int | str | None, places: dict[str, Any], **arguments: Any
) -> openmaia.UnitResult:
    """One investigation by a backbone that abstains at once."""
    given = {"backbone": Reserved(), "task": {"evidence": {"experiments": 0}}, "evaluate": False} | arguments
    return openmaia.investigate(model, layer, unit, **given, **places)


def test_backbone_may_be_an_object(photos: list[Path], places: dict[str, Any]):
    made = short(redness(), "maps", 2, places, images=photos, preprocess=TRANSFORM)
    assert made.record.backbone == "reserved"
    assert made.record.config["backbone"]["kind"] == "python"
    assert made.record.stop is Stop.ABSTAIN
    assert "No description (abstain)" in made._repr_html_()


def test_backbone_may_be_a_class_in_the_current_folder(
    photos: list[Path], places: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    extending.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    quick = {"evidence": {"confirm": 0}}
    made = short(
        redness(), "maps", 2, places, images=photos, preprocess=TRANSFORM, backbone="mybackbones:Pattern", task=quick
    )
    assert (made.labels, made.record.backbone) == (("dots",), "mybackbones:Pattern")
    assert made.record.spent["editor"].requests


@pytest.mark.parametrize("kind", ["folder", "images", "arrays", "tensors", "dataset"])
def test_images_come_in_many_forms(kind: str, places: dict[str, Any], tmp_path: Path):
    pixels = [np.full((24, 30, 3), (12 * n, 90, 255 - 12 * n), dtype=np.uint8) for n in range(20)]
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / f"{number}.png")
    tensors = [torch.from_numpy(each).permute(2, 0, 1).float() / 255 for each in pixels]
    given: Any = {
        "folder": tmp_path,
        "images": [Image.fromarray(each) for each in pixels],
        "arrays": pixels,
        "tensors": tensors,
        "dataset": torch.utils.data.TensorDataset(torch.stack(tensors), torch.arange(20)),
    }[kind]
    made = short(redness(), "maps", 0, places, images=given, preprocess=GIVEN)
    activations = [each.activation for each in made.exemplars.of_kind("top")]
    reds = sorted((12 * n - 45 - (255 - 12 * n) / 2) for n in range(20))
    assert activations == sorted(activations, reverse=True)
    assert max(activations) <= (reds[-1] / 255 - 0) * 4 + 1e-3


def test_exemplars_of_changed_weights_are_not_reused(photos: list[Path], places: dict[str, Any]):
    model = redness()
    first = short(model, "maps", 0, places, images=photos, preprocess=GIVEN)
    again = short(redness(), "maps", 0, places, images=photos, preprocess=GIVEN)
    model.get_submodule("maps").weight.data *= 2
    changed = short(model, "maps", 0, places, images=photos, preprocess=GIVEN)
    top, same, other = (each.exemplars.of_kind("top")[0].activation for each in (first, again, changed))
    assert top == same
    assert other == pytest.approx(2 * top, rel=1e-3)
    folders = [each.record.config["exemplars"]["dataset"] for each in (first, again, changed)]
    assert folders[0] == folders[1] != folders[2]


def test_unknown_transform_is_recorded_and_its_exemplars_are_not_kept(
    photos: list[Path], places: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    def transform(image: Image.Image) -> torch.Tensor:
        return TRANSFORM(image).flip(0)

    made = short(redness(), "maps", 0, places, images=photos, preprocess=transform)
    assert made.record.config["target"]["preprocess"] == "python"
    assert "whose steps OpenMAIA does not know" in made.record.preprocessing
    assert "exemplars are not kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layer", "unit", "arguments", "message"),
    [
        ("map", 0, {"preprocess": GIVEN}, "unknown layer 'map' of redness; did you mean 'maps'"),
        ("maps", 3, {"preprocess": GIVEN}, "unit 3 is out of range: layer 'maps' of redness has units 0 to 2"),
        ("maps", 0, {}, "the module Redness declares no preprocessing.*preprocess=TRANSFORM"),
        ("maps", 0, {"preprocess": {"mean": [0.5], "std": [0.5], "size": 32}}, "'maps', takes 3 channels"),
        ("maps", 0, {"preprocess": {"size": 32, "side": 3}}, "preprocess has the keys side; expected mean, std, size"),
        ("maps", 0, {"preprocess": "imagenet"}, "preprocess is a str; expected a transform"),
        ("maps", 0, {"preprocess": GIVEN, "images": 7}, "images is a int; expected a folder, a list"),
        ("maps", 0, {"preprocess": GIVEN, "images": ["nowhere.jpg"]}, "nowhere.jpg"),
        ("maps", 0, {"preprocess": GIVEN, "backbone": 7}, "backbone is a int"),
        ("maps", 0, {"preprocess": GIVEN, "backbone": "gpt"}, "backbone.kind='gpt' is not known"),
        ("maps", 0, {"preprocess": GIVEN, "turns": 3}, "unknown key 'turns'"),
    ],
)
def test_wrong_argument_is_one_error(
    layer: str, unit: int, arguments: dict[str, Any], message: str, places: dict[str, Any], photos: list[Path]
):
    with pytest.raises(UsageError, match=message):
        openmaia.investigate(redness(), layer, unit, **({"images": photos} | arguments), **places)


def test_normalised_dataset_is_refused(places: dict[str, Any], photos: list[Path]):
    normalised = [TRANSFORM(Image.open(path).convert("RGB")) for path in photos[:3]]
    with pytest.raises(UsageError, match="expected pixels, not inputs of a network"):
        openmaia.investigate(redness(), "maps", 0, images=normalised, preprocess=TRANSFORM, **places)


def test_saved_config_names_what_no_command_can_build(result: openmaia.UnitResult, tmp_path: Path):
    from openmaia.assembly import targets
    from openmaia.config.loading import restore

    result.save(tmp_path / "mine")
    config = restore(openmaia.load(tmp_path / "mine").run.config(), "mine")
    with pytest.raises(UsageError, match=r"target.network stands for an object.*package.module:function"):
        targets.target(config)


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ReLU autoencoder of `maps`: feature 0 is its blue channel, feature 1 its red one, as are the others less so."""
    folder = tmp_path_factory.mktemp("dictionary")
    encoder = torch.eye(3)[:, [2, 0, 1, 0]]
    tensors = {"W_enc": encoder, "W_dec": encoder.T, "b_enc": torch.zeros(4), "b_dec": torch.zeros(3)}
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"architecture": "standard", "d_in": 3, "d_sae": 4}))
    return folder


@pytest.mark.parametrize(("layer", "unit"), [("maps", 1), ("maps=1", None), ("maps/features", 1)])
def test_unit_may_be_a_feature_of_a_dictionary(
    layer: str, unit: int | None, dictionary: Path, photos: list[Path], places: dict[str, Any]
):
    given = {"images": photos, "preprocess": TRANSFORM, "dictionary": dictionary}
    made = short(redness(), layer, unit, places, **given)
    red = short(redness(), "maps", 0, places, images=photos, preprocess=TRANSFORM)
    assert (made.unit.layer, made.unit.index) == ("maps/features", 1)
    mine, theirs = ([each.activation for each in some.exemplars.of_kind("top")] for some in (made, red))
    assert mine == pytest.approx([max(each, 0) for each in theirs], rel=1e-4)


def test_two_dictionaries_are_refused(dictionary: Path, photos: list[Path], places: dict[str, Any]):
    more = {"dictionary": dictionary, "target.dictionaries": {"maps": str(dictionary)}}
    with pytest.raises(UsageError, match=r"target\.dictionaries has no effect, because dictionary is given"):
        short(redness(), "maps", 1, places, images=photos, preprocess=TRANSFORM, **more)
