"""Prepares the investigation of one unit in this process, without Ray, and tests its description."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.tasks.task import Task
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools.effects import checked_effects
from openmaia.assembly import datasets, exemplars, investigations, targets
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.selection import select
from openmaia.core.services import Backbone, Editor, Generator, Services, find_effects
from openmaia.core.units import Scope, TargetInfo, Unit
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.store import ExemplarStore

if TYPE_CHECKING:
    from openmaia.evaluation.compared import Evaluation
    from openmaia.exemplars.shared import ProgressCallback
    from openmaia.runs.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleUnit:
    """One unit, and everything that its investigation in this process needs."""

    config: Config
    unit: Unit
    task: Task
    services: Services
    options: InvestigationOptions
    store: ExemplarStore
    dataset: ImageDataset
    """Images for exemplars, and photographs for the test."""

    def evaluate(self, record: "Record") -> "Evaluation":
        """Tests the description in a record, as `openmaia evaluate` does for a run with one unit. Raises ServiceError."""
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


def select_unit(spec: str, info: TargetInfo, scope: Scope = Scope.UNIT) -> Unit:
    """Returns the unit that a text such as "layer4=122" names. Raises UsageError if it names none or several."""
    units = select(spec, info, scope).units
    if len(units) != 1:
        raise UsageError(f"{spec!r} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    return units[0]


def _check_effects(target: "targets.ReadableTarget", layers: Sequence[str]) -> None:
    checked_effects(find_effects(target), layers)


def prepare(
    config: Config,
    spec: str,
    say: Callable[[str], None] = lambda line: None,
    progress: "ProgressCallback" = lambda done, total: None,
    *,
    target: "targets.ReadableTarget | None" = None,
    dataset: ImageDataset | None = None,
    backbone: Backbone | None = None,
    generator: Generator | None = None,
    editor: Editor | None = None,
) -> SingleUnit:
    """Loads what the investigation of one unit needs, unless it is given, and computes missing exemplars of its layer.

    Raises:
        UsageError: The specification does not name exactly one unit, or something that the config names is missing.
    """
    task = load_task(config.task.name)
    target = target or targets.target(config)
    info = target.info()
    unit = select_unit(spec, info, task.scope)
    if info.preprocessing:
        say(f"preprocessing of {info.name}: {info.preprocessing}")
    for sentence in info.understood:
        say(f"{info.name}, {sentence}")
    dataset = dataset or datasets.image_dataset(config, say)
    layers = list(info.layers) if unit.scope is Scope.NETWORK else [unit.layer]
    if config.task.effects:
        _check_effects(target, layers)
    store = exemplars.make(config, layers, say, progress, target, dataset)
    effects = exemplars.drives(config, layers, say, progress, target, dataset) if config.task.effects else None
    services = investigations.services(
        config, store, measured=target, agent=backbone, drawing=generator, editing=editor
    )
    bank = exemplars.bank(config, services.generator, target, dataset, say, lambda stage, *done: progress(*done))
    return SingleUnit(
        config=config,
        unit=unit,
        task=task,
        services=replace(services, bank=bank),
        options=replace(investigations.options(config), preprocessing=info.preprocessing, effects=effects),
        store=store,
        dataset=dataset,
    )
