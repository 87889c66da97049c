"""The device of models. GPU errors of PyTorch become exceptions of OpenMAIA."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from openmaia.core.errors import HostDead, ServiceError, UsageError


def default_device() -> torch.device:
    """Returns the current GPU, or the CPU without one."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def move_to_device(module: torch.nn.Module, device: torch.device, given: str) -> torch.nn.Module:
    """Moves a model. Raises UsageError, with the config key that is `given`, if it does not fit."""
    try:
        return module.to(device)
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"{given} does not fit on the GPU beside the models that it already holds; give pools.target.num_gpus a larger "
            "share, a smaller model, or a larger GPU",
            detail=str(error),
        ) from error


@contextmanager
def service_errors(service: str) -> Iterator[None]:
    """Converts GPU errors of PyTorch. `service` is what uses the GPU, such as "the target network".

    Raises:
        ServiceError: The call needs more memory than the GPU has.
        HostDead: The GPU no longer answers.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ServiceError(
            f"{service} ran out of GPU memory ({error}); lower pools.target.max_batch or give it a larger share of the GPU"
        ) from error
    except torch.AcceleratorError as error:
        raise HostDead(f"{service} lost its GPU: {error}") from error
