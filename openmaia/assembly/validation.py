"""Checks a config before Ray starts and models are loaded: task, files, functions of the user, layers and units."""

import os
from collections.abc import Mapping

from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import investigations
from openmaia.assembly.generators import build_section
from openmaia.config.schema import Config
from openmaia.config.sections import component_files, site
from openmaia.core.components import of_config, target_class
from openmaia.core.errors import UsageError
from openmaia.core.paths import is_writable, nearest_existing, user_path
from openmaia.core.selection import select, split_units
from openmaia.core.units import OUTPUT, TargetInfo
from openmaia.runs.files import Files


def validate(config: Config) -> None:
    """Checks that the files, functions, layers and units that a config names exist on this machine.

    Raises:
        UsageError: One of these, or the task that the config names, does not exist. Or `backbone.record`
            is unusable: it names the stored replies or labels that replace the model of the agent.
    """
    _check_files(config)
    if of_config(config.backbone).is_recorded:
        build_section(config, "backbone")
    investigations.user_tools(config.tools)
    validate_units(config)


def validate_units(config: Config) -> None:
    """Checks the agent's task, the layers and the units of a config, as far as they are known without loading weights.

    The layers of a network on a hub, and of a network that a function of the user returns, are not known in advance.

    Raises:
        UsageError: The task, the network, a layer or a unit does not exist.
    """
    scope = load_task(config.task.name).scope
    info = target_outline(config)
    names_classes = OUTPUT in target_class(config.target).layers(config.target) and any(
        character.isalpha() for _, part in split_units(config.units) for character in part
    )
    if info is not None and (info.classes or not names_classes):
        select(config.units, info, scope)


def target_outline(config: Config) -> TargetInfo | None:
    """Returns what is known about a config's target without loading weights, such as its layers and classes.

    Raises:
        UsageError: The network or a layer does not exist.
    """
    return target_class(config.target).outline(config.target, site(config, "target"))


def target_layers(config: Config) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Returns the layers of a config's target whose units can be investigated, and the modules that are not usable.

    Weights are loaded only if the layers cannot be found without them.

    Returns:
        (layers, unusable): the number of units by the name of the layer, and the reason why a module cannot be used as
        a layer by the name of the module.

    Raises:
        UsageError: The network does not exist, or cannot be loaded.
    """
    return target_class(config.target).survey(config.target, site(config, "target"))


def _check_files(config: Config) -> None:
    files = {
        "exemplars.folder": config.exemplars.folder,
        **{key: path for key, path, _ in component_files(config)},
    }
    for key, path in files.items():
        if path and not user_path(path).exists():
            raise UsageError(f"{key}={path} does not exist; give the path of a file or folder on this machine")
    store = Files(config.paths.exemplars).local  # A folder that exists may hold all exemplars, and is then only read.
    if store is not None and not os.path.isdir(store) and not is_writable(store):
        raise UsageError(
            f"paths.exemplars={store}: {nearest_existing(store)} cannot be written; give another folder, or an s3:// URL"
        )
