"""Answers without images of its own: from the exemplars, from the bank, or at random."""

import hashlib
from collections.abc import Collection

from openmaia.offline.searcher.findings import Findings
from openmaia.offline.searcher.search import shown_share

_SHOWN, _MORE = 0.33, 0.25
"""The share of the top exemplars that show a label, and by how much it is above that of random ones."""


def without_images(labels: Collection[str], seen: Findings) -> tuple[str, ...]:
    """Returns the label that the top exemplars show most often beyond random ones, or else the best word of the bank; none if
    there is neither, or a test refuted it."""
    left = _without_refuted(labels, seen)
    if seen.exemplars:
        return _of_exemplars(left, seen)
    return tuple(each for each in seen.bank if each in left)[:1]


def _of_exemplars(labels: Collection[str], seen: Findings) -> tuple[str, ...]:
    top, random = ([each.whole for each in seen.exemplars if each.kind == kind] for kind in ("top", "random"))
    shares = {each: shown_share([each], top) for each in labels}
    lifts = {each: share - shown_share([each], random) for each, share in shares.items() if share >= _SHOWN}
    best = sorted((each for each in lifts if lifts[each] >= _MORE), key=lambda each: (-lifts[each], each))
    return tuple(best[:1])


def at_random(labels: Collection[str], seen: Findings, conversation: str) -> tuple[str, ...]:
    """Returns a label by a hash of the name of the conversation, without those that a test refuted."""
    left = _without_refuted(labels, seen)
    ordered = sorted(left, key=lambda each: hashlib.sha256(f"{conversation} {each}".encode()).hexdigest())
    return tuple(ordered[:1])


def _without_refuted(labels: Collection[str], seen: Findings) -> list[str]:
    return [each for each in labels if each not in seen.refuted_labels]
