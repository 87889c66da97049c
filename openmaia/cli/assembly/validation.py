"""Checks a config before Ray starts and models are loaded: task, files, functions of the user, layers and units."""

import os

from openmaia.agent.tasks.task import load as load_task
from openmaia.cli.assembly import investigations, targets
from openmaia.cli.assembly.generators import built
from openmaia.config.schema import Config
from openmaia.config.sections import in_use
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.core.paths import is_writable, nearest_existing, user_path
from openmaia.core.selection import pairs, select
from openmaia.core.units import OUTPUT, TargetInfo, unknown_layer
from openmaia.runs.files import Files


def validate(config: Config) -> None:
    """Checks that the files, functions, layers and units that a config names exist on this machine.

    Raises:
        UsageError: One of these, or the task that the config names, does not exist. Or `backbone.record`
            is unusable: it names the stored replies or labels that replace the model of the agent.
    """
    _check_files(config)
    if of_config(config.backbone).is_recorded:
        built(config, "backbone")
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
    names_classes = OUTPUT in config.target.layers and any(
        character.isalpha() for _, part in pairs(config.units) for character in part
    )
    if info is not None and (info.classes or not names_classes):
        select(config.units, info, scope)


def target_outline(config: Config) -> TargetInfo | None:
    """Returns what is known about a config's target without loading weights, such as its layers and classes.

    For networks and for synthetic units (whose responses a detector or segmenter computes), the field `digest` is
    empty, because it is computed from the weights. Returns None if even the layers are not known, as for a network on
    a hub.

    Raises:
        UsageError: The network or a layer does not exist.
    """
    target = config.target
    match target.kind:
        case "network":
            return _network_outline(config)
        case "synthetic":
            from openmaia.models.targets.synthetic import units

            listed = targets.synthetic_units(config) or units.read(target.units)
            counts = {mode: len(concepts) for mode, concepts in listed.items()}
            return TargetInfo(name=target.name, layers=counts, digest="", input_size=(0, 0))
        case _:
            return targets.target(config).info()


def target_layers(config: Config) -> tuple[dict[str, int], dict[str, str]]:
    """Returns the layers of a config's target whose units can be investigated, and the modules that are not usable.

    Weights are loaded only if the layers cannot be found without them.

    Returns:
        (layers, unusable): the number of units by the name of the layer, and the reason why a module cannot be used as
        a layer by the name of the module.

    Raises:
        UsageError: The network does not exist, or cannot be loaded.
    """
    if config.target.kind != "network":
        outline = target_outline(config)
        return dict(outline.layers) if outline else {}, {}
    from openmaia.models.targets.networks.skeleton import skeleton
    from openmaia.models.targets.survey import survey

    _check_network(config)
    outline = skeleton(config.target.network)
    found = survey(targets.declared(config, outline) if outline else targets.network(config, config.target.weights))
    return dict(found.units), dict(found.unusable)


def _check_network(config: Config) -> None:
    if not config.target.network:
        raise UsageError("target.network is empty; name a network, such as target.network=resnet18")


def _network_outline(config: Config) -> TargetInfo | None:
    from openmaia.models.targets.directions import SUFFIX
    from openmaia.models.targets.networks.skeleton import skeleton
    from openmaia.models.targets.survey import layer_names, survey

    target = config.target
    _check_network(config)
    outline = skeleton(target.network)
    if outline is None or target.directions:
        return None
    network = targets.declared(config, outline)
    known = layer_names(network)
    if not target.layers:
        raise UsageError(f"target.layers is empty; name the layers to read, out of: {', '.join(known)}")
    for layer in target.layers:
        if layer not in known:
            raise unknown_layer(layer, target.name, list(known))
    found = survey(network, target.layers)
    for reason in found.unusable.values():
        raise UsageError(reason)
    is_named = found.units.get(OUTPUT) == len(network.labels)
    return TargetInfo(
        name=target.name,
        layers={layer: found.units[layer] for layer in target.layers if not layer.endswith(SUFFIX)},
        digest="",
        input_size=network.preprocess.size,
        classes=network.labels if is_named else (),
    )


def _check_files(config: Config) -> None:
    target, pictures = config.target, config.pictures
    files = {
        **{
            f"{key}.{name}": path
            for key, each in in_use(config).items()
            for name, path in of_config(each, key).files(each)
        },
        "pictures.folder": pictures.folder if pictures.kind == "folder" else "",
        "exemplars.folder": config.exemplars.folder,
        **{f"target.directions.{layer}": path for layer, path in target.directions.items()},
    }
    for key, path in files.items():
        if path and not user_path(path).exists():
            raise UsageError(f"{key}={path} does not exist; give the path of a file or folder on this machine")
    if target.kind == "network" and target.weights not in ("", "random"):
        from openmaia.models.targets.networks.checkpoint import check_file

        check_file(target.weights)
    store = Files(config.paths.exemplars).local  # A folder that exists may hold all exemplars, and is then only read.
    if store is not None and not os.path.isdir(store) and not is_writable(store):
        raise UsageError(
            f"paths.exemplars={store}: {nearest_existing(store)} cannot be written; give another folder, or an s3:// URL"
        )
