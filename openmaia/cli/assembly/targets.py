"""Builds the target of a config. Functions import large libraries only when they need them."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from openmaia.cli.assembly.errors import session_object_error, unknown_value
from openmaia.config.schema import Config

if TYPE_CHECKING:
    from openmaia.models.targets.hooked import NetworkTarget
    from openmaia.models.targets.preprocess import GivenPreprocess, TargetNetwork
    from openmaia.models.targets.synthetic.target import SyntheticTarget
    from openmaia.models.targets.synthetic.units import SyntheticUnits
    from openmaia.offline.closed_form import ClosedFormClasses, ClosedFormTarget

    ReadableTarget = NetworkTarget | SyntheticTarget | ClosedFormTarget | ClosedFormClasses

PYTHON = "python:"
"""Beginning of `target.network` for a module that was passed to OpenMAIA in Python."""


def target(config: Config) -> "ReadableTarget":
    """Returns the target (the network under study) of a config, with its weights loaded."""
    match config.target.kind:
        case "network":
            from openmaia.models.targets.hooked import NetworkTarget

            read = network(config, config.target.weights)
            return NetworkTarget(config.target.name, read, config.target.layers, directions=config.target.directions)
        case "synthetic":
            from openmaia.models.targets.synthetic.target import SyntheticTarget

            named = config.target
            return SyntheticTarget(
                named.name, named.detector, named.segmenter, named.units, listed=synthetic_units(config)
            )
        case "closed_form":
            from openmaia.offline.closed_form import ClosedFormClasses, ClosedFormTarget

            if config.target.family == "biased":
                return ClosedFormClasses(config.target.name)
            return ClosedFormTarget(config.target.name, family=config.target.family, shuffled=config.target.shuffled)
        case kind:
            raise unknown_value("target.kind", kind)


def synthetic_units(config: Config) -> "SyntheticUnits | None":
    """Returns the synthetic units that the user defined in the config, or None if there are none.

    A synthetic unit responds to given concepts.

    Raises:
        UsageError: If the definitions are invalid.
    """
    from openmaia.models.targets.synthetic.units import configured_units

    given = config.target.synthetic
    return (
        configured_units(given.mode, given.labels, given.folder) if given.mode or given.labels or given.folder else None
    )


def network(config: Config, weights: str) -> "TargetNetwork":
    """Loads the target network of a config.

    Args:
        config: The config of the run.
        weights: The weights to load; see `target.weights`. If empty, the network's default weights are loaded.
    """
    from openmaia.models.targets.networks import load

    if config.target.network.startswith(PYTHON):
        raise session_object_error(
            "target.network", "target.network=package.module:function, a function that returns the network"
        )
    return declared(config, load(config.target.network, weights, _preset(config), given_preprocess(config)))


def declared(config: Config, network: "TargetNetwork") -> "TargetNetwork":
    """Returns a network with what a config says about its outputs (`target.output`, `target.entries`)."""
    from openmaia.models.targets.meaning import OutputMeaning

    meaning = OutputMeaning(config.target.output) if config.target.output else network.output
    return replace(network, output=meaning, entries={**network.entries, **config.target.entries})


def given_preprocess(config: Config) -> "GivenPreprocess":
    """Returns the image size, crop, mean and standard deviation that a config sets for the target network's inputs."""
    from openmaia.models.targets.preprocess import GivenPreprocess

    given = config.target
    return GivenPreprocess(size=given.size, crop=given.crop, mean=tuple(given.mean), std=tuple(given.std))


def _preset(config: Config) -> Literal["weights", "published"]:
    if config.target.preprocess == "weights":
        return "weights"
    if config.target.preprocess == "published":
        return "published"
    if config.target.preprocess == "python":
        raise session_object_error("target.preprocess", "target.mean, target.std and target.size")
    raise unknown_value("target.preprocess", config.target.preprocess)
