"""Which words of the bank's prompts tell how much an image excites a unit.

A word is a word of the prompts, or two that follow each other, without those that name nothing. Its AUC is the share of
pairs, an image with the word and one without, of which the first excites the unit more; ties count half. Of a unit only the
strongest and the weakest activations are kept. All other images lie between them, and tie with each other.

Words are ordered by Mann-Whitney's z, so that a word of many images comes before one of a single image that happens to be
strong.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from openmaia.core.services import BankWord, Exemplar

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")

_EMPTY = frozenset(
    "a an the and or of on in at by to with from for into over under near is are its their there this that it as "
    "photo photograph picture image".split()
)

_INDEXED = 4
"""Banks whose words are kept. A bank of 100,000 images takes a second to read."""

_MEMBERS = npt.NDArray[np.int64]


def rank_words(
    entries: Sequence[tuple[str, str]], exemplars: Sequence[Exemplar], sources: Sequence[str], count: int
) -> tuple[BankWord, ...]:
    """Returns the words that tell best how much an image excites a unit, at most `count`, the best first. Each has an AUC above
    0.5, and none is part of a better one, or the other way round.

    Args:
        entries: The digest and the prompt of each image of the bank.
        exemplars: The unit's exemplars among them.
        sources: The digest of the image of each exemplar.
    """
    ranks = _rank([digest for digest, _ in entries], exemplars, sources)
    total, found = len(entries), list[BankWord]()
    for text, members in _index(tuple(prompt for _, prompt in entries)).items():
        images = len(members)
        # Two words of a single image say no more than that image.
        if images == total or images < len(text.split()):
            continue
        auc = (float(ranks[members].mean()) - (images + 1) / 2) / (total - images)
        found.append(BankWord(text=text, auc=auc, images=images, of=total))
    # Of words with the same images the longest says most.
    found.sort(key=lambda word: (-word.z, -len(word.text), word.text))
    kept = list[BankWord]()
    for word in found:
        if word.z <= 0 or len(kept) == count:
            break
        if not any(_overlap(word.text, other.text) for other in kept):
            kept.append(word)
    return tuple(kept)


def _overlap(one: str, other: str) -> bool:
    first, second = {*one.split()}, {*other.split()}
    return first <= second or second <= first


def _rank(digests: Sequence[str], exemplars: Sequence[Exemplar], sources: Sequence[str]) -> npt.NDArray[np.float64]:
    """Returns the rank of each image by activation, from 1; the mean rank for ties."""
    known = {
        kind: {source: each.activation for source, each in zip(sources, exemplars, strict=True) if each.kind == kind}
        for kind in ("bottom", "top")
    }
    low, high = max(known["bottom"].values(), default=0.0), min(known["top"].values(), default=0.0)
    activations: Mapping[str, float] = known["bottom"] | known["top"]
    values = np.array([activations.get(digest, (low + high) / 2) for digest in digests])
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2


@lru_cache(_INDEXED)
def _index(prompts: tuple[str, ...]) -> Mapping[str, _MEMBERS]:
    """Returns the images of each word."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        for word in dict.fromkeys(_words(prompt)):
            found[word].append(number)
    return {word: np.array(members, dtype=np.int64) for word, members in found.items()}


def _words(prompt: str) -> Iterator[str]:
    said = [match[0].lower() for match in _WORD.finditer(prompt)]
    yield from (each for each in said if each not in _EMPTY)
    yield from (f"{one} {other}" for one, other in pairwise(said) if not {one, other} & _EMPTY)
