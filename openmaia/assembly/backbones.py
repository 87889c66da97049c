"""Builds the backbone of a config, with the viewer if it takes no images."""

from operator import attrgetter

from openmaia.assembly.generators import build_section
from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.services import Backbone
from openmaia.runs.run import Run


def backbone(config: Config, section: str = "backbone", run: Run | None = None, *, has_images: bool = True) -> Backbone:
    """Loads the backbone of the section `backbone` or `evaluate.writer`: with a viewer if its key `sees` is "text".

    `run` keeps its batches, by default that of the config. Without a viewer if its chats have no images (`has_images`).
    """
    agent = build_section(config, section)
    if getattr(attrgetter(section)(config), "batch", False):
        from openmaia.models.backbones.batches import BatchedBackbone

        agent = BatchedBackbone(agent, (run or Run.of(config)).files)
    if attrgetter(section)(config).sees == "images" or not has_images:
        return agent
    from openmaia.models.backbones.viewer import BackboneWithViewer

    return BackboneWithViewer(agent, viewer(config))


def viewer(config: Config) -> Backbone:
    """Loads the viewer."""
    return build_section(config, "viewer")


def backbone_name(config: Config, section: str = "backbone") -> str:
    """Returns the name of a backbone in records, with that of the viewer of one that takes no images."""
    settings = attrgetter(section)(config)
    name = of_config(settings, section).title(settings)
    if settings.sees == "images":
        return name
    seeing = of_config(config.viewer, "viewer")
    model = getattr(config.viewer, "model", "") or seeing.title(config.viewer)
    return f"{name}, sees {'no images' if seeing.is_absent else f'text of {model}'}"
