"""The models of a config for code that is no investigation, such as a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openmaia.agent.patience import PatientGenerator
from openmaia.assembly import evaluation, generators, targets
from openmaia.assembly.investigations import command_ledger
from openmaia.config.schema import Config
from openmaia.core.services import Backbone, Generator, Target
from openmaia.evaluation.judging.judges import Judge
from openmaia.evaluation.language_model import LanguageModel
from openmaia.runs.run import Run


@dataclass
class Models:
    """The models that a config names, each of which is loaded at its first use.

    `openmaia.load_models` returns those of this process. A test that is given to `openmaia.sweep` gets the pools of the
    sweep instead. Generators wait for a server that does not answer, as long as `backbone.outage_minutes` says.
    """

    config: Config
    """The config that names them."""
    pooled: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Handles to pools by the name of the attribute, and that of the backbone. Empty in this process."""
    run: Run | None = field(default=None, repr=False)
    """Its budget pays for the language model, if that is loaded in this process."""

    @cached_property
    def target(self) -> Target:
        """The network under study."""
        return self.pooled.get("target") or targets.target(self.config)

    @cached_property
    def generator(self) -> Generator:
        """The generator of the agent."""
        return self._patient(self.pooled.get("generator") or generators.generator(self.config))

    @cached_property
    def test_generator(self) -> Generator:
        """The generator of the images of tests: `evaluate.generator`, or else that of the agent."""
        if not self.pooled and self.config.evaluate.generator is None:
            return self.generator
        return self._patient(self.pooled.get("test_generator") or generators.test_generator(self.config))

    @cached_property
    def language_model(self) -> LanguageModel | None:
        """The language model that writes the prompts of tests. None: rules write them."""
        own: Backbone | None = None
        if self.run is not None and not self.pooled:
            own = evaluation.own_model(self.config, self.run, command_ledger(self.run, self.config))
        return evaluation.language_model(self.config, self.pooled.get("backbone") or own, own)

    @cached_property
    def judge(self) -> Judge | None:
        """The judge that says whether images show a label. None: the config names none."""
        return evaluation.judge(self.config, self.language_model)

    def _patient(self, generator: Generator) -> Generator:
        return PatientGenerator(generator=generator, minutes=self.config.backbone.outage_minutes)
