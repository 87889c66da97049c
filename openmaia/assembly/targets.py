"""Builds the target of a config."""

from typing import TYPE_CHECKING, Protocol

from openmaia.assembly.generators import build_section
from openmaia.config.schema import Config

if TYPE_CHECKING:
    from openmaia.core.services import Target
    from openmaia.exemplars.passes import Readable

    class ReadableTarget(Target, Readable, Protocol):
        """A target whose exemplars can be computed."""


def target(config: Config) -> "ReadableTarget":
    """Loads the target of a config."""
    return build_section(config, "target")
