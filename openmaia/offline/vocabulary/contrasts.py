"""Makes contrasts by rules over the vocabulary: the near miss changes one word."""

import re
from collections.abc import Sequence

from openmaia.agent.contrasts import Contrast
from openmaia.offline.vocabulary import phrases
from openmaia.offline.vocabulary.words import Word, WordKind, find

# Values of `Contrast.source`. _CLOSE: one vocabulary word of the label is replaced by another of the same kind. For
# labels without vocabulary words: a dropped hypothesis (_DROPPED), or, if there is none, an unrelated object (APART).
_CLOSE, _DROPPED, APART = "one word changed", "a hypothesis that was dropped", "unrelated"


class RuleContrasts:
    """Finds contrasts without a language model."""

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns n contrasts for the labels in rotation, or one for each label if there are more.

        Near misses avoid the vocabulary words of all labels. Dropped hypotheses are the near misses of labels without
        vocabulary words. The result is empty if n is 0 or there are no labels.
        """
        avoid = [word.name for label in labels for word in find(label)]
        return [
            _contrast(labels[number % len(labels)], number // len(labels), avoid, dropped)
            for number in range(max(n, len(labels)) if labels and n else 0)
        ]


def _contrast(label: str, index: int, avoid: Sequence[str], dropped: Sequence[str]) -> Contrast:
    words = find(label)
    if not words:
        near = dropped[index % len(dropped)] if dropped else phrases.rival("tool", index, ())
        return _made(label, f"a photo of {label}", f"a photo of {near}", near, _DROPPED if dropped else APART)
    colour = next((w.name for w in words if w.kind is WordKind.COLOUR), "")
    carrier = next((w.name for w in words if w.kind in (WordKind.SHAPE, WordKind.PATTERN)), "")
    if _says_more(label, words):
        return _exchanged(label, words, index, avoid)
    if len(words) == 2 and colour and carrier:
        return _half_changed(label, colour, carrier, index, avoid)
    if len(words) == 1:
        word = words[0].name
        rival = phrases.rival(word, index, avoid)
        # Both prompts avoid both words; otherwise a word would change the background as well as the figure.
        apart = (*avoid, rival)
        return _made(label, phrases.single(word, index, apart), phrases.single(rival, index, apart), rival)
    return _exchanged(label, words, index, avoid)


def _half_changed(label: str, colour: str, carrier: str, index: int, avoid: Sequence[str]) -> Contrast:
    # The colour with an even `index`, the shape or pattern with an odd one.
    other_colour, other_carrier = colour, carrier
    if index % 2:
        other_carrier = phrases.rival(carrier, index, avoid)
    else:
        other_colour = phrases.rival(colour, index, avoid)
    apart = (*avoid, other_colour)
    prompt = phrases.figure(carrier, colour, apart, index)
    near = phrases.figure(other_carrier, other_colour, apart, index)
    return _made(label, prompt, near, f"{other_colour} {other_carrier}")


def _exchanged(label: str, words: Sequence[Word], index: int, avoid: Sequence[str]) -> Contrast:
    word = words[index % len(words)]
    spellings = sorted((word.name, *word.aliases), key=len, reverse=True)
    patterns = [re.compile(rf"\b{re.escape(spelling)}(?:e?s)?\b", re.IGNORECASE) for spelling in spellings]
    rival = phrases.rival(word.name, index, avoid)
    shows = next((pattern.sub(rival, label) for pattern in patterns if pattern.search(label)), rival)
    return _made(label, f"a photo of {label}", f"a photo of {shows}", shows)


def _made(label: str, prompt: str, near: str, shows: str, source: str = _CLOSE) -> Contrast:
    return Contrast(label=label, prompt=prompt, contrast_prompt=near, shows=shows, source=source)


def _says_more(label: str, words: Sequence[Word]) -> bool:
    known = {part for word in words for name in (word.name, *word.aliases) for part in re.findall(r"[a-z]+", name)}
    return any(
        not {token, token.removesuffix("s"), token.removesuffix("es")} & known
        for token in re.findall(r"[a-z]+", label.lower())
        if token not in ("a", "an", "the", "background", "pattern", "colour", "color")
    )
