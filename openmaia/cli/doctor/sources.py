"""Lists the weights that a config names, and selects their files in a repository."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config
from openmaia.distributed.launchers.requirements import EFFICIENTNET
from openmaia.models.hub import DENOISERS, TEXT_ENCODERS

STANDARD = re.compile(
    r"(?:(?P<part>[^/]+)/)?(?:diffusion_pytorch_model|model|pytorch_model)(?:-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
)
"""Matches the files that `from_pretrained` loads if no variant such as fp16 or non_ema is requested."""

VLLM = re.compile(r"(?P<part>)(?!consolidated)[^/]+\.(?:safetensors|bin|pt)")
MISTRAL = re.compile(r"(?P<part>)consolidated[^/]*\.safetensors")
"""VLLM matches the files that vLLM loads, all in the root folder of the model. MISTRAL matches those that it loads
instead with load_format=mistral, which are in Mistral's own format."""

NF4 = 0.5 + 4 / 64
"""Bytes per weight after NF4 quantization: 4 bits, and a 32-bit scale for each block of 64 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A repository or folder with weights that each replica (process) of a pool loads. A pool serves one model."""

    role: str
    """The pool whose replicas load the weights."""
    key: str
    """The config key that names the weights."""
    given: str
    """A folder, or an id on the Hugging Face hub."""
    itemsize: float = 4
    """Bytes of a floating-point weight once it is loaded."""
    pattern: re.Pattern[str] = STANDARD
    """Matches the files that are loaded; its group `part` is the folder of a part of a diffusers pipeline."""
    skipped: tuple[tuple[str, ...], ...] | None = None
    """For a diffusers pipeline: the parts that are not loaded from here, because another source provides them. Each
    part is a tuple of the folders that may hold it, the preferred one first. None: the source is a single model."""
    revision: str | None = None
    """The branch, tag or commit on the hub. None: the default branch."""

    def files(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Selects the files that are loaded from this source. Files in the safetensors format are preferred.

        Args:
            names: The paths of all files of the source, relative to its root.

        Returns:
            The paths of the files by part of the diffusers pipeline, such as "unet". If the source is a single model,
            the only key is an empty string.
        """
        parts: dict[str, list[str]] = {}
        for name in sorted(names):
            if match := self.pattern.fullmatch(name):
                parts.setdefault(match["part"] or "", []).append(name)
        parts = {part: [file for file in files if file.endswith("s")] or files for part, files in parts.items()}
        if self.skipped is None:
            part = _first(("", *DENOISERS, *TEXT_ENCODERS), parts)
            return {"": parts[part]} if part in parts else {}
        unwanted = {"", "safety_checker", *(_first(candidates, parts) for candidates in self.skipped)}
        return {part: files for part, files in parts.items() if part not in unwanted}


def _first(candidates: Iterable[str], names: Iterable[str]) -> str:
    return next((candidate for candidate in candidates if candidate in names), "")


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    target = config.target
    if target.kind == "synthetic":
        for key in ("detector", "segmenter"):
            if given := getattr(target, key):
                yield WeightSource(role="target", key=f"target.{key}", given=given)
    if target.kind == "network" and not target.weights and target.network.startswith("hf:"):
        yield WeightSource(role="target", key="target.network", given=target.network.removeprefix("hf:"))
    yield from _diffusion(config, "generator")
    yield from _diffusion(config, "editor")
    yield from _diffusion(config, "evaluate.generator")
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


def _diffusion(config: Config, section: Literal["generator", "editor", "evaluate.generator"]) -> Iterator[WeightSource]:
    sections = {"generator": config.generator, "editor": config.editor, "evaluate.generator": config.evaluate.generator}
    service, role = sections[section], TEST_GENERATOR if section == "evaluate.generator" else section
    settings, key = service.diffusion, f"{section}.diffusion"
    itemsize = NF4 if settings.quantize == "nf4" else 4 if settings.dtype == "float32" else 2
    own = {"transformer": (settings.transformer, DENOISERS), "text_encoder": (settings.text_encoder, TEXT_ENCODERS)}
    if service.kind == "diffusers":
        skipped = tuple(candidates for given, candidates in own.values() if given)
        yield WeightSource(role=role, key=f"{key}.model", given=settings.model, itemsize=itemsize, skipped=skipped)
        for option, (given, _) in own.items():
            if given:
                yield WeightSource(role=role, key=f"{key}.{option}", given=given, itemsize=itemsize)
