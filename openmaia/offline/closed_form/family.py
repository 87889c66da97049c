"""Closed-form units: 12 without noise (`UNITS`), and noisy ones drawn by a hash, on which the metrics are tested.

The truth of a unit is a single concept (mode `mono`), any of two (`or`), or two together (`and`).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Literal

from openmaia.offline.closed_form.concepts import INSIDE, OUTSIDE, WIDER, Concept, Sort
from openmaia.offline.closed_form.unit import ClosedForm, Leak, Slot

UnitMode = Literal["mono", "or", "and"]
ConceptSlots = tuple[tuple[Concept, ...], ...]
"""The truth of a unit. The concepts of a slot must occur together, and each slot alone activates the unit. There are
two slots in the mode `or`, otherwise one."""

EDITION = "openmaia closed form 1"
"""Part of the hashes of these units. A new edition gives other units."""
# Units with the same single concept and other parameters.
_VARIANTS = 4
# The share of the truths of which noisy units are drawn.
_DRAWN = 0.25


def units(family: Literal["development"], mode: UnitMode, counts: tuple[int, int]) -> tuple[ClosedForm, ...]:
    """Returns noisy units of a mode: those inside of the vocabulary, then those outside, each sorted by a hash.

    Args:
        counts: The maximum number of units in each group.
    """
    chosen: list[ClosedForm] = []
    for concepts, count in zip((INSIDE, OUTSIDE), counts, strict=True):
        variants = _VARIANTS if mode == "mono" else 1
        truths = _truths(mode, tuple(concepts.values()))
        keys = [(truth, variant) for truth in truths for variant in range(variants)]
        own = [key for key in keys if share(EDITION, "set", *_key(mode, *key)) < _DRAWN]
        own.sort(key=lambda key: hashed(EDITION, *_key(mode, *key)))
        chosen += [_unit(mode, *key) for key in _at_most_twice(own)[:count]]
    return tuple(chosen)


def hashed(edition: str, *key: str) -> bytes:
    """Returns the SHA-256 digest from which the pseudo-random choice that `key` identifies is derived."""
    return hashlib.sha256("\x00".join((edition, *key)).encode()).digest()


def share(edition: str, *key: str) -> float:
    """Returns a pseudo-random number, uniformly distributed between 0 and 1. Equal arguments give the same number."""
    return int.from_bytes(hashed(edition, *key)[:6]) / 2**48


def _at_most_twice(keys: Sequence[tuple[ConceptSlots, int]]) -> list[tuple[ConceptSlots, int]]:
    # The first two variants of each truth.
    counts = Counter[tuple[str, ...]]()
    kept: list[tuple[ConceptSlots, int]] = []
    for truth, variant in keys:
        counts[_name(truth)] += 1
        if counts[_name(truth)] <= 2:
            kept.append((truth, variant))
    return kept


def _truths(mode: UnitMode, concepts: Sequence[Concept]) -> Iterator[ConceptSlots]:
    match mode:
        case "mono":
            return (((concept,),) for concept in concepts)
        case "or":
            return (((one,), (other,)) for one, other in combinations(concepts, 2) if not _related(one, other))
        case "and":
            return ((pair,) for pair in _pairs(concepts))


def _pairs(concepts: Sequence[Concept]) -> Iterator[tuple[Concept, ...]]:
    # Inside of the vocabulary: a colour and a texture or shape. Outside: a common background and an object, a number of figures, or
    # a colour at a side.
    colours = [concept for concept in concepts if concept.sort is Sort.COLOUR]
    carriers = [concept for concept in concepts if concept.sort in (Sort.TEXTURE, Sort.SHAPE)]
    if carriers:
        return product(colours, carriers)
    grounds = [INSIDE[name] for name in ("white", "grey", "black", "green")]
    return product(grounds, [concept for concept in concepts if concept.sort is not Sort.COLOUR])


def _related(one: Concept, other: Concept) -> bool:
    return other.name in WIDER.get(one.name, ()) or one.name in WIDER.get(other.name, ())


def _name(truth: ConceptSlots) -> tuple[str, ...]:
    return tuple("&".join(concept.name for concept in slot) for slot in truth)


def _key(mode: UnitMode, truth: ConceptSlots, variant: int) -> tuple[str, ...]:
    return (mode, *_name(truth), str(variant))


def _unit(mode: UnitMode, truth: ConceptSlots, variant: int) -> ClosedForm:
    key = _key(mode, truth, variant)
    concepts = {concept.name for slot in truth for concept in slot}
    related = {name for wide, narrow in WIDER.items() if concepts & {wide, *narrow} for name in (wide, *narrow)}
    others = [c for name, c in INSIDE.items() if c.sort is not Sort.THING and name not in concepts | related]
    weights = (1.0, 0.7 + 0.3 * share(EDITION, *key, "weight"))
    return ClosedForm(
        slots=tuple(Slot(concepts=slot, weight=weight) for slot, weight in zip(truth, weights, strict=False)),
        pooling=(1, 3, 5)[int(3 * share(EDITION, *key, "pooling"))] if mode == "mono" else 1,
        exponent=0.6 + 0.8 * share(EDITION, *key, "exponent"),
        gain=2.0 ** (6 * share(EDITION, *key, "gain") - 3),
        noise=0.03,
        leak=Leak(concept=others[int(share(EDITION, *key, "leak") * len(others))], weight=0.03),
        key="/".join(key),
    )


def _exact(*slots: tuple[str, ...]) -> ClosedForm:
    return ClosedForm(slots=tuple(Slot(concepts=tuple(INSIDE[name] for name in slot)) for slot in slots))


UNITS: Mapping[str, tuple[ClosedForm, ...]] = {
    "mono": tuple(
        _exact((name,)) for name in ("red", "green", "blue", "horizontal stripes", "vertical stripes", "circle")
    ),
    "or": (
        _exact(("red",), ("horizontal stripes",)),
        _exact(("yellow",), ("vertical stripes",)),
        _exact(("green",), ("circle",)),
    ),
    "and": (_exact(("red", "circle")), _exact(("blue", "horizontal stripes")), _exact(("green", "square"))),
}
"""Units without noise by mode, for tests. The target has one layer for each mode."""
