"""Designs the experiments of the scripted experimenter: the screening, controls and edits."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.offline.vocabulary import phrases
from openmaia.offline.vocabulary.words import BY_NAME, WORDS, WordKind, of_kind

COLOUR_WORDS = [word.name for word in of_kind(WordKind.COLOUR)]
_CARRIERS = [word.name for word in of_kind(WordKind.SHAPE, WordKind.PATTERN)]
_OBJECTS = [word.name for word in of_kind(WordKind.OBJECT) if not word.is_exact]
_NAMES = [word.name for word in WORDS if word.is_exact]
_SCENES = [word.name for word in of_kind(WordKind.SCENE)]

# Images of each colour alone in the screening. All other images of the screening contain at least two colours.
_PLAIN = 2
# Images per hypothesis, and per control group.
_CONTEXTS = 6
# Images of a confirmed hypothesis that are edited.
_EDITED = 3
RECOLOUR = "change the color to "
# Colour to which no edit changes an object if none of the hypotheses to edit names a colour. A change to grey would
# only remove the colour of the object.
_UNRELATED = "grey"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningPrompt:
    """A prompt of the screening and the vocabulary words that vary in it."""

    prompt: str
    words: tuple[str, ...]

    @property
    def ground(self) -> str:
        """The colour of the background, "" if the prompt names none."""
        match = re.search(r" on a (\w+) background$", self.prompt)
        return match[1] if match else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One word, or a shape or pattern in a colour (two words), to which the unit may respond."""

    words: tuple[str, ...]
    score: float
    """Strength of the evidence, in units of the spread of the activations in the screening."""

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def is_exact(self) -> bool:
        """Whether it is about an exact name, which is never part of a combination."""
        return BY_NAME[self.words[0]].is_exact

    @property
    def kind(self) -> WordKind:
        """The kind of the first word: colour for all hypotheses with two words."""
        return BY_NAME[self.words[0]].kind


def screen() -> list[ScreeningPrompt]:
    """Returns the prompts of the screening.

    Together they show every colour alone and with every shape and pattern, every general word for objects on a plain
    background and in a scene, and every exact name once, on a plain background.
    """
    prompts = [
        ScreeningPrompt(prompt=f"a plain {colour} picture", words=(colour,))
        for colour in COLOUR_WORDS
        for _ in range(_PLAIN)
    ]
    # The backgrounds form a Latin square, so that no background is tied to a colour or a carrier.
    prompts += [
        ScreeningPrompt(prompt=phrases.figure(carrier, colour, (), row + column), words=(colour, carrier))
        for row, carrier in enumerate(_CARRIERS)
        for column, colour in enumerate(COLOUR_WORDS)
    ]
    for index, thing in enumerate(_OBJECTS):
        scene = _SCENES[index % len(_SCENES)]
        noun = phrases.article(thing)
        prompts.append(ScreeningPrompt(prompt=f"{noun} on a grey background", words=(thing,)))
        prompts.append(ScreeningPrompt(prompt=f"{noun} on {scene}", words=(thing, scene)))
    prompts += [
        ScreeningPrompt(prompt=f"{phrases.article(name)} on a grey background", words=(name,)) for name in _NAMES
    ]
    return prompts


def groups(hypothesis: Hypothesis, others: Sequence[Hypothesis]) -> list[list[str]]:
    """Returns _CONTEXTS prompts that test a hypothesis, and as many of a control group for each of its words.

    The prompts of a control group replace one word by another of its kind. If the hypothesis has a single word, all
    prompts avoid the words of `others`.
    """
    avoid = [word for other in others for word in other.words]
    if len(hypothesis.words) == 1:
        word = hypothesis.words[0]
        rivals = [phrases.rival(word, index, avoid) for index in range(_CONTEXTS)]
        # Both prompts avoid both words; otherwise a word would change the background as well as the figure.
        apart = [(*avoid, word, rival) for rival in rivals]
        return [
            [phrases.single(name, index, apart[index]) for index, name in enumerate(group)]
            for group in ([word] * _CONTEXTS, rivals)
        ]
    colour, carrier = hypothesis.words
    carriers = [phrases.rival(carrier, index, (carrier,)) for index in range(_CONTEXTS)]
    colours = [phrases.rival(colour, index, (colour,)) for index in range(_CONTEXTS)]
    return [
        [phrases.figure(carrier, colour, (), index) for index in range(_CONTEXTS)],
        [phrases.figure(other, colour, (), index) for index, other in enumerate(carriers)],
        [phrases.figure(carrier, other, (colour,), index) for index, other in enumerate(colours)],
    ]


def looked_at(candidates: Sequence[Hypothesis]) -> list[str]:
    """Returns the prompts whose images the experimenter displays: those about objects and scenes, and of their
    controls.

    Their images contain colours and shapes that the prompts do not name.
    """
    things = [h for h in candidates if h.kind in (WordKind.OBJECT, WordKind.SCENE)]
    return list(dict.fromkeys(p for h in things for group in groups(h, candidates) for p in group))


def removals(hypothesis: Hypothesis, candidates: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """Plans _EDITED edits that replace what the first word of a hypothesis names by another thing of its kind.

    If the hypothesis is right, they lower the activation. They add nothing that a candidate names.

    Returns:
        Pairs: the prompt from which the image is generated, and the instruction for its edit.
    """
    avoid = [word for candidate in candidates for word in candidate.words]
    words = hypothesis.words
    bases = [
        phrases.figure(words[1], words[0]) if len(words) == 2 else phrases.single(words[0], index, avoid)
        for index in range(_EDITED)
    ]
    return [(base, _removal(words[0], index, avoid)) for index, base in enumerate(bases)]


def edits(kept: Sequence[Hypothesis], candidates: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """Plans edits of images that test hypotheses, as pairs like those of `removals`.

    For an object, each removal is followed by an edit of the same image that changes the object's colour. If the
    hypothesis is right, the latter lowers the activation only a little.
    """
    avoid = [word for candidate in candidates for word in candidate.words]
    words = [word for hypothesis in kept for word in hypothesis.words]
    colour = next((word for word in words if BY_NAME[word].kind is WordKind.COLOUR), _UNRELATED)
    pairs: list[tuple[str, str]] = []
    for hypothesis in kept:
        for index, (base, order) in enumerate(removals(hypothesis, candidates)):
            pairs.append((base, order))
            if hypothesis.kind is WordKind.OBJECT:
                pairs.append((base, RECOLOUR + phrases.rival(colour, index, avoid)))
    return pairs


def _removal(word: str, index: int, avoid: Sequence[str]) -> str:
    rival = phrases.rival(word, index, avoid)
    match BY_NAME[word].kind:
        case WordKind.COLOUR:
            return RECOLOUR + rival
        case WordKind.PATTERN | WordKind.SCENE:
            return f"change the background to {rival}"
        case _:
            return f"replace the {word} with {phrases.article(rival)}"
