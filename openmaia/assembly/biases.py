"""Builds the services and settings of the bias tests from a config."""

from typing import Any

from openmaia.agent.patience import PatientGenerator
from openmaia.assembly.evaluation import judge, language_model
from openmaia.config.schema import Config, test_generator
from openmaia.core.components import ALIASES, component, of_config, target_class
from openmaia.core.errors import UsageError
from openmaia.core.services import Backbone, Generator, Target
from openmaia.evaluation.judging.detector import detector_judge
from openmaia.recipes.bias.contexts import ContextWriter, ModelContextWriter
from openmaia.recipes.bias.matched import Matcher
from openmaia.recipes.bias.run import BiasDesign


def checked(config: Config) -> Config:
    """Returns the config. Raises UsageError if its units are no classes of a classifier."""
    if reason := target_class(config.target).why_no_classes(config.target):
        raise UsageError(reason)
    return config


def services(
    config: Config, generator: Generator, target: Target, backbone: Backbone | None = None
) -> tuple[ContextWriter, Matcher]:
    """Returns the writer and the matcher that test claimed biases: contexts that are said to change a class's score.

    The writer writes pairs of prompts, with the context and without it. The matcher has them drawn, and scores the
    images with the classifier. If the generator cannot tell whether an image shows the class, a judge decides, if the
    config has one.

    Args:
        backbone: If it is loaded already: used if the config chooses the same model to write the prompts.
    """
    model = language_model(config, backbone)
    generator = PatientGenerator(generator=generator, minutes=config.backbone.outage_minutes)
    detector = config.bias.detector
    class_judge = detector_judge(detector, "", test_generator(config).size) if detector else judge(config, model)
    if model is None or of_config(test_generator(config)).vocabulary is not None:
        rules: Any = component("writer", next(iter(ALIASES["writer"])))
        rule_writer, is_exact_name = rules.contexts()
        writer = rule_writer if model is None else ModelContextWriter(model)
        return writer, Matcher(generator=generator, target=target, judge=class_judge, knows_class=is_exact_name)
    return ModelContextWriter(model), Matcher(generator=generator, target=target, judge=class_judge)


def design(config: Config, at_once: int = 1) -> BiasDesign:
    """Returns the settings for tests of claimed biases, of which `at_once` investigations' are tested concurrently."""
    settings = config.bias
    return BiasDesign(
        pairs=settings.pairs,
        smallest=settings.smallest,
        rate=settings.rate,
        failures=settings.failures,
        resamples=config.evaluate.bootstrap,
        seed=config.seed,
        at_once=at_once,
    )
