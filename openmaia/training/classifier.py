"""Trains a classifier from the weights of another, and reads what its last linear layer is given."""

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

from openmaia.errors import UsageError
from openmaia.images import Pixels, decode

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]
Inputs = Callable[[Pixels], torch.Tensor]
"""A picture -> (3, height, width), normalised."""

Trainable = tuple[nn.Module, Inputs]

DECODERS = min(os.cpu_count() or 1, 8)
AHEAD = 4
"""Batches that may wait, decoded, for the network."""

READ_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """rate: of Adam. dropout: of the last layer's inputs. threads: of the processor."""

    epochs: int
    rate: float
    weight_decay: float
    dropout: float
    batch: int
    threads: int


class Trainer:
    """network: the architecture with weights, "" for those it starts from, or a checkpoint's."""

    def __init__(self, network: Callable[[str], Trainable], recipe: Recipe):
        self._network, self._recipe = network, recipe

    def digest(self) -> str:
        """Of the recipe and of the weights it starts from."""
        total = hashlib.sha256(repr(self._recipe).encode())
        for name, tensor in sorted(self._network("")[0].state_dict().items()):
            total.update(name.encode())
            total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return total.hexdigest()

    def train(
        self, paths: Sequence[Path], labels: Sequence[int], seed: int, checkpoint: Path, progress: Progress
    ) -> None:
        """Gives the network a new last layer, trains all of it, and writes the checkpoint whole or not at all.

        labels: of the pictures, from 0. seed: of their order, dropout and the last layer's first weights. Raises
        UsageError for a network that does not end in a linear layer.
        """
        module, inputs = self._network("")
        recipe = self._recipe
        with _threads(recipe.threads), torch.random.fork_rng():
            torch.manual_seed(seed)
            _new_head(module, max(labels) + 1).register_forward_pre_hook(
                lambda layer, given: functional.dropout(given[0], recipe.dropout, layer.training)
            )
            module = module.to(_device()).train().requires_grad_(True)
            adam = torch.optim.Adam(module.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay)
            order = np.random.default_rng(seed)
            batches = [
                batch.tolist()
                for _ in range(recipe.epochs)
                for batch in np.array_split(order.permutation(len(paths)), -(-len(paths) // recipe.batch))
            ]
            shown = _batches(inputs, [[paths[at] for at in batch] for batch in batches])
            for step, (batch, given) in enumerate(zip(batches, shown, strict=True), start=1):
                _step(module, adam, given, torch.tensor([labels[at] for at in batch]))
                progress(step, len(batches))
        _save(module, checkpoint)

    def read(self, checkpoint: Path, paths: Sequence[Path], progress: Progress) -> tuple[Floats, Floats]:
        """One forward pass over the pictures: (n, d), what the last layer is given, and (n, classes), its logits."""
        features: list[Floats] = []
        logits: list[Floats] = []
        module, inputs = self._network(str(checkpoint))
        device = _device()
        module = module.to(device).eval()
        last_linear(module)[1].register_forward_pre_hook(lambda _, given: features.append(given[0].cpu().numpy()))
        parts = [paths[at : at + READ_AT_ONCE] for at in range(0, len(paths), READ_AT_ONCE)]
        with _threads(self._recipe.threads), torch.inference_mode():
            for done, given in enumerate(_batches(inputs, parts), start=1):
                logits.append(module(given.to(device)).cpu().numpy())
                progress(done, len(parts))
        return np.concatenate(features), np.concatenate(logits)


def last_linear(module: nn.Module) -> tuple[str, nn.Linear]:
    """With its name. Raises UsageError where there is none."""
    linear = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise UsageError(
            "target.network has no linear layer at its end whose inputs could be examined; give a classifier"
        )
    return linear[-1]


def _new_head(module: nn.Module, classes: int) -> nn.Linear:
    name, old = last_linear(module)
    head = nn.Linear(old.in_features, classes)
    module.set_submodule(name, head)
    return head


def _step(module: nn.Module, adam: torch.optim.Optimizer, given: torch.Tensor, wanted: torch.Tensor) -> None:
    loss = functional.cross_entropy(module(given.to(_device())), wanted.to(_device()))
    adam.zero_grad()
    loss.backward()
    adam.step()


def _save(module: nn.Module, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}, written)
    written.replace(path)


def _batches(inputs: Inputs, parts: Sequence[Sequence[Path]]) -> Iterator[torch.Tensor]:
    """(n, 3, height, width) for each part; decoded by threads of their own, a little ahead of the network."""

    def decoded(path: Path) -> torch.Tensor:
        return inputs(np.asarray(decode(path.read_bytes())))

    ahead: deque[list[Future[torch.Tensor]]] = deque()
    left = iter(parts)
    with ThreadPoolExecutor(DECODERS) as decoders:
        for _ in parts:
            for part in islice(left, AHEAD - len(ahead)):
                ahead.append([decoders.submit(decoded, path) for path in part])
            yield torch.stack([one.result() for one in ahead.popleft()])


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Training has the machine to itself; what serves before and after it has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
