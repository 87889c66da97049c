"""A host for any nn.Module with named layers, read through forward hooks."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from openmaia.errors import UsageError
from openmaia.images import Picture
from openmaia.services import Activation, Map, Probe
from openmaia.targets.preprocess import Box, Network
from openmaia.units import TargetInfo, Unit, unknown_layer

OUTPUT = "output"
"""The name of the layer that is the network's final output: class probabilities."""

LOGITS = "output (raw)"
"""Where the logits behind the probabilities are kept; no layer that can be asked for."""

CACHE_BYTES = 384 * 2**20
"""Layer outputs are kept for the latest pictures: agents show the same generated pictures to many units."""

Response = npt.NDArray[np.float32]
"""What a layer says to one picture: (units, h, w), or (units,) for a layer without space."""


class NetworkTarget:
    """Answers mixed batches of probes, for different units and layers.

    On a CPU pictures pass one by one: faster there than in batches (measured for EfficientNet-Lite0: 34 against 53 ms
    at batch 8), and no answer depends on its neighbours.
    """

    def __init__(self, name: str, network: Network, layers: Sequence[str], *, threads: int = 1):
        torch.set_num_threads(threads)
        self._network, self._name = network, name
        self._module = network.module.eval()
        self._modules = dict(self._module.named_modules())
        self._layers = tuple(dict.fromkeys(layers))
        self._cache: OrderedDict[str, tuple[dict[str, Response], Box]] = OrderedDict()
        self._cached_bytes = 0
        for layer in self._layers:
            if layer != OUTPUT and layer not in self._modules:
                raise unknown_layer(layer, name, [*filter(None, self._modules), OUTPUT])
        if not self._layers:
            known = ", ".join([*filter(None, self._modules), OUTPUT])
            raise UsageError(f"target.layers is empty; name the layers to read, out of: {known}")
        self._info = self._examine()

    def info(self) -> TargetInfo:
        return self._info

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        return [self._answer(probe.unit, *self.respond(probe.picture)) for probe in probes]

    def respond(self, picture: Picture) -> tuple[Mapping[str, Response], Box]:
        """All hooked layers' responses, and the part of the picture that the network saw."""
        if picture.digest in self._cache:
            self._cache.move_to_end(picture.digest)
            return self._cache[picture.digest]
        view, box = self._network.preprocess.view(picture.pixels)
        responses = _with_probabilities(self._forward(self._network.preprocess.tensor(view)))
        self._cache[picture.digest] = responses, box
        self._cached_bytes += sum(r.nbytes for r in responses.values())
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, (old, _) = self._cache.popitem(last=False)
            self._cached_bytes -= sum(r.nbytes for r in old.values())
        return responses, box

    def view(self, picture: Picture) -> Picture:
        """The picture as the network sees it."""
        return Picture.of(self._network.preprocess.view(picture.pixels)[0], picture.sources)

    def _answer(self, unit: Unit, responses: Mapping[str, Response], box: Box) -> Activation:
        response = responses[unit.layer]
        index = unit.index
        if unit.layer == OUTPUT and LOGITS in responses:
            return Activation(value=rounded(response[index]), raw=rounded(responses[LOGITS][index]), box=box)
        if response.ndim == 1:
            return Activation(value=rounded(response[index]), box=box)
        small: Map = np.ascontiguousarray(response[index])
        return Activation(value=rounded(small.max()), map=small, box=box)

    def _forward(self, tensor: torch.Tensor) -> dict[str, Response]:
        caught: dict[str, Response] = {}
        size = (int(tensor.shape[1]), int(tensor.shape[2]))

        def catch(layer: str, output: Any) -> None:
            caught[layer] = spatial(output, size, layer)

        hooks = [
            self._modules[layer].register_forward_hook(lambda _m, _i, output, layer=layer: catch(layer, output))
            for layer in self._layers
            if layer != OUTPUT
        ]
        try:
            with torch.inference_mode():
                output = self._module(tensor[None])
        finally:
            for hook in hooks:
                hook.remove()
        if OUTPUT in self._layers:
            catch(OUTPUT, output)
        return caught

    def _examine(self) -> TargetInfo:
        height, width = self._network.preprocess.size
        responses = self._forward(torch.zeros(3, height, width))
        silent = [layer for layer in self._layers if layer not in responses]
        if silent:
            raise UsageError(f"layer {silent[0]!r} of {self._name} is not used in a forward pass; name another one")
        return TargetInfo(
            name=self._name,
            layers={layer: responses[layer].shape[0] for layer in self._layers},
            digest=weights_digest(self._module.state_dict().items()),
            input_size=(height, width),
        )


def spatial(output: Any, size: tuple[int, int], layer: str) -> Response:
    """A layer's output for one picture -> (units, h, w) or (units,).

    (1, C, h, w) is a convolutional map; (1, T, C) are tokens, of which leading ones (class, registers) are dropped and
    the patches laid out in space, also for an input that is not square; (1, C) is a plain vector.
    """
    if not isinstance(output, torch.Tensor):
        parts = (
            cast(Iterable[Any], output.values() if isinstance(output, Mapping) else output) if _holds(output) else ()
        )
        output = next((part for part in parts if isinstance(part, torch.Tensor)), None)
    if (
        not isinstance(output, torch.Tensor)
        or output.ndim not in (2, 3, 4)
        or output.shape[0] != 1
        or not output.is_floating_point()
    ):
        shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise UsageError(
            f"layer {layer!r} has no units: its output is {shape}; expected a map (1, C, h, w), tokens (1, T, C) or a "
            "vector (1, C)"
        )
    values = output[0].float().cpu()
    if values.ndim == 3 and values.shape[1:] == (1, 1):
        return values[:, 0, 0].numpy().copy()
    if values.ndim != 2:
        return values.numpy().copy()
    prefix, height, width = _grid(values.shape[0], size, layer)
    return values[prefix:].T.reshape(-1, height, width).numpy().copy()


def _holds(output: Any) -> bool:
    return isinstance(output, (tuple, list, Mapping))


def _grid(tokens: int, size: tuple[int, int], layer: str) -> tuple[int, int, int]:
    """(leading tokens, rows, columns) of square patches that tile the input."""
    grids = [(size[0] // patch, size[1] // patch) for patch in range(1, min(size) + 1)]
    whole = [grid for grid in grids if size[0] * grid[1] == size[1] * grid[0] and size[0] % grid[0] == 0]
    # An input that the patches do not fill loses a strip at its end, as in a convolution without padding.
    for candidates in (whole, grids):
        for prefix in (1, 0, 2, 5, 9):
            for height, width in candidates:
                if height * width == tokens - prefix:
                    return prefix, height, width
    raise UsageError(
        f"layer {layer!r}: {tokens} tokens do not tile an input of {size[0]} x {size[1]} in square patches"
    )


def _with_probabilities(responses: dict[str, Response]) -> dict[str, Response]:
    """Exemplars and probes both read these, so that an output is measured in one unit everywhere."""
    logits = responses.get(OUTPUT)
    return responses if logits is None or logits.ndim != 1 else responses | {OUTPUT: _softmax(logits), LOGITS: logits}


def _softmax(logits: Response) -> Response:
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def rounded(value: Any) -> float:
    """5 significant digits: what batch size and thread count leave unchanged."""
    return float(f"{float(value):.5g}")


def weights_digest(state: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over names, shapes and values."""
    total = hashlib.sha256()
    for name, tensor in sorted(state):
        total.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        total.update(
            tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if tensor.ndim
            else str(tensor.item()).encode()
        )
    return total.hexdigest()
