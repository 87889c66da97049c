"""Pickles that would do something when they are read, for tests."""

from pathlib import Path
from typing import Any

import torch


class Running:
    """A pickle of it makes a directory when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.mkdir, (self.path,)


def trap(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    sprung = tmp_path / "sprung"
    return {"fc.weight": torch.zeros(2, 2), "more": Running(sprung)}, sprung
