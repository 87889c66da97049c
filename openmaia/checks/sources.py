"""Lists the weights that a config names."""

from collections.abc import Iterator

from openmaia.config.schema import Config
from openmaia.config.sections import find_components
from openmaia.core.components import target_class
from openmaia.models.weights import WeightSource


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    for component, settings, site in find_components(config):
        yield from component.weights(settings, site)


def library_network(config: Config) -> str:
    """Returns the name of the target's network if torchvision or timm provides its weights; otherwise ""."""
    return target_class(config.target).library_weights(config.target)
