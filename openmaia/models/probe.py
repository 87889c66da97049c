"""Prints what torch, torchvision, timm and transformers report about this machine and about models.

Importing these libraries takes seconds, and may fail or hang. `openmaia doctor` therefore runs this module in a process
of its own, `python -m openmaia.models.probe NETWORK MODEL TOKENS`, with a time limit. Each result is a line of JSON as
soon as it is known. No weights are loaded.
"""

import difflib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

# The names in timm of networks of the MAIA papers.
RENAMED = {"dino_vits8": "timm:vit_small_patch8_224.dino", "clip_rn50": "timm:resnet50_clip.openai"}

# With a prefix cache, vLLM keeps the state of a linear layer now and at the end of the last full block.
_STATES = 2


def main(network: str = "", model: str = "", tokens: str = "0") -> None:
    """Prints versions and GPUs; the source of a network's checkpoint; the size of a language model's KV cache."""
    _print(_torch())
    _print(_torchvision())
    if network:
        _print({"checkpoint": checkpoint(network)})
    if model:
        _print({"kv_cache": kv_cache_bytes(model, int(tokens))})


def _print(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _torch() -> dict[str, Any]:
    import torch

    gpus: list[list[Any]] = []
    for device in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(device)
        gpus.append([torch.cuda.get_device_name(device), total, free])
    return {"torch": torch.__version__, "gpus": gpus}


def _torchvision() -> dict[str, Any]:
    # The import fails if torchvision was built for another torch.
    try:
        return {"torchvision": importlib.import_module("torchvision").__version__}
    except (ImportError, OSError, RuntimeError) as error:
        return {"torchvision_error": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def checkpoint(network: str) -> dict[str, Any]:
    """Returns where a network's weights can be downloaded, for a name as in `target.network`.

    {"hub": repository or folder}, {"url": address, "bytes": size or 0 if unknown, "path": location in the cache} for a
    single file, or {"nearest": similar names} if the library does not know the network or its weights.
    """
    network = RENAMED.get(network, network)
    library, colon, name = network.partition(":")
    published = _of_timm(name) if colon and library == "timm" else _of_torchvision(name if colon else network)
    if "url" in published:
        import torch

        folder = Path(torch.hub.get_dir()) / "checkpoints"
        published["path"] = str(folder / published["url"].rpartition("/")[2])
    return published


def _of_timm(name: str) -> dict[str, Any]:
    scheme, colon, source = name.partition(":")
    if colon and scheme in ("hf-hub", "hf_hub", "local-dir"):
        return {"hub": source}
    timm: Any = importlib.import_module("timm.models")
    known = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if known is None:
        return {"nearest": difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.0)}
    return {"hub": known.hf_hub_id} if known.hf_hub_id else {"url": known.url, "bytes": 0}


def _of_torchvision(name: str) -> dict[str, Any]:
    import torchvision

    from openmaia.models.targets.networks import from_torchvision, torchvision_detectors

    plain, _, chosen = name.partition("@")
    known = [*from_torchvision.names(), *torchvision_detectors.names()]
    if plain not in known:
        return {"nearest": difflib.get_close_matches(plain, known, n=3, cutoff=0.0)}
    offered = torchvision.models.get_model_weights(plain).__members__
    weights = offered.get(chosen or from_torchvision.PUBLISHED_WEIGHTS.get(plain, "DEFAULT"))
    if weights is None:
        return {"nearest": [f"{plain}@{each}" for each in offered]}
    # torchvision states sizes in MB of 2^20 bytes.
    return {"url": weights.url, "bytes": int(weights.meta["_file_size"] * 2**20)}


def kv_cache_bytes(model: str, tokens: int) -> float:
    """Estimates the memory of one conversation in a language model's 16-bit cache, by its config.json. 0 if that cannot
    be read.

    A layer caches a key and a value per token and key-value head; Gemma 4's global layers have heads of their own
    number and width. Layers with a sliding window cache only the tokens in the window, and those that share the cache of
    another layer none. Latent attention caches one small vector per token for all heads. Gated delta nets (Qwen 3.5) keep
    a state of one size, whatever the number of tokens.
    """
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config(decoder=True)
        count = config.num_hidden_layers - (getattr(config, "num_kv_shared_layers", 0) or 0)
        kinds: list[str] = getattr(config, "layer_types", None) or ["full_attention"] * count
        # Strict: attributes that differ between layers cannot be read from the config of the whole model.
        layers = zip(config.per_layer_config[:count], kinds[:count], strict=True)
        return float(sum(_layer_cache_bytes(layer, kind, tokens) for layer, kind in layers))
    except (OSError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
        return 0.0


def _layer_cache_bytes(layer: Any, kind: str, tokens: int) -> float:
    if kind == "linear_attention":
        return _STATES * _delta_net_bytes(layer)
    heads = getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
    width = 2 * heads * (getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads)
    if latent := getattr(layer, "kv_lora_rank", None):
        width = latent + layer.qk_rope_head_dim
    window = getattr(layer, "sliding_window", None) if kind != "full_attention" else None
    return 2.0 * width * min(window or tokens, tokens)


def _delta_net_bytes(layer: Any) -> float:
    """Bytes of a gated delta net's state: the last inputs of its convolution, and a matrix per head. 0 for other kinds of
    linear attention."""
    if not hasattr(layer, "linear_num_value_heads"):
        return 0.0
    keys = layer.linear_num_key_heads * layer.linear_key_head_dim
    values = layer.linear_num_value_heads * layer.linear_value_head_dim
    matrix = 4 if getattr(layer, "mamba_ssm_dtype", "") == "float32" else 2
    convolution = 2 * (layer.linear_conv_kernel_dim - 1) * (2 * keys + values)
    return convolution + matrix * values * layer.linear_key_head_dim


if __name__ == "__main__":
    main(*sys.argv[1:])
