"""Makes a published report a Space of the Hugging Face hub, or files for any static host."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import yaml

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.text import printable
from openmaia.reporting.browser.publishing import Publication
from openmaia.runs.run import Run

HUB = "hf://"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")

_OURS = ("units/*", "runs/*", "data/*", "assets/*", "papers/*", "figures/*", "*.html")
"""The files of a publication."""


def space_name(address: str) -> str:
    """Returns the name of the Space in `hf://org/name`. Raises UsageError for any other address."""
    name = address.removeprefix(HUB).removeprefix("spaces/").strip("/")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{address} names no Space of the hub; give {HUB}ORGANISATION/NAME")
    return name


def make_readme(run: Run, publication: Publication) -> str:
    """Returns README.md with the front matter of a static Space."""
    facts = {
        "title": f"{run.name}: units described by OpenMAIA",
        "sdk": "static",
        "app_file": "index.html",
        "pinned": False,
    }
    front = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    stated = f"The publisher states this licence of the images: {printable(publication.licence)}."
    lines = [
        f"What agents said of {run.planned():,} units of a vision network, and how it was tested. Open `index.html`.",
        *publication.notes,
        *([stated] if publication.licence else []),
        "Images are reduced copies. Paths, addresses and names of the machine that made this were taken out.",
    ]
    return f"---\n{front}---\n\n# {printable(run.name)}\n\n" + "\n\n".join(lines) + "\n"


def upload_space(folder: Path, name: str, *, endpoint: str | None = None, token: str | None = None) -> str:
    """Uploads a folder as a static Space, which is made if there is none, and returns its address.

    Without `endpoint` and `token`, the hub is that of HF_ENDPOINT, and the account that of HF_TOKEN or of `hf auth login`.
    Raises ServiceError if the hub refuses it or does not answer.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint, token=token)
    with _hub_errors(name):
        made = api.create_repo(name, repo_type="space", space_sdk="static", exist_ok=True)
        # What an earlier publication held and this one leaves out does not stay, but for the history of the Space.
        api.upload_folder(
            repo_id=name,
            repo_type="space",
            folder_path=folder,
            delete_patterns=list(_OURS),
            commit_message="Published with OpenMAIA",
        )
    return str(made)


@contextmanager
def _hub_errors(name: str) -> Generator[None]:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

    try:
        yield
    except HFValidationError as error:
        raise UsageError(f"{HUB}{name} names no Space of the hub; give {HUB}ORGANISATION/NAME") from error
    except (HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, httpx2.HTTPError) as error:
        reason = " ".join(str(error).split())
        raise ServiceError(
            f"{HUB}{name} was not published ({reason}); check the network, HF_HUB_OFFLINE, and that HF_TOKEN is a token that "
            "may write there, or give a folder and upload it yourself"
        ) from error
