"""Builds the objects that a config describes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openmaia.core.importing import add_folder
from openmaia.core.secrets import boundary

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationOptions
    from openmaia.config.schema import Config
    from openmaia.core.services import Backbone, Exemplars, Generator, Target
    from openmaia.datasets.library import ImageDataset
    from openmaia.evaluation.analysis.agreement import ClaimSimilarity
    from openmaia.evaluation.judging.judges import Judge
    from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
    from openmaia.evaluation.truth import KnownTruths
    from openmaia.exemplars.store import ExemplarStore


@dataclass(frozen=True)
class ConfigAssembly:
    """Implements `openmaia.distributed.assembly.Assembly`. Its methods import what they need when they are called."""

    folder: str = field(default_factory=os.getcwd)
    """The folder in which the user started the program. Worker processes also import the user's modules from it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        add_folder(self.folder)

    @boundary()
    def host(self, role: str, config: "Config") -> Any:
        from openmaia.assembly import hosts

        return hosts.host(role, config)

    @boundary()
    def concurrency(self, role: str, config: "Config") -> int:
        from openmaia.assembly import hosts

        return hosts.concurrency(role, config)

    @boundary()
    def dataset(self, config: "Config", say: Callable[[str], None] = lambda line: None) -> "ImageDataset":
        """The first call may download it; `say` receives messages."""
        from openmaia.assembly import datasets

        return datasets.image_dataset(config, say)

    @boundary()
    def options(self, config: "Config") -> "InvestigationOptions":
        from openmaia.assembly import investigations

        return investigations.options(config)

    @boundary()
    def evaluation(
        self,
        config: "Config",
        generator: "Generator",
        target: "Target",
        backbone: "Backbone",
        writer: "Backbone | None" = None,
        judge: "Judge | None" = None,
        exemplars: "Exemplars | None" = None,
        store: "ExemplarStore | None" = None,
        dataset: "ImageDataset | None" = None,
    ) -> "EvaluationServices":
        from openmaia.assembly import evaluation

        return evaluation.evaluation_services(
            config,
            generator,
            target,
            backbone=backbone,
            writer=writer,
            own_judge=judge,
            exemplars=exemplars,
            store=store,
            dataset=dataset,
        )

    @boundary()
    def comparison(self, config: "Config") -> "tuple[Sequence[ClaimSimilarity], KnownTruths]":
        from openmaia.assembly import evaluation, targets

        return evaluation.comparison(config, None, targets.target(config).info())

    @boundary()
    def design(self, config: "Config") -> "EvaluationDesign":
        from openmaia.assembly import evaluation

        return evaluation.design(config)
