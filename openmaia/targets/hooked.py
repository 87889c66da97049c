"""A host for any nn.Module with named layers, read through forward hooks."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from openmaia.errors import UsageError
from openmaia.images import Picture, Pixels
from openmaia.services import Activation, LayerProbe, Map, Probe
from openmaia.targets.directions import SUFFIX, read_directions
from openmaia.targets.forward import Forward, equal_sizes
from openmaia.targets.maps import Response, spatial
from openmaia.targets.preprocess import Box, Network
from openmaia.units import OUTPUT, TargetInfo, Unit, unknown_layer

LOGITS = "output (raw)"
"""Where the logits behind the probabilities are kept; no layer that can be asked for."""

CACHE_BYTES = 384 * 2**20
"""Layer outputs are kept for the latest pictures: agents show the same generated pictures to many units."""

GPU_BATCH = 32

NONE: Mapping[str, str] = MappingProxyType({})

Responses = Mapping[str, Response]


class NetworkTarget:
    """Answers mixed batches of probes, for different units and layers.

    On a GPU pictures of equal size pass together, at most GPU_BATCH at a time. On a CPU they pass one by one: faster
    there than in batches (measured for EfficientNet-Lite0: 34 against 53 ms at batch 8), and no answer depends on its
    neighbours.

    layers: names of modules, aliases of the network's, or OUTPUT. directions: layer -> safetensors file (see
    directions.py); its units are those of `LAYER/directions`. device: "" takes a GPU where there is one.
    Raises UsageError for layers that have no units or are not called exactly once in a pass, for directions that do
    not fit, and for a network that does not take the inputs its preprocessing makes.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        layers: Sequence[str],
        *,
        directions: Mapping[str, str] = NONE,
        threads: int = 1,
        device: str = "",
        batch: int = 0,
    ):
        torch.set_num_threads(threads)
        self._network, self._name = network, name
        self._layers = tuple(
            layer
            for layer in dict.fromkeys(layers)
            if layer.removesuffix(SUFFIX) not in directions or layer in directions
        )
        self._cache: OrderedDict[str, tuple[dict[str, Response], Box]] = OrderedDict()
        self._cached_bytes = 0
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._batch = batch or (1 if where.type == "cpu" else GPU_BATCH)
        modules = dict(network.module.named_modules())
        names = _resolved(name, network, modules, [*self._layers, *directions])
        # Convolutions in TF32 keep three digits, and what is left of an answer would depend on its batch.
        torch.backends.cudnn.allow_tf32 = False
        self._forward = Forward(_placed(network.module.eval(), where, name), names, where)
        shapes, self._layouts, refused = self._forward.examine(network.preprocess.size)
        if refused and network.preprocess.any_shape:
            raise UsageError(
                f"target.preprocess=published shows {name} whole pictures of any proportions, and it takes none but "
                f"{network.preprocess.size} ({refused}); set target.preprocess=weights"
            )
        counts = {layer: self._units(layer, shapes[layer]) for layer in names}
        self._directions = {
            found.name: found
            for found in (read_directions(layer, path, counts[layer]) for layer, path in directions.items())
        }
        self._info = self._described(counts)

    def info(self) -> TargetInfo:
        return self._info

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        found = self._read([probe.picture for probe in probes])
        return [self._answer(probe.unit, *answer) for probe, answer in zip(probes, found, strict=True)]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        found = self._read([probe.picture for probe in probes])
        return [maxima(self._layer(probe.layer, answer)) for probe, (answer, _) in zip(probes, found, strict=True)]

    def look(self, pictures: Sequence[Pixels]) -> list[tuple[Pixels, Responses]]:
        """Pictures as the network sees them, and the responses of all layers and directions; past the cache, for passes
        over a dataset."""
        views = [self._network.preprocess.view(pixels)[0] for pixels in pictures]
        found = self._through([self._network.preprocess.tensor(view) for view in views])
        return [
            (view, responses | {name: of.all(responses[of.layer]) for name, of in self._directions.items()})
            for view, responses in zip(views, found, strict=True)
        ]

    def _read(self, pictures: Sequence[Picture]) -> list[tuple[dict[str, Response], Box]]:
        """The responses of the module's own layers, of which many directions may be computed."""
        found = {picture.digest: self._cache.get(picture.digest) for picture in pictures}
        new = {picture.digest: picture for picture in pictures if found[picture.digest] is None}
        preprocess = self._network.preprocess
        views = [preprocess.view(picture.pixels) for picture in new.values()]
        answered = self._through([preprocess.tensor(view) for view, _ in views])
        found |= {digest: (given, box) for digest, given, (_, box) in zip(new, answered, views, strict=True)}
        answers = [answer for picture in pictures if (answer := found[picture.digest]) is not None]
        for picture, answer in zip(pictures, answers, strict=True):
            self._keep(picture.digest, answer)
        return answers

    def _through(self, tensors: Sequence[torch.Tensor]) -> list[dict[str, Response]]:
        found: dict[int, dict[str, Response]] = {}
        for group in equal_sizes(tensors, self._batch):
            outputs = self._forward(torch.stack([tensors[at] for at in group]))
            found |= {at: self._laid_out(outputs, row, tensors[at]) for row, at in enumerate(group)}
        return [found[at] for at in range(len(tensors))]

    def _laid_out(self, outputs: Mapping[str, torch.Tensor], row: int, tensor: torch.Tensor) -> dict[str, Response]:
        size = (int(tensor.shape[1]), int(tensor.shape[2]))
        responses = {
            layer: spatial(values[row], self._layouts[layer], size, layer) for layer, values in outputs.items()
        }
        logits = responses.get(OUTPUT)
        if logits is None or logits.ndim != 1 or not self._network.classifies:
            return responses
        # Exemplars and probes both read these, so that an output is measured in one unit everywhere.
        return responses | {OUTPUT: _softmax(logits), LOGITS: logits}

    def _keep(self, digest: str, answer: tuple[dict[str, Response], Box]) -> None:
        if digest not in self._cache:
            self._cached_bytes += _bytes(answer[0])
        self._cache[digest] = answer
        self._cache.move_to_end(digest)
        while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
            _, (old, _) = self._cache.popitem(last=False)
            self._cached_bytes -= _bytes(old)

    def _answer(self, unit: Unit, responses: Responses, box: Box) -> Activation:
        if unit.layer in self._directions:
            of = self._directions[unit.layer]
            response = of.unit(responses[of.layer], unit.index)
        else:
            response = responses[unit.layer][unit.index]
        if unit.layer == OUTPUT and LOGITS in responses:
            return Activation(value=rounded(response), raw=rounded(responses[LOGITS][unit.index]), box=box)
        if response.ndim == 0:
            return Activation(value=rounded(response), box=box)
        small: Map = np.ascontiguousarray(response)
        return Activation(value=rounded(small.max()), map=small, box=box)

    def _layer(self, layer: str, responses: Responses) -> Response:
        of = self._directions.get(layer)
        return responses[layer] if of is None else of.all(responses[of.layer])

    def _units(self, layer: str, shape: tuple[int, ...]) -> int:
        return spatial(torch.zeros(shape), self._layouts[layer], self._network.preprocess.size, layer).shape[0]

    def _described(self, counts: Mapping[str, int]) -> TargetInfo:
        of_directions = {name: len(of.weight) for name, of in self._directions.items()}
        state = list(self._network.module.state_dict().items())
        return TargetInfo(
            name=self._name,
            layers={layer: counts[layer] for layer in self._layers} | of_directions,
            digest=weights_digest([*state, *(item for of in self._directions.values() for item in of.state())]),
            input_size=self._network.preprocess.size,
            classes=self._classes(counts),
        )

    def _classes(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        labels = self._network.labels
        return labels if self._network.classifies and counts.get(OUTPUT) == len(labels) else ()


def _resolved(
    target: str, network: Network, modules: Mapping[str, torch.nn.Module], layers: Sequence[str]
) -> dict[str, str]:
    """Layers as they are asked for -> names of the module's own."""
    known = [*network.aliases, *filter(None, modules), OUTPUT]
    if not layers:
        raise UsageError(f"target.layers is empty; name the layers to read, out of: {', '.join(known)}")
    for layer in layers:
        if layer not in known:
            raise unknown_layer(layer, target, known)
    return {layer: layer if layer in modules else network.aliases.get(layer, layer) for layer in layers}


def _placed(module: torch.nn.Module, device: torch.device, name: str) -> torch.nn.Module:
    try:
        return module.to(device)
    except torch.OutOfMemoryError as error:
        raise UsageError(f"the GPU is too small for {name}: {error}") from error


def _bytes(responses: Responses) -> int:
    return sum(response.nbytes for response in responses.values())


def _softmax(logits: Response) -> Response:
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def rounded(value: Any) -> float:
    """5 significant digits: what batch size and thread count leave unchanged."""
    return float(f"{float(value):.5g}")


def maxima(response: Response) -> npt.NDArray[np.float64]:
    """(units, h, w) or (units,) -> (units,), rounded as a probe of each is."""
    flat = response.reshape(len(response), -1).max(axis=1)
    return np.array([rounded(value) for value in flat.tolist()])


def weights_digest(state: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over names, shapes and values."""
    total = hashlib.sha256()
    for name, tensor in sorted(state, key=lambda item: item[0]):
        total.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        total.update(
            tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if tensor.ndim
            else str(tensor.item()).encode()
        )
    return total.hexdigest()
