"""How much memory a replica wants, estimated from its weights before any of them is loaded."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from openmaia.doctor.files import SIZES
from openmaia.doctor.finding import GIB
from openmaia.doctor.weights import Weights

NF4 = 0.5 + 4 / 64
"""Bytes per weight: 4 bits, and a 32-bit scale for each block of 64."""

WORKING = 2 * GIB
"""CUDA's own, activations, graphs: about as much for a language model as for a pipeline that draws a few pictures."""

LAYERS_PER_FULL = 6
"""Gemma 3: five layers with a window to one without, where its config leaves that to the class."""


def loaded(weights: Weights) -> dict[str, float]:
    """Bytes of each part once it is loaded: floating-point types are converted, whole numbers are quantized already."""
    source = weights.source
    return {
        part: _converted(kinds, NF4 if source.nf4 and source.is_large(part, weights.parts) else source.itemsize)
        for part, kinds in weights.parts.items()
    }


def _converted(kinds: Counter[str], itemsize: float) -> float:
    # A part that holds whole numbers is packed: what is left of it in floating point stays as it is.
    packed = any(kind in ("U8", "I8", "I32", "F8_E4M3") for kind in kinds)
    return sum(
        size / SIZES[kind] * (min(itemsize, SIZES[kind]) if packed else itemsize) if kind in SIZES else size
        for kind, size in kinds.items()
    )


def of_pipeline(looked: Sequence[Weights], offload: bool) -> float:
    """Bytes for all parts together, or with offload for the largest: only one is on the card at a time."""
    parts = [size for weights in looked for size in loaded(weights).values()]
    return max(parts, default=0.0) if offload else sum(parts)


def of_conversation(settings: dict[str, Any], tokens: int) -> float:
    """Bytes of the KV cache of a conversation of that length, in 16 bits; 0 where the settings do not tell.

    settings: config.json of transformers, or params.json of Mistral's format.
    """
    text: dict[str, Any] = settings.get("text_config") or settings.get("llm_config") or settings
    layers = text.get("num_hidden_layers") or text.get("n_layers")
    heads = text.get("num_attention_heads") or text.get("n_heads")
    hidden = text.get("hidden_size") or text.get("dim")
    if not (layers and heads and hidden):
        return 0.0
    width = (text.get("head_dim") or hidden // heads) * 2
    groups = text.get("num_key_value_heads") or text.get("n_kv_heads") or heads
    per_token = groups * width * 2
    if text.get("kv_lora_rank"):  # latent attention keeps one small vector for all heads
        per_token = (text["kv_lora_rank"] + text.get("qk_rope_head_dim", 0)) * 2
    return float(per_token * sum(_kept(text, layers, tokens)))


def _kept(text: dict[str, Any], layers: int, tokens: int) -> list[int]:
    """Tokens that each layer keeps: all, those in its window, or none where attention is linear."""
    window = min(text.get("sliding_window") or tokens, tokens)
    kinds: list[str] = text.get("layer_types") or []
    if kinds:
        return [tokens if kind == "full_attention" else 0 if kind.startswith("linear") else window for kind in kinds]
    every = text.get("sliding_window_pattern") or LAYERS_PER_FULL
    if not str(text.get("model_type", "")).startswith("gemma3"):
        return [tokens] * layers
    return [tokens if (index + 1) % every == 0 else window for index in range(layers)]
