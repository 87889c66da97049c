"""Prepares the investigation of one unit in this process, without Ray, and tests its description."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.tasks.task import Task
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import datasets, exemplars, investigations, targets
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.selection import select
from openmaia.core.services import Backbone, Services
from openmaia.core.units import Scope, TargetInfo, Unit
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.store import ExemplarStore

if TYPE_CHECKING:
    from openmaia.evaluation.compared import Evaluation
    from openmaia.exemplars.compute import ProgressCallback
    from openmaia.runs.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleUnit:
    """One unit, and everything that its investigation in this process needs."""

    config: Config
    unit: Unit
    task: Task
    """What the agent is asked about the unit, and the rules for its answer."""
    services: Services
    """The models that the investigation uses, and the exemplars."""
    options: InvestigationOptions
    """The settings of the investigation, such as the largest number of turns."""
    store: ExemplarStore
    """The exemplars: the dataset images that excite each unit most."""
    dataset: ImageDataset
    """The images from which exemplars are selected, and photographs for the test of the description."""

    def evaluate(self, record: "Record") -> "Evaluation":
        """Tests the description in a record with new images, as `openmaia evaluate` does for a run with one unit.

        A record is the stored result of an investigation.

        Raises:
            ServiceError: A service failed.
        """
        from openmaia.assembly import evaluation
        from openmaia.evaluation.analysis.overlap import explored
        from openmaia.evaluation.claims import Claim
        from openmaia.evaluation.protocol import evaluate_claims

        services = evaluation.evaluation_services(
            self.config,
            self.services.generator,
            self.services.target,
            backbone=self.services.backbone,
            store=self.store,
            dataset=self.dataset if self.config.evaluate.pictures else None,
        )
        claim = Claim(
            unit=record.unit, replicate=record.replicate, description=record.description, labels=record.labels
        )
        return evaluate_claims([claim], services, evaluation.design(self.config), explored(record.drawn_prompts()))[0]


def one_unit(spec: str, info: TargetInfo, scope: Scope = Scope.UNIT) -> Unit:
    """Returns the unit that a text such as "layer4=122" names.

    Args:
        spec: The text. For the scope LAYER it is the name of a layer, and for NETWORK it is ignored.
        info: The layers and classes of the target, the network under study.
        scope: Whether a unit, a whole layer or the whole network is investigated.

    Raises:
        UsageError: The text names no unit, or several.
    """
    units = select(spec, info, scope).units
    if len(units) != 1:
        raise UsageError(f"{spec!r} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    return units[0]


def prepare(
    config: Config,
    spec: str,
    say: Callable[[str], None] = lambda line: None,
    progress: "ProgressCallback" = lambda done, total: None,
    *,
    target: "targets.ReadableTarget | None" = None,
    dataset: ImageDataset | None = None,
    backbone: Backbone | None = None,
) -> SingleUnit:
    """Loads the models and images for investigating one unit, and computes missing exemplars of the unit's layer.

    Exemplars are the dataset images that excite a unit most.

    Args:
        config: The config of the run.
        spec: The unit, such as "layer4=122".
        say: Receives messages for the user.
        progress: Called with the numbers of finished and of all images while exemplars are computed.
        target: The target, if it is loaded already.
        dataset: The images, if they are loaded already.
        backbone: The backbone (the model that plays the agent), if it is loaded already.

    Raises:
        UsageError: The specification does not name exactly one unit, or something that the config names is missing.
    """
    task = load_task(config.task.name)
    target = target or targets.target(config)
    info = target.info()
    unit = one_unit(spec, info, task.scope)
    if info.preprocessing:
        say(f"preprocessing of {info.name}: {info.preprocessing}")
    for sentence in info.understood:
        say(f"{info.name}, {sentence}")
    dataset = dataset or datasets.image_dataset(config, say)
    layers = list(info.layers) if unit.scope is Scope.NETWORK else [unit.layer]
    store = exemplars.make(config, layers, say, progress, target, dataset)
    return SingleUnit(
        config=config,
        unit=unit,
        task=task,
        services=investigations.services(config, store, measured=target, agent=backbone),
        options=replace(investigations.options(config), preprocessing=info.preprocessing),
        store=store,
        dataset=dataset,
    )
