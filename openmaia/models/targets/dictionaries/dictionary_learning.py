"""What dictionary_learning saves."""

from collections.abc import Callable, Mapping
from typing import Any

from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.dictionary_format import (
    AUTOENCODER,
    DictionaryFormat,
    OpenedDictionary,
    Tensors,
    described,
    rescaled,
)

_LINEAR = ("decoder.weight", "encoder.bias", "encoder.weight")

CLASSES: Mapping[str, tuple[str, ...]] = {
    "AutoEncoder": (*_LINEAR, "bias"),
    "AutoEncoderNew": (*_LINEAR, "decoder.bias"),
    "AutoEncoderTopK": (*_LINEAR, "b_dec", "k", "threshold"),
    "BatchTopKSAE": (*_LINEAR, "b_dec", "k", "threshold"),
    "MatryoshkaBatchTopKSAE": (*AUTOENCODER, "b_enc", "group_sizes", "k", "threshold"),
    "GatedAutoEncoder": ("decoder.weight", "decoder_bias", "encoder.weight", "gate_bias", "mag_bias", "r_mag"),
    "JumpReluAutoEncoder": (*AUTOENCODER, "b_enc", "threshold"),
}
"""Classes, and the tensors of each."""


def read(opened: OpenedDictionary) -> Dictionary:
    """As `DictionaryFormat.read`, for what dictionary_learning saves."""
    trainer = opened.config.get("trainer")
    kind = trainer.get("dict_class") if isinstance(trainer, dict) else None
    if not isinstance(kind, str) or kind not in CLASSES:
        raise opened.refused(f"its {opened.config_name} has trainer.dict_class={kind!r}; expected {', '.join(CLASSES)}")
    tensors = opened.tensors()
    opened.check_names(tensors, f"dict_class={kind}", CLASSES[kind])
    is_linear = "encoder.weight" in tensors
    encoder = tensors["encoder.weight"] if is_linear else tensors["W_enc"].T
    decoder = tensors["decoder.weight"].T if is_linear else tensors["W_dec"]
    others = _OTHERS[kind](opened, tensors)
    if kind == "AutoEncoder":  # The library normalises it when it loads it.
        encoder, others["bias"], decoder = rescaled(encoder, others["bias"], decoder)
    return opened.dictionary(encoder, decoder, described(kind, "dictionary_learning", others.get("k", 0)), **others)


def _topk(opened: OpenedDictionary, tensors: Tensors) -> dict[str, Any]:
    k = opened.positive(tensors["k"].item() if tensors["k"].numel() == 1 else None)
    return {"bias": tensors["encoder.bias"], "offset": tensors["b_dec"], "k": k}


def _batchtopk(opened: OpenedDictionary, tensors: Tensors) -> dict[str, Any]:
    bias = tensors["encoder.bias" if "encoder.bias" in tensors else "b_enc"]
    return {"bias": bias, "offset": tensors["b_dec"], "threshold": opened.one_threshold(tensors["threshold"], bias)}


_OTHERS: Mapping[str, Callable[[OpenedDictionary, Tensors], dict[str, Any]]] = {
    "AutoEncoder": lambda _, t: {"bias": t["encoder.bias"], "offset": t["bias"]},
    "AutoEncoderNew": lambda _, t: {"bias": t["encoder.bias"]},
    "AutoEncoderTopK": _topk,
    "BatchTopKSAE": _batchtopk,
    "MatryoshkaBatchTopKSAE": _batchtopk,
    "GatedAutoEncoder": lambda _, t: {
        "bias": t["mag_bias"],
        "offset": t["decoder_bias"],
        "gate": t["gate_bias"],
        "scale": t["r_mag"].exp(),
    },
    "JumpReluAutoEncoder": lambda _, t: {"bias": t["b_enc"], "threshold": t["threshold"]},
}

DICTIONARY_LEARNING = DictionaryFormat(library="dictionary_learning", config="config.json", weights="ae.pt", read=read)
