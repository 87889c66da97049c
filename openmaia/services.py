"""What one investigation may call. Each service is a Protocol that does not know where it runs.

All of them take lists: one call carries everything that one tool call needs, and whoever serves it batches further.
Every request is idempotent (whatever is random in it is in its seed), so that a retry is safe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from openmaia.images import Picture
from openmaia.messages import Chat, Reply
from openmaia.units import TargetInfo, Unit

ExemplarKind = Literal["top", "bottom", "random", "ladder"]
Half = Literal["explore", "test"]
Map = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    unit: Unit
    picture: Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """The answer of a unit to a picture.

    value: the spatial maximum (probability for an output unit), 5 significant digits. raw: the logit behind a
    probability. map: (h, w) before the maximum, None where the layer has no space. box: (left, top, right, bottom) in
    pixels of the picture, the part the network saw.
    """

    value: float
    raw: float | None = None
    map: Map | None = None
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProbe:
    """Asks for the values of all units of a layer at once."""

    layer: str
    picture: Picture


class Target(Protocol):
    def info(self) -> TargetInfo: ...

    def probe(self, probes: Sequence[Probe]) -> list[Activation]:
        """Different units and layers may be mixed in one call."""
        ...

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        """(units of the layer,) each: what Activation.value is for every one of them, for one forward pass."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """half: which half of the picture collection a collage may take its parts from; a diffusion model ignores it."""

    prompt: str
    seed: int
    half: Half = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    picture: Picture
    instruction: str
    seed: int
    half: Half = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """undrawn: the words of the prompt or instruction that the maker knows it has not drawn. vouched: who knows that all
    the others were drawn, "" where nobody does."""

    picture: Picture
    undrawn: tuple[str, ...] = ()
    vouched: str = ""


class Generator(Protocol):
    def generate(self, requests: Sequence[Generation]) -> list[Drawn]: ...


class Editor(Protocol):
    def edit(self, requests: Sequence[Edit]) -> list[Drawn]: ...


class Backbone(Protocol):
    def reply(self, chats: Sequence[Chat]) -> list[Reply]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A dataset picture as the network saw it. map: (h, w) float16 or float32, None where the layer has no space."""

    kind: ExemplarKind
    rank: int
    activation: float
    picture: Picture
    map: Map | None


QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)

UnitState = Literal["ok", "dead", "not finite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Statistics over positions of maps. quantiles: at QUANTILES. positive: share of positions above 0."""

    quantiles: tuple[float, ...]
    mean: float
    variance: float
    positive: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitExemplars:
    """threshold: the unit's mask threshold. maxima: 101 percentiles (0 to 100) of the per-picture activations; mean, std:
    theirs. state: a dead unit answered every picture alike, one that is not finite gave NaN or infinity at times."""

    unit: Unit
    threshold: float
    maxima: npt.NDArray[np.float64]
    mean: float
    std: float
    exemplars: tuple[Exemplar, ...]
    positions: Positions | None = None
    """None where they are not known, as in exemplars that were imported."""
    state: UnitState = "ok"

    def of_kind(self, kind: ExemplarKind) -> tuple[Exemplar, ...]:
        return tuple(exemplar for exemplar in self.exemplars if exemplar.kind == kind)

    def percentile(self, activation: float) -> float:
        """Share of dataset pictures, in percent, that excite the unit less, ties counting half. A constant unit answers 50."""
        below = np.searchsorted(self.maxima, activation, side="left")
        above = np.searchsorted(self.maxima, activation, side="right")
        if below != above:
            return float(below + above - 1) / 2
        if below in (0, len(self.maxima)):
            return 0.0 if below == 0 else 100.0
        low, high = self.maxima[below - 1], self.maxima[below]
        return float(below - 1 + (activation - low) / (high - low))

    def z_score(self, activation: float) -> float:
        """Standard deviations above the mean of the per-picture activations; 0 for a constant unit."""
        return (activation - self.mean) / self.std if self.std > 0 else 0.0


class Exemplars(Protocol):
    def read(self, unit: Unit) -> UnitExemplars: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a service spent on an investigation. seconds: of its replicas, the time of every batch shared equally between
    the requests in it, and the time in which a replica has several batches under way between those. gpu_seconds: the
    same times the GPUs of a replica, which may be a part of one; 0 without GPUs. Waiting in line is no part of either."""

    requests: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            requests=self.requests + other.requests,
            seconds=self.seconds + other.seconds,
            gpu_seconds=self.gpu_seconds + other.gpu_seconds,
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(
            requests=self.requests - other.requests,
            seconds=self.seconds - other.seconds,
            gpu_seconds=self.gpu_seconds - other.gpu_seconds,
        )


class Ledger:
    """What an investigation has cost so far, by service. Whoever answers it adds to this; one thread at a time."""

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}

    def add(self, service: str, requests: int, seconds: float, gpus: float) -> None:
        more = Spent(requests=requests, seconds=seconds, gpu_seconds=seconds * gpus)
        self._spent[service] = self._spent.get(service, Spent()) + more

    def spent(self) -> dict[str, Spent]:
        return dict(self._spent)

    def since(self, before: Mapping[str, Spent]) -> dict[str, Spent]:
        """What was added after `before` was read; services that did nothing are left out."""
        news = {service: now - before.get(service, Spent()) for service, now in self._spent.items()}
        return {service: new for service, new in news.items() if new.requests}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """ledger: what they spend on this investigation."""

    target: Target
    exemplars: Exemplars
    generator: Generator
    editor: Editor
    backbone: Backbone
    ledger: Ledger = field(default_factory=Ledger)
