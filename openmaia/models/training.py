"""Fine-tunes a classifier on new classes, and reads the inputs of its last linear layer."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels, decode
from openmaia.models.device import default_device
from openmaia.models.targets.state import weights_digest

FloatMatrix = npt.NDArray[np.float32]
TrainingProgress = Callable[[int, int], None]
"""Receives the numbers of finished and of all batches."""

InputTransform = Callable[[Pixels], torch.Tensor]
"""Makes a normalised input, shape (3, height, width)."""

Trainable = tuple[nn.Module, InputTransform]

DECODERS = min(os.cpu_count() or 1, 8)  # threads

BATCHES_AHEAD = 4  # decoded before the network needs them

READ_BATCH = 32  # images


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Hyperparameters of a training."""

    epochs: int
    rate: float
    """Learning rate of Adam."""
    weight_decay: float
    dropout: float
    """Dropout probability of the inputs of the last layer."""
    batch: int
    threads: int


class ClassifierTrainer:
    """Fine-tunes classifiers. All trainings start from the same network."""

    def __init__(self, network: Callable[[str], Trainable], recipe: Recipe):
        """Loads nothing yet. `network` takes the path of a checkpoint, or "" for the weights to start from."""
        self._network, self._recipe = network, recipe

    def digest(self) -> str:
        """Returns the SHA-256 of hyperparameters and initial weights, in hexadecimal."""
        weights = weights_digest(self._network("")[0].state_dict().items())
        return hashlib.sha256(f"{self._recipe} {weights}".encode()).hexdigest()

    def train(
        self, paths: Sequence[Path], labels: Sequence[int], seed: int, checkpoint: Path, progress: TrainingProgress
    ) -> None:
        """Replaces the last linear layer, trains all weights below it, and writes a checkpoint atomically.

        Args:
            labels: The class of each image, from 0.
            seed: Of the order of the images, of dropout, and of the initial weights of the last layer.

        Raises:
            UsageError: The network has no linear layer, or the last one gives no value for each image and class.
        """
        module, transform = self._network("")
        recipe = self._recipe
        with _cpu_threads(recipe.threads), torch.random.fork_rng():
            torch.manual_seed(seed)
            head = _replace_last_linear(module, max(labels) + 1)
            head.register_forward_pre_hook(
                lambda layer, inputs: functional.dropout(inputs[0], recipe.dropout, layer.training)
            )
            module = module.to(default_device()).train().requires_grad_(True)
            adam = torch.optim.Adam(module.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay)
            order = np.random.default_rng(seed)
            batches = [
                batch.tolist()
                for _ in range(recipe.epochs)
                for batch in np.array_split(order.permutation(len(paths)), -(-len(paths) // recipe.batch))
            ]
            decoded = _decoded(transform, [[paths[i] for i in batch] for batch in batches])
            for step, (batch, inputs) in enumerate(zip(batches, decoded, strict=True), start=1):
                _step(module, head, adam, inputs, torch.tensor([labels[i] for i in batch]))
                progress(step, len(batches))
        _save(module, checkpoint)

    def read(
        self, checkpoint: Path, paths: Sequence[Path], progress: TrainingProgress
    ) -> tuple[FloatMatrix, FloatMatrix]:
        """Returns the last layer's inputs, (images, features), and logits, (images, classes), of a trained network."""
        features: list[FloatMatrix] = []
        logits: list[FloatMatrix] = []
        module, transform = self._network(str(checkpoint))
        device = default_device()
        module = module.to(device).eval()
        head = last_linear(module)[1]
        head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].cpu().numpy()))
        batches = [paths[i : i + READ_BATCH] for i in range(0, len(paths), READ_BATCH)]
        with _cpu_threads(self._recipe.threads), torch.inference_mode():
            for done, inputs in enumerate(_decoded(transform, batches), start=1):
                logits.append(_logits(module, head, inputs.to(device)).cpu().numpy())
                progress(done, len(batches))
        return np.concatenate(features), np.concatenate(logits)


def last_linear(module: nn.Module) -> tuple[str, nn.Linear]:
    """Returns the last linear layer with its name. Raises UsageError if there is none."""
    linear = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UsageError(
            "target.network has no linear layer at its end whose inputs could be examined; give a classifier"
        )
    return linear[-1]


def _replace_last_linear(module: nn.Module, classes: int) -> nn.Linear:
    name, old = last_linear(module)
    head = nn.Linear(old.in_features, classes)
    module.set_submodule(name, head)
    return head


def _logits(module: nn.Module, head: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
    # The outputs of the layer and not of the network, which may join them with those of other heads, or make probabilities.
    found: list[torch.Tensor] = []

    def keep(_layer: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        found.append(output)

    hook = head.register_forward_hook(keep)
    module(inputs)
    hook.remove()
    if [each.shape for each in found] != [(len(inputs), head.out_features)]:
        raise UsageError(
            f"target.network: its last linear layer gives {[tuple(each.shape) for each in found]} for {len(inputs)} images, and "
            "not one value for each image and class; give a classifier that ends with a linear layer"
        )
    return found[0]


def _step(
    module: nn.Module, head: nn.Linear, adam: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor
) -> None:
    device = default_device()
    loss = functional.cross_entropy(_logits(module, head, inputs.to(device)), labels.to(device))
    adam.zero_grad()
    loss.backward()
    adam.step()


def _save(module: nn.Module, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}, temporary)
    temporary.replace(path)


def _decoded(transform: InputTransform, batches: Sequence[Sequence[Path]]) -> Iterator[torch.Tensor]:
    """Yields inputs of shape (images, 3, height, width)."""

    def decoded(path: Path) -> torch.Tensor:
        return transform(np.asarray(decode(path.read_bytes())))

    ahead: deque[list[Future[torch.Tensor]]] = deque()
    pending = iter(batches)
    with ThreadPoolExecutor(DECODERS) as decoders:
        for _ in batches:
            for batch in islice(pending, BATCHES_AHEAD - len(ahead)):
                ahead.append([decoders.submit(decoded, path) for path in batch])
            yield torch.stack([image.result() for image in ahead.popleft()])


@contextmanager
def _cpu_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
