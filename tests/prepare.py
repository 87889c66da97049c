"""Fetches what the tests share, once: the pictures of the demo. `python -m tests.prepare`"""

import os
from pathlib import Path

from openmaia.datasets.library import ImageDataset
from openmaia.offline.packaged.library import fetch

CACHE = Path(os.environ.get("OPENMAIA_CACHE", "~/.cache/openmaia")).expanduser()

if __name__ == "__main__":
    library = ImageDataset.open(fetch(CACHE, print))
    print(f"pictures: {len(library.items)} in {library.root}")
