"""Models that open_clip saved (see open_clip/make.py), with texts as classes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from openmaia.core.components import Site, build
from openmaia.core.errors import UsageError
from openmaia.core.units import OUTPUT
from openmaia.models.targets.clip import ClipConfig, PromptedClip

torch.set_num_threads(1)

MADE = Path(__file__).with_name("open_clip")
NAMES, TEMPLATE = ["red boat", "dog at night", "tree"], "a photo of a {}."
WEIGHTS = "open_clip_model.safetensors"


def config(folder: Path, **keys: Any) -> ClipConfig:
    given: dict[str, Any] = {"prompts": NAMES, "template": TEMPLATE, "layers": [OUTPUT]} | keys
    return ClipConfig(kind="clip", name="net", network=f"hf:{folder}", **given)


def changed(folder: Path, **sections: dict[str, Any]) -> Path:
    """A copy with other keys in the sections of its config."""
    file = Path(shutil.copytree(MADE / "gelu", folder / "changed")) / "open_clip_config.json"
    given = json.loads(file.read_text())
    for name, keys in sections.items():
        (given if name == "preprocess_cfg" else given["model_cfg"])[name] |= keys
    file.write_text(json.dumps(given))
    return file.parent


@pytest.mark.parametrize("kind", ["gelu", "quick_gelu"])
def test_activations_are_the_logits_of_the_library(kind: str):
    expected = load_file(MADE / kind / "expected.safetensors")
    network = PromptedClip.network(config(MADE / kind), "")
    with torch.no_grad():
        found = network.module(expected["input"])
    assert float(expected["logits"].std()) > 0.1
    assert torch.allclose(found, expected["logits"], rtol=1e-5, atol=1e-5)


def test_model_is_a_target_with_layers_and_texts():
    info = build(config(MADE / "gelu", layers=["vision_model.encoder.layers.1", OUTPUT]), Site(key="target")).info()
    assert info.layers == {"vision_model.encoder.layers.1": 16, OUTPUT: 3}
    assert info.classes == tuple(NAMES)
    assert "'a photo of a red boat.'" in info.preprocessing
    assert "(bicubic)" in info.preprocessing
    assert "minus (0.5, 0.4, 0.3), divided by (0.2, 0.3, 0.25)" in info.preprocessing


def test_weights_are_those_of_the_folder_or_random():
    (source,) = PromptedClip.weights(config(MADE / "gelu"), Site(key="target"))
    assert source.files(["open_clip_pytorch_model.bin", WEIGHTS, "model.safetensors"]) == {"": [WEIGHTS]}
    digests = {
        build(config(MADE / "gelu", weights=each), Site(key="target")).info().digest for each in ("", "untrained")
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"vision_cfg": {"timm_model_name": "vit"}},
            "a model of open_clip with timm_model_name, which OpenMAIA does not read",
        ),
        ({"text_cfg": {"hf_model_name": "roberta"}}, "with hf_model_name, which OpenMAIA does not read"),
        ({"vision_cfg": {"layers": [1, 1, 1, 1]}}, "with the layers of a ResNet, which OpenMAIA does not read"),
        ({"vision_cfg": {"image_size": "large"}}, "open_clip_config.json is damaged"),
        ({"preprocess_cfg": {"resize_mode": "longest"}}, "expected shortest or squash, bicubic or bilinear"),
        ({"vision_cfg": {"width": "wide"}}, "open_clip_config.json is damaged"),
        ({"vision_cfg": {"layers": 3}}, "does not fit its config"),
    ],
)
def test_what_is_not_understood_is_refused(sections: dict[str, dict[str, Any]], message: str, tmp_path: Path):
    with pytest.raises(UsageError) as error:
        PromptedClip.network(config(changed(tmp_path, **sections)), "")
    assert message in error.value.message
    assert error.value.message.count("target.network") == 1  # not said twice


def test_other_tensors_are_refused(tmp_path: Path):
    folder = changed(tmp_path)
    save_file(load_file(folder / WEIGHTS) | {"logit_bias": torch.zeros(1)}, folder / WEIGHTS)
    with pytest.raises(UsageError, match="does not fit its config.*logit_bias"):
        PromptedClip.network(config(folder), "")


def test_folder_without_weights_is_refused(tmp_path: Path):
    folder = changed(tmp_path)
    (folder / WEIGHTS).unlink()
    with pytest.raises(UsageError, match="has no weights; expected open_clip_model.safetensors"):
        PromptedClip.network(config(folder), "")
