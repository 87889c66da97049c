"""Files of a model, from a folder or the hub, with errors that say what to do."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)

from openmaia.errors import UsageError

DENOISERS = ("transformer", "unet")
TEXT_ENCODERS = ("text_encoder_3", "text_encoder_2", "text_encoder")
"""Names of a pipeline's parts; of the text encoders that it has the first one here is the large one."""


def located(source: str) -> str:
    """A folder with its ~ resolved; a hub id as it is."""
    folder = Path(source).expanduser()
    return str(folder) if folder.is_dir() else source


def read_json(key: str, source: str, filename: str) -> dict[str, Any] | None:
    """A JSON file of `source`, a folder or a hub id; None where the source has no such file.

    key: the config key that named the source. Raises UsageError for a source that is missing, gated or out of reach.
    """
    folder = Path(located(source))
    path = folder / filename if folder.is_dir() else _download(key, source, filename)
    if path is None or not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{key}={source!r}: its {filename} is damaged: {error}") from error


def _download(key: str, source: str, filename: str) -> Path | None:
    try:
        return Path(hf_hub_download(source, filename))
    except GatedRepoError as error:
        raise UsageError(
            f"{key}={source!r} is gated: accept its licence on its page of the hub, then set HF_TOKEN to a token of that "
            "account"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{key}={source!r} is neither a folder nor a model of the hub; check the name, and set HF_TOKEN if it is private"
        ) from error
    except RemoteEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise UsageError(f"{key}={source!r} is neither a folder nor a hub id such as owner/name") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError) as error:
        raise UsageError(
            f"{key}={source!r} is no folder, and the model hub did not answer for it ({error.__cause__ or error}); check the "
            "name, the network and HF_HUB_OFFLINE, or give a folder that holds the model"
        ) from error
