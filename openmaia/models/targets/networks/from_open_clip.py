"""CLIPs as open_clip saves them in a folder, read as the same model of transformers.

Only models whose two encoders are plain transformers, as in Radford et al. 2021 (arXiv:2103.00020).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from safetensors.torch import load_file
from transformers import CLIPConfig, CLIPModel

from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.models.targets.clip import OPEN_CLIP_CONFIG, OPEN_CLIP_WEIGHTS
from openmaia.models.targets.preprocess import Preprocess

# Of open_clip, where the config says nothing else: those of OpenAI's models.
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

_KEYS = {
    "": {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg"},
    "vision_cfg": {"image_size", "layers", "width", "head_width", "mlp_ratio", "patch_size", "patch_dropout"},
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"},
    "preprocess_cfg": {"size", "mode", "mean", "std", "interpolation", "resize_mode", "fill_color"},
}
"""What is understood. `patch_dropout` matters in training only, `mode` and `fill_color` for no image that is read here."""

# Names of open_clip, and those of transformers. Of a block, `_BLOCK` follows.
_NAMES = {
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.": "text_model.final_layer_norm.",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.": "vision_model.embeddings.patch_embedding.",
    "visual.ln_pre.": "vision_model.pre_layrnorm.",
    "visual.ln_post.": "vision_model.post_layernorm.",
}
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.*)")
_PARTS = {
    "attn.out_proj.": "self_attn.out_proj.",
    "ln_1.": "layer_norm1.",
    "ln_2.": "layer_norm2.",
    "mlp.c_fc.": "mlp.fc1.",
    "mlp.c_proj.": "mlp.fc2.",
}


def read(folder: Path, eos_token_id: int, pretrained: bool) -> tuple[CLIPModel, Preprocess]:
    """Reads a model and its preprocessing.

    Args:
        eos_token_id: Of the tokenizer.
        pretrained: Otherwise the weights are random.

    Raises:
        UsageError: It has parts that the CLIP of transformers does not have, or a file is damaged.
    """
    what = f"target.network='hf:{folder}'"
    try:
        found = parse_json((folder / OPEN_CLIP_CONFIG).read_bytes())
        given, preprocess_given = found["model_cfg"], found.get("preprocess_cfg", {})
        sections = {"": given, "vision_cfg": given["vision_cfg"], "text_cfg": given["text_cfg"], "preprocess_cfg": preprocess_given}  # fmt: skip
        for name, section in sections.items():
            unknown = sorted(set(section) - _KEYS[name])
            unknown += ["the layers of a ResNet"] if isinstance(section.get("layers"), list) else []
            if unknown:
                raise UsageError(
                    f"{what} is a model of open_clip with {', '.join(unknown)}, which OpenMAIA does not read; give it in the "
                    "form of transformers"
                )
        model = CLIPModel(_config(given, eos_token_id))
        preprocess = _preprocess(given["vision_cfg"]["image_size"], preprocess_given, what)
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, StrictDataclassError) as error:
        raise UsageError(f"{what}: its {OPEN_CLIP_CONFIG} is damaged ({type(error).__name__}: {error})") from error
    if pretrained:
        _load(model, folder, what)
    return model, preprocess


def _config(given: Mapping[str, Any], eos_token_id: int) -> CLIPConfig:
    images, texts = given["vision_cfg"], given["text_cfg"]
    shared = {"hidden_act": "quick_gelu" if given.get("quick_gelu") else "gelu", "layer_norm_eps": 1e-5}
    vision: dict[str, Any] = {
        **_sizes(images, images["width"] // images.get("head_width", 64)),
        "image_size": images["image_size"],
        "patch_size": images["patch_size"],
    }
    text: dict[str, Any] = {
        **_sizes(texts, texts["heads"]),
        "vocab_size": texts.get("vocab_size", 49408),
        "max_position_embeddings": texts.get("context_length", 77),
        # The state at the first end of the text is its embedding.
        "eos_token_id": eos_token_id,
        "pad_token_id": eos_token_id,
    }
    return CLIPConfig(vision_config=vision | shared, text_config=text | shared, projection_dim=given["embed_dim"])


def _sizes(given: Mapping[str, Any], heads: int) -> dict[str, Any]:
    return {
        "hidden_size": given["width"],
        "intermediate_size": int(given["width"] * given.get("mlp_ratio", 4.0)),
        "num_hidden_layers": given["layers"],
        "num_attention_heads": heads,
    }


def _preprocess(side: int, given: Mapping[str, Any], what: str) -> Preprocess:
    size = given.get("size", side)
    height, width = cast("list[int]", size) if isinstance(size, list) else (size, size)
    mode, filtered = given.get("resize_mode", "shortest"), given.get("interpolation", "bicubic")
    if mode not in ("shortest", "squash") or filtered not in ("bicubic", "bilinear"):
        raise UsageError(f"{what} resizes images by resize_mode={mode!r}, interpolation={filtered!r}; expected shortest or squash, bicubic or bilinear")  # fmt: skip
    return Preprocess(
        size=(height, width),
        crop=1.0,
        squash=mode == "squash",
        resample=Image.Resampling[filtered.upper()],
        mean=tuple(given.get("mean", _MEAN)),
        std=tuple(given.get("std", _STD)),
    )


def _load(model: CLIPModel, folder: Path, what: str) -> None:
    path = next((folder / name for name in OPEN_CLIP_WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise UsageError(f"{what} has no weights; expected {' or '.join(OPEN_CLIP_WEIGHTS)}")
    is_safe = path.suffix == ".safetensors"
    state = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    try:
        model.load_state_dict(dict(_renamed(state)))
    except (RuntimeError, AttributeError) as error:
        why = " ".join(str(error).split())[:300]
        raise UsageError(f"{what}: its {path.name} does not fit its config ({why})") from error


def _renamed(state: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields tensors by their names in transformers."""
    for name, each in state.items():
        if match := _BLOCK.fullmatch(name):
            side, number, part = match.groups()
            block = f"{'vision' if side else 'text'}_model.encoder.layers.{number}."
            if part.startswith("attn.in_proj_"):
                # One tensor of three.
                for letter, third in zip("qkv", each.chunk(3), strict=True):
                    yield f"{block}self_attn.{letter}_proj.{part.removeprefix('attn.in_proj_')}", third
            else:
                yield block + _replaced(part, _PARTS), each
        elif name in ("text_projection", "visual.proj"):
            yield "text_projection.weight" if name[0] == "t" else "visual_projection.weight", each.mT
        else:
            yield _replaced(name, _NAMES), each


def _replaced(name: str, names: Mapping[str, str]) -> str:
    beginning = next((each for each in names if name.startswith(each)), "")
    return names[beginning] + name.removeprefix(beginning) if beginning else name
