"""Compares labels with what units over scene graphs are known to respond to."""

from functools import lru_cache
from typing import Literal

from openmaia.offline.scenes.grammar import tokens
from openmaia.offline.scenes.words import STRIPES, members

Relation = Literal["same", "wider", "narrower", "other"]

# Words that say nothing about a scene.
_EMPTY = ("filler", "stop", "and", "with", "in", "pattern word", "it", "all")

_Part = tuple[str, frozenset[str], bool]
# What it is, all names that it stands for, and whether it is denied.


def relation(label: str, slot: str) -> Relation:
    """Returns how a label stands to a slot of a unit's truth, by meaning: synonyms are the same.

    `wider`: every scene that shows the slot shows the label, as "animal" or "cat" for "black cat"; `narrower`: the other way
    round. A word that is not known makes it `other`. How figures stand to one another is not compared beyond its words.
    """
    said, known = _parts(label), _parts(slot)
    if not said or not known:
        return "other"
    is_wider, is_narrower = _includes(said, known), _includes(known, said)
    return "same" if is_wider and is_narrower else "wider" if is_wider else "narrower" if is_narrower else "other"


@lru_cache(maxsize=4096)
def _parts(text: str) -> frozenset[_Part]:
    # Empty if a word is not known.
    found: set[_Part] = set()
    is_denied = False
    for each in tokens(text)[0]:
        if each.what == "unknown":
            return frozenset()
        if each.what == "not":
            is_denied = True
        elif each.what in ("kind", "group"):
            found.add(("kind", frozenset(members(each.name)), is_denied))
        elif each.what not in _EMPTY and (each.what, each.name) != ("count", "1"):
            names = STRIPES if each.name == "stripes" else (each.name,)
            found.add((each.what, frozenset(names), is_denied))
        # "Without" holds for one word.
        is_denied = is_denied and each.what in (*_EMPTY, "not")
    return frozenset(found)


def _includes(wide: frozenset[_Part], narrow: frozenset[_Part]) -> bool:
    return all(
        any(
            what == other_what and is_denied == is_other_denied and (others >= names if is_denied else others <= names)
            for other_what, others, is_other_denied in narrow
        )
        for what, names, is_denied in wide
    )
