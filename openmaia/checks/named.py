"""Checks what a config names: packages, files and code of the user, folders, task, layers and units. Loads no weights."""

import os
import shutil
import sys
from collections.abc import Container, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from openmaia.agent.tasks.task import evidence_values
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools.user_tools import import_tools
from openmaia.config.schema import Config
from openmaia.config.sections import component_files, find_components, site
from openmaia.core.checks import Check, missing, refusals
from openmaia.core.components import build, of_config, target_class
from openmaia.core.errors import UsageError
from openmaia.core.importing import has_module
from openmaia.core.paths import is_writable, nearest_existing, user_path
from openmaia.core.selection import select, split_units
from openmaia.core.units import OUTPUT
from openmaia.runs.files import Files

_LEAST_FREE = 64 * 2**20
"""Bytes that have to be free on the disk of the run directory and of the cache."""


def installed(folders: list[str] | None = None) -> dict[str, metadata.Distribution]:
    """Returns the Python distributions in these folders (None: sys.path) by canonical name."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions(path=sys.path if folders is None else folders):
        if name := distribution.metadata["Name"]:  # An interrupted removal leaves folders without a name.
            found.setdefault(canonicalize_name(name), distribution)
    return found


def packages(config: Config, distributions: Container[str]) -> Iterator[Check]:
    """Yields packages and modules of the user that are missing, and packages that do not fit the config.

    Args:
        config: The config.
        distributions: The canonical names of the installed distributions.
    """
    own = [("tools", tool) for tool in config.tools]
    for component, settings, place in find_components(config):
        for setting, package, command in component.packages(settings, place):
            if package not in distributions:
                yield missing(f"{place.key}.{setting} needs the package {package}; {command}")
        for setting, package in component.conflicts(settings, place):
            if package in distributions:
                yield missing(f"{package} is installed, which {setting} does not fit; pip uninstall -y {package}")
        own += [(f"{place.key}.{name}", reference) for name, reference in component.modules(settings, place)]
    for key, name in own:
        module = name.partition(":")[0]
        if module and not has_module(name):
            yield missing(f"{key}={name} needs the module {module}; start in its folder, or put that on PYTHONPATH")


def files(config: Config) -> Iterator[Check]:
    """Yields the files and folders of components that are missing."""
    for key, path, what in component_files(config):
        yield from _existing(key, path, what)


def folders(config: Config) -> Iterator[Check]:
    """Yields what is wrong with the folders of results and downloads, and with their disks."""
    for key, path in (("runs", config.paths.runs), ("cache", config.paths.cache)):
        folder = user_path(path)
        if "://" in path:
            continue
        if not is_writable(folder):
            if key == "runs":  # Without a cache, everything is downloaded another time.
                yield _unwritable(f"paths.runs={folder}", folder, "give another folder")
            continue
        disk = shutil.disk_usage(nearest_existing(folder))
        if disk.total and disk.free < _LEAST_FREE:
            text = f"paths.{key}={path}: its disk has {disk.free // 2**20} MiB left, and needs {_LEAST_FREE // 2**20}"
            yield missing(f"{text}; make room, or give another folder")


def inputs(config: Config) -> Iterator[Check]:
    """Yields what is wrong with what a new run reads: exemplars, stored replies, tools, task, layers and units.

    Layers are checked as far as they are known without loading weights: those of a network on a hub are not, nor those of
    one that a function of the user returns.
    """
    if config.exemplars.folder:
        yield from _existing("exemplars.folder", config.exemplars.folder, "folder")
    for key, path, what in (("prompts", config.bank.prompts, "file"), ("folder", config.bank.folder, "folder")):
        if path and config.bank.images:
            yield from _existing(f"bank.{key}", path, what)
    yield from _store(config.paths.exemplars)
    if of_config(config.backbone).is_recorded:
        yield from refusals(partial(build, config.backbone, site(config, "backbone")))
    yield from refusals(partial(import_tools, config.tools))
    yield from units(config)


def units(config: Config) -> Iterator[Check]:
    """Yields what is wrong with the task, the target, its layers or the units. See `inputs`."""
    yield from refusals(partial(_select_units, config))


def _existing(key: str, path: str, what: str) -> Iterator[Check]:
    found = user_path(path)
    if not (found.is_file() if what == "file" else found.is_dir()):
        fault = f"is no {what}" if found.exists() else "does not exist"
        yield missing(f"{key}={path} {fault}; give the path of a {what} on this machine")


def _store(path: str) -> Iterator[Check]:
    try:
        folder = Files(path).local
    except UsageError as error:
        yield missing(error.message)
        return
    # A folder that exists may hold all exemplars, and is then only read.
    if folder is not None and not os.path.isdir(folder) and not is_writable(folder):
        yield _unwritable(f"paths.exemplars={folder}", folder, "give another folder, or an s3:// URL")


def _unwritable(setting: str, folder: Path, remedy: str) -> Check:
    return missing(f"{setting}: {nearest_existing(folder)} cannot be written; {remedy}")


def _select_units(config: Config) -> None:
    scope = load_task(config.task.name).under(evidence_values(config)).scope
    target = target_class(config.target)
    info = target.outline(config.target, site(config, "target"))
    names_classes = OUTPUT in target.layers(config.target) and any(
        character.isalpha() for _, part in split_units(config.units) for character in part
    )
    if info is not None and (info.classes or not names_classes):
        select(config.units, info, scope)
