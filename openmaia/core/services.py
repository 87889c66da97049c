"""The services as Protocols, with the types of their requests and results.

Methods take a list of requests, except `Target.info` and `Exemplars.read`: one call holds all requests of one tool call
of the agent, and the service may batch them further. Results have the order of the requests. A request can safely be
repeated, because its randomness depends only on the seed that it contains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from openmaia.core.errors import OutOfBudget
from openmaia.core.images import EncodedImage, ViewBox
from openmaia.core.messages import Chat, Reply
from openmaia.core.money import FREE, Bill, PaymentTerms
from openmaia.core.units import TargetInfo, Unit

ExemplarKind = Literal["top", "bottom", "random", "ladder", "levels"]
"""`ladder` is even in rank, `levels` in activation."""
Split = Literal["explore", "test"]
Map = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Asks for the activation of one unit on one image."""

    unit: Unit
    image: EncodedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitActivation:
    """The activation of a unit on an image."""

    value: float
    """The largest value of the map. Without a map the activation itself; for a class of a classifier its probability.
    Rounded to 5 significant digits."""
    raw: float | None = None
    """The logit, if `value` is a probability."""
    map: Map | None = None
    """Shape (h, w). None if the layer has no spatial dimensions."""
    box: ViewBox
    """The part of the image that the map covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProbe:
    """Asks for the activations of all units of a layer on one image."""

    layer: str
    image: EncodedImage


LOG_PROBABILITIES = "log-probabilities"
LOGITS = "logits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Asks what a network makes of an image while one of its units is changed in the forward pass.

    The response r of the unit becomes `scale` · r + `add`: (0, 0) ablates the unit, (0, m) sets it to m, (f, 0) scales it,
    (1, a) adds a, and (1, 0) changes nothing. For a direction w the channels x become x + (change of r) · w / |w|², and for
    a feature x + (change of r) · (its row of the decoder), so that what the dictionary does not reconstruct stays.
    """

    unit: Unit
    image: EncodedImage
    scale: float = 0.0
    add: float = 0.0
    positions: tuple[tuple[int, int], ...] | None = None
    """Rows and columns of the unit's map at which it is changed. None: everywhere, at tokens of no patch, too."""
    random: int | None = None
    """The seed of a random direction of the layer: the change is made along it, with the norm that it has along the unit's
    own. A control. None: along the unit's own."""
    read: str = LOG_PROBABILITIES
    """LOG_PROBABILITIES or LOGITS of a classifier's classes, or a layer, whose units' activations are read. A layer before that
    of the unit does not change."""


DRIVEN = 10
"""Classes of `Drives` for each unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drives:
    """The classes that the units of a layer raise most on some images: the sum over positions of the unit's response times the
    gradient of the class's logit, as a mean over the images. To first order, the logit falls by it if the unit is ablated.
    Where classes exclude each other, logits are compared with the mean over the classes of the head."""

    classes: npt.NDArray[np.int64]
    """Indices, (units, at most DRIVEN), the most raised first."""
    rises: npt.NDArray[np.float64]
    """Of the same shape. May be 0, negative, or not finite."""
    images: int
    """The number of images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What can be asked about the effects of units on the classes of a classifier."""

    layers: tuple[str, ...]
    """The layers whose units can be changed."""
    classes: tuple[str, ...]
    """Names of the classes by index. Classes without names are called by their index, such as `class 7`."""
    heads: tuple[int, ...] = ()
    """See `TargetInfo.heads`."""
    exclude: bool = True
    """Whether classes (of one head) exclude each other. If not, the probability of each is a sigmoid."""
    drives: Mapping[str, Drives] = field(default_factory=dict[str, Drives], compare=False)
    """By layer, on a sample of the dataset. Without the layers of which they are unknown."""

    def by_head(self, values: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
        """Divides values of shape (rows, classes) into those of each head."""
        return np.split(values, np.cumsum(self.heads)[:-1].astype(int), axis=1)


@runtime_checkable
class Changeable(Protocol):
    """A target of which units can be changed in the forward pass."""

    def effects(self) -> Effects:
        """Returns which effects can be measured. Without layers: its outputs are no classes."""
        ...

    def intervene(self, interventions: Sequence[Intervention]) -> list[npt.NDArray[np.float64]]:
        """Returns for each intervention what it reads, of shape (classes,) or (units,)."""
        ...


@runtime_checkable
class Classifier(Changeable, Protocol):
    """A target of which it can be found what its units raise."""

    def attribute(
        self, layer: str, images: Sequence[EncodedImage], progress: Callable[[int, int], None] = ...
    ) -> Drives:
        """Returns what the units of a layer raise. `progress` gets the number of backward passes so far, and that of all.

        Raises:
            UsageError: The units cannot be changed, or the network does not compute gradients.
        """
        ...


class Target(Protocol):
    """Measures the activations of units on images."""

    def info(self) -> TargetInfo:
        """Returns its name, its layers with their numbers of units, and other properties."""
        ...

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        """Measures one unit on one image for each request. The requests may name different units and layers."""
        ...

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        """Measures all units of one layer on one image for each request: the `value`s of `probe`, shape (units,)."""
        ...


def find_effects(target: object) -> Effects:
    """Returns which effects of a target's units can be measured: none unless they can be changed."""
    return target.effects() if isinstance(target, Changeable) else Effects(layers=(), classes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Asks for an image of what a prompt describes."""

    prompt: str
    seed: int
    split: Split = "explore"
    """For generators that take parts of images from the dataset. Others ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Asks for a change of an image by an instruction."""

    image: EncodedImage
    instruction: str
    seed: int
    split: Split = "explore"
    """For editors that take parts of images from the dataset. Others ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedImage:
    """A generated or edited image."""

    image: EncodedImage
    missing_terms: tuple[str, ...] = ()
    """Terms of the prompt that the generator knows to be missing in the image."""
    verified_by: str = ""
    """Name of the component that verified that the image shows all terms except `missing_terms`. Empty if none did."""
    bill: Bill = FREE


class Generator(Protocol):
    """Makes the images of experiments and of tests."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        """Generates one image for each request. The same prompt and seed should give the same image, because a request
        may be repeated after a failure."""
        ...


class Editor(Protocol):
    """Edits images by instructions in words, such as "remove the desk"."""

    def edit(self, requests: Sequence[Edit]) -> list[GeneratedImage]:
        """Edits one image for each request. The same request should give the same image, because it may be repeated
        after a failure."""
        ...


class Backbone(Protocol):
    """Writes the replies of the agent."""

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Writes the next reply of each conversation: at most `max_tokens` long, and the same for the same seed if it
        can. Other fields of a chat may be ignored."""
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
    """Shape (h, w), float16 or float32. None if the layer has no spatial dimensions."""


QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)

UnitState = Literal["ok", "dead", "not finite"]
"""Of the activations on the dataset images. dead: all are equal; not finite: some are NaN or infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionStatistics:
    """Statistics over all positions of a unit's maps on all dataset images."""

    quantiles: tuple[float, ...]
    """At the probabilities QUANTILES."""
    mean: float
    variance: float
    positive: float
    """Share of positions above 0."""


LEVELS = 28
"""Number of equal intervals between the lowest and the highest activation of a unit on the dataset. The `rank` of an
exemplar of the kind `levels` is the number of its interval, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationCounts:
    """How many dataset images have which activation, in bins of at most 1/64 of the activation."""

    values: npt.NDArray[np.float64]
    """The middles of the bins that contain an image, in ascending order, shape (bins,)."""
    images: npt.NDArray[np.int64]
    """Number of images in each, shape (bins,)."""

    def percent_below(self, activation: float) -> float:
        """Returns the percentage of the images whose activation is lower; those of the same bin count half."""
        slack = abs(activation) / 64
        below, most = np.searchsorted(self.values, (activation - slack, activation + slack))
        return 50 * float(self.images[:below].sum() + self.images[:most].sum()) / max(int(self.images.sum()), 1)


def find_levels(values: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.int64]:
    """Returns for each activation the number of its interval of LEVELS, of a unit with these extremes."""
    places = (values - low) / (high - low) * LEVELS if high > low else np.zeros(len(values))
    return np.clip(places, 0, LEVELS - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitExemplars:
    """Exemplars of a unit, and statistics of its activations on the dataset images."""

    unit: Unit
    threshold: float
    """Activation above which a position is in the mask."""
    exemplars: tuple[Exemplar, ...]
    maxima: npt.NDArray[np.float64] | None = None
    """Percentiles 0 to 100, shape (101,). None if unknown, as for imported exemplars."""
    mean: float | None = None
    std: float | None = None
    """Standard deviation, like the mean of the activations on the dataset images. None if unknown."""
    counts: ActivationCounts | None = None
    """None if unknown, as for imported exemplars."""
    class_name: str = ""
    """What the unit is called, for a unit of OUTPUT whose classes have names."""
    positions: PositionStatistics | None = None
    state: UnitState = "ok"

    def of_kind(self, kind: ExemplarKind) -> tuple[Exemplar, ...]:
        return tuple(exemplar for exemplar in self.exemplars if exemplar.kind == kind)

    def percentile(self, activation: float) -> float | None:
        """Returns the percentage of dataset images with a lower activation; equal ones count half. None if unknown."""
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

    def percent_below(self, activation: float) -> float | None:
        """Returns the percentage of dataset images with a lower activation, by `counts` where they are known, and else as
        `percentile`."""
        return self.percentile(activation) if self.counts is None else self.counts.percent_below(activation)

    def count_levels(self) -> tuple[int, ...]:
        """Returns the number of dataset images in each of the LEVELS, from the lowest; empty if unknown."""
        if self.counts is None or self.maxima is None:
            return ()
        levels = find_levels(self.counts.values, self.maxima[0], self.maxima[-1])
        return tuple(np.bincount(levels, weights=self.counts.images, minlength=LEVELS).astype(int).tolist())

    def z_score(self, activation: float) -> float | None:
        """Returns an activation in standard deviations above the dataset's mean. 0 for a dead unit, None if unknown."""
        if self.mean is None or self.std is None:
            return None
        return (activation - self.mean) / self.std if self.std > 0 else 0.0


class Exemplars(Protocol):
    """The store of exemplars."""

    def read(self, unit: Unit) -> UnitExemplars:
        """Returns a unit's exemplars and statistics. Raises StoreError if there are none, or a file is damaged."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BankImage:
    """An image of the bank with the activation of a unit on it."""

    exemplar: Exemplar
    """Its kind and rank are those among the images of the bank."""
    prompt: str
    """What the image was drawn from, or the caption of a photograph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankWord:
    """A word of the bank's prompts that tells how much an image excites a unit."""

    text: str
    auc: float
    """How often an image with the word excites the unit more than one without."""
    images: int
    """With the word."""
    of: int
    """All images."""

    @property
    def z(self) -> float:
        """Mann-Whitney's z of the AUC, without a correction for ties. 0 where all images have the word, or none."""
        if not 0 < self.images < self.of:
            return 0.0
        return (self.auc - 0.5) / ((self.of + 1) / (12 * self.images * (self.of - self.images))) ** 0.5


class Bank(Protocol):
    """The bank, measured on a target."""

    def read(self, unit: Unit) -> tuple[BankImage, ...]:
        """Returns the images that excite a unit most and least, and random ones. Raises StoreError if there are none, or
        a file is damaged."""
        ...

    def words(self, unit: Unit, count: int) -> tuple[BankWord, ...]:
        """Returns the words that tell best how much an image excites a unit, at most `count`, the best first. Raises as
        `read`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedImage:
    """An image that an agent drew, with the activation of a unit of the layer that it studied."""

    digest: str
    """Of its pixels."""
    prompt: str
    activation: float


class Shared(Protocol):
    """The images that the agents of a run drew in investigations that have ended."""

    def rank(self, unit: Unit) -> Sequence[SharedImage]:
        """Returns those of a unit's layer, the one that excites the unit most first. Raises StoreError if a file is damaged."""
        ...

    def images(self, unit: Unit, digests: Sequence[str]) -> list[EncodedImage]:
        """Returns images that `rank` named for this unit. Raises as `rank`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUsage:
    """The use of a service. Time in a queue is not included."""

    requests: int = 0
    seconds: float = 0.0
    """Time of replicas. That of a batch is divided equally among its requests, that of a chat by the number of chats
    that its replica answered concurrently."""
    gpu_seconds: float = 0.0
    """`seconds` times the GPUs of a replica, which may be a fraction or 0."""
    dollars: float = 0.0
    """US dollars, with those of failed requests that were repeated."""
    unpriced: int = 0
    """See `Bill.unpriced`."""

    def __add__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})


class UsageLedger:
    """Adds up the cost of an investigation by service, and has it paid. Not thread-safe."""

    def __init__(self, terms: PaymentTerms | None = None) -> None:
        self.terms = terms or PaymentTerms()
        self._spent: dict[str, ServiceUsage] = {}

    def require(self, service: str) -> None:
        """Call before a request that may be left out. Raises OutOfBudget if it costs something and the budget is spent."""
        if service in self.terms.paid and self.terms.account.is_empty():
            raise OutOfBudget("the budget of the run is spent")

    def add(self, service: str, requests: int, seconds: float, gpus: float, bill: Bill = FREE) -> None:
        """Adds a call that took `seconds` on a replica with `gpus`, which may be a fraction."""
        bill += Bill(seconds * gpus * self.terms.gpu_hour / 3600)
        more = ServiceUsage(
            requests=requests,
            seconds=seconds,
            gpu_seconds=seconds * gpus,
            dollars=bill.dollars,
            unpriced=bill.unpriced,
        )
        self._spent[service] = self._spent.get(service, ServiceUsage()) + more
        if bill:
            self.terms.account.pay(bill)

    def spent(self) -> dict[str, ServiceUsage]:
        return dict(self._spent)

    def since(self, before: Mapping[str, ServiceUsage]) -> dict[str, ServiceUsage]:
        """Returns the cost since `before`, an earlier `spent`. Services without new requests and costs are left out."""
        news = {service: now - before.get(service, ServiceUsage()) for service, now in self._spent.items()}
        return {service: new for service, new in news.items() if new.requests or new.dollars or new.unpriced}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What one investigation may call."""

    target: Target
    exemplars: Exemplars
    generator: Generator
    editor: Editor
    backbone: Backbone
    bank: Bank | None = None
    """None: the config has no bank."""
    shared: Shared | None = None
    """None: agents do not look up what others drew."""
    ledger: UsageLedger = field(default_factory=UsageLedger)
