"""Lists the weights that a config names."""

from collections.abc import Iterator

from openmaia.config.schema import Config
from openmaia.config.sections import find_components
from openmaia.distributed.launchers.requirements import EFFICIENTNET
from openmaia.models.weights import MISTRAL, NF4, VLLM, WeightSource


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    target = config.target
    if target.kind == "synthetic":
        for key in ("detector", "segmenter"):
            if given := getattr(target, key):
                yield WeightSource(role="target", key=f"target.{key}", given=given)
    if target.kind == "network" and not target.weights and target.network.startswith("hf:"):
        yield WeightSource(role="target", key="target.network", given=target.network.removeprefix("hf:"))
    for component, settings, site in find_components(config):
        yield from component.weights(settings, site)
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
    target = config.target
    library, colon, _ = target.network.partition(":")
    is_known = (not colon or library in ("torchvision", "timm")) and not target.network.startswith(EFFICIENTNET)
    return target.network if target.kind == "network" and not target.weights and is_known else ""
