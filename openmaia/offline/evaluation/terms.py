"""Extracts the terms by which texts are compared."""

import re

from openmaia.evaluation.claims import STOP_WORDS
from openmaia.offline.vocabulary.words import find

Terms = frozenset[str]


def vocabulary_terms(text: str) -> Terms:
    """Returns the vocabulary words in a text, for synonyms as well, and all other words in lower case except stop
    words."""
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
