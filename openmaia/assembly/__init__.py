"""Builds the objects that a config describes."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openmaia.core.importing import add_folder
from openmaia.core.secrets import boundary

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationOptions
    from openmaia.config.schema import Config
    from openmaia.core.services import Backbone, Generator, Target
    from openmaia.datasets.library import ImageDataset
    from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
    from openmaia.exemplars.store import ExemplarStore


@dataclass(frozen=True)
class ConfigAssembly:
    """Builds models, datasets and settings from a config.

    It implements `openmaia.distributed.assembly.Assembly`. Its methods import the modules that they need when they are
    called.
    """

    folder: str = field(default_factory=os.getcwd)
    """The folder in which the user started the program. Worker processes also import the user's modules from it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lets the process that unpickles this object import modules of `folder`."""
        self.__dict__.update(state)
        add_folder(self.folder)

    @boundary()
    def host(self, role: str, config: "Config") -> Any:
        """Loads the model of a service and returns the object that implements the service's protocol.

        The protocols, such as `Target` and `Generator`, are in `openmaia.core.services`.

        Args:
            role: The service: "target" (the network under study), "generator" and "editor" (they make the agent's
                images), "backbone" (the model that plays the agent) or "test_generator" (it makes the images on which
                descriptions are tested).
            config: The config of the run.
        """
        from openmaia.assembly import hosts

        return hosts.host(role, config)

    @boundary()
    def concurrency(self, role: str, config: "Config") -> int:
        """Returns how many calls a replica of a service answers concurrently, or 0 if it takes one batch after another.

        A replica is a process that holds one copy of the model. See `host` for the arguments.
        """
        from openmaia.assembly import hosts

        return hosts.concurrency(role, config)

    @boundary()
    def dataset(self, config: "Config", say: Callable[[str], None] = lambda line: None) -> "ImageDataset":
        """Returns the image dataset of the config. The first call may download it; `say` receives messages."""
        from openmaia.assembly import datasets

        return datasets.image_dataset(config, say)

    @boundary()
    def options(self, config: "Config") -> "InvestigationOptions":
        """Returns the settings for each investigation that a config describes, such as the largest number of turns."""
        from openmaia.assembly import investigations

        return investigations.options(config)

    @boundary()
    def evaluation(
        self,
        config: "Config",
        generator: "Generator",
        target: "Target",
        backbone: "Backbone",
        store: "ExemplarStore | None" = None,
        dataset: "ImageDataset | None" = None,
    ) -> "EvaluationServices":
        """Returns the models and data with which descriptions of units are tested.

        See `openmaia.assembly.evaluation.evaluation_services` for the arguments.
        """
        from openmaia.assembly import evaluation

        return evaluation.evaluation_services(
            config, generator, target, backbone=backbone, store=store, dataset=dataset
        )

    @boundary()
    def design(self, config: "Config") -> "EvaluationDesign":
        """Returns the settings for testing descriptions: how prompts are written, the numbers of images, the seed."""
        from openmaia.assembly import evaluation

        return evaluation.design(config)
