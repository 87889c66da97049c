"""Loads the model of each service of a config."""

from typing import Any

from openmaia.assembly.backbones import backbone
from openmaia.assembly.generators import build_section, generator, test_generator
from openmaia.assembly.targets import target
from openmaia.config.schema import Config
from openmaia.core.components import BackboneConfig, of_config


def host(role: str, config: Config) -> Any:
    """Loads a model: "target", "generator", "editor", "backbone", "test_generator", the "writer" of test prompts if it is
    a language model of its own, or the "judge" if it is none. These two may be None.
    """
    match role:
        case "target":
            return target(config)
        case "generator":
            return generator(config)
        case "test_generator":
            return test_generator(config)
        case "editor":
            return build_section(config, "editor")
        case "writer":
            return backbone(config, "evaluate.writer") if isinstance(config.evaluate.writer, BackboneConfig) else None
        case "judge":
            from openmaia.assembly.evaluation import component_judge

            return component_judge(config)
        case _:
            return backbone(config)


def concurrency(role: str, config: Config) -> int:
    """Returns how many calls a replica answers concurrently, or 0 if it takes one batch after another."""
    # Language models batch concurrent calls themselves.
    if role != "backbone":
        return 0
    return of_config(config.backbone).concurrency(config.backbone)
