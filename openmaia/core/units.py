"""Identifiers of units, and descriptions of the targets to which they belong."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from openmaia.core.errors import UsageError


class Scope(StrEnum):
    """The subject of an investigation: a unit, a whole layer or the whole network."""

    UNIT = "unit"
    LAYER = "layer"
    NETWORK = "network"


WHOLE = -1
"""The index that stands for all units of a layer."""

NETWORK = "*"
"""The layer name that stands for the whole network."""

OUTPUT = "output"
"""The layer that is the final output of a network. Its units may be named by their classes."""

SHOWN_LAYERS = 12
"""Largest number of layers that an error message lists. If a network has more, the message lists those with the most
similar names, and those at the top level of the network."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Unit:
    """One neuron: a channel of the output of a layer.

    If the index is WHOLE, the object stands for the whole layer. If in addition the layer is NETWORK, it stands for the
    whole network. In both cases it has no activation.
    """

    target: str
    layer: str
    index: int

    @property
    def scope(self) -> Scope:
        """Whether this stands for a unit, a layer or the network, according to the index and the layer."""
        return Scope.UNIT if self.index != WHOLE else Scope.LAYER if self.layer != NETWORK else Scope.NETWORK

    def __str__(self) -> str:
        match self.scope:
            case Scope.UNIT:
                return f"{self.target}/{self.layer}/{self.index}"
            case Scope.LAYER:
                return f"{self.target}/{self.layer}"
            case Scope.NETWORK:
                return self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """Description of a target: the network under study, or synthetic units (formulas, detectors) in its place."""

    name: str
    layers: Mapping[str, int]
    """Number of units by layer."""
    digest: str
    """Digest of the weights in hexadecimal."""
    input_size: tuple[int, int]
    """Height and width of the network's input in pixels."""
    preprocessing: str = ""
    """What is done to an image before the network receives it, in words. Empty for a target that is no network."""
    mask_threshold: float | None = None
    """Activation above which a position of the activation map belongs to a unit's mask, the region where the unit
    responds. It is the same for all units. None: each unit has its own threshold, a quantile of its activations."""
    understood: tuple[str, ...] = ()
    """What was found out about the layers and what a user cannot see otherwise, such as that a layer has no maps: one
    sentence each."""
    classes: tuple[str, ...] = ()
    """Names of the classes, which are the units of the layer OUTPUT, by index. They need not be unique. Empty if
    unknown."""


def unknown_layer(layer: str, target: str, known: Sequence[str]) -> UsageError:
    """Returns the error for a layer that a target (the network under study) does not have.

    Args:
        layer: The name that the user gave.
        target: The name of the target; may be empty.
        known: The names of the layers that the target has. The message lists them, or the most similar of them.
    """
    near = difflib.get_close_matches(layer, known, n=SHOWN_LAYERS, cutoff=0.0)
    has = f"has: {', '.join(known)}"
    if len(known) > SHOWN_LAYERS:
        outermost = [name for name in known if "." not in name][:SHOWN_LAYERS]
        has = f"has {len(known)} layers; near that name {', '.join(near)}; outermost {', '.join(outermost)}"
    meant = f"; did you mean {near[0]!r}? It {has}" if near else f"; it {has}"
    return UsageError(f"unknown layer {layer!r} of {target or 'the target'}{meant}")
