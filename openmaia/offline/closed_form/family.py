"""Families of closed-form units: `small` for tests, `development` and `held_out`.

The last two are disjoint. The scripted experimenter may be tuned on `development`; `held_out` is only for measurements.
The truth of a unit is a single concept (mode `mono`), any of two (`or`), or two together (`and`). In `or` and `and` a
hash of the truth decides the set of a unit, so that the sets share no truth. In `mono` there are too few concepts for
that: each has several variants (with another pooling, exponent and leak, see `ClosedForm`), which are divided between
the sets. In each mode, a third of the units has a truth for which the offline vocabulary has no word. About half of the
held-out units respond to an object, alone or with another concept.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Literal

from openmaia.core.errors import UsageError
from openmaia.offline.closed_form.concepts import (
    CONCEPTS,
    HELD_OUT_CONCEPTS,
    INSIDE,
    WIDER,
    Concept,
    ConceptTable,
    Sort,
)
from openmaia.offline.closed_form.unit import ClosedForm, Leak, Slot

UnitSet = Literal["development", "held_out"]
UnitMode = Literal["mono", "or", "and"]
ConceptSlots = tuple[tuple[Concept, ...], ...]
"""The truth of a unit. The concepts of a slot must occur together, and each slot alone activates the unit. There are
two slots in the mode `or`, otherwise one."""

_MODES: tuple[UnitMode, ...] = ("mono", "or", "and")
# Units with the same single concept and other parameters.
_VARIANTS = 4
# Part of the hash that decides the set of a unit.
_SETS = "openmaia closed form 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSetDesign:
    """How the units of one set are selected."""

    edition: str
    """Part of the hashes that draw the units and their parameters. A new edition gives other units."""
    concepts: ConceptTable
    counts: Mapping[UnitMode, tuple[int, int]]
    """Number of units inside and outside of the vocabulary, by mode."""
    objects: float = 0.0
    """Share of the units of each mode, inside and outside of the vocabulary, that is reserved for truths with an
    object. The others are drawn from all remaining truths, so that the share may be larger. It is smaller if there are
    too few such truths."""
    has_grounds: bool = False
    """Whether objects on a background of one colour are among the pairs inside of the vocabulary."""


_DESIGNS: Mapping[UnitSet, UnitSetDesign] = {
    "development": UnitSetDesign(edition=_SETS, concepts=CONCEPTS, counts=dict.fromkeys(_MODES, (14, 7))),
    "held_out": UnitSetDesign(
        edition="openmaia closed form held out 2",
        concepts=HELD_OUT_CONCEPTS,
        counts={"mono": (44, 22), "or": (80, 40), "and": (80, 40)},
        objects=0.75,
        has_grounds=True,
    ),
}


def layers(family: str) -> Mapping[str, tuple[ClosedForm, ...]]:
    """Returns the units of a family by mode. The target has one layer for each mode.

    Raises:
        UsageError: The family is unknown.
    """
    match family:
        case "small":
            return _SMALL
        case "development" | "held_out":
            return {mode: units(family, mode) for mode in _MODES}
        case _:
            raise UsageError(f"target.family={family!r} is not known; expected small, development, held_out or biased")


def units(family: UnitSet, mode: UnitMode, counts: tuple[int, int] | None = None) -> tuple[ClosedForm, ...]:
    """Returns the units of a family and mode: those inside of the vocabulary, then those outside.

    Each group begins with the units that respond to an object. Apart from this, units are sorted by a hash.

    Args:
        counts: The maximum number of units in each group. None selects those of the family's design.
    """
    design = _DESIGNS[family]
    chosen: list[ClosedForm] = []
    sides = (design.concepts.inside, design.concepts.outside)
    for concepts, count in zip(sides, counts or design.counts[mode], strict=True):
        variants = _VARIANTS if mode == "mono" else 1
        truths = _truths(mode, tuple(concepts.values()), design)
        keys = [(truth, variant) for truth in truths for variant in range(variants)]
        own = [key for key in keys if _set_of(mode, *key) == family]
        own.sort(key=lambda key: hashed(design.edition, *_key(mode, *key)))
        chosen += [_unit(design, mode, *key) for key in _with_objects(_at_most_twice(own), count, design.objects)]
    return tuple(chosen)


def edition(family: str) -> str:
    """Returns what distinguishes versions of a family in the digest of the target."""
    return next((design.edition for name, design in _DESIGNS.items() if name == family), _SETS)


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


def _with_objects(
    keys: Sequence[tuple[ConceptSlots, int]], count: int, objects: float
) -> list[tuple[ConceptSlots, int]]:
    having = [key for key in keys if any(concept.sort is Sort.THING for slot in key[0] for concept in slot)]
    first = having[: round(objects * count)]
    rest = [key for key in keys if key not in first]
    return [*first, *rest][:count]


def _truths(mode: UnitMode, concepts: Sequence[Concept], design: UnitSetDesign) -> Iterator[ConceptSlots]:
    match mode:
        case "mono":
            return (((concept,),) for concept in concepts)
        case "or":
            return (((one,), (other,)) for one, other in combinations(concepts, 2) if not _related(one, other))
        case "and":
            return ((pair,) for pair in _pairs(concepts, design))


def _pairs(concepts: Sequence[Concept], design: UnitSetDesign) -> Iterator[tuple[Concept, ...]]:
    # Inside of the vocabulary: a colour and a texture or shape, and a common background and an object if the design
    # says so. Outside: a common background and an object, a number of figures, or a colour at a side.
    colours = [concept for concept in concepts if concept.sort is Sort.COLOUR]
    carriers = [concept for concept in concepts if concept.sort in (Sort.TEXTURE, Sort.SHAPE)]
    grounds = [design.concepts.inside[name] for name in ("white", "grey", "black", "green")]
    if carriers:
        objects = [concept for concept in concepts if concept.sort is Sort.THING and design.has_grounds]
        return chain(product(colours, carriers), product(grounds, objects))
    return product(grounds, [concept for concept in concepts if concept.sort is not Sort.COLOUR])


def _related(one: Concept, other: Concept) -> bool:
    return other.name in WIDER.get(one.name, ()) or one.name in WIDER.get(other.name, ())


def _name(truth: ConceptSlots) -> tuple[str, ...]:
    return tuple("&".join(concept.name for concept in slot) for slot in truth)


def _key(mode: UnitMode, truth: ConceptSlots, variant: int) -> tuple[str, ...]:
    return (mode, *_name(truth), str(variant))


def _set_of(mode: UnitMode, truth: ConceptSlots, variant: int) -> UnitSet:
    return "development" if share(_SETS, "set", *_key(mode, truth, variant)) < 0.25 else "held_out"


def _unit(design: UnitSetDesign, mode: UnitMode, truth: ConceptSlots, variant: int) -> ClosedForm:
    key, edition = _key(mode, truth, variant), design.edition
    concepts = {concept.name for slot in truth for concept in slot}
    related = {name for wide, narrow in WIDER.items() if concepts & {wide, *narrow} for name in (wide, *narrow)}
    others = [
        c for name, c in design.concepts.inside.items() if c.sort is not Sort.THING and name not in concepts | related
    ]
    weights = (1.0, 0.7 + 0.3 * share(edition, *key, "weight"))
    return ClosedForm(
        slots=tuple(Slot(concepts=slot, weight=weight) for slot, weight in zip(truth, weights, strict=False)),
        pooling=(1, 3, 5)[int(3 * share(edition, *key, "pooling"))] if mode == "mono" else 1,
        exponent=0.6 + 0.8 * share(edition, *key, "exponent"),
        gain=2.0 ** (6 * share(edition, *key, "gain") - 3),
        noise=0.03,
        leak=Leak(concept=others[int(share(edition, *key, "leak") * len(others))], weight=0.03),
        key="/".join(key),
    )


def _exact(*slots: tuple[str, ...]) -> ClosedForm:
    return ClosedForm(slots=tuple(Slot(concepts=tuple(INSIDE[name] for name in slot)) for slot in slots))


# For tests and for a first look.
_SMALL: Mapping[str, tuple[ClosedForm, ...]] = {
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
