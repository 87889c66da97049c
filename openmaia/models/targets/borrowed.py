"""A network that is an object of the user's program: its mode and PyTorch's settings are restored afterwards."""

import hashlib
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from PIL import Image
from torch import nn

from openmaia.models.targets.networks.loading import changed
from openmaia.models.targets.preprocess import GivenPreprocess, Preprocess, Preprocessing, TargetNetwork
from openmaia.models.targets.state import check_state, network_state, weights_digest
from openmaia.models.targets.transforms import Transform, from_transform
from openmaia.models.targets.wrappers import unwrap

Model = nn.Module | TargetNetwork


@contextmanager
def keep_settings() -> Generator[None]:
    """Restores PyTorch's number of threads, and its use of TF32 in convolutions."""
    threads, is_tf32 = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = is_tf32


@contextmanager
def evaluating(model: Model, say: Callable[[str], None]) -> Generator[None]:
    """Puts a network into evaluation mode, and restores all its modules. Raises UsageError as `check_state`."""
    check_state(_module(model))
    training = [each for each in _module(model).modules() if each.training]
    if training:
        say("the network is in training mode; it is measured in evaluation mode, and put back afterwards")
    _module(model).eval()
    try:
        yield
    finally:
        for each in training:
            each.training = True


def device_of(model: TargetNetwork) -> str:
    """Returns "cpu" for a network without weights."""
    return str(next((each.device for each in model.module.parameters()), torch.device("cpu")))


def with_preprocess(model: Model, preprocess: Transform | Preprocess | None, given: GivenPreprocess) -> TargetNetwork:
    """Returns a network with the preprocessing that the user gives.

    Args:
        preprocess: None if it follows from `given` or from the network itself.
        given: Ignored if `preprocess` is given. Otherwise it replaces values of a TargetNetwork's own preprocessing;
            for a plain module, size, mean and standard deviation are required.

    Raises:
        UsageError: Nothing says how images are preprocessed, or the transform is not usable. Or there are values in
            `given`, but the TargetNetwork preprocesses images by an arbitrary function, which has no such values.
    """
    if preprocess is not None:
        own = preprocess if isinstance(preprocess, Preprocess) else from_transform(preprocess)
        return replace(model, preprocess=own) if isinstance(model, TargetNetwork) else _undeclared(model, own)
    if isinstance(model, TargetNetwork):
        return changed(model, given, f"the network around {type(model.module).__qualname__}")
    return _undeclared(model, given.whole(f"the module {type(model).__qualname__}"))


def stand_in(transform: Transform | Preprocess) -> GivenPreprocess:
    """Returns values with which a network can be loaded that declares no preprocessing, before a transform of the user
    replaces it: without any, loading is refused."""
    own = transform if isinstance(transform, Preprocess) else from_transform(transform)
    return GivenPreprocess(size=own.size[0], mean=(0.0,) * 3, std=(1.0,) * 3)


def values_of(preprocess: Preprocessing) -> GivenPreprocess | None:
    """Returns the config values that express a preprocessing. None if none can."""
    if not isinstance(preprocess, Preprocess) or preprocess.crop is None or preprocess.squash:
        return None
    if preprocess.size[0] != preprocess.size[1] or preprocess.resample is not Image.Resampling.BILINEAR:
        return None
    return GivenPreprocess(size=preprocess.size[0], crop=preprocess.crop, mean=preprocess.mean, std=preprocess.std)


def _undeclared(module: nn.Module, preprocess: Preprocessing) -> TargetNetwork:
    return TargetNetwork(module=module, preprocess=preprocess)


def compute_digest(model: Model) -> str:
    """Returns a digest of a network's weights, structure and code in hexadecimal.

    The code is the source of the classes of all its modules except PyTorch's own, as far as Python finds it. A wrapper
    such as data parallelism does not count.

    Raises:
        UsageError: The network cannot be measured (see `check_state`), or its state has no digest.
    """
    check_state(_module(model))
    module, _ = unwrap(_module(model))
    total = hashlib.sha256(f"{weights_digest(network_state(module))}{module!r}".encode())
    for kind in sorted(
        {type(each) for each in module.modules()}, key=lambda kind: f"{kind.__module__}.{kind.__name__}"
    ):
        if not kind.__module__.startswith("torch."):
            with suppress(OSError, TypeError):
                total.update(inspect.getsource(kind).encode())
    return total.hexdigest()


def _module(model: Model) -> nn.Module:
    return model.module if isinstance(model, TargetNetwork) else model


def is_model(value: object) -> bool:
    """Returns whether a value is a network, and not the name of one."""
    return isinstance(value, nn.Module | TargetNetwork)


def is_known(preprocess: Preprocessing) -> bool:
    """Returns whether all steps of a preprocessing are known, which those of a user's function are not."""
    return isinstance(preprocess, Preprocess)
