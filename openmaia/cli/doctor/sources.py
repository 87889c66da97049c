"""Lists the weights that a config names."""

from collections.abc import Iterator
from operator import attrgetter

from openmaia.config.schema import Config
from openmaia.config.sections import sections, site
from openmaia.core.components import of_config, target_class
from openmaia.models.weights import MISTRAL, NF4, VLLM, WeightSource


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    for key in sections():
        if (settings := attrgetter(key)(config)) is not None:
            yield from of_config(settings, key).weights(settings, site(config, key))
    if config.backbone.kind == "vllm":
        engine = config.backbone.vllm
        quantized = {"fp8": 1.0, "bitsandbytes": NF4}  # Other methods need weights that are quantized on disk.
        yield WeightSource(
            role="backbone",
            key="backbone.model",
            given=config.backbone.model,
            pattern=MISTRAL if engine.arguments.get("load_format") == "mistral" else VLLM,
            itemsize=quantized.get(engine.quantization, 4 if engine.dtype in ("float32", "float") else 2),
            revision=engine.arguments.get("revision"),
        )


def library_network(config: Config) -> str:
    """Returns the name of the target's network if torchvision or timm provides its weights; otherwise ""."""
    return target_class(config.target).library_weights(config.target)
