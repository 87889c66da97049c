"""Downloads the weights that a config names into the caches of this machine."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

from openmaia.checks.weights import cached
from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.models.hub import fetch_checkpoint, hub_errors, located
from openmaia.models.probe import checkpoint
from openmaia.models.weights import WeightSource

_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".tflite",
)
"""File name endings of all formats of weights. Of such files, only those that a run loads are downloaded."""


def fetch(sources: Sequence[WeightSource], network: str) -> list[tuple[bool, str]]:
    """Downloads weights into the caches of this machine. Files that are in the caches already are not downloaded again.

    Args:
        sources: Weights in folders or on the Hugging Face hub.
        network: A network of torchvision or timm, or an empty string.

    Returns:
        (is_there, line) for each source and the network: whether its weights are on this machine now, and a line that
        says where they are, or why the download failed. A failed download does not stop the others.
    """
    wanted = [(f"{source.key}={source.given}", partial(_fetch_source, source)) for source in sources]
    if network:
        wanted.append((f"target.network={network}", partial(_fetch_network, network)))
    lines: list[tuple[bool, str]] = []
    for name, download in wanted:
        try:
            lines.append((True, f"{name}: in {download()}"))
        except OpenMaiaError as error:
            lines.append((False, error.message))
        except (OSError, RuntimeError, ValueError, ImportError) as error:  # of the disk, the network, torch or timm
            lines.append((False, f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"))
    return lines


def _fetch_source(source: WeightSource) -> str:
    """Downloads the weights that are loaded and all files of the model that hold no weights. Returns their folder.

    Nothing is downloaded if the source is a folder. If the hub cannot be used, a folder in its cache is returned.

    Raises:
        UsageError: The hub cannot be used, and its cache holds no weights of the source.
    """
    if Path(located(source.given)).is_dir():
        return located(source.given)
    try:
        with hub_errors(source.key, source.given):
            return _download(source)
    except UsageError:
        if folder := cached(source):
            return str(folder)
        raise


def _download(source: WeightSource) -> str:
    info = HfApi().model_info(source.given, revision=source.revision)
    names = [sibling.rfilename for sibling in info.siblings or []]
    chosen = [name for part in source.files(names).values() for name in part]
    if not chosen:
        raise UsageError(f"{source.key}={source.given!r} holds no weights; give another repository")
    chosen += [name for name in names if not name.endswith(_WEIGHTS)]
    patterns = [re.sub(r"([*?\[])", r"[\1]", name) for name in chosen]
    return snapshot_download(source.given, revision=source.revision, allow_patterns=patterns)


def _fetch_network(network: str) -> str:
    published = checkpoint(network)
    if "hub" in published:
        return _fetch_source(WeightSource(role="target", key="target.network", given=published["hub"]))
    if "url" not in published:
        raise UsageError(f"target.network={network} is not known; the nearest are {', '.join(published['nearest'])}")
    return str(fetch_checkpoint(published["url"], Path(published["path"])).parent)
