"""Writes test prompts by rules of the offline vocabulary.

Each prompt of a label has a matched neutral prompt that differs only in the words of the label. The prompt for a label
that does not lie in the vocabulary as a whole is "a photo of LABEL": a part of it would test another description.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.evaluation.claims import Claim
from openmaia.evaluation.prompts import StimulusPrompt, seed_pairs
from openmaia.offline.vocabulary import phrases
from openmaia.offline.vocabulary.words import BY_NAME, Word, WordKind, covers, find, of_kind


class RulePromptWriter:
    """A PromptWriter without a language model. It uses the labels, and the description only if there are no labels."""

    name = "rules (no language model)"

    def write(self, claim: Claim, n: int, run_seed: int) -> list[StimulusPrompt]:
        """Returns n positive prompts, then the n neutral prompts that match them."""
        pairs = write_pairs(claim.statements, n)
        return seed_pairs([(pair.label, pair.positive, pair.neutral) for pair in pairs], run_seed)

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        """Returns up to n prompts that do not depend on a claim. They show words of the whole vocabulary.

        They are the same for every seed.
        """
        return unrelated_prompts(n)

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        """Returns the positions of the prompts that share a vocabulary word with the claim."""
        named = {word for text in (claim.description, *claim.labels) for word in find(text)}
        return frozenset(number for number, prompt in enumerate(prompts) if named & {*find(prompt)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPair:
    """A prompt for a label, and a matched neutral one."""

    label: str
    positive: str
    neutral: str


def write_pairs(labels: Sequence[str], n: int) -> list[PromptPair]:
    """Writes n pairs of prompts for the labels in rotation."""
    words = [find(label) if covers(label) else [] for label in labels]
    avoid = [word.name for label in labels for word in find(label)]
    return [_pair(labels[i % len(labels)], words[i % len(labels)], i // len(labels), avoid) for i in range(n)]


def _pair(label: str, words: Sequence[Word], index: int, avoid: Sequence[str]) -> PromptPair:
    colour = next((w.name for w in words if w.kind is WordKind.COLOUR), "")
    carrier = next((w.name for w in words if w.kind in (WordKind.SHAPE, WordKind.PATTERN)), "")
    things = [w.name for w in words if w.kind in (WordKind.OBJECT, WordKind.SCENE)]
    if colour and carrier:
        # An image with half of the combination is not neutral but the hardest negative, so both words are replaced.
        positive = phrases.figure(carrier, colour, avoid)
        neutral = phrases.figure(phrases.rival(carrier, index, avoid), phrases.rival(colour, index, avoid), avoid)
    elif len(things) > 1:
        others = [phrases.rival(thing, index + n, avoid) for n, thing in enumerate(things)]
        positive, neutral = (_together(names) for names in (things, others))
    elif words:
        word = (things or [words[0].name])[0]
        other = phrases.rival(word, index, avoid)
        # Both prompts avoid both words; otherwise a word would change the background as well as the figure.
        positive, neutral = (phrases.single(name, index, (*avoid, word, other)) for name in (word, other))
    else:
        positive = f"a photo of {label}"
        neutral = phrases.single(phrases.rival("cup", index, avoid), index, avoid)
    return PromptPair(label=label, positive=positive, neutral=neutral)


def _together(names: Sequence[str]) -> str:
    """Returns a prompt for things side by side, with the first scene among them as the background."""
    grounds = [name for name in names if BY_NAME[name].kind is WordKind.SCENE]
    figures = [name for name in names if name not in grounds] or grounds
    prompt = " next to ".join(map(phrases.article, figures))
    return f"{prompt} on {grounds[0]}" if grounds and figures != grounds else prompt


def unrelated_prompts(n: int) -> list[str]:
    """Writes up to n different prompts about words of the whole vocabulary, with the kinds of words in rotation."""
    kinds = [
        of_kind(kind)
        for kind in (
            WordKind.OBJECT,
            WordKind.COLOUR,
            WordKind.OBJECT,
            WordKind.SHAPE,
            WordKind.SCENE,
            WordKind.PATTERN,
        )
    ]
    prompts: dict[str, None] = {}
    for i in range(20 * n):
        words, turn = kinds[i % len(kinds)], i // len(kinds)
        # Seven shares no divisor with most numbers of words, so that nearly all words are used early.
        prompts.setdefault(phrases.single(words[(7 * turn + i) % len(words)].name, turn))
        if len(prompts) == n:
            break
    return list(prompts)
