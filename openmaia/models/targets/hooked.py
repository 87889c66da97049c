"""A target with forward hooks on the named layers of any nn.Module."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.core.services import (
    LOG_PROBABILITIES,
    LOGITS,
    Drives,
    Effects,
    Intervention,
    LayerProbe,
    Map,
    Probe,
    UnitActivation,
)
from openmaia.core.units import FEATURES, OUTPUT, TargetInfo, Unit, unknown_layer
from openmaia.exemplars.sparse import Responses, SparseResponses
from openmaia.models.device import default_device, move_to_device, service_errors
from openmaia.models.targets.attribution import Pass, attribute, class_scores, needing_gradients
from openmaia.models.targets.dictionary import Dictionary
from openmaia.models.targets.dictionary_format import read_dictionary
from openmaia.models.targets.directions import SUFFIX, Directions, read_directions
from openmaia.models.targets.forward import Forward, input_batches
from openmaia.models.targets.interventions import UnitSpace
from openmaia.models.targets.maps import AxisOrder, OutputLayout, Tokens, arrange, take_tokens
from openmaia.models.targets.meaning import ClassOutput, OutputMeaning, activations, check, understand
from openmaia.models.targets.places import noise
from openmaia.models.targets.precision import Precision, check_precision
from openmaia.models.targets.preprocess import TargetNetwork
from openmaia.models.targets.recent import RecentResponses
from openmaia.models.targets.responses import Response, maxima, rounded
from openmaia.models.targets.state import check_state, network_state, weights_digest
from openmaia.models.targets.wrappers import check_hookable, unwrap

_LOGITS = "output (raw)"
"""Key of a classifier's logits in `Measured.responses`, beside the probabilities at OUTPUT. No layer that users can select."""

# Images of a dataset per pass. Smaller batches leave a large GPU idle: one H200 runs 1,499 images a second through
# ResNet-152 in batches of 128, and 1,044 in batches of 32.
GPU_BATCH = 128

# Images of an agent per pass on a GPU.
PROBED = 32

# Noise images, besides a black and a white one, by which it is found out what an output means.
SAMPLES = 4

READ_AS = {
    OutputMeaning.SOFTMAX: "the logits of a softmax over {} classes",
    OutputMeaning.SIGMOID: "{} logits, each of a sigmoid",
    OutputMeaning.PROBABILITIES: "probabilities (of {})",
    OutputMeaning.VALUES: "values as they are ({})",
}

NO_DIRECTIONS: Mapping[str, str] = MappingProxyType({})


class NetworkTarget:
    """A target whose units are measured through forward hooks. On a GPU, images of equal size share a forward pass."""

    def __init__(
        self,
        name: str,
        network: TargetNetwork,
        layers: Sequence[str],
        *,
        directions: Mapping[str, str] = NO_DIRECTIONS,
        dictionaries: Mapping[str, str] = NO_DIRECTIONS,
        tokens: Tokens = "patches",
        threads: int = 1,
        device: str = "",
        batch: int = 0,
        precision: Precision = "float32",
    ):
        """Prepares the network, and determines the units of its layers with a few forward passes.

        Args:
            layers: Names of modules, keys of `network.aliases`, or OUTPUT for the network's output.
            directions: Safetensors files with directions (see directions.py), by the layer in whose activation space
                they are. They are the units of `LAYER/directions`.
            dictionaries: Folders or hub ids of dictionaries (see dictionary_format.py), likewise. Their features are the
                units of `LAYER/features`.
            tokens: The tokens at which features are computed, of layers that have some.
            threads: CPU threads that PyTorch uses.
            device: Empty for the GPU if there is one, and the CPU otherwise.
            batch: Images per forward pass, 0 for the default of the device.
            precision: In TF32 and bfloat16, activations depend a little on the other images of a pass.

        Raises:
            UsageError: A layer has no units or is not called exactly once in a pass, directions or a dictionary do not
                match their layer, a layer lacks the tokens, the device does not compute in the precision, the network refuses inputs of the sizes that its
                preprocessing yields, or its weights have no values (see `check_state`).
        """
        torch.set_num_threads(threads)
        self._network, self._name = network, name
        named = {layer + SUFFIX for layer in directions} | {layer + FEATURES for layer in dictionaries}
        self._layers = tuple(
            layer
            for layer in dict.fromkeys(layers)
            if layer not in named or layer in directions or layer in dictionaries
        )
        self._changeable: dict[tuple[str, bool], bool] = {}
        self._classes: ClassOutput | None = None
        used_device = torch.device(device) if device else default_device()
        self._device = used_device
        # On a CPU one by one: it is faster (34 ms per image, against 53 ms in batches of 8, measured with
        # EfficientNet-Lite0), and no result depends on the other images of a batch.
        self._probed = batch or (1 if used_device.type == "cpu" else PROBED)
        self.batch = batch or (1 if used_device.type == "cpu" else GPU_BATCH)
        """What one call of `responses` takes best. A pass that runs out of memory lowers it."""
        check_precision(precision, used_device)
        self._precision: Precision = precision
        check_state(network.module)
        inner, prefix = unwrap(network.module)
        names = _module_names(name, network, inner, prefix, [*self._layers, *directions, *dictionaries])
        module = move_to_device(inner.eval(), used_device, f"target.network ({name})")
        self._forward = Forward(module, names, used_device, network.entries, precision)
        shapes, self._layouts, refusal = self._forward.examine(network.preprocess)
        _check_sizes(name, network, refusal)
        counts = {layer: self._unit_count(layer, shapes[layer]) for layer in names}
        self._tokens = {_token_key(layer, tokens): layer for layer in dictionaries} if tokens != "patches" else {}
        self._which_tokens: Tokens = tokens
        for layer in self._tokens.values():  # refused now, if the layer lacks them
            take_tokens(torch.zeros(1, *shapes[layer]), self._layouts[layer], tokens, network.preprocess.size, layer)
        self._directions = self._read_directions(directions, dictionaries, counts)
        self._meaning, meaning_said = OutputMeaning.VALUES, ""
        if OUTPUT in names:
            self._meaning, meaning_said = self._output_meaning(self._layouts[OUTPUT])
        self._info = self._target_info(counts, meaning_said)
        self._recent = RecentResponses(network.preprocess, self._run, used_device, self._probed)

    def _read_directions(
        self, directions: Mapping[str, str], dictionaries: Mapping[str, str], counts: Mapping[str, int]
    ) -> dict[str, Directions | Dictionary]:
        sources = {layer: key for key, layer in self._tokens.items()}
        read: list[Directions | Dictionary] = [
            read_directions(layer, path, counts[layer]) for layer, path in directions.items()
        ]
        read += [
            read_dictionary(layer, given, counts[layer], sources.get(layer, "")).on(self._device)
            for layer, given in dictionaries.items()
        ]
        return {each.name: each for each in read}

    def info(self) -> TargetInfo:
        return self._info

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        """As `Target.probe`. Only the values and maps of these units leave the device.

        Raises:
            ServiceError: The images need more memory than the GPU has.
        """
        with service_errors("the target network"), torch.inference_mode():
            measured = self._recent.read([probe.image for probe in probes])
            read = [self._unit(probe.unit, each.responses) for probe, each in zip(probes, measured, strict=True)]
        return [
            self._activation(probe.unit, response, each.box)
            for probe, response, each in zip(probes, _copied(read), measured, strict=True)
        ]

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        """As `Target.respond`. Only the maxima of the units leave the device.

        Raises:
            ServiceError: The images need more memory than the GPU has.
        """
        with service_errors("the target network"), torch.inference_mode():
            measured = self._recent.read([probe.image for probe in probes])
            read = [self._maxima(probe.layer, each.responses) for probe, each in zip(probes, measured, strict=True)]
        return [maxima(values) for values in _copied(read)]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the network's classes, whatever layers were selected. Empty if unknown."""
        return self._network.labels

    def effects(self) -> Effects:
        """As `Classifier.effects`."""
        layers = tuple(layer for layer in self._info.layers if self.can_intervene(layer))
        names, found = self._network.labels, self._classes
        if found is None or not layers:
            return Effects(layers=(), classes=())
        is_named = len(names) == found.count
        return Effects(
            layers=layers,
            classes=tuple((names[n] if is_named else "") or f"class {n}" for n in range(found.count)),
            heads=self._network.heads if is_named else (),
            exclude=found.exclude,
        )

    def can_intervene(self, layer: str, read: str = LOG_PROBABILITIES) -> bool:
        """Returns whether units of a layer can be changed, and `read` (see `Intervention`) be read: not those of OUTPUT, and
        of a module whose output is one tensor."""
        source, is_layer = self._source(layer), read in self._info.layers
        if layer not in self._info.layers or source == OUTPUT or not (is_layer or read in (LOG_PROBABILITIES, LOGITS)):
            return False
        key = source, is_layer
        if key not in self._changeable:
            preprocess = self._network.preprocess
            blank = torch.zeros(1, preprocess.channels, *preprocess.size)
            try:
                with self._forward.changing(source, lambda values: None):
                    if is_layer:
                        self._forward(blank)
                    else:
                        self._classes = ClassOutput.of(self._read_meaning(), self._forward.output(blank))
                self._changeable[key] = is_layer or self._classes is not None
            except UsageError:
                self._changeable[key] = False
        return self._changeable[key]

    def attribute(
        self,
        layer: str,
        images: Sequence[EncodedImage],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Drives:
        """As `Classifier.attribute`, by one backward pass for each class and batch of images (see attribution.py)."""
        self._check_intervention(layer, LOGITS)
        classes, preprocess = self._classes, self._network.preprocess
        assert classes is not None  # as can_intervene has found
        source, views = self._source(layer), [self.view(image.pixels)[0] for image in images]
        heads = self.effects().heads

        def run(most: int) -> Iterator[Pass]:
            for at, batch in input_batches(preprocess, views, self._device, most):
                with needing_gradients(layer):
                    values, output = self._forward.differentiable(source, batch)
                    scores = class_scores(classes, heads, output)
                size = int(batch.shape[2]), int(batch.shape[3])
                yield Pass(values=values, scores=scores, size=size, images=len(at))

        most = self._probed
        while True:
            try:
                with service_errors("the target network"):
                    given = partial(run, most), self._space(layer), self._info.layers[layer]
                    return attribute(*given, classes.count, len(views), progress)
            except ServiceError as error:
                if most == 1 or not isinstance(error.__cause__, torch.OutOfMemoryError):
                    raise
            most //= 2
            torch.cuda.empty_cache()

    def intervene(self, interventions: Sequence[Intervention]) -> list[npt.NDArray[np.float64]]:
        """Returns for each intervention what it reads: log-probabilities or logits, shape (classes,), or the activations of
        a layer's units, shape (units,). Those of one layer share passes.

        Raises:
            UsageError: The units of a layer cannot be changed (see `can_intervene`), there is no such unit or position, or
                what is to be read does not exist.
            ServiceError: The images need more memory than the GPU has.
        """
        for layer, read in dict.fromkeys((each.unit.layer, each.read) for each in interventions):
            self._check_intervention(layer, read)
        for each in interventions:
            units = self._info.layers[each.unit.layer]
            if not 0 <= each.unit.index < units:
                raise UsageError(f"{each.unit}: the layer has the units 0 to {units - 1}")
        images = {id(each.image): each.image for each in interventions}
        with service_errors("the target network"), torch.inference_mode():
            views = {at: view for at, (view, _) in zip(images, self._recent.views(list(images.values())), strict=True)}
            found: dict[int, torch.Tensor] = {}
            for layer, read in dict.fromkeys((each.unit.layer, each.read) for each in interventions):
                own = [at for at, each in enumerate(interventions) if (each.unit.layer, each.read) == (layer, read)]
                found |= self._intervene(own, interventions, [views[id(interventions[at].image)] for at in own])
            return [each.double().numpy() for each in _on_cpu([found[at] for at in range(len(interventions))])]

    def _intervene(
        self, own: Sequence[int], interventions: Sequence[Intervention], views: Sequence[Pixels]
    ) -> dict[int, torch.Tensor]:
        """The results on the device, by index, of interventions in one layer that read the same."""
        layer, read = interventions[own[0]].unit.layer, interventions[own[0]].read
        source, space = self._source(layer), self._space(layer)
        found: dict[int, torch.Tensor] = {}
        for at, batch in input_batches(self._network.preprocess, views, self._device, self._probed):
            asked = [interventions[own[i]] for i in at]
            change = space.change(asked, (int(batch.shape[2]), int(batch.shape[3])))
            with self._forward.changing(source, change):
                found |= dict(zip([own[i] for i in at], self._read(batch, read), strict=True))
        return found

    def _read(self, batch: torch.Tensor, read: str) -> torch.Tensor:
        """What interventions read, shape (images, classes or units)."""
        if read in (LOG_PROBABILITIES, LOGITS):
            output, classes = self._forward.output(batch), self._classes
            assert classes is not None  # as can_intervene has found
            return classes.logits(output) if read == LOGITS else classes.logarithms(output)
        responses = self._run(batch)
        rows = [{layer: each[row] for layer, each in responses.items()} for row in range(len(batch))]
        return torch.stack([self._maxima(read, each) for each in rows])

    def _check_intervention(self, layer: str, read: str) -> None:
        if read not in (LOG_PROBABILITIES, LOGITS) and read not in self._info.layers:
            raise unknown_layer(read, self._name, [*self._info.layers, LOG_PROBABILITIES, LOGITS])
        if not self.can_intervene(layer, read):
            what = "a layer of a classifier" if read in (LOG_PROBABILITIES, LOGITS) else "a layer"
            raise UsageError(
                f"units of {layer} cannot be changed: that takes {what} below its output, and a module whose output is one "
                "tensor"
            )

    def _source(self, layer: str) -> str:
        """The layer in whose output the units of a layer are: for directions and features the one that they are of."""
        own = self._directions.get(layer)
        return layer if own is None else own.layer

    def _space(self, layer: str) -> UnitSpace:
        source = self._source(layer)
        return UnitSpace(
            layer=source,
            layout=self._layouts[source],
            own=self._directions.get(layer),
            tokens=self._which_tokens if layer.endswith(FEATURES) else "patches",
        )

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns the image that the network receives, and the part of the given image that it shows."""
        return self._network.preprocess.view(pixels)

    def responses(self, views: Sequence[Pixels], recipes: Sequence[str]) -> dict[str, Responses]:
        """Returns the responses of all layers, directions included, to images of equal shape that `view` returned. Not
        cached.

        Returns:
            float32 on the network's device, shape (images, units, h, w), or (images, units) for a layer without
                positions. A
            layer whose positions have no known places gives the maxima of the units. Features are sparse.

        Raises:
            ServiceError: The images need more memory than the GPU has.
        """
        with service_errors("the target network"), torch.inference_mode():
            batch = self._network.preprocess.batch(views, self._device)
            found = self._run(batch)
            directions = {name: each.all(found[each.source]) for name, each in self._directions.items()}
            return {name: _placed(each) for name, each in {**found, **directions}.items()}

    def _run(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The responses of all layers but directions, on the device."""
        outputs = self._forward(batch)
        size = (int(batch.shape[2]), int(batch.shape[3]))
        responses = {layer: arrange(values, self._layouts[layer], size, layer) for layer, values in outputs.items()}
        responses |= {
            key: take_tokens(outputs[layer], self._layouts[layer], self._which_tokens, size, layer)
            for key, layer in self._tokens.items()
        }
        if not self._reads_logits:
            return responses
        # Exemplars and probes both read the probabilities, so that an output has one unit of measurement.
        return responses | {OUTPUT: activations(self._meaning, responses[OUTPUT]), _LOGITS: responses[OUTPUT]}

    @property
    def _reads_logits(self) -> bool:
        return self._meaning in (OutputMeaning.SOFTMAX, OutputMeaning.SIGMOID)

    def _output_meaning(self, layout: OutputLayout) -> tuple[OutputMeaning, str]:
        """Returns the meaning, and a sentence about it if it was found out."""
        declared, preprocess = self._network.output, self._network.preprocess
        if layout.kind is not AxisOrder.VECTOR:
            # Values at positions, such as those of a segmentation, are read as they are.
            return OutputMeaning.VALUES, ""
        images = [noise(preprocess.size, seed) for seed in range(SAMPLES)]
        images += [np.full((*preprocess.size, 3), level, np.uint8) for level in (0, 255)]
        outputs, last = self._forward.last_modules([preprocess.tensor(image)[None] for image in images])
        outputs = outputs.flatten(1)
        if declared is not None and not (declared is OutputMeaning.SOFTMAX and outputs.shape[1] == 1):
            check(declared, outputs)
            return declared, ""
        meaning, why = understand(outputs, last)
        read = READ_AS[meaning].format(outputs.shape[1])
        return meaning, f"output: read as {read}, because {why}; target.output changes it"

    def _read_meaning(self) -> OutputMeaning:
        """The meaning of the output, which is found out here if it is no layer that is read."""
        if OUTPUT in self._layouts:
            return self._meaning
        return self._network.output or self._output_meaning(OutputLayout(kind=AxisOrder.VECTOR))[0]

    def _unit(self, unit: Unit, responses: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """A unit's response on the device: its map, or a vector of its activation and, of a classifier, its logit."""
        if directions := self._directions.get(unit.layer):
            return torch.atleast_1d(directions.unit(responses[directions.source], unit.index))
        response = torch.atleast_1d(responses[unit.layer][unit.index])
        if unit.layer == OUTPUT and self._reads_logits:
            return torch.cat([response, responses[_LOGITS][unit.index, None]])
        return response

    def _activation(self, unit: Unit, response: Response, box: ViewBox) -> UnitActivation:
        """`response` is what `_unit` returned."""
        if unit.layer == OUTPUT and self._reads_logits:
            return UnitActivation(value=rounded(response[0]), raw=rounded(response[1]), box=box)
        small: Map | None = response if response.ndim > 1 else None
        return UnitActivation(value=rounded(response.max()), map=small, box=box)

    def _maxima(self, layer: str, responses: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if directions := self._directions.get(layer):
            return directions.maxima(responses[directions.source])
        response = responses[layer]
        return response.flatten(1).amax(dim=1) if response.ndim > 1 else response

    def _unit_count(self, layer: str, shape: tuple[int, ...]) -> int:
        return arrange(torch.zeros(1, *shape), self._layouts[layer], self._network.preprocess.size, layer).shape[1]

    def _target_info(self, counts: Mapping[str, int], meaning_said: str) -> TargetInfo:
        network, directions = self._network, self._directions
        state = [*network_state(network.module), *(item for each in directions.values() for item in each.state())]
        named_classes = counts.get(OUTPUT) == len(network.labels)
        understood = [line for layer in counts for line in self._forward.understood(layer)]
        understood += [
            f"{layer}: its positions do not follow those of the image, so that it has no maps; an activation is the maximum "
            "over all positions"
            for layer in counts
            if not self._layouts[layer].placed
        ]
        understood += [
            f"{name}: {each.description}, {each.units} features"
            + (f", at {self._which_tokens} tokens" if self._tokens else "")
            for name, each in directions.items()
            if isinstance(each, Dictionary)
        ]
        computed = "" if self._precision == "float32" else f"the network computes in {self._precision}"
        outputs = network.outputs if OUTPUT in counts else ""
        return TargetInfo(
            name=self._name,
            layers={layer: counts[layer] for layer in self._layers}
            | {name: each.units for name, each in directions.items()},
            digest=weights_digest(state),
            input_size=network.preprocess.size,
            preprocessing="; ".join(filter(None, (network.preprocess.description, computed, outputs))),
            understood=(*understood, *([meaning_said] if meaning_said else [])),
            classes=network.labels if named_classes else (),
            heads=network.heads if named_classes else (),
        )


def _placed(responses: Responses) -> Responses:
    """Returns the maxima of units whose positions have no known places, and what it was given of others."""
    if isinstance(responses, SparseResponses):
        return responses.maxima() if len(responses.positions) == 1 else responses
    return responses.amax(dim=2) if responses.ndim == 3 else responses


def _token_key(layer: str, tokens: Tokens) -> str:
    """Key in `Measured.responses`. No layer that users can select."""
    return f"{layer} ({tokens} tokens)"


def _module_names(
    target: str, network: TargetNetwork, inner: torch.nn.Module, prefix: str, layers: Sequence[str]
) -> dict[str, str]:
    """Returns the name of each layer's module in the network, by the name that the user gave.

    That may be the name in the wrapper around the network, where names begin with `prefix`.

    Raises:
        UsageError: A layer is unknown, or cannot be hooked.
    """
    modules = dict(inner.named_modules())
    known = [*network.aliases, *filter(None, modules), OUTPUT]
    if not layers:
        raise UsageError(f"target.layers is empty; name the layers to read, out of: {', '.join(known)}")
    for layer in network.entries:
        if layer not in layers and layer != OUTPUT:
            raise UsageError(
                f"target.entries names an entry of {layer!r}, which is not read; the layers are {', '.join(layers)}"
            )
    names: dict[str, str] = {}
    for layer in layers:
        name = layer if layer in known else f"{layer}.".removeprefix(prefix)[:-1]
        if name != OUTPUT:
            check_hookable(layer, network.aliases.get(name, name), modules)
        if name not in known and not (prefix and name in modules):
            raise unknown_layer(layer, target, known)
        names[layer] = name if name in modules else network.aliases.get(name, name)
    return names


def _check_sizes(name: str, network: TargetNetwork, refusal: str) -> None:
    if refusal and network.preprocess.any_shape:
        raise UsageError(
            f"the preprocessing of {name} shows it whole images of any proportions, but it accepts only "
            f"{network.preprocess.size} ({refusal}); with target.preprocess=published, set target.preprocess=weights"
        )


def _copied(values: Sequence[torch.Tensor]) -> list[npt.NDArray[np.float32]]:
    return [each.numpy() for each in _on_cpu(values)]


def _on_cpu(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies tensors to the CPU, those of equal shape at once, because each copy waits for the GPU."""
    by_shape: dict[torch.Size, list[int]] = {}
    for at, each in enumerate(values):
        by_shape.setdefault(each.shape, []).append(at)
    copies: dict[int, torch.Tensor] = {}
    for own in by_shape.values():
        copies |= dict(zip(own, torch.stack([values[at] for at in own]).cpu(), strict=True))
    return [copies[at] for at in range(len(values))]
