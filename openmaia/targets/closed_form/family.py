"""A large family of units, and two disjoint sets drawn from it by a hash: nobody chose them.

Whether a unit belongs to `development`, on which an experimenter may be tuned, or to `held_out`, which only measures, is
decided by a hash of the unit itself. For `or` and `and` that is a hash of the truth: no truth of one set is a truth of
the other. There are too few single concepts for that; a single concept comes in several variants (how large a part has
to show it, how the answer grows, what leaks in), and it is these that are divided. Within a mode a third of the units
lie outside the experimenter's vocabulary.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Literal

from openmaia.targets.closed_form.concepts import INSIDE, OUTSIDE, WIDER, Concept, Sort
from openmaia.targets.closed_form.unit import ClosedForm, Leak, Slot

Family = Literal["small", "development", "held_out"]
Mode = Literal["mono", "or", "and"]
MODES: tuple[Mode, ...] = ("mono", "or", "and")

WANTED = {"held_out": (44, 22), "development": (14, 7)}
"""Units of a mode: inside the vocabulary, outside of it."""

VARIANTS = 4
"""Of a single concept."""

EDITION = "openmaia closed form 1"


def units(family: Family, mode: Mode) -> tuple[ClosedForm, ...]:
    drawn: list[ClosedForm] = []
    for pool, wanted in zip((INSIDE, OUTSIDE), WANTED[family], strict=True):
        variants = VARIANTS if mode == "mono" else 1
        keys = [(truth, variant) for truth in _truths(mode, tuple(pool.values())) for variant in range(variants)]
        own = sorted((key for key in keys if _set_of(mode, *key) == family), key=lambda key: _hash(*_key(mode, *key)))
        drawn += [_unit(mode, *key) for key in _at_most_twice(own)[:wanted]]
    return tuple(drawn)


def _at_most_twice(keys: "Sequence[tuple[Truth, int]]") -> "list[tuple[Truth, int]]":
    """Of the variants of a truth the first two."""
    seen = Counter[tuple[str, ...]]()
    kept: list[tuple[Truth, int]] = []
    for truth, variant in keys:
        seen[_name(truth)] += 1
        if seen[_name(truth)] <= 2:
            kept.append((truth, variant))
    return kept


Truth = tuple[tuple[Concept, ...], ...]
"""The slots: one for `mono` and `and`, two for `or`."""


def _truths(mode: Mode, pool: Sequence[Concept]) -> Iterator[Truth]:
    match mode:
        case "mono":
            return (((one,),) for one in pool)
        case "or":
            return (((one,), (other,)) for one, other in combinations(pool, 2) if not _related(one, other))
        case "and":
            return ((pair,) for pair in _pairs(pool))


def _pairs(pool: Sequence[Concept]) -> Iterator[tuple[Concept, ...]]:
    """Inside: a colour and what carries it. Outside: a thing, a count or a position on a ground that is there anyway."""
    colours = [c for c in pool if c.sort is Sort.COLOUR]
    carriers = [c for c in pool if c.sort in (Sort.TEXTURE, Sort.SHAPE)]
    if carriers:
        return product(colours, carriers)
    others = [c for c in pool if c.sort is not Sort.COLOUR]
    grounds = [INSIDE[name] for name in ("white", "grey", "black", "green")]
    return product(grounds, others)


def _related(one: Concept, other: Concept) -> bool:
    return other.name in WIDER.get(one.name, ()) or one.name in WIDER.get(other.name, ())


def _name(truth: Truth) -> tuple[str, ...]:
    return tuple("&".join(concept.name for concept in slot) for slot in truth)


def _key(mode: Mode, truth: Truth, variant: int) -> tuple[str, ...]:
    return (mode, *_name(truth), str(variant))


def _set_of(mode: Mode, truth: Truth, variant: int) -> Family:
    return "development" if _share("set", *_key(mode, truth, variant)) < 0.25 else "held_out"


def _unit(mode: Mode, truth: Truth, variant: int) -> ClosedForm:
    key = _key(mode, truth, variant)
    concepts = {concept.name for slot in truth for concept in slot}
    related = {name for wide, narrow in WIDER.items() if concepts & {wide, *narrow} for name in (wide, *narrow)}
    others = [c for name, c in INSIDE.items() if c.sort is not Sort.THING and name not in concepts | related]
    leak = others[int(_share(*key, "leak") * len(others))]
    return ClosedForm(
        slots=tuple(
            Slot(concepts=slot, weight=1.0 if at == 0 else 0.7 + 0.3 * _share(*key, "weight"))
            for at, slot in enumerate(truth)
        ),
        pooling=(1, 3, 5)[int(3 * _share(*key, "pooling"))] if mode == "mono" else 1,
        exponent=0.6 + 0.8 * _share(*key, "exponent"),
        gain=2.0 ** (6 * _share(*key, "gain") - 3),
        noise=0.03,
        leak=Leak(concept=leak, weight=0.03),
        key="/".join(key),
    )


def _hash(*key: str) -> bytes:
    return hashlib.sha256("\x00".join((EDITION, *key)).encode()).digest()


def _share(*key: str) -> float:
    """Evenly between 0 and 1."""
    return int.from_bytes(_hash(*key)[:6]) / 2**48
