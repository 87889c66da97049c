"""Loads the model of each service of a config."""

from typing import Any

from openmaia.assembly.backbones import backbone
from openmaia.assembly.generators import editor, generator, test_generator
from openmaia.assembly.targets import target
from openmaia.config.schema import Config
from openmaia.core.components import of_config


def host(role: str, config: Config) -> Any:
    """Loads the model of a service and returns the object that implements the service's protocol.

    The protocols, such as `Target` and `Generator`, are in `openmaia.core.services`.

    Args:
        role: The service: "target", "generator", "editor", "backbone" or "test_generator" (it makes the images on which
            descriptions are tested).
        config: The config of the run.
    """
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
    """Returns how many calls a replica of a service answers concurrently, or 0 if it takes one batch after another.

    Language models batch concurrent calls themselves. See `host` for the arguments.
    """
    if role != "backbone":
        return 0
    return of_config(config.backbone).concurrency(config.backbone)
