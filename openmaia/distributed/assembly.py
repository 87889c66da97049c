"""Protocols that a caller of this package implements: one builds objects from a config, one receives progress."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # so that worker processes of investigations do not import the evaluation and its libraries
    from openmaia.agent.context import InvestigationOptions
    from openmaia.config.schema import Config
    from openmaia.core.services import Backbone, Generator, Target
    from openmaia.datasets.library import ImageDataset
    from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
    from openmaia.exemplars.store import ExemplarStore


class Assembly(Protocol):
    """Builds the objects that a config describes. It is pickled and also used in Ray worker processes."""

    def host(self, role: str, config: "Config") -> Any:
        """Loads the model of a service and returns an object that implements the service's protocol.

        The protocols, such as `Target` and `Generator`, are in `openmaia.core.services`.

        Args:
            role: "target" (the network whose units are investigated), "generator" or "editor" (of images), "backbone"
                (the model that plays the agent), or "test_generator" (makes the images that test descriptions).
            config: The config of the run.
        """
        ...

    def concurrency(self, role: str, config: "Config") -> int:
        """Returns how many calls one replica of a service answers at once, or 0 if it takes one batch after another.

        A replica is a process that holds one copy of the model.

        Args:
            role: The name of the service, as for `host`.
            config: The config of the run.
        """
        ...

    def dataset(self, config: "Config", say: Callable[[str], None]) -> "ImageDataset":
        """Returns the image dataset of the config. The first call may download it; `say` receives messages."""
        ...

    def options(self, config: "Config") -> "InvestigationOptions":
        """Returns the settings for each investigation that a config describes, such as the largest number of turns."""
        ...

    def evaluation(
        self,
        config: "Config",
        generator: "Generator",
        target: "Target",
        backbone: "Backbone",
        store: "ExemplarStore | None" = None,
        dataset: "ImageDataset | None" = None,
    ) -> "EvaluationServices":
        """Returns the services with which the agent's descriptions of units are tested.

        Args:
            config: The config of the run.
            generator: Makes the test images.
            target: Measures the units on them.
            backbone: The model that plays the agent in the run. It also writes the prompts of the test images if the
                config names neither another model nor rules for that.
            store: The exemplars of the target, from which the mean and standard deviation of each unit's activations
                are read. May be None if the returned services are not passed to
                `openmaia.evaluation.controls.prepare_reference`.
            dataset: The images of the run. Its photographs serve as control images and as the images of the detection
                test. In this test, a judge decides which photographs show what a description names, and these decisions
                are compared with the unit's activations. May be None under the same condition as `store`.
        """
        ...

    def design(self, config: "Config") -> "EvaluationDesign":
        """Returns the settings for testing descriptions: how prompts are written, the numbers of images, the seed."""
        ...


class Progress(Protocol):
    """Receives the messages and the progress of a run, for example to show them in a terminal."""

    def say(self, line: str) -> None:
        """Receives a message for the user."""
        ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Receives the progress of a stage of the run.

        Args:
            stage: The name of the stage, such as `investigations`.
            done: The number of finished items of the stage, such as investigations.
            total: The number of all items of the stage.
            note: A short text about the item that finished last; may be empty.
        """
        ...
