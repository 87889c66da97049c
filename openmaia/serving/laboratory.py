"""What `openmaia view RUN --live` asks the network of a run: pictures of the user, prompts, and what a changed unit does."""

import math
from collections.abc import Generator as Generating
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from cachetools import LRUCache
from rich.filesize import decimal

from openmaia.agent.metering import metered
from openmaia.agent.tools.arguments import check_texts
from openmaia.agent.tools.seeds import seed
from openmaia.analysis.reasons import PredictionReasons, class_probabilities, find_reasons
from openmaia.analysis.responding import PictureResponse, rank_units
from openmaia.assembly import generators, targets
from openmaia.assembly.kept import kept_models
from openmaia.checks.memory import WORKING, main_memory
from openmaia.checks.weights import cached, inspect
from openmaia.config.loading import restore
from openmaia.config.schema import Config
from openmaia.config.sections import site
from openmaia.core.components import of_config
from openmaia.core.errors import OpenMaiaError, ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import (
    Changeable,
    Generation,
    Generator,
    Intervention,
    Probe,
    Target,
    UnitActivation,
    UnitExemplars,
    UsageLedger,
    find_effects,
)
from openmaia.core.units import Scope, Unit
from openmaia.exemplars.pictures import read_picture
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.hub import located
from openmaia.models.weights import WeightSource
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.runs.run import Run

SCALES = (0.0, 1.0, 4.0)
"""What the response of a unit is multiplied by to see what it does; 1 changes nothing."""
UPLOAD_PIXELS = 25_000_000
"""Of a picture. That of a telephone has 12 million."""
_CLASSES = 8
_SMALLEST_CHANGE = 0.001
_KEPT = 32
"""Number of latest images that can be asked about again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveActivation:
    """The activation of a unit on a picture, beside the images of its dataset."""

    response: UnitActivation
    """What `Target.probe` returns."""
    statistics: UnitExemplars | None
    """None without stored exemplars of the unit."""
    percent: float | None
    """See `UnitExemplars.percent_below`. None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProbabilities:
    """The probability of a class at each of SCALES: among the classes of its head, where these exclude each other."""

    name: str
    probabilities: tuple[float, ...]


class Laboratory:
    """The target of a run, and its generator where there is one. Calls are not concurrent.

    `pools` is the name of the pools that hold both. Empty: they are in this process.
    """

    def __init__(
        self, run: Run, config: Config, target: Target, generator: Generator | None, why_none: str, pools: str = ""
    ):
        ledger, sizes = UsageLedger(), config.pools
        self._config, self._why_none, self._pools = config, why_none, pools
        self._target: Target = metered(target, "target", ledger, sizes.target.num_gpus)
        self._generator = generator and metered(generator, "generator", ledger, sizes.generator.num_gpus)
        self.effects = find_effects(target)
        self._info = target.info()
        self._exemplars = find_exemplars(run)
        self._units = [each.unit for each in run.plan() if each.unit.scope is Scope.UNIT]
        self._images = LRUCache[str, EncodedImage](_KEPT)

    @classmethod
    @contextmanager
    def opened(cls, run: Run) -> Generating["Laboratory"]:
        """Context manager that uses the pools of a run's config that are kept up, and else loads the models as `open` does."""
        config = restore(run.config(), run.files.root)
        with kept_models(config) as kept:
            if kept is None:
                yield cls.open(run)
                return
            _check_network(kept.target, find_exemplars(run).store)
            why_none = _why_not_drawn(config)
            yield cls(run, config, kept.target, None if why_none else kept.generator, why_none, kept.pools)

    @classmethod
    def open(cls, run: Run) -> "Laboratory":
        """Loads the target of a run, and the generator if it needs no server and its weights are here and fit.

        Raises:
            UsageError: The target cannot be loaded, or is not the one on which the exemplars were computed.
        """
        config = restore(run.config(), run.files.root)
        target = targets.target(config)
        _check_network(target, find_exemplars(run).store)
        why_none = _why_no_generator(config)
        generator = None
        if not why_none:
            try:
                generator = generators.generator(config)
            except OpenMaiaError as error:
                why_none = error.message
        return cls(run, config, target, generator, why_none)

    @property
    def draws(self) -> bool:
        """Whether prompts can be drawn."""
        return self._generator is not None

    @cached_property
    def said(self) -> str:
        """What is loaded, what is not, and why, in one line."""
        drawn = generators.generator_name(self._config.generator)
        parts = [f"the network {self._info.name} ({', '.join(self._info.layers)})"]
        parts += [f"the generator {drawn}"] if self.draws else []
        missing = [] if self.draws else [f"not the generator {drawn}: {self._why_none}"]
        if self._exemplars.store is None:
            missing.append(f"no percentages, because no exemplars are in {self._exemplars.place}")
        address = self._config.ray.address
        if not self._pools and address != "local":
            missing.append(f"no pools of this config are kept up on ray.address={address}")
        if not self.effects.layers:
            missing.append("no unit can be changed, because the network has no classes")
        loaded = f"used from the pools {self._pools}" if self._pools else "loaded"
        return "; ".join([f"{loaded}: {' and '.join(parts)}", *missing])

    def unit(self, layer: str, index: int) -> Unit:
        """Returns a unit of the target. Raises UsageError if there is none of this name."""
        count = self._info.layers.get(layer)
        if count is None:
            raise UsageError(f"there is no such layer; the network was loaded with {', '.join(self._info.layers)}")
        if not 0 <= index < count:
            raise UsageError(f"{layer} has no unit {index}; it has 0 to {count - 1}")
        return Unit(target=self._info.name, layer=layer, index=index)

    # -- images --------------------------------------------------------------------------------------------------------

    def read(self, data: bytes) -> EncodedImage:
        """Decodes a picture as an image of a dataset is. Raises UsageError if it is none, damaged, too large or too small."""
        return self._keep(read_picture(data, "the picture", UPLOAD_PIXELS))

    def draw(self, prompt: str) -> tuple[EncodedImage, tuple[str, ...]]:
        """Draws a prompt as the first request of an agent for it, and returns the words that the image lacks, too.

        Raises:
            UsageError: There is no generator here.
            ToolError: The prompt is none that an agent might give.
            ServiceError: The generator failed.
        """
        if self._generator is None:
            raise UsageError(f"prompts cannot be drawn here: {self._why_none}; give a picture")
        (checked,) = check_texts([prompt], "prompt")
        request = Generation(prompt=checked, seed=seed(self._config.seed, "explore", checked, 0))
        (made,) = self._generator.generate([request])
        return self._keep(made.image), made.missing_terms

    def recall(self, digest: str) -> EncodedImage:
        """Returns one of the latest images by its digest. Raises UsageError if it is not kept any more."""
        if digest not in self._images:
            raise UsageError("this picture is not kept any more; give it again")
        return self._images[digest]

    def _keep(self, image: EncodedImage) -> EncodedImage:
        self._images[image.digest] = image
        return image

    # -- questions -----------------------------------------------------------------------------------------------------

    def probe(self, unit: Unit, image: EncodedImage) -> LiveActivation:
        """Measures a unit. Raises ServiceError if the target failed, and StoreError if the exemplars are damaged."""
        (response,) = self._target.probe([Probe(unit=unit, image=image)])
        if not math.isfinite(response.value):
            raise ServiceError(f"the activation of {unit} on this picture is not a number")
        statistics = self._exemplars.statistics([unit]).get(unit)
        percent = statistics.percent_below(response.value) if statistics else None
        return LiveActivation(response=response, statistics=statistics, percent=percent)

    def rank(self, image: EncodedImage) -> list[PictureResponse]:
        """Ranks the units of the run. See `rank_units`."""
        return rank_units(self._target, image, self._exemplars.statistics(self._units))

    def why(self, image: EncodedImage) -> PredictionReasons:
        """Ablates the units of the run that are most active. Raises UsageError and ServiceError as `find_reasons`."""
        return find_reasons(self._target, image, self.rank(image))

    @property
    def count(self) -> int:
        """Number of units of the run."""
        return len(set(self._units))

    def change(self, unit: Unit, image: EncodedImage) -> list[ClassProbabilities]:
        """Scales a unit, and returns the classes whose probabilities change most, the largest change first. Empty if none
        changes by a thousandth.

        Raises:
            UsageError: Units of the layer cannot be changed.
            ServiceError: The target failed.
        """
        if unit.layer not in self.effects.layers:
            can = (
                f"those of {', '.join(self.effects.layers)} can"
                if self.effects.layers
                else "the network has no classes"
            )
            raise UsageError(f"units of {unit.layer} cannot be changed; {can}")
        target = cast(Changeable, self._target)
        asked = [Intervention(unit=unit, image=image, scale=scale) for scale in SCALES]
        found = class_probabilities(self.effects, np.stack(target.intervene(asked)))
        if not np.isfinite(found).all():
            raise ServiceError("the network's output is not finite for this picture")
        changes = np.abs(found - found[SCALES.index(1.0)]).max(axis=0)
        order: list[int] = [
            at for at in np.argsort(-changes, kind="stable").tolist() if changes[at] >= _SMALLEST_CHANGE
        ]
        return [
            ClassProbabilities(name=self.effects.classes[at], probabilities=tuple(found[:, at].tolist()))
            for at in order[:_CLASSES]
        ]


def _check_network(target: Target, store: ExemplarStore | None) -> None:
    if store is None:
        return
    measured = (store.manifest() or {}).get("network")  # imported exemplars name none
    if measured not in (None, target.info().digest):
        raise UsageError(
            f"the network that this config loads has other weights than the one whose exemplars are in {store.files.root}, "
            "so that its activations cannot be compared with them; restore the weights, or compute exemplars anew"
        )


def _why_not_drawn(config: Config) -> str:
    """Says why the generator is not to be used; empty if it is."""
    is_served = of_config(config.generator, "generator").is_served
    return "it is on a server, and its images may cost money" if is_served else ""


def _why_no_generator(config: Config) -> str:
    """Says why the generator is not to be loaded; empty if it is."""
    component = of_config(config.generator, "generator")
    weights = component.weights(config.generator, site(config, "generator"))
    return _why_not_drawn(config) or next(_lacking(list(weights)), "")


def _lacking(sources: Sequence[WeightSource]) -> Iterator[str]:
    for source in sources:
        if not Path(located(source.given)).is_dir() and cached(source) is None:
            yield f"its weights ({source.key}={source.given}) are not on this machine"
    reports = inspect(sources)
    yield from (each.result.message for each in reports if each.result.state == "missing")
    needed, has = sum(sum(each.loaded.values()) for each in reports), main_memory()
    if needed and needed + WORKING > has:
        yield f"its weights take {decimal(int(needed))}, and this machine has {decimal(has)} of memory"
