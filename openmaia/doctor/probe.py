"""Run as a process of its own, whose parent may lose patience: what torch and torchvision say of this machine.

Prints a line of JSON as soon as each is known, so that a parent that stops waiting keeps what came before.
"""

import difflib
import importlib
import json
import sys
from typing import Any


def main(network: str) -> None:
    """network: a name for torchvision or timm whose checkpoint is to be looked up, or empty."""
    _say(_torch)
    vision = _say(_torchvision)
    if network and "unusable" not in vision:
        _say(lambda: {"checkpoint": checkpoint(network)})


def _say(ask: Any) -> dict[str, Any]:
    said: dict[str, Any] = ask()
    print(json.dumps(said), flush=True)
    return said


def _torch() -> dict[str, Any]:
    import torch

    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    build = torch.version.cuda or torch.version.hip
    return {"torch": torch.__version__, "gpu_build": bool(build), "cards": [[c.name, c.total_memory] for c in cards]}


def _torchvision() -> dict[str, Any]:
    try:
        return {"torchvision": importlib.import_module("torchvision").__version__}
    except (ImportError, OSError, RuntimeError) as error:
        return {"unusable": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def checkpoint(network: str) -> dict[str, Any]:
    """{hub: id}, {url: of the file, size: bytes, folder: where it is kept}, or {unknown: nearest names}."""
    library, colon, rest = network.partition(":")
    if colon and library == "timm":
        timm: Any = importlib.import_module("timm.models")
        known = timm.get_pretrained_cfg(rest) if timm.is_model(rest) else None
        if known is None:
            return {"unknown": difflib.get_close_matches(rest, timm.list_models(), n=3, cutoff=0.0)}
        return {"hub": known.hf_hub_id} if known.hf_hub_id else {"url": known.url, "size": 0, "folder": _folder()}
    import torchvision

    from openmaia.targets.networks import from_torchvision

    plain, _, chosen = (rest if colon else network).partition("@")
    if plain not in from_torchvision.names():
        return {"unknown": difflib.get_close_matches(plain, from_torchvision.names(), n=3, cutoff=0.0)}
    offered = torchvision.models.get_model_weights(plain)
    name = chosen or from_torchvision.PAPERS.get(plain, "DEFAULT")
    if name not in offered.__members__:
        return {"unknown": [f"{plain}@{each}" for each in offered.__members__]}
    weights = offered[name]
    # torchvision states the sizes of its files in MB of 2^20.
    return {"url": weights.url, "size": int(weights.meta["_file_size"] * 2**20), "folder": _folder()}


def _folder() -> str:
    import torch

    return f"{torch.hub.get_dir()}/checkpoints"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
