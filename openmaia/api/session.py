"""Opens one unit for the Python API, with the caller's objects in place of what the config names."""

import hashlib
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from openmaia.api.inputs import Inputs
from openmaia.assembly import backbones, datasets, targets
from openmaia.assembly.single import SingleUnit, prepare
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.services import Backbone
from openmaia.core.units import TargetInfo
from openmaia.datasets.library import ImageDataset
from openmaia.datasets.memory import MemoryImages
from openmaia.exemplars.compute import list_images
from openmaia.exemplars.shared import ProgressCallback
from openmaia.models.targets.network import PYTHON_PREFIX, NetworkConfig, declared, given_preprocess, passed

if TYPE_CHECKING:
    from openmaia.models.targets.preprocess import Preprocessing, TargetNetwork


@contextmanager
def open_unit(
    inputs: Inputs, say: Callable[[str], None], progress: ProgressCallback, *, is_human: bool = False
) -> Generator[SingleUnit]:
    """Context manager that yields a unit whose models and exemplars are loaded.

    A module that the caller gave is in evaluation mode until the end of the context, and is then left as it was.

    Args:
        say: Receives messages for the user.
        progress: Called with the number of finished images and the number of all images while exemplars are computed.
        is_human: Whether a person plays the agent.

    Raises:
        UsageError: The unit does not exist, or something cannot be loaded or used.
    """
    from openmaia.models.targets import borrowed

    config = inputs.config
    with ExitStack() as stack:
        stack.enter_context(borrowed.keep_settings())
        if inputs.model is not None:
            stack.enter_context(borrowed.evaluating(inputs.model, say))
        network, target = _loaded(inputs)
        dataset = datasets.image_dataset(config, say) if inputs.images is None else _dataset(inputs.images, say)
        if network is not None and inputs.is_cached_by_content:
            _name_exemplars(config, network, dataset, say, stack)
        name = _backbone_name(config, inputs.backbone)
        if not is_human:
            say(f"backbone: {name}")
        single = prepare(config, inputs.spec, say, progress, target=target, dataset=dataset, backbone=inputs.backbone)
        yield replace(single, options=replace(single.options, backbone=name))


def target_info(inputs: Inputs) -> TargetInfo:
    """Returns what the target says of itself. A module that the caller gave is left as it was. Raises UsageError."""
    from openmaia.models.targets import borrowed

    with ExitStack() as stack:
        stack.enter_context(borrowed.keep_settings())
        if inputs.model is not None:
            stack.enter_context(borrowed.evaluating(inputs.model, lambda line: None))
        return _loaded(inputs)[1].info()


def _loaded(inputs: Inputs) -> "tuple[TargetNetwork | None, targets.ReadableTarget]":
    network = _network(inputs)
    return network, targets.target(inputs.config) if network is None else _target(inputs.config.target, network)


def _dataset(images: object, say: Callable[[str], None]) -> ImageDataset:
    dataset = ImageDataset.of(MemoryImages(images), None)
    for remark in dataset.remarks:
        say(remark)
    return dataset


def _network(inputs: Inputs) -> "TargetNetwork | None":
    """Returns the network with its preprocessing. None if the target is no network."""
    from openmaia.models.targets import borrowed

    target: Any = inputs.config.target
    if inputs.model is not None:
        network = borrowed.with_preprocess(inputs.model, inputs.preprocess, given_preprocess(target))
    elif not target_class(target).is_network:
        return None
    elif inputs.preprocess is None:
        return target_class(target).network(target, target.weights)
    else:
        stand_in = borrowed.stand_in(inputs.preprocess)
        given = {"size": stand_in.size, "mean": list(stand_in.mean), "std": list(stand_in.std), "preprocess": "weights"}
        network = target_class(target).network(replace(target, **given), target.weights)
        network = borrowed.with_preprocess(network, inputs.preprocess, given_preprocess(target))
    network = declared(target, network)
    _record_preprocess(target, network.preprocess)
    return network


def _record_preprocess(target: NetworkConfig, preprocess: "Preprocessing") -> None:
    """Writes a preprocessing into the config, which is stored with the record; `python` for a function of unknown
    steps.
    """
    from openmaia.models.targets.borrowed import values_of

    values = values_of(preprocess)
    if values is None:
        target.preprocess = "python"
        return
    target.size, target.crop = values.size, values.crop
    target.mean, target.std = list(values.mean), list(values.std)


def _target(target: Any, network: "TargetNetwork") -> "targets.ReadableTarget":
    from openmaia.models.targets.borrowed import device_of

    return passed(target, network, device_of(network) if target.network.startswith(PYTHON_PREFIX) else "")


def _name_exemplars(
    config: Config, network: "TargetNetwork", dataset: ImageDataset, say: Callable[[str], None], stack: ExitStack
) -> None:
    """Names the folder of the exemplars by a hash of all that they depend on, so that equal ones are computed once."""
    from openmaia.models.targets.borrowed import compute_digest, is_known

    if not is_known(network.preprocess):
        # In a later call nothing would tell whether the function is still the same.
        config.paths.exemplars = stack.enter_context(tempfile.TemporaryDirectory(prefix="openmaia-exemplars-"))
        say(f"exemplars are not kept, because preprocess is a function of unknown steps ({config.paths.exemplars})")
        return
    target, digests = cast(Any, config.target), [item.digest for item in list_images(config, dataset)]
    parts = (
        compute_digest(network), network.preprocess.description, config.exemplars.k, config.exemplars.quantile,
        sorted(target.directions.items()), sorted(target.dictionaries.items()), target.tokens, digests, str(network.output),
        sorted(network.entries.items()),
    )  # fmt: skip
    config.exemplars.dataset = f"{config.pictures.kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _backbone_name(config: Config, backbone: Backbone | None) -> str:
    if backbone is None:
        return backbones.backbone_name(config)
    return str(getattr(backbone, "name", "") or f"{type(backbone).__module__}.{type(backbone).__qualname__}")
