"""CLIP, SigLIP and OWL-ViT of Hugging Face transformers with given texts as classes, which are encoded once, as a network is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoModelForZeroShotObjectDetection,
    AutoTokenizer,
)

from openmaia.core.errors import UsageError
from openmaia.models.targets.clip import open_clip_folder
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.network import UNTRAINED
from openmaia.models.targets.networks import detectors, from_open_clip
from openmaia.models.targets.networks.checkpoint import load_checkpoint
from openmaia.models.targets.networks.from_hub import explaining, load_module, read_preprocess
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from openmaia.models.targets.state import weights_digest

_KINDS: Mapping[str, Any] = {"clip": AutoModel, "siglip": AutoModel, "owlvit": AutoModelForZeroShotObjectDetection}
"""The auto class that loads a model, by the `model_type` of those whose answers are known to be those of transformers."""

_BATCH = 64  # texts that are encoded at a time


class Prompted(nn.Module):
    """A network that compares images with texts. The output is one number for each text. Modules have their own names."""

    meaning: OutputMeaning
    """How the output is read."""
    said: str
    """What a unit of the output is, for `TargetNetwork.outputs`. The prompts follow it."""

    def __init__(
        self,
        model: Any,
        images: Mapping[str, nn.Module],
        tokens: Sequence[list[int]],
        prompts: Sequence[str],
        texts: torch.Tensor,
    ):
        """Takes over `images`, the modules of `model` that see images, by their names. `texts` are the embeddings of the
        prompts, shape (prompts, channels), of length 1."""
        super().__init__()
        for name, each in images.items():
            self.add_module(name, each)
        seeing = {f"{name}.{key}" for name, each in images.items() for key in each.state_dict()}
        own = [item for item in model.state_dict().items() if item[0] not in seeing]
        self._prompts, self._text_side = list(prompts), [weights_digest(own), *tokens]
        # Not in the state, whose digest then depends on no rounding of the machine that encodes the texts.
        self.register_buffer("texts", texts, persistent=False)

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the prompts and what encodes them, which are a part of the network's digest."""
        return {"prompts": self._prompts, "texts": self._text_side}


class PromptedEncoder(Prompted):
    """The image encoder of a CLIP or SigLIP, and the similarity of its embedding to texts.

    The output for a text is exp(logit_scale) · cos(image, text) + logit_bias: the logits of CLIP (Radford et al. 2021,
    arXiv:2103.00020, figure 3), which has no bias, and of SigLIP (Zhai et al. 2023, arXiv:2303.15343, algorithm 1).
    """

    meaning = OutputMeaning.VALUES

    def __init__(self, model: Any, *given: Any):
        """Takes over the modules of `model`. `given` are the other arguments of `Prompted`."""
        names = ("vision_model", "visual_projection")
        super().__init__(model, {name: getattr(model, name) for name in names if hasattr(model, name)}, *given)
        self._scale = float(model.logit_scale.detach().exp())
        self._bias = float(model.logit_bias.detach()) if hasattr(model, "logit_bias") else 0.0
        bias = f" {self._bias:+.6g}" if self._bias else ""
        self.said = f"{self._scale:.6g} times the cosine similarity to these texts{bias}"

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns shape (images, prompts)."""
        parts = dict(self.named_children())
        embeddings = parts["vision_model"](pixel_values=pixels).pooler_output
        if "visual_projection" in parts:
            embeddings = parts["visual_projection"](embeddings)
        return nn.functional.normalize(embeddings, dim=1) @ self.get_buffer("texts").mT * self._scale + self._bias


class PromptedDetector(Prompted):
    """An OWL-ViT (Minderer et al. 2022, arXiv:2205.06230), which scores each text at each box."""

    meaning = OutputMeaning.SIGMOID
    said = "the largest score of each of these texts among the detector's boxes, without maps"

    def __init__(self, model: Any, *given: Any):
        """As that of `PromptedEncoder`."""
        seeing = nn.ModuleDict({"vision_model": model.owlvit.vision_model})
        images = {"owlvit": seeing, "layer_norm": model.layer_norm, "class_head": model.class_head}
        super().__init__(model, images, *given)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns logits whose sigmoid is the largest score of each text in an image, shape (images, prompts)."""
        parts: dict[str, Any] = dict(self.named_children())
        encoder = parts["owlvit"]["vision_model"]
        tokens = encoder.post_layernorm(encoder(pixel_values=pixels).last_hidden_state)
        boxes = parts["layer_norm"](tokens[:, 1:] * tokens[:, :1])
        logits, _ = parts["class_head"](boxes, self.get_buffer("texts").expand(len(pixels), -1, -1), None)
        return detectors.largest_log_odds(logits, None)


def load(model: str, weights: str, names: Sequence[str], prompts: Sequence[str]) -> TargetNetwork:
    """Loads a model by its hub id or folder, with one output for each prompt.

    Args:
        weights: As of `openmaia.models.targets.networks.load`. A checkpoint has both encoders.
        names: Of the classes.

    Raises:
        UsageError: The model cannot be loaded, is neither a CLIP nor a SigLIP nor an OWL-ViT, or a prompt is too long for it.
    """
    with explaining(model), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        folder = open_clip_folder(model)
        module, tokenizer, preprocess = (
            _of_open_clip(folder, not weights) if folder else _of_transformers(model, not weights)
        )
    if weights not in ("", UNTRAINED):
        load_checkpoint(module, weights)
    tokens = _tokens(tokenizer, module, prompts)
    kind = PromptedDetector if hasattr(module, "owlvit") else PromptedEncoder
    network = kind(module.eval(), tokens, prompts, _encode(tokenizer, module, prompts))
    return TargetNetwork(
        module=network,
        preprocess=preprocess,
        published=preprocess,  # that code uses CLIP's own
        labels=tuple(names),
        output=network.meaning,
        outputs=f"output: {network.said}: {', '.join(map(repr, prompts))}",
    )


def _of_transformers(model: str, pretrained: bool) -> tuple[Any, Any, Preprocess]:
    """Returns the model, its tokenizer and its preprocessing."""
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not pretrained}
    config = AutoConfig.from_pretrained(model, **options)
    if config.model_type not in _KINDS:
        raise UsageError(
            f"target.network='hf:{model}' is of the type {config.model_type!r}, whose texts OpenMAIA cannot compare with "
            f"images; expected one of {', '.join(_KINDS)}"
        )
    processor = AutoImageProcessor.from_pretrained(model, **options)
    tokenizer = AutoTokenizer.from_pretrained(model, **options)
    return (
        load_module(_KINDS[config.model_type], model, config, pretrained),
        tokenizer,
        read_preprocess(model, processor),
    )


def _of_open_clip(folder: Path, pretrained: bool) -> tuple[Any, Any, Preprocess]:
    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    module, preprocess = from_open_clip.read(folder, tokenizer.eos_token_id, pretrained)
    texts: Any = module.config.text_config
    known = texts.vocab_size
    if len(tokenizer) != known:
        raise UsageError(
            f"target.network='hf:{folder}': its tokenizer has {len(tokenizer)} tokens and its model {known}; download the whole "
            "folder again"
        )
    return module, tokenizer, preprocess


def _longest(model: Any) -> int:
    return int(model.config.text_config.max_position_embeddings)


def _tokens(tokenizer: Any, model: Any, prompts: Sequence[str]) -> list[list[int]]:
    tokens = cast("list[list[int]]", tokenizer(list(prompts))["input_ids"])
    for prompt, own in zip(prompts, tokens, strict=True):
        if len(own) > _longest(model):
            raise UsageError(
                f"the text {prompt[:60]!r} has {len(own)} tokens, and the network takes {_longest(model)}; shorten it "
                "(target.prompts, target.template)"
            )
    return tokens


def _encode(tokenizer: Any, model: Any, prompts: Sequence[str]) -> torch.Tensor:
    """The embeddings of texts, shape (prompts, channels), of length 1."""
    # SigLIP learned from texts that are padded to one length, without a mask.
    is_padded, encoder = model.config.model_type == "siglip", getattr(model, "owlvit", model)
    lengths: dict[str, Any] = (
        {"padding": "max_length", "max_length": _longest(model)} if is_padded else {"padding": True}
    )
    found: list[torch.Tensor] = []
    with torch.no_grad():
        for first in range(0, len(prompts), _BATCH):
            several = list(prompts[first : first + _BATCH])
            given = tokenizer(several, **lengths, return_tensors="pt")
            found.append(nn.functional.normalize(encoder.get_text_features(**given).pooler_output, dim=1))
    return torch.cat(found)
