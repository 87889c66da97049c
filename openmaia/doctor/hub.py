"""The model hub, asked for the files of a repository and whether this account may have them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

PAGES = "https://huggingface.co"
"""Where licences are accepted, whatever mirror HF_ENDPOINT names."""

SECONDS = 3.0
"""For a connection, and again for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """sizes: bytes by file name. digests: SHA-256 of the large ones. refused: why the files cannot be had, with what to
    do. silent: why the hub did not answer. dtypes: weights by their type, where the hub knows."""

    commit: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    dtypes: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: tuple[str, str] | None = None
    silent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """As huggingface_hub's environment variables describe it: HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN."""

    endpoint: str = constants.ENDPOINT
    cache: Path = Path(constants.HF_HUB_CACHE)
    offline: bool = constants.HF_HUB_OFFLINE
    token: str | None = field(default_factory=get_token, repr=False)

    def ask(self, repository: str, revision: str | None) -> Answer:
        if self.offline:
            return Answer(silent="HF_HUB_OFFLINE is set")
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        try:
            info = api.model_info(repository, revision=revision, files_metadata=True, timeout=SECONDS)
            refused = self._gate(repository) if info.gated else None
        except GatedRepoError:
            return Answer(refused=self._licence(repository))
        except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
            return Answer(refused=_unknown(repository, error))
        except OfflineModeIsEnabled:
            return Answer(silent="HF_HUB_OFFLINE is set")
        except HfHubHTTPError as error:
            if error.response.status_code == 401:
                return Answer(refused=("cannot be asked for: the hub does not accept the token", "set HF_TOKEN anew"))
            return Answer(silent=_line(error))
        except (httpx2.HTTPError, ValueError) as error:
            return Answer(silent=_line(error))
        siblings = info.siblings or []
        return Answer(
            commit=info.sha or "",
            sizes={each.rfilename: each.size or 0 for each in siblings},
            digests={each.rfilename: each.lfs.sha256 for each in siblings if each.lfs},
            dtypes=info.safetensors.parameters if info.safetensors else {},
            refused=refused,
        )

    def json(self, repository: str, revision: str | None, filename: str) -> dict[str, Any]:
        """A small file, which is not kept; empty where it cannot be had."""
        if self.offline:
            return {}
        url = hf_hub_url(repository, filename, revision=revision, endpoint=self.endpoint)
        try:
            answer = get_session().get(url, headers=build_hf_headers(token=self.token or False), timeout=SECONDS)
            hf_raise_for_status(answer)
            read = answer.json()
        except (httpx2.HTTPError, OfflineModeIsEnabled, ValueError):
            return {}
        return read if isinstance(read, dict) else {}

    def _gate(self, repository: str) -> tuple[str, str] | None:
        """The files of a gated repository are listed for everybody, but not given to everybody."""
        if not self.token:
            return self._licence(repository)
        # HfApi.auth_check, which would wait for an answer as long as it takes.
        url = f"{self.endpoint}/api/models/{repository}/auth-check"
        try:
            hf_raise_for_status(get_session().get(url, headers=build_hf_headers(token=self.token), timeout=SECONDS))
        except GatedRepoError:
            return self._licence(repository)
        return None

    def _licence(self, repository: str) -> tuple[str, str]:
        accept = f"accept the licence at {PAGES}/{repository}"
        if self.token:
            return "is gated, and the account of the token has not been let in", f"{accept} with that account"
        return "is gated, and no token is set", f"{accept} and set HF_TOKEN to a token of that account"


def _unknown(repository: str, error: Exception) -> tuple[str, str]:
    if isinstance(error, RevisionNotFoundError):
        return "has no such revision", "backbone.vllm.arguments.revision=…"
    if isinstance(error, HFValidationError):
        return "is neither a folder nor a hub id such as owner/name", "check the path"
    return "is not on the hub, or private", "check the name, or set HF_TOKEN to a token that may read it"


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
