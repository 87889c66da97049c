"""Writes prompts that test the labels of a description, by rules of the offline vocabulary.

Each prompt of a label has a matched neutral prompt, which shows other words of the same kinds in the same context. Both
are drawn at random. If a label also contains words outside of the vocabulary, its prompts quote the whole label,
because prompts with only its vocabulary words would test another description.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.analysis.overlap import ExploredPrompts, fold
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.prompts import StimulusPrompt, prompt_rows, seed_pairs
from openmaia.offline.evaluation.contexts import PromptContext, contexts
from openmaia.offline.vocabulary.phrases import article, rivals
from openmaia.offline.vocabulary.words import WORDS, Word, WordKind, covers, find, of_kind, relatives

# Random neutral prompts that are tried for one positive prompt before it is skipped.
DRAWS = 50

# For labels outside of the vocabulary.
PHRASES = ("a photo of {}", "a picture of {}", "an image of {}", "a photo that shows {}", "a picture that shows {}")


# Kinds of words of unrelated prompts, in rotation.
UNRELATED = (
    WordKind.OBJECT, WordKind.COLOUR, WordKind.OBJECT, WordKind.SHAPE, WordKind.SCENE, WordKind.PATTERN
)  # fmt: skip


class RulePromptWriter:
    """Writes test prompts from the labels of a claim, or from its description if it has none."""

    name = "rules (no language model)"
    words = tuple(word.name for word in WORDS if not word.is_exact)
    """Random descriptions consist of these words. Exact names are none of them: of most there is a single picture to
    test with, and their AUCs would say what that picture does."""

    def write(
        self,
        claim: Claim,
        n: int,
        run_seed: int,
        explored: ExploredPrompts = frozenset(),
        written: Sequence[StimulusPrompt] = (),
    ) -> list[StimulusPrompt]:
        """Writes matched prompts in the same order: a neutral prompt shows other words in the context of its positive
        one.

        Raises:
            UnansweredQuestion: All prompts that the rules yield are in `explored`.
        """
        earlier = prompt_rows(written)
        # The rules yield the same prompts in the same order each time, those of earlier looks first.
        pairs = write_pairs(claim.statements, len(earlier) + n, run_seed, explored)[len(earlier) :]
        if not pairs:
            raise UnansweredQuestion("the rules have no prompt for these labels that the agent did not draw")
        return seed_pairs([(pair.label, pair.positive, pair.neutral) for pair in pairs], run_seed, earlier)

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        return unrelated_prompts(n, run_seed)

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        """Returns the indices of prompts with a word of the claim, or with a more general word or a special case of
        one."""
        named = relatives(word.name for text in (claim.description, *claim.labels) for word in find(text))
        return frozenset(n for n, prompt in enumerate(prompts) if named & {word.name for word in find(prompt)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPair:
    """A prompt that shows a label, and one that differs by the label alone."""

    label: str
    positive: str
    neutral: str


def write_pairs(
    labels: Sequence[str], n: int, run_seed: int = 0, explored: ExploredPrompts = frozenset()
) -> list[PromptPair]:
    """Writes pairs of a positive and a neutral prompt, for the labels in rotation.

    A prompt is used again only if no new pair was found for its label. There are fewer than `n` pairs if all prompts of
    a label are in `explored`, which `openmaia.evaluation.analysis.overlap.fold` has folded.
    """
    avoid = [word.name for label in labels for word in find(label)]
    uses = Counter[str]()
    pairs_of = [_pairs(label, avoid, run_seed, explored, uses) for label in labels]
    pairs = (next(pairs_of[number % len(labels)], None) for number in range(n))
    return [pair for pair in pairs if pair is not None]


PairRule = tuple[str, Callable[[], str]]
"""A positive prompt, and a function that returns a random neutral prompt that matches it."""


def _pairs(
    label: str, avoid: Sequence[str], run_seed: int, explored: ExploredPrompts, uses: Counter[str]
) -> Iterator[PromptPair]:
    # Without end, but none if all prompts are in `explored`. `uses` counts folded prompts of all labels; the least used
    # come first.
    random = Random(seed(run_seed, "evaluate", f"prompts of {label}", 0))
    rules = _worded(label, avoid, random) if covers(label) else _quoted(label, avoid, random)
    rules = [rule for rule in rules if fold(rule[0]) not in explored]
    random.shuffle(rules)
    most = 0
    while rules and most <= max(uses.values(), default=0):
        for positive, neutral in rules:
            if uses[fold(positive)] > most:
                continue
            drawn = (neutral() for _ in range(DRAWS))
            other = next((text for text in drawn if fold(text) not in explored and uses[fold(text)] <= most), None)
            if other is not None:
                uses.update((fold(positive), fold(other)))
                yield PromptPair(label=label, positive=positive, neutral=other)
        most += 1


def _worded(label: str, avoid: Sequence[str], random: Random) -> list[PairRule]:
    # Neutral prompts replace all words of the label. An image with only the colour of a label such as "red circle"
    # would be a hard negative.
    names = _shown(find(label))
    others = [rivals(name, avoid) for name in names]

    def rule(context: PromptContext) -> PairRule:
        def neutral() -> str:
            drawn = [random.choice([name for name in each if name != context.ground] or each) for each in others]
            return context.prompt(drawn)

        return context.prompt(names), neutral

    return [rule(context) for context in contexts(names, avoid)]


def _shown(words: Sequence[Word]) -> list[str]:
    # What one prompt can show together: the first colour with the first shape or pattern; otherwise all objects with
    # the first colour and the first scene; without objects only the first scene, or else the first word.
    def of(*kinds: WordKind) -> list[str]:
        return [word.name for word in words if word.kind in kinds]

    colours, carriers = of(WordKind.COLOUR)[:1], of(WordKind.SHAPE, WordKind.PATTERN)[:1]
    if colours and carriers:
        return [*colours, *carriers]
    objects, scenes = of(WordKind.OBJECT), of(WordKind.SCENE)[:1]
    if objects:
        return [*colours, *objects, *scenes]
    return scenes or [words[0].name]


def _quoted(label: str, avoid: Sequence[str], random: Random) -> list[PairRule]:
    # Neutral prompts show an object of the vocabulary instead. Prompts name backgrounds, unless the label itself may
    # name one.
    everything = [word.name for word in of_kind(WordKind.OBJECT)]
    objects = [name for name in everything if name not in relatives(avoid)] or everything
    has_ground = any(word.kind in (WordKind.SCENE, WordKind.PATTERN) for word in find(label))
    has_ground |= not {"on", "in", "against", "background"}.isdisjoint(label.casefold().split())
    scenes = [""] if has_ground else [f" on {word.name}" for word in of_kind(WordKind.SCENE) if word.name not in avoid]

    def rule(phrase: str, scene: str) -> PairRule:
        return f"{phrase.format(label)}{scene}", lambda: f"{phrase.format(article(random.choice(objects)))}{scene}"

    return [rule(phrase, scene) for phrase, scene in product(PHRASES, scenes)]


def unrelated_prompts(n: int, run_seed: int = 0) -> list[str]:
    """Writes n different prompts, whose kinds of words rotate in the order of UNRELATED."""
    random = Random(seed(run_seed, "evaluate", "unrelated prompts", 0))
    prompts: dict[str, None] = {}
    while len(prompts) < n:
        kind = UNRELATED[len(prompts) % len(UNRELATED)]
        name = random.choice(of_kind(kind)).name
        prompts.setdefault(random.choice(contexts([name], ())).prompt([name]))
    return list(prompts)
