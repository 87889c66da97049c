"""What the pictures of a thing show besides the thing, and what else it looks like."""

from collections.abc import Sequence

from openmaia.backbones.eyes import Eyes, Sight, lit_part
from openmaia.backbones.scripted.transcript import Look
from openmaia.images import Pixels
from openmaia.pictures.vocabulary import Kind, of_kind

SHOWN = 0.04
"""Mean evidence of a word in a thing's pictures beyond that in its rivals' from which the thing shows it."""

FILLED = 0.5
"""Mean share of a colour among the pixels that the unit responds to from which the response is to the colour."""

WORDS = [word.name for word in of_kind(Kind.COLOUR, Kind.SHAPE, Kind.PATTERN, Kind.OBJECT)]


def shown(own: Sequence[Look], rivals: Sequence[Look], eyes: Eyes) -> frozenset[str]:
    """Properties and objects in the pictures of a thing: more than in those of its rivals; and colours that are all over
    where the unit responds."""
    one, other = ([eyes.see(look.original.pixels) for look in looks] for looks in (own, rivals))
    more = {word for word in WORDS if _mean(one, word) - _mean(other, word) > SHOWN}
    parts = [eyes.colours(lit) for look in _strong(own) if (lit := _lit(look)) is not None]
    filled = {word for word in parts[0] if _mean(parts, word) > FILLED} if parts else set[str]()
    return frozenset(more | filled)


def _strong(looks: Sequence[Look]) -> list[Look]:
    """The upper half, by activation."""
    return sorted(looks, key=lambda look: -look.activation)[: (len(looks) + 1) // 2]


def _lit(look: Look) -> Pixels | None:
    """(n, 1, 3): the pixels that were not darkened; None where they are all or nearly none."""
    if look.masked is None or look.masked.pixels.shape != look.original.pixels.shape:
        return None
    lit = lit_part(look.original.pixels, look.masked.pixels)
    return look.original.pixels[lit][:, None] if 0.002 < lit.mean() < 0.95 else None


def _mean(sights: Sequence[Sight], word: str) -> float:
    return sum(sight[word] for sight in sights) / len(sights)
