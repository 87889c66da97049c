"""Fetches what the tests share, once: the pictures of the demo. `python -m tests.prepare`"""

import os
from pathlib import Path

import pytest

from openmaia.core.errors import OpenMaiaError
from openmaia.datasets.library import ImageDataset
from openmaia.offline.packaged.library import fetch

CACHE = Path(os.environ.get("OPENMAIA_CACHE", "~/.cache/openmaia")).expanduser()


def packages() -> Path:
    """Returns the folder of the demo's pictures, which are fetched if they are missing. Skips the test if that fails."""
    cause = ""
    if not (CACHE / "packages-v1").is_dir():
        try:
            fetch(CACHE, print)
        except (OpenMaiaError, OSError) as error:
            cause = f": {error}"
    if not (CACHE / "packages-v1").is_dir():
        pytest.skip(f"the pictures of the demo cannot be fetched with apt-get to {CACHE}/packages-v1{cause}")
    return CACHE / "packages-v1"


if __name__ == "__main__":
    library = ImageDataset.open(fetch(CACHE, print))
    print(f"pictures: {len(library.items)} in {library.root}")
