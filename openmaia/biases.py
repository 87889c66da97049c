"""From a config to what the tests of biases work with."""

from openmaia.apps.bias.contexts import ModelWriter, RuleWriter, Writer
from openmaia.apps.bias.matched import Matcher
from openmaia.apps.bias.run import Design
from openmaia.errors import UsageError
from openmaia.evaluate.judges import Judge
from openmaia.instruments import asker, judge
from openmaia.schema import Config
from openmaia.services import Generator, Target
from openmaia.units import OUTPUT


def checked(config: Config) -> Config:
    """Raises UsageError for a config that asks about something else than the classes of a classifier."""
    if config.target.kind == "network" and list(config.target.layers) != [OUTPUT]:
        raise UsageError(
            f"target.layers={list(config.target.layers)}: biases are those of classes; give target.layers=[{OUTPUT}] and "
            f"classes by name, such as units={OUTPUT}=pig,strawberry"
        )
    if config.target.kind == "closed_form" and config.target.family != "biased":
        raise UsageError(f"target.family={config.target.family!r} has no classes; give target.family=biased")
    if config.target.kind == "synthetic":
        raise UsageError("target.kind=synthetic has no classes; give a classifier as target.network")
    return config


def matcher(config: Config, generator: Generator, target: Target) -> Matcher:
    """The judge is in this process."""
    return Matcher(generator=generator, target=target, judge=_detector(config) or judge(config, asker(config)))


def writer(config: Config) -> Writer:
    model = asker(config)
    return RuleWriter() if model is None else ModelWriter(model)


def design(config: Config, at_once: int = 1) -> Design:
    asked = config.bias
    return Design(
        pairs=asked.pairs,
        smallest=asked.smallest,
        rate=asked.rate,
        failures=asked.failures,
        resamples=config.evaluate.bootstrap,
        seed=config.seed,
        at_once=at_once,
    )


def _detector(config: Config) -> Judge | None:
    if not config.bias.detector:
        return None
    from openmaia.targets.synthetic.judging import DetectorJudge

    return DetectorJudge(config.bias.detector)
