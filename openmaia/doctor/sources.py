"""Which weights a config names, and which files of a repository those are."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from openmaia.generators.diffusion.hub import DENOISERS, TEXT_ENCODERS
from openmaia.schema import Config, DiffusionConfig

Layout = Literal["transformers", "diffusers", "part", "vllm", "consolidated"]
"""transformers: files at the root, timm's too. diffusers: a folder for each part. part: one part of a pipeline, in a
repository of its own, at its root or in a folder. vllm: as transformers, or whatever weights lie at the root.
consolidated: Mistral's own format."""

PUBLISHED = {"dino_vits8": "timm/vit_small_patch8_224.dino", "clip_rn50": "timm/resnet50_clip.openai"}
"""Where timm has the networks of the published experiments."""

PLAIN = re.compile(
    r"(?:(?P<part>[^/]+)/)?(?:diffusion_pytorch_model|model|pytorch_model)(?:-\d{5}-of-\d{5})?\.(?P<kind>safetensors|bin)"
)
"""Weights as from_pretrained takes them: of no variant (fp16, non_ema, …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Weights that a replica of a pool loads.

    role: the pool. key: the config key that names them. given: a folder or a hub id. itemsize: bytes that a floating-point weight takes
    once it is loaded. nf4: the large parts are quantized to 4 bits. replaced: parts that come from elsewhere.
    """

    role: str
    key: str
    given: str
    layout: Layout
    itemsize: float
    nf4: bool = False
    replaced: tuple[str, ...] = ()
    revision: str | None = None

    def weights(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Of a repository's files those that are loaded, by part; the root is the part ''."""
        listed = sorted(names)
        if self.layout == "consolidated":
            return _kept({"": [name for name in listed if re.fullmatch(r"consolidated[^/]*\.safetensors", name)]})
        plain = _plain(listed)
        match self.layout:
            case "diffusers":
                unwanted = {"", "safety_checker", *self._replaced(plain)}
                return {part: files for part, files in plain.items() if part not in unwanted}
            case "part":
                part = next((part for part in ("", *DENOISERS, *TEXT_ENCODERS) if part in plain), "")
                return _kept({"": plain.get(part, [])})
            case "vllm" if "" not in plain:
                endings = (".safetensors", ".bin", ".pt", ".gguf")
                of = [[name for name in listed if "/" not in name and name.endswith(ending)] for ending in endings]
                return _kept({"": next((names for names in of if names), [])})
            case _:
                return _kept({"": plain.get("", [])})

    def bare(self, names: Iterable[str]) -> list[str]:
        """Parts of a pipeline that have a config and no weights."""
        if self.layout != "diffusers":
            return []
        listed = list(names)
        models = {name.partition("/")[0] for name in listed if name.endswith("/config.json") and name.count("/") == 1}
        return sorted(models - _plain(listed).keys() - {"safety_checker", *self._replaced(models)})

    def is_large(self, part: str, parts: Iterable[str]) -> bool:
        """Whether nf4 quantizes it."""
        return part == "" or part in (_first(DENOISERS, parts), _first(TEXT_ENCODERS, parts))

    def _replaced(self, parts: Iterable[str]) -> set[str]:
        candidates = {"transformer": DENOISERS, "text_encoder": TEXT_ENCODERS}
        return {_first(candidates[option], parts) for option in self.replaced}


def _plain(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        if match := PLAIN.fullmatch(name):
            found.setdefault(match["part"] or "", {}).setdefault(match["kind"], []).append(name)
    return {part: kinds.get("safetensors") or kinds["bin"] for part, kinds in found.items()}


def _kept(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    return {part: files for part, files in parts.items() if files}


def _first(candidates: Iterable[str], parts: Iterable[str]) -> str:
    there = set(parts)
    return next((name for name in candidates if name in there), "")


def sources(config: Config) -> Iterator[Source]:
    """Checkpoints of torchvision and weights that come in packages are not among them."""
    if config.target.kind == "synthetic":
        for key in ("detector", "segmenter"):
            if given := getattr(config.target, key):
                yield Source(role="target", key=f"target.{key}", given=given, layout="transformers", itemsize=4)
    if config.target.kind == "network" and not config.target.weights and (given := hub_id(config.target.network)):
        yield network(given)
    for role, service in (("generator", config.generator), ("editor", config.editor)):
        if service.kind == "diffusers":
            yield from _diffusion(role, service.diffusion)
    if config.backbone.kind == "vllm":
        yield _language(config)


def network(given: str) -> Source:
    return Source(role="target", key="target.network", given=given, layout="transformers", itemsize=4)


def hub_id(name: str) -> str:
    """Where a network's weights are on the hub (or the folder), as far as its name tells; else empty."""
    library, _, rest = name.partition(":")
    if name in PUBLISHED:
        return PUBLISHED[name]
    if library == "hf":
        return rest
    if library == "timm":
        place, colon, given = rest.partition(":")
        # A name without a tag has one that timm chooses.
        return given if colon and place in ("hf-hub", "hf_hub", "local-dir") else f"timm/{rest}" if "." in rest else ""
    return ""


def looked_up(config: Config) -> str:
    """The network whose checkpoint only torchvision or timm can tell; else empty."""
    target = config.target
    library, colon, _ = target.network.partition(":")
    if target.kind != "network" or target.weights or target.network.startswith("efficientnet_lite"):
        return ""
    if hub_id(target.network) or (colon and library not in ("torchvision", "timm")):
        return ""
    return target.network


def _diffusion(role: str, config: DiffusionConfig) -> Iterator[Source]:
    key, itemsize, nf4 = f"{role}.diffusion", 4 if config.dtype == "float32" else 2, config.quantize == "nf4"
    own = {"transformer": config.transformer, "text_encoder": config.text_encoder}
    given = {option: repository for option, repository in own.items() if repository}
    pipeline, part = "diffusers", "part"
    yield Source(
        role=role, key=f"{key}.model", given=config.model, layout=pipeline, itemsize=itemsize, nf4=nf4,
        replaced=tuple(given),
    )  # fmt: skip
    for option, repository in given.items():
        yield Source(role=role, key=f"{key}.{option}", given=repository, layout=part, itemsize=itemsize, nf4=nf4)


def _language(config: Config) -> Source:
    backbone = config.backbone
    # What vLLM quantizes while it loads; weights of other methods are small on disk already.
    small = {"fp8": 1.0, "bitsandbytes": 0.5625}
    itemsize = small.get(backbone.vllm.quantization, 4 if backbone.vllm.dtype in ("float32", "float") else 2)
    return Source(
        role="backbone",
        key="backbone.model",
        given=backbone.model,
        layout="consolidated" if backbone.vllm.arguments.get("load_format") == "mistral" else "vllm",
        itemsize=itemsize,
        revision=backbone.vllm.arguments.get("revision"),
    )
