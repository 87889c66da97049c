"""What SAELens saves. Defaults and older names of keys are those of SAELens 6.54."""

from collections.abc import Mapping
from typing import Any

import torch

from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.dictionary_format import (
    AUTOENCODER,
    DictionaryFormat,
    OpenedDictionary,
    described,
    rescaled,
)

_ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "standard": (*AUTOENCODER, "b_enc"),
    "topk": (*AUTOENCODER, "b_enc"),
    "jumprelu": (*AUTOENCODER, "b_enc", "threshold"),
    "gated": (*AUTOENCODER, "b_gate", "b_mag", "r_mag"),
    # As a training saves them. For use, SAELens saves them as jumprelu.
    "batchtopk": (*AUTOENCODER, "b_enc", "topk_threshold"),
    "matryoshka_batchtopk": (*AUTOENCODER, "b_enc", "topk_threshold"),
}
"""Architectures, and the tensors of each."""


def read(opened: OpenedDictionary) -> Dictionary:
    """As `DictionaryFormat.read`, for what SAELens saves."""
    config = opened.config
    architecture, k = _architecture(opened)
    tensors = opened.tensors()
    opened.check_names(tensors, f"architecture={architecture}", _ARCHITECTURES[architecture])
    encoder, decoder = tensors["W_enc"].T, tensors["W_dec"]
    bias = tensors["b_mag" if architecture == "gated" else "b_enc"]
    if config.get("rescale_acts_by_decoder_norm"):
        if "topk" not in architecture:
            raise opened.refused(
                f"it has rescale_acts_by_decoder_norm, which architecture={architecture} does not know"
            )
        encoder, bias, decoder = rescaled(encoder, bias, decoder)
    metadata = config.get("metadata")
    hook = metadata.get("hook_name") if isinstance(metadata, dict) else config.get("hook_name")
    return opened.dictionary(
        encoder,
        decoder,
        described(architecture, "SAELens", k, hook),
        bias=bias,
        offset=tensors["b_dec"] if config.get("apply_b_dec_to_input", True) else None,
        normalisation=opened.normalisation(config.get("normalize_activations")),
        k=k,
        **_own(opened, architecture, tensors, bias),
    )


def _architecture(opened: OpenedDictionary) -> tuple[str, int]:
    """Returns the architecture and k, which is 0 where there is none."""
    config = opened.config
    activation = config.get("activation_fn", config.get("activation_fn_str", "relu"))
    options = config.get("activation_fn_kwargs") or {}
    architecture, k = config.get("architecture", "standard"), config.get("k")
    if architecture in ("standard", "topk") and activation == "topk":
        architecture, k = "topk", options.get("k", k) if isinstance(options, dict) else k
    elif activation != "relu":
        raise opened.refused(f"it has activation_fn={activation!r}; expected relu or topk")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        raise opened.refused(f"it has architecture={architecture!r}; expected {', '.join(_ARCHITECTURES)}")
    if config.get("finetuning_scaling_factor"):
        raise opened.refused("it has finetuning_scaling_factor, which SAELens no longer applies; expected none")
    return architecture, opened.positive(k) if architecture == "topk" else 0


def _own(
    opened: OpenedDictionary, architecture: str, tensors: Mapping[str, torch.Tensor], bias: torch.Tensor
) -> dict[str, Any]:
    """Returns what only one architecture has."""
    if architecture == "gated":
        return {"gate": tensors["b_gate"], "scale": tensors["r_mag"].exp()}
    if architecture == "jumprelu":
        return {"threshold": tensors["threshold"]}
    if "topk_threshold" in tensors:
        return {"threshold": opened.one_threshold(tensors["topk_threshold"], bias)}
    return {}


SAELENS = DictionaryFormat(library="SAELens", config="cfg.json", weights="sae_weights.safetensors", read=read)
