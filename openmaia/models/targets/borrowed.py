"""Uses a module that belongs to the user's program, and leaves it as it was."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import nn

from openmaia.models.targets.networks.loading import NOTHING_GIVEN
from openmaia.models.targets.preprocess import GivenPreprocess, Preprocess, Preprocessing, TargetNetwork
from openmaia.models.targets.transforms import Transform, from_transform

Model = nn.Module | TargetNetwork
"""A network of the user's program."""


@contextmanager
def borrowed(model: Model, say: Callable[[str], None]) -> Generator[None]:
    """Context manager that puts a network into evaluation mode, and restores its state at the end.

    The modes of all of its modules are restored, and the number of threads and the precision that PyTorch uses.

    Args:
        model: The network.
        say: Is told if the network was in training mode.
    """
    module = model.module if isinstance(model, TargetNetwork) else model
    training = [each for each in module.modules() if each.training]
    threads, is_tf32 = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    if training:
        say("the network is in training mode; it is measured in evaluation mode, and put back afterwards")
    module.eval()
    try:
        yield
    finally:
        for each in training:
            each.training = True
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = is_tf32


def device_of(model: TargetNetwork) -> str:
    """Returns the device on which a network is; "cpu" if it has no weights."""
    return str(next((each.device for each in model.module.parameters()), torch.device("cpu")))


def with_preprocess(
    model: Model, preprocess: Transform | Preprocess | None, given: GivenPreprocess = NOTHING_GIVEN
) -> TargetNetwork:
    """Returns a network with the preprocessing that the user gives.

    Args:
        model: The network.
        preprocess: A transform, or None if `given` or the network itself says what is done.
        given: The values of the config, which complete a network without preprocessing.

    Raises:
        UsageError: Nothing says how images are preprocessed, or the transform is not usable.
    """
    if isinstance(model, TargetNetwork):
        return model if preprocess is None else TargetNetwork(module=model.module, preprocess=_made(preprocess))
    name = type(model).__qualname__
    return TargetNetwork(
        module=model, preprocess=given.whole(f"the module {name}") if preprocess is None else _made(preprocess)
    )


def _made(preprocess: Transform | Preprocess) -> Preprocessing:
    if isinstance(preprocess, Preprocess):
        return preprocess
    return from_transform(preprocess)


def is_model(value: object) -> bool:
    """Returns whether a value is a network, and not the name of one."""
    return isinstance(value, nn.Module | TargetNetwork)
