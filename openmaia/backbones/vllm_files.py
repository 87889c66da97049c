"""Is there a model where backbone.model says, and are its files whole?"""

import json
from pathlib import Path

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from safetensors import SafetensorError, safe_open

from openmaia.errors import UsageError

CONFIGS = ("config.json", "params.json")
"""Of transformers, and of Mistral's own format."""

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def check_files(model: str, revision: str | None, any_weights: bool) -> None:
    """model: a folder or a hub id. any_weights: the folder need not hold weights that this function knows.

    Raises UsageError for what is missing, gated, out of reach or truncated.
    """
    given = f"backbone.model={model!r}"
    if not model:
        raise UsageError("backbone.model is empty; expected a hub id or a folder of a vision-language model")
    folder = Path(model).expanduser()
    if folder.is_dir():
        _check_folder(folder, given, any_weights)
    elif folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise UsageError(f"{given} is no folder; expected one with a config.json and weights, or a hub id")
    else:
        _check_hub(model, revision, given)


def _check_folder(folder: Path, given: str, any_weights: bool) -> None:
    if not any((folder / name).is_file() for name in CONFIGS):
        raise UsageError(f"{given} has no {' and no '.join(CONFIGS)}; expected the folder of a model as the hub has it")
    if not any_weights and not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        raise UsageError(f"{given} holds no weights ({', '.join(WEIGHTS)}); download the model again")
    for index in folder.glob("*.safetensors.index.json"):
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        if missing := sorted(name for name in files if not (folder / name).is_file()):
            raise UsageError(
                f"{given}: {index.name} names files that are not there: {', '.join(missing)}; download them"
            )
    _check_weights(folder, given)


def _check_weights(folder: Path, given: str) -> None:
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise UsageError(
                f"{given}: {file.name} ({file.stat().st_size} bytes) is truncated or damaged ({error}); download it again"
            ) from error


def _check_hub(model: str, revision: str | None, given: str) -> None:
    try:
        # The cache first: without a connection the client would try for half a minute to find out whether it is current.
        cached = try_to_load_from_cache(model, CONFIGS[0], revision=revision)
        config = cached if isinstance(cached, str) else hf_hub_download(model, CONFIGS[0], revision=revision)
    except GatedRepoError as error:
        raise UsageError(
            f"{given} is gated: accept its licence on its page on the hub and set HF_TOKEN to a token of that account"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{given} is no model on the hub (or a private one, which needs HF_TOKEN); expected an id such as "
            "google/gemma-3-4b-it, or a folder"
        ) from error
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"{given} is not on this machine and the hub cannot be reached (or HF_HUB_OFFLINE is set); give a folder, or download it where the hub "
            f"can be reached (hf download {model}) and set HF_HOME to that cache"
        ) from error
    except EntryNotFoundError:
        return  # In a format of its maker's own; vLLM knows some of them.
    except HFValidationError as error:
        raise UsageError(f"{given} is neither a folder nor a hub id ({error})") from error
    except (HfHubHTTPError, OSError) as error:
        raise UsageError(f"{given} could not be read from the hub: {error}") from error
    _check_weights(Path(config).parent, given)
