"""Checks the files of a language model before an engine loads them."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.models.hub import model_file

_KEY = "backbone.model"

CONFIGS = ("config.json", "params.json")  # of transformers, and Mistral's own

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def check_files(model: str, revision: str | None, any_weights: bool) -> None:
    """Checks that a model exists, and that its local files are complete.

    Args:
        any_weights: Whether a folder may hold weights in other formats than safetensors, PyTorch's and GGUF.

    Raises:
        UsageError: It is missing, gated or cannot be reached, or a file is missing or truncated.
    """
    given = f"{_KEY}={model!r}"
    folder = user_path(model)
    if folder.is_dir():
        _check_folder(folder, given, any_weights)
    elif folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise UsageError(f"{given} is no folder; expected one with a config.json and weights, or a hub id")
    # A model in a vendor's own format has no config.json; vLLM may know the format.
    elif config := model_file(_KEY, model, CONFIGS[0], revision):
        _check_weights(config.parent, given)


def _check_folder(folder: Path, given: str, any_weights: bool) -> None:
    if not any((folder / name).is_file() for name in CONFIGS):
        raise UsageError(f"{given} has no {' and no '.join(CONFIGS)}; expected the folder of a model as the hub has it")
    if not any_weights and not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
        raise UsageError(f"{given} holds no weights ({', '.join(_WEIGHTS)}); download the model again")
    for index in folder.glob("*.safetensors.index.json"):
        try:
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise UsageError(f"{given}: {index.name} cannot be read ({error}); download the model again") from error
        if missing := sorted(name for name in files if not (folder / name).is_file()):
            raise UsageError(
                f"{given}: {index.name} names files that do not exist: {', '.join(missing)}; download them"
            )
    _check_weights(folder, given)


def _check_weights(folder: Path, given: str) -> None:
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            size = file.stat().st_size
            raise UsageError(
                f"{given}: {file.name} ({size} bytes) is truncated or damaged ({error}); download it again"
            ) from error
