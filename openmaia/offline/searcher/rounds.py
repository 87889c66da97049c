"""The next answer after a failed test: the best that the measurements support without what was refuted."""

from collections.abc import Sequence
from itertools import accumulate

from openmaia.offline.searcher import search
from openmaia.offline.searcher.findings import Findings
from openmaia.offline.searcher.search import Images, Scores

Refuted = frozenset[str]


def next_plain_choice(one: Scores, two: Scores, failed: Sequence[Refuted]) -> tuple[str, ...]:
    """Returns the best single label, or a combination that beats it clearly; none if all were refuted."""
    refuted = Refuted().union(*failed)
    left = _without(one, refuted)
    return search.plain_choice(left, _without(two, refuted)) if left else ()


def next_choice(images: Images, seen: Findings, one: Scores, two: Scores) -> tuple[tuple[str, ...], list[str]]:
    """Returns the labels of the next answer, none if nothing is left, and labels to edit before there is one."""
    # Each round edits the labels that it adds to the shortlist, so that the order of the rounds is that of the values.
    exemplars = seen.telling("screen", "single", "crowd", "pair")
    shortlists = [
        search.shortlist(
            images,
            _without(one, refuted),
            _without(two, refuted),
            exemplars,
            search.alternatives(images, [*one], seen.values, refuted),
        )
        for refuted in accumulate(seen.refuted, Refuted.union, initial=Refuted())
    ]
    listed = dict.fromkeys(label for kept in shortlists for each in kept for label in each)
    values = seen.values.get("edit", [])
    edited = _edited(images, list(listed), len(values))
    kept = shortlists[-1]
    missing = [label for label in listed if label not in edited and any(label in each for each in kept)]
    if missing and "edit_images" not in seen.withheld and not seen.is_last_call:
        return (), missing
    return search.choice(kept, search.falls(images, edited, values, seen.values["screen"])), []


def _edited(images: Images, labels: Sequence[str], count: int) -> list[str]:
    """Returns the labels, in the order of their edits, to which the first `count` values belong."""
    ends = accumulate(2 * len(images.edits([label])) for label in labels)
    return [label for label, end in zip(labels, ends, strict=True) if end <= count]


def _without(found: Scores, refuted: Refuted) -> Scores:
    return {label: score for label, score in found.items() if label not in refuted}
