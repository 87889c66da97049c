"""Components as a user writes them, and where they are put for a test: `write(folder)` makes the module `mymodels`."""

from pathlib import Path

GENERATOR = '''
"""A generator and an editor of plain colours, a backbone that repeats what it hears, and a judge of brightness."""

from dataclasses import dataclass

import numpy as np

from openmaia.core.checks import ok
from openmaia.core.components import BackboneConfig, Component, EditorConfig, GeneratorConfig, JudgeConfig, machine
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Reply
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


@dataclass
class EchoConfig(BackboneConfig):
    greeting: str = "hello"
    concurrency: int = machine(4)


class Echo(Component):
    Config = EchoConfig

    def __init__(self, config):
        self.greeting = config.greeting

    @staticmethod
    def title(config):
        return f"echo {config.greeting}"

    def reply(self, chats):
        return [Reply(text=f"{self.greeting}, {chat.messages[-1].text}") for chat in chats]


@dataclass
class BrightConfig(JudgeConfig):
    least: int = 100


class Bright(Component):
    Config = BrightConfig

    def __init__(self, config):
        self.name, self.least = f"bright above {config.least}", config.least

    def judge(self, images, labels):
        return [(bool(image.pixels.mean() > self.least),) * len(labels) for image in images]
'''


def write(folder: Path) -> Path:
    """Writes the user's module and returns its path."""
    path = folder / "mymodels.py"
    path.write_text(GENERATOR)
    return path
