"""Loads the model of each service of a config."""

from typing import Any

from openmaia.assembly.backbones import backbone
from openmaia.assembly.generators import editor, generator, test_generator
from openmaia.assembly.targets import target
from openmaia.config.schema import Config
from openmaia.core.components import of_config


def host(role: str, config: Config) -> Any:
    """Loads the model of a pool: "target", "generator", "editor", "backbone" or "test_generator"."""
    match role:
        case "target":
            return target(config)
        case "generator":
            return generator(config)
        case "test_generator":
            return test_generator(config)
        case "editor":
            return editor(config)
        case _:
            return backbone(config)


def concurrency(role: str, config: Config) -> int:
    """Returns how many calls a replica answers concurrently, or 0 if it takes one batch after another."""
    # Language models batch concurrent calls themselves.
    if role != "backbone":
        return 0
    return of_config(config.backbone).concurrency(config.backbone)
