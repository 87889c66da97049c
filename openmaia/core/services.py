"""The services that an investigation may call, as Protocols, with the types of their requests and results.

An investigation is the work of one agent on one unit, layer or network. Methods take a list of requests, except
`Target.info` and `Exemplars.read`: one call holds all requests of one tool call of the agent, and the service may batch
them further. A request can safely be repeated, because its randomness depends only on the seed that it contains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from openmaia.core.images import EncodedImage, ViewBox
from openmaia.core.messages import Chat, Reply
from openmaia.core.units import TargetInfo, Unit

ExemplarKind = Literal["top", "bottom", "random", "ladder"]
"""How an exemplar (a dataset image stored for a unit) was selected: by the highest activations, by the lowest, at
random, or for a series from the lowest to the highest activation that is evenly spaced by rank."""
Split = Literal["explore", "test"]
"""One of the two disjoint parts of a dataset: agents see images of `explore`, and descriptions are tested on images of
`test`."""
Map = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Request for the activation of one unit on one image."""

    unit: Unit
    image: EncodedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitActivation:
    """The activation of a unit on an image."""

    value: float
    """The maximum of the activation map. Without a map, the single activation, which for a class of a classifier is its
    probability. Rounded to 5 significant digits."""
    raw: float | None = None
    """The logit of the class. None if `value` is not a probability."""
    map: Map | None = None
    """The activation map, shape (h, w). None if the layer has no spatial dimensions."""
    box: ViewBox
    """The part of the image that the map covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProbe:
    """Request for the activations of all units of a layer on one image."""

    layer: str
    image: EncodedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Request for the output of a classifier on an image while one of its units is scaled."""

    unit: Unit
    image: EncodedImage
    factor: float = 0.0
    """The unit's response is multiplied by it at all positions: 0 ablates the unit, 1 changes nothing."""


class Target(Protocol):
    """The network under study. It measures the activations of its units on images."""

    def info(self) -> TargetInfo:
        """Returns the name of the network, its layers with their numbers of units, and other properties."""
        ...

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        """Measures the activation of one unit on one image for each request.

        If the layer has an activation for each position in the image, the unit's activation is their maximum.

        Args:
            probes: The requests, each with the fields `unit` and `image`. They may name different units and layers.

        Returns:
            The activations (field `value`) in the order of the requests.
        """
        ...

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        """Measures the activations of all units of one layer on one image for each request.

        The activation of a unit is the number that the method `probe` gives as `value`.

        Args:
            probes: The requests, each with the fields `layer` (its name) and `image`.

        Returns:
            One array of shape (units,) for each request, in the order of the requests.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Request for a new image of what a prompt describes."""

    prompt: str
    seed: int
    split: Split = "explore"
    """Split of the dataset from which a generator takes parts of the image, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Request for a change of an image by an instruction."""

    image: EncodedImage
    instruction: str
    seed: int
    split: Split = "explore"
    """Split of the dataset from which an editor takes the parts that it draws, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedImage:
    """A generated or edited image. It tells which terms of the prompt the image is known to show or to lack."""

    image: EncodedImage
    missing_terms: tuple[str, ...] = ()
    """Terms of the prompt that the generator knows to be missing in the image."""
    verified_by: str = ""
    """Name of the component that verified that the image shows all terms except `missing_terms`. Empty if nothing was
    verified."""


class Generator(Protocol):
    """A text-to-image model. It makes the images of the agent's experiments and of the tests of descriptions."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Generates one image for each request.

        Args:
            requests: The requests, each with the fields `prompt` and `seed`. The same prompt and seed should give the
                same image, because a request may be repeated after a failure.

        Returns:
            The generated images in the order of the requests.
        """
        ...


class Editor(Protocol):
    """A model that edits images by instructions in words, such as "remove the desk"."""

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Edits one image for each request.

        Args:
            requests: The requests, each with the fields `image`, `instruction` and `seed`. The same request should give
                the same image, because it may be repeated after a failure.

        Returns:
            The edited images in the order of the requests.
        """
        ...


class Backbone(Protocol):
    """The model that plays the agent, usually a language model. It writes the agent's replies."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Writes the next reply in each of several conversations.

        Args:
            chats: The conversations. The fields of each are the `messages` so far, a `seed`, the largest length of the
                reply as `max_tokens`, and others that a backbone may ignore.

        Returns:
            The replies in the order of the conversations, each with its `text` and the numbers of tokens.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A dataset image with the activation of a unit on it."""

    kind: ExemplarKind
    rank: int
    """Position among the unit's exemplars of this kind, from 0."""
    activation: float
    image: EncodedImage
    """The whole image as it was before the network's preprocessing, in the size in which it was measured."""
    box: ViewBox
    """The part of the image that the map covers."""
    map: Map | None
    """The unit's activation map, shape (h, w), float16 or float32. None if the layer has no spatial dimensions."""


QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)

UnitState = Literal["ok", "dead", "not finite"]
"""The state of a unit's activations on the dataset images. dead: they are all equal; not finite: some are NaN or
infinite; ok: neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionStatistics:
    """Statistics of a unit's activations at all positions of its activation maps on all dataset images."""

    quantiles: tuple[float, ...]
    """The quantiles of the activations at the probabilities QUANTILES."""
    mean: float
    variance: float
    positive: float
    """Share of positions above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitExemplars:
    """Exemplars of a unit (dataset images with its activations) and statistics of its activations on the dataset."""

    unit: Unit
    threshold: float
    """Activation above which a position is part of the unit's mask, the region where it responds."""
    exemplars: tuple[Exemplar, ...]
    maxima: npt.NDArray[np.float64] | None = None
    """Percentiles 0 to 100 of the unit's activations on the dataset images, shape (101,). None if unknown, as for
    imported exemplars."""
    mean: float | None = None
    std: float | None = None
    """Mean and standard deviation of the unit's activations on the dataset images. None if unknown."""
    positions: PositionStatistics | None = None
    """None if unknown, as for imported exemplars."""
    state: UnitState = "ok"

    def of_kind(self, kind: ExemplarKind) -> tuple[Exemplar, ...]:
        """Returns the exemplars of one kind, such as `top`: those with the highest activations."""
        return tuple(exemplar for exemplar in self.exemplars if exemplar.kind == kind)

    def percentile(self, activation: float) -> float | None:
        """Returns the percentage of dataset images on which the unit's activation is lower than the given one.

        Images with the same activation count half, so that the result for a unit with equal activations on all images
        is 50. None if the percentiles of the unit are unknown.
        """
        if self.maxima is None:
            return None
        below = np.searchsorted(self.maxima, activation, side="left")
        above = np.searchsorted(self.maxima, activation, side="right")
        if below != above:
            return float(below + above - 1) / 2
        if below in (0, len(self.maxima)):
            return 0.0 if below == 0 else 100.0
        low, high = self.maxima[below - 1], self.maxima[below]
        return float(below - 1 + (activation - low) / (high - low))

    def z_score(self, activation: float) -> float | None:
        """Returns by how many standard deviations an activation exceeds the unit's mean on the dataset images.

        0 for a unit with equal activations on all of them. None if mean and standard deviation are unknown.
        """
        if self.mean is None or self.std is None:
            return None
        return (activation - self.mean) / self.std if self.std > 0 else 0.0


class Exemplars(Protocol):
    """Store of exemplars, which are dataset images with the activations of a unit on them."""

    def read(self, unit: Unit) -> UnitExemplars:
        """Returns the exemplars of a unit, and statistics of its activations on all dataset images.

        Raises:
            StoreError: The store has no exemplars of the unit, or a file of it is damaged.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUsage:
    """The number of requests to a service and the time that it spent on them. Time in a queue is not included."""

    requests: int = 0
    seconds: float = 0.0
    """Time in seconds that replicas spent on the requests. The time of a batch is divided equally among its requests, and
    the time of a chat by the number of chats that its replica answered concurrently."""
    gpu_seconds: float = 0.0
    """`seconds` multiplied by the number of GPUs of a replica, which may be a fraction or 0."""

    def __add__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})


class UsageLedger:
    """Adds up the cost of an investigation (requests and time) by service. It is not thread-safe."""

    def __init__(self) -> None:
        self._spent: dict[str, ServiceUsage] = {}

    def add(self, service: str, requests: int, seconds: float, gpus: float) -> None:
        """Adds the cost of a call of a service.

        Args:
            service: The name of the service.
            requests: The number of requests in the call.
            seconds: The time in seconds that the service spent on the call.
            gpus: The number of GPUs that the service occupies; may be a fraction.
        """
        more = ServiceUsage(requests=requests, seconds=seconds, gpu_seconds=seconds * gpus)
        self._spent[service] = self._spent.get(service, ServiceUsage()) + more

    def spent(self) -> dict[str, ServiceUsage]:
        """Returns the cost of the investigation so far, by service."""
        return dict(self._spent)

    def since(self, before: Mapping[str, ServiceUsage]) -> dict[str, ServiceUsage]:
        """Returns the cost by service since an earlier call of `spent`. Services without new requests are left out.

        Args:
            before: The result of that earlier call.
        """
        news = {service: now - before.get(service, ServiceUsage()) for service, now in self._spent.items()}
        return {service: new for service, new in news.items() if new.requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The models and the exemplar store that one investigation may use, and the ledger of their cost."""

    target: Target
    exemplars: Exemplars
    generator: Generator
    editor: Editor
    backbone: Backbone
    ledger: UsageLedger = field(default_factory=UsageLedger)
    """The cost of this investigation so far."""
