"""Protocols that a caller of this package implements: one builds objects from a config, one receives progress."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # so that worker processes of investigations do not import the evaluation and its libraries
    from openmaia.agent.context import InvestigationOptions
    from openmaia.config.schema import Config
    from openmaia.core.services import Backbone, Exemplars, Generator, Target
    from openmaia.datasets.library import ImageDataset
    from openmaia.evaluation.analysis.agreement import ClaimSimilarity
    from openmaia.evaluation.judging.judges import Judge
    from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
    from openmaia.evaluation.truth import KnownTruths
    from openmaia.exemplars.store import ExemplarStore


class Assembly(Protocol):
    """Builds the objects that a config describes. It is pickled and also used in Ray worker processes."""

    def host(self, role: str, config: "Config") -> Any:
        """Loads a model and returns an object that implements the protocol of its service.

        Args:
            role: "target", "generator", "editor" or "backbone"; "test_generator", which makes the images of tests. Or what
                a config need not have, so that None is returned: "writer", the language model of `evaluate.writer`, and
                "judge", if it is no language model.
            config: The config of the run.
        """
        ...

    def concurrency(self, role: str, config: "Config") -> int:
        """Returns how many calls one replica of a service answers at once, or 0 if it takes one batch after another."""
        ...

    def dataset(self, config: "Config", say: Callable[[str], None]) -> "ImageDataset":
        """Returns the images of the user. The first call may download them; `say` receives messages."""
        ...

    def options(self, config: "Config") -> "InvestigationOptions":
        """Returns the settings of each investigation, such as the largest number of turns."""
        ...

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
        """Returns the services with which descriptions are tested.

        Args:
            config: The config of the run.
            generator: Makes the test images.
            target: Measures the units on them.
            backbone: Writes the prompts of the test images if the config names neither another model nor rules for that.
            writer: See `host`. What is None and the config needs is loaded in this process, and likewise `judge`.
            judge: See `host`.
            exemplars: Those of the units, in which labels are looked for. None: `store`.
            store: Gives the mean and standard deviation of each unit's activations. None: only what the test of one
                description uses is returned.
            dataset: Its photographs are controls, and the images of the detection test.
        """
        ...

    def comparison(self, config: "Config") -> "tuple[Sequence[ClaimSimilarity], KnownTruths]":
        """Returns the arguments of `openmaia.evaluation.run.compare_claims` where no language model compares claims. The
        target is loaded in this process, for the names of its classes.
        """
        ...

    def design(self, config: "Config") -> "EvaluationDesign":
        """Returns the settings of the tests: how prompts are written, the numbers of images, the seed."""
        ...


class Progress(Protocol):
    """Receives the messages and the progress of a run."""

    def say(self, line: str) -> None:
        """Shows a message to the user."""
        ...

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Shows the progress of a stage.

        Args:
            stage: The name of the stage, such as `investigations`.
            done: The number of finished items.
            total: The number of all items.
            note: A short text about the item that finished last; may be empty.
        """
        ...
