"""Identifiers of units, and descriptions of the targets to which they belong."""

import difflib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from openmaia.core.errors import UsageError


class Scope(StrEnum):
    """The subject of an investigation."""

    UNIT = "unit"
    LAYER = "layer"
    NETWORK = "network"


WHOLE = -1  # the index that stands for all units of a layer

NETWORK = "*"  # the layer that stands for the whole network

OUTPUT = "output"
"""The final output of a network. Its units may be named by their classes."""

FEATURES = "/features"
"""The units of `layer4/features` are the features of the dictionary of `layer4`."""

SHOWN_LAYERS = 12  # in a message: of more, the most similar ones and the outermost


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Unit:
    """A unit; with the index WHOLE a layer, and then with the layer NETWORK the network. Those two have no activation."""

    target: str
    layer: str
    index: int

    @property
    def scope(self) -> Scope:
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
    """What is known about a target."""

    name: str
    layers: Mapping[str, int]
    """Number of units by layer."""
    digest: str
    """Of the weights, in hexadecimal."""
    input_size: tuple[int, int]
    """Height and width in pixels."""
    preprocessing: str = ""
    """In words. Empty for a target that is no network."""
    mask_threshold: float | None = None
    """The threshold of all units' masks. None: each unit has its own, a quantile of its activations."""
    understood: tuple[str, ...] = ()
    """Sentences about what was found out and a user cannot see otherwise, such as that a layer has no maps."""
    classes: tuple[str, ...] = ()
    """Names of the units of OUTPUT by index. They need not be unique. Empty if unknown."""
    heads: tuple[int, ...] = ()
    """Numbers of classes of each head, in the order of `classes`. Those of one head exclude one another, those of two do not.
    Empty if all are of one."""

    def head(self, index: int) -> range:
        """Returns the indices of the classes of the head to which a class belongs."""
        ends = list(accumulate(self.heads or (len(self.classes),)))
        at = bisect_right(ends, index)
        return range(ends[at - 1] if at else 0, ends[at])


def unknown_layer(layer: str, target: str, known: Sequence[str]) -> UsageError:
    """Returns the error for a layer that a target lacks, with the `known` ones that are most similar."""
    near = difflib.get_close_matches(layer, known, n=SHOWN_LAYERS, cutoff=0.0)
    has = f"has: {', '.join(known)}"
    if len(known) > SHOWN_LAYERS:
        outermost = [name for name in known if "." not in name][:SHOWN_LAYERS]
        has = f"has {len(known)} layers; near that name {', '.join(near)}; outermost {', '.join(outermost)}"
    meant = f"; did you mean {near[0]!r}? It {has}" if near else f"; it {has}"
    return UsageError(f"unknown layer {layer!r} of {target or 'the target'}{meant}")
