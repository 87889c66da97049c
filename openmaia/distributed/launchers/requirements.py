"""Checks that this machine has the packages, files and folders that a config needs. Imports no large library.

`openmaia doctor` and the launchers use these checks.
"""

import shutil
import sys
from collections.abc import Container, Iterator, Sequence
from importlib import metadata

from packaging.utils import canonicalize_name

from openmaia.config.schema import Config
from openmaia.config.sections import component_files, find_components
from openmaia.core.checks import Check, missing
from openmaia.core.importing import has_module
from openmaia.core.paths import is_writable, nearest_existing, user_path

_LEAST_FREE = 64 * 2**20
"""Bytes that have to be free on the disk of the run directory and of the cache."""


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
    for component, settings, site in find_components(config):
        for share, other in component.conflicts(settings, site):
            if other in distributions:
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
        if not user_path(path).is_file()
    ]
    runs = user_path(config.paths.runs)
    if "://" not in config.paths.runs and not is_writable(runs):
        results.append(missing(f"paths.runs={runs}: {nearest_existing(runs)} cannot be written; give another folder"))
    for key, path in (("runs", config.paths.runs), ("cache", config.paths.cache)):
        if "://" in path or not is_writable(folder := nearest_existing(user_path(path))):
            continue
        disk = shutil.disk_usage(folder)
        if disk.total and disk.free < _LEAST_FREE:
            text = f"paths.{key}={path}: its disk has {disk.free // 2**20} MiB left"
            results.append(missing(f"{text}; make room, or give another folder"))
    results += [
        missing(f"{key}={path!r} is no folder; give another path")
        for key, path, what in component_files(config)
        if what == "folder" and not user_path(path).is_dir()
    ]
    return results


def _optional_packages(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yields (setting, distribution that the setting needs, command that installs it)."""
    for component, settings, site in find_components(config):
        for setting, package, command in component.packages(settings, site):
            yield f"{site.key}.{setting}", package, command


def _own_code(config: Config) -> Iterator[tuple[str, str]]:
    """Yields (config key, package.module:attribute) for each reference of the config to code of the user."""
    for component, settings, site in find_components(config):
        for name, reference in component.modules(settings, site):
            yield f"{site.key}.{name}", reference
    for tool in config.tools:
        yield "tools", tool


def _files(config: Config) -> Iterator[tuple[str, str]]:
    """Yields (config key, path)."""
    for key, path, what in component_files(config):
        if what == "file":
            yield key, path
