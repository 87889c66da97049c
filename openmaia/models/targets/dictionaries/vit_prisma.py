"""What ViT-Prisma publishes for vision transformers: the state of its autoencoder beside its config."""

from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.dictionary_format import AUTOENCODER, DictionaryFormat, OpenedDictionary, described

_ARCHITECTURES = {
    "standard": (*AUTOENCODER, "b_enc"),
    "gated": (*AUTOENCODER, "b_enc", "b_gate", "b_mag", "r_mag"),
}
"""Architectures, and the tensors of each. A gated one has a bias `b_enc` that it does not use."""


def read(opened: OpenedDictionary) -> Dictionary:
    """As `DictionaryFormat.read`, for what ViT-Prisma saves."""
    config = opened.config
    architecture, activation = config.get("architecture"), config.get("activation_fn_str")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        raise opened.refused(f"it has architecture={architecture!r}; expected {', '.join(_ARCHITECTURES)}")
    if config.get("is_transcoder"):
        raise opened.refused("it has is_transcoder, and does not encode the layer that it reconstructs")
    for key in ("normalize_activations", "activation_fn_str"):  # whose defaults differ between versions of the library
        if key not in config:
            raise opened.refused(f"its {opened.config_name} lacks {key}")
    k = 0
    if activation == "topk" and architecture == "standard":
        options = config.get("activation_fn_kwargs")
        k = opened.positive(options.get("k") if isinstance(options, dict) else None)
    elif activation != "relu":
        raise opened.refused(f"it has activation_fn_str={activation!r}; expected relu, or topk of a standard one")
    tensors = opened.tensors()
    opened.check_names(tensors, f"architecture={architecture}", _ARCHITECTURES[architecture])
    is_gated = architecture == "gated"
    return opened.dictionary(
        tensors["W_enc"].T,
        tensors["W_dec"],
        described("topk" if k else architecture, "ViT-Prisma", k, _hook(opened)),
        bias=tensors["b_mag" if is_gated else "b_enc"],
        offset=tensors["b_dec"],
        gate=tensors["b_gate"] if is_gated else None,
        scale=tensors["r_mag"].exp() if is_gated else None,
        normalisation=opened.normalisation(config.get("normalize_activations")),
        k=k,
    )


def _hook(opened: OpenedDictionary) -> str:
    config = opened.config
    tokens = " of the class token" if config.get("cls_token_only") else ""
    return f"blocks.{config.get('hook_point_layer')}.{config.get('layer_subtype')}{tokens}"


VIT_PRISMA = DictionaryFormat(library="ViT-Prisma", config="config.json", weights="weights.pt", read=read)
