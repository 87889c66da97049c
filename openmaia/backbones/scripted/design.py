"""Controlled tests: pictures of a hypothesis, and pictures that differ from them in one word."""

from collections.abc import Sequence

from openmaia.backbones.scripted.judge import Finding, Hypothesis, is_object
from openmaia.pictures import phrases
from openmaia.pictures.vocabulary import BY_NAME, Kind

CONTEXTS = 6
"""Pictures per hypothesis and per control group."""

EDITED = 3
"""Pictures of a finding that are edited."""

RECOLOUR = "change the color to "

UNRELATED = "grey"
"""Objects get other colours than this where no colour is known to matter: it would take away theirs and give none."""


def groups(hypothesis: Hypothesis, others: Sequence[Hypothesis]) -> list[list[str]]:
    """[pictures of it, control group, …]: matched in everything but the word, and for a pair in one word each."""
    avoid = [word for other in others for word in other.words]
    if len(hypothesis.words) == 1:
        word = hypothesis.words[0]
        rivals = [phrases.rival(word, index, avoid) for index in range(CONTEXTS)]
        # Both have to be avoided in both, or a word would change the ground along with the figure.
        apart = [(*avoid, word, rival) for rival in rivals]
        return [
            [phrases.single(one, index, apart[index]) for index, one in enumerate(group)]
            for group in ([word] * CONTEXTS, rivals)
        ]
    colour, carrier = hypothesis.words
    carriers = [phrases.rival(carrier, index, (carrier,)) for index in range(CONTEXTS)]
    colours = [phrases.rival(colour, index, (colour,)) for index in range(CONTEXTS)]
    return [
        [phrases.figure(carrier, colour, (), index) for index in range(CONTEXTS)],
        [phrases.figure(other, colour, (), index) for index, other in enumerate(carriers)],
        [phrases.figure(carrier, other, (colour,), index) for index, other in enumerate(colours)],
    ]


def looked_at(candidates: Sequence[Hypothesis]) -> list[str]:
    """Pictures that the experimenter wants to see itself: those of things and scenes and of their rivals, which bring
    colours and shapes that nobody asked for."""
    things = [h for h in candidates if BY_NAME[h.words[0]].kind in (Kind.OBJECT, Kind.SCENE)]
    return list(dict.fromkeys(p for h in things for group in groups(h, candidates) for p in group))


def removals(found: Finding, candidates: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """(a picture of the concept, the order that takes the concept away): the activation must fall."""
    avoid = [word for candidate in candidates for word in candidate.words]
    words = found.hypothesis.words
    bases = [
        phrases.figure(words[1], words[0]) if len(words) == 2 else phrases.single(words[0], index, avoid)
        for index in range(EDITED)
    ]
    return [(base, _order(words[0], index, avoid)) for index, base in enumerate(bases)]


def edits(kept: Sequence[Finding], candidates: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """The removals. And each object in other colours than those found: the activation must stay."""
    avoid = [word for candidate in candidates for word in candidate.words]
    colours = [word for found in kept for word in found.hypothesis.words if BY_NAME[word].kind is Kind.COLOUR]
    colour = (colours or [UNRELATED])[0]
    pairs: list[tuple[str, str]] = []
    for found in kept:
        for index, (base, order) in enumerate(removals(found, candidates)):
            pairs.append((base, order))
            if is_object(found):
                pairs.append((base, RECOLOUR + phrases.rival(colour, index, avoid)))
    return pairs


def _order(word: str, index: int, avoid: Sequence[str]) -> str:
    rival = phrases.rival(word, index, avoid)
    match BY_NAME[word].kind:
        case Kind.COLOUR:
            return RECOLOUR + rival
        case Kind.PATTERN | Kind.SCENE:
            return f"change the background to {rival}"
        case _:
            return f"replace the {word} with {phrases.article(rival)}"
