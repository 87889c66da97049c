"""Extracts the terms of a text, for comparisons of texts by their words."""

import re

from openmaia.evaluation.claims import STOP_WORDS
from openmaia.offline.vocabulary.words import find

Terms = frozenset[str]


def vocabulary_terms(text: str) -> Terms:
    """Returns the terms of a text: the vocabulary words in it, and all other words except stop words.

    A synonym of a vocabulary word is replaced by that word. The other words are in lower case.
    """
    words = find(text)
    spelled = {part for word in words for name in (word.name, *word.aliases) for part in _tokens(name)}
    others = [
        token
        for token in _tokens(text)
        if token not in STOP_WORDS and not spelled & {token, token.removesuffix("s"), token.removesuffix("es")}
    ]
    return frozenset([word.name for word in words] + others)


def _tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9-]+", text.lower())
