"""Finds a model's files in a folder or on the Hugging Face hub. `key` is the config key, for messages."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)

from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path


def located(source: str) -> str:
    """Returns the path of an existing folder with `~` expanded, or a hub id unchanged."""
    folder = user_path(source)
    return str(folder) if folder.is_dir() else source


def model_file(key: str, source: str, filename: str, revision: str | None = None) -> Path | None:
    """Finds a file of a model in its folder, in the hub's cache, or on the hub. None if the model has no such file.

    Raises:
        UsageError: The model does not exist, is gated, or cannot be reached.
    """
    folder = Path(located(source))
    if folder.is_dir():
        return folder / filename if (folder / filename).is_file() else None
    with hub_errors(key, source):
        # Without a connection, the client would try for half a minute to find out whether the cached file is current.
        cached = try_to_load_from_cache(source, filename, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        with suppress(RemoteEntryNotFoundError):
            return Path(hf_hub_download(source, filename, revision=revision))
    return None


@contextmanager
def hub_errors(key: str, source: str) -> Iterator[None]:
    """Turns errors of huggingface_hub into a UsageError that says what to do."""
    given = f"{key}={source!r}"
    try:
        yield
    except GatedRepoError as error:
        raise UsageError(
            f"{given} is gated: accept its licence at https://huggingface.co/{source}, then set HF_TOKEN to a token of that "
            "account"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{given} is neither a folder nor a model of the hub; check the name, and set HF_TOKEN if it is private"
        ) from error
    except HFValidationError as error:
        raise UsageError(f"{given} is neither a folder nor a hub id such as owner/name") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, httpx2.HTTPError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UsageError(
            f"{given} is no folder, and the model hub did not answer for it ({reason}); check the name, the network and "
            f"HF_HUB_OFFLINE, or give a folder that holds the model (hf download {source})"
        ) from error


def fetch_checkpoint(url: str, path: Path) -> Path:
    """Downloads a weight file to a path in torch.hub's cache, unless it is there. Returns the path."""
    import torch

    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = re.search(r"-([a-f0-9]{8,})\.", path.name)  # torchvision's names hold the beginning of the SHA-256
        torch.hub.download_url_to_file(url, str(path), digest and digest[1], progress=False)
    return path


def read_json(key: str, source: str, filename: str) -> dict[str, Any] | None:
    """Returns a JSON file of a model, None if there is none. Raises UsageError as `model_file`, or if it is damaged."""
    path = model_file(key, source, filename)
    try:
        return None if path is None else parse_json(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{key}={source!r}: its {filename} is damaged: {error}") from error
