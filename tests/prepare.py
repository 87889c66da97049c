"""Fetches what the tests share, once: the pictures of the demo. `python -m tests.prepare`"""

import os
from pathlib import Path

from openmaia.pictures.library import Library
from openmaia.pictures.packages import fetch

CACHE = Path(os.environ.get("OPENMAIA_CACHE", "~/.cache/openmaia")).expanduser()

if __name__ == "__main__":
    library = Library.open(fetch(CACHE, print))
    print(f"pictures: {len(library.items)} in {library.root}")
