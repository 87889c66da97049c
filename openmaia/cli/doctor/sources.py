"""Lists the weights that a config names."""

from collections.abc import Iterator

from openmaia.config.schema import Config
from openmaia.config.sections import in_use, site
from openmaia.core.components import of_config
from openmaia.models.weights import EFFICIENTNET, WeightSource


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    target = config.target
    if target.kind == "synthetic":
        for key in ("detector", "segmenter"):
            if given := getattr(target, key):
                yield WeightSource(role="target", key=f"target.{key}", given=given)
    if target.kind == "network" and not target.weights and target.network.startswith("hf:"):
        yield WeightSource(role="target", key="target.network", given=target.network.removeprefix("hf:"))
    for key, settings in in_use(config).items():
        yield from of_config(settings, key).weights(settings, site(config, key))


def library_network(config: Config) -> str:
    """Returns the name of the target's network if torchvision or timm provides its weights; otherwise ""."""
    target = config.target
    library, colon, _ = target.network.partition(":")
    is_known = (not colon or library in ("torchvision", "timm")) and not target.network.startswith(EFFICIENTNET)
    return target.network if target.kind == "network" and not target.weights and is_known else ""
