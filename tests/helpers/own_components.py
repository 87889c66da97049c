"""Components as a user writes them, and where they are put for a test: `write(folder)` makes the module `mymodels`."""

from pathlib import Path

GENERATOR = '''
"""A generator and an editor of plain colours."""

from dataclasses import dataclass

import numpy as np

from openmaia.core.checks import ok
from openmaia.core.components import Component, EditorConfig, GeneratorConfig, machine
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage


@dataclass
class PlainConfig(GeneratorConfig):
    colour: str = "red"
    fast: bool = machine(False)


class Plain(Component):
    Config = PlainConfig

    def __init__(self, config):
        self.value = {"red": (200, 0, 0), "blue": (0, 0, 200)}[config.colour]
        self.size = config.size

    @staticmethod
    def problems(config, site):
        if config.colour not in ("red", "blue"):
            yield f"{site.key}.colour={config.colour!r}: give red or blue"

    @staticmethod
    def checks(config, site):
        yield lambda: ok(f"{site.key} has paint")

    @staticmethod
    def title(config):
        return f"plain {config.colour}"

    def generate(self, requests):
        pixels = np.full((self.size, self.size, 3), self.value, np.uint8)
        return [GeneratedImage(image=EncodedImage.of(pixels)) for _ in requests]


class Darker(Component):
    Config = EditorConfig

    def edit(self, requests):
        return [
            GeneratedImage(image=EncodedImage.of(request.image.pixels // 2, request.image.sources))
            for request in requests
        ]

    def __init__(self, config):
        pass
'''


def write(folder: Path) -> Path:
    """Writes the user's module and returns its path."""
    path = folder / "mymodels.py"
    path.write_text(GENERATOR)
    return path
