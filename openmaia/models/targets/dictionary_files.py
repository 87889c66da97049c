"""Reads dictionaries that SAELens and dictionary_learning saved. Nothing is unpickled except tensors.

What cannot be applied exactly as the library's own `encode` does is refused.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from openmaia.core.errors import UsageError
from openmaia.core.paths import source_and_folder, user_path
from openmaia.models.hub import model_file, read_json
from openmaia.models.targets.dictionaries import Dictionary, Normalisation

Tensors = Mapping[str, torch.Tensor]

SAELENS = ("cfg.json", "sae_weights.safetensors")
LEARNED = ("config.json", "ae.pt")  # of dictionary_learning

_AUTOENCODER = ("W_dec", "W_enc", "b_dec")
_LINEAR = ("decoder.weight", "encoder.bias", "encoder.weight")

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "standard": (*_AUTOENCODER, "b_enc"),
    "topk": (*_AUTOENCODER, "b_enc"),
    "jumprelu": (*_AUTOENCODER, "b_enc", "threshold"),
    "gated": (*_AUTOENCODER, "b_gate", "b_mag", "r_mag"),
    # As a training saves them. For use, SAELens saves them as jumprelu.
    "batchtopk": (*_AUTOENCODER, "b_enc", "topk_threshold"),
    "matryoshka_batchtopk": (*_AUTOENCODER, "b_enc", "topk_threshold"),
}
"""SAELens's architectures, and the tensors of each."""

CLASSES: Mapping[str, tuple[str, ...]] = {
    "AutoEncoder": (*_LINEAR, "bias"),
    "AutoEncoderNew": (*_LINEAR, "decoder.bias"),
    "AutoEncoderTopK": (*_LINEAR, "b_dec", "k", "threshold"),
    "BatchTopKSAE": (*_LINEAR, "b_dec", "k", "threshold"),
    "MatryoshkaBatchTopKSAE": (*_AUTOENCODER, "b_enc", "group_sizes", "k", "threshold"),
    "GatedAutoEncoder": ("decoder.weight", "decoder_bias", "encoder.weight", "gate_bias", "mag_bias", "r_mag"),
    "JumpReluAutoEncoder": (*_AUTOENCODER, "b_enc", "threshold"),
}
"""dictionary_learning's classes, and the tensors of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A dictionary's folder, for messages about it."""

    given: str
    layer: str
    source: str
    channels: int

    def refused(self, why: str) -> UsageError:
        return UsageError(f"{self.given}: {why}")

    def dictionary(self, encoder: torch.Tensor, decoder: torch.Tensor, description: str, **others: Any) -> Dictionary:
        """Returns what was read, with the encoder of shape (features, channels), after a check of all shapes."""
        features = encoder.shape[0]
        expected: dict[str, tuple[int, ...]] = {"decoder": (features, self.channels), "offset": (self.channels,)}
        tensors = {"encoder": encoder, "decoder": decoder}
        tensors |= {name: each for name, each in others.items() if isinstance(each, torch.Tensor)}
        if not features or encoder.shape[1] != self.channels:
            raise self.refused(
                f"it has {features} features of {encoder.shape[1]} channels, and layer {self.layer!r} has {self.channels}"
            )
        for name, each in tensors.items():
            wanted = (features, self.channels) if name == "encoder" else expected.get(name, (features,))
            if tuple(each.shape) != wanted or not each.is_floating_point() or not bool(each.isfinite().all()):
                raise self.refused(
                    f"its {name} is {tuple(each.shape)} of {each.dtype}; expected {wanted} of finite floats"
                )
        if not 0 <= others.get("k", 0) <= features:
            raise self.refused(f"it has k={others['k']}, and {features} features")
        read = {**others, **{name: each.double().contiguous() for name, each in tensors.items()}}
        read["decoder"] = decoder.float().contiguous()
        return Dictionary(layer=self.layer, source=self.source, description=description, **read)


def read_dictionary(layer: str, given: str, channels: int, source: str = "") -> Dictionary:
    """Reads the dictionary of a layer with so many channels.

    Args:
        given: A folder or hub id, or `ID#FOLDER` for a folder inside of it, that holds cfg.json and
            sae_weights.safetensors (SAELens), or config.json and ae.pt (dictionary_learning).
        source: Key of the responses that are encoded. Empty: the layer.

    Raises:
        UsageError: The files cannot be read, are not understood, or do not match the layer.
    """
    opened = _Opened(
        given=f"target.dictionaries: {layer}={given!r}", layer=layer, source=source or layer, channels=channels
    )
    key, (folder, inner) = f"target.dictionaries.{layer}", source_and_folder(given)
    for (config_name, weights_name), loaded, build in (
        (SAELENS, _safetensors, _from_saelens),
        (LEARNED, _tensors_only, _from_learned),
    ):
        names = [f"{inner}/{name}" if inner else name for name in (config_name, weights_name)]
        config = read_json(key, folder, names[0])
        weights = model_file(key, folder, names[1])
        if config is not None and weights is not None:
            if not isinstance(cast(Any, config), dict):
                raise opened.refused(f"its {config_name} holds no mapping")
            return build(opened, config, loaded(opened, weights))
    raise opened.refused(
        f"{_content(folder, inner)}; expected {' and '.join(SAELENS)} of SAELens, or {' and '.join(LEARNED)} of "
        "dictionary_learning"
    )


def _content(source: str, inner: str) -> str:
    folder = user_path(source) / inner
    if not folder.is_dir():
        return "it lacks the files of a dictionary"
    names = sorted(each.name for each in folder.iterdir())
    return f"it has {', '.join(names[:8])}" + (", …" if len(names) > 8 else "") if names else "it is empty"


def _safetensors(opened: _Opened, path: Path) -> Tensors:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise opened.refused(f"its {path.name} cannot be read as safetensors ({str(error)[:200]})") from error


def _tensors_only(opened: _Opened, path: Path) -> Tensors:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise opened.refused(
            f"its {path.name} is a pickle of more than tensors, and nothing of it was run; save its state_dict()"
        ) from error
    except Exception as error:  # a damaged pickle raises almost anything
        raise opened.refused(f"its {path.name} cannot be read ({str(error)[:200]})") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(each, torch.Tensor) for name, each in cast(dict[Any, Any], state).items()
    ):
        raise opened.refused(f"its {path.name} holds no state_dict of tensors")
    return cast(Tensors, state)


def _check_names(opened: _Opened, tensors: Tensors, kind: str, expected: tuple[str, ...]) -> None:
    if set(tensors) != set(expected):
        raise opened.refused(
            f"{kind} has the tensors {', '.join(sorted(tensors)) or 'none'}; expected {', '.join(sorted(expected))}"
        )
    for name in expected:
        wanted = 2 if name in ("W_enc", "W_dec", "encoder.weight", "decoder.weight") else 1
        if tensors[name].ndim > wanted or (wanted == 2 and tensors[name].ndim < 2):
            raise opened.refused(f"its {name} is {tuple(tensors[name].shape)}; expected {wanted} axes")


def _positive(opened: _Opened, k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, float)) or k != int(k) or k < 1:
        raise opened.refused(f"it has k={k!r}; expected a whole number of at least 1")
    return int(k)


def _rescaled(encoder: torch.Tensor, bias: torch.Tensor, decoder: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns encoder, bias and decoder for decoder rows of norm 1, which reconstruct the same."""
    norm = decoder.double().norm(dim=1).clamp(min=1e-8)
    return encoder * norm[:, None], bias * norm, decoder / norm[:, None]


def _from_saelens(opened: _Opened, config: Mapping[str, Any], tensors: Tensors) -> Dictionary:
    # Defaults and older names of keys as in SAELens 6.54.
    activation = config.get("activation_fn", config.get("activation_fn_str", "relu"))
    options = config.get("activation_fn_kwargs") or {}
    architecture, k = config.get("architecture", "standard"), config.get("k")
    if architecture in ("standard", "topk") and activation == "topk":
        architecture, k = "topk", options.get("k", k) if isinstance(options, dict) else k
    elif activation != "relu":
        raise opened.refused(f"it has activation_fn={activation!r}; expected relu or topk")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise opened.refused(f"it has architecture={architecture!r}; expected {', '.join(ARCHITECTURES)}")
    if config.get("finetuning_scaling_factor"):
        raise opened.refused("it has finetuning_scaling_factor, which SAELens no longer applies; expected none")
    _check_names(opened, tensors, f"architecture={architecture}", ARCHITECTURES[architecture])
    normalisation = _normalisation(opened, config.get("normalize_activations"))
    is_centred = bool(config.get("apply_b_dec_to_input", True))
    offset = tensors["b_dec"] if is_centred else torch.zeros_like(tensors["b_dec"])
    encoder, decoder = tensors["W_enc"].T, tensors["W_dec"]
    bias = tensors["b_mag" if architecture == "gated" else "b_enc"]
    if config.get("rescale_acts_by_decoder_norm"):
        if "topk" not in architecture:
            raise opened.refused(
                f"it has rescale_acts_by_decoder_norm, which architecture={architecture} does not know"
            )
        encoder, bias, decoder = _rescaled(encoder, bias, decoder)
    others: dict[str, Any] = {}
    if architecture == "topk":
        others = {"k": _positive(opened, k)}
    elif architecture == "gated":
        others = {"gate": tensors["b_gate"], "scale": tensors["r_mag"].exp()}
    elif architecture == "jumprelu":
        others = {"threshold": tensors["threshold"]}
    elif architecture in ("batchtopk", "matryoshka_batchtopk"):
        others = {"threshold": _expanded(opened, tensors["topk_threshold"], bias)}
    return opened.dictionary(
        encoder,
        decoder,
        _described(architecture, "SAELens", others, _hook(config)),
        bias=bias,
        offset=offset,
        normalisation=normalisation,
        **others,
    )


def _normalisation(opened: _Opened, given: Any) -> Normalisation:
    if given in (None, False):
        return "none"
    if given not in get_args(Normalisation):  # a tuple, so that it may be of any type
        raise opened.refused(
            f"it has normalize_activations={given!r}, whose statistics are not in the files; expected "
            f"{', '.join(get_args(Normalisation))}, such as SAELens saves after it has folded them into the weights"
        )
    return given


def _expanded(opened: _Opened, threshold: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns one threshold for each feature."""
    if threshold.numel() != 1:
        raise opened.refused(f"its threshold is {tuple(threshold.shape)}; expected one number")
    if float(threshold) < 0:
        raise opened.refused(
            f"its threshold is {float(threshold):g}, so that no training has set it; expected 0 or more"
        )
    return torch.full_like(bias, float(threshold))


def _hook(config: Mapping[str, Any]) -> str:
    metadata = config.get("metadata")
    hook = metadata.get("hook_name") if isinstance(metadata, dict) else config.get("hook_name")
    return f"; trained at {str(hook)[:80]!r}" if hook else ""


def _described(kind: str, library: str, others: Mapping[str, Any], hook: str = "") -> str:
    k = f", k={others['k']}" if "k" in others else ""
    return f"{kind} of {library}{k}{hook}"


def _from_learned(opened: _Opened, config: Mapping[str, Any], tensors: Tensors) -> Dictionary:
    trainer = config.get("trainer")
    kind = trainer.get("dict_class") if isinstance(trainer, dict) else None
    if not isinstance(kind, str) or kind not in CLASSES:
        raise opened.refused(f"its config.json has trainer.dict_class={kind!r}; expected {', '.join(CLASSES)}")
    _check_names(opened, tensors, f"dict_class={kind}", CLASSES[kind])
    is_linear = "encoder.weight" in tensors
    encoder = tensors["encoder.weight"] if is_linear else tensors["W_enc"].T
    decoder = tensors["decoder.weight"].T if is_linear else tensors["W_dec"]
    others = _LEARNED[kind](opened, tensors)
    if kind == "AutoEncoder":  # The library normalises it when it loads it.
        encoder, others["bias"], decoder = _rescaled(encoder, others["bias"], decoder)
    return opened.dictionary(encoder, decoder, _described(kind, "dictionary_learning", others), **others)


def _learned_topk(opened: _Opened, tensors: Tensors) -> dict[str, Any]:
    k = _positive(opened, tensors["k"].item() if tensors["k"].numel() == 1 else None)
    return {"bias": tensors["encoder.bias"], "offset": tensors["b_dec"], "k": k}


def _learned_batchtopk(opened: _Opened, tensors: Tensors) -> dict[str, Any]:
    bias = tensors["encoder.bias" if "encoder.bias" in tensors else "b_enc"]
    return {"bias": bias, "offset": tensors["b_dec"], "threshold": _expanded(opened, tensors["threshold"], bias)}


_LEARNED: Mapping[str, Callable[[_Opened, Tensors], dict[str, Any]]] = {
    "AutoEncoder": lambda _, t: {"bias": t["encoder.bias"], "offset": t["bias"]},
    "AutoEncoderNew": lambda _, t: {"bias": t["encoder.bias"], "offset": torch.zeros_like(t["decoder.bias"])},
    "AutoEncoderTopK": _learned_topk,
    "BatchTopKSAE": _learned_batchtopk,
    "MatryoshkaBatchTopKSAE": _learned_batchtopk,
    "GatedAutoEncoder": lambda _, t: {
        "bias": t["mag_bias"],
        "offset": t["decoder_bias"],
        "gate": t["gate_bias"],
        "scale": t["r_mag"].exp(),
    },
    "JumpReluAutoEncoder": lambda _, t: {
        "bias": t["b_enc"],
        "offset": torch.zeros_like(t["b_dec"]),
        "threshold": t["threshold"],
    },
}
