"""Test prompts and contrasts for labels in the words of drawn scenes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random

from openmaia.agent.contrasts import Contrast
from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.analysis.overlap import ExploredPrompts, fold
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.prompts import StimulusPrompt, prompt_rows, seed_pairs
from openmaia.offline.evaluation.prompts import PHRASES
from openmaia.offline.scenes.captions import PLACE_PHRASES
from openmaia.offline.scenes.truth import alternatives, holds
from openmaia.offline.searcher.labels import ask, sayable, scene_of, shows, terms
from openmaia.offline.searcher.pairs import Pair, draw_pairs, draw_scene, prompt
from openmaia.offline.vocabulary.phrases import article

# Random pairs that are drawn for each that is used, at most: others are prompts of the agent, or were used before.
_DRAWS = 20


class ScenePromptWriter:
    """Writes test prompts from the labels of a claim, or from its description if it has none."""

    name = "rules for scenes (no language model)"

    def __init__(self, without: Sequence[str] = ()):
        """
        Args:
            without: Words that the generator does not know.
        """
        self._without = without
        self.words = sayable(without)

    def write(
        self,
        claim: Claim,
        n: int,
        run_seed: int,
        explored: ExploredPrompts = frozenset(),
        written: Sequence[StimulusPrompt] = (),
    ) -> list[StimulusPrompt]:
        """Writes pairs of scenes that differ in one thing: a neutral prompt lacks one of the words of its label. The parts of
        a label such as "a boat or a balloon" have the same number of pairs.

        Raises:
            UnansweredQuestion: All prompts that the rules yield are in `explored`.
        """
        earlier = prompt_rows(written)
        labels = claim.statements
        used = {fold(text) for row in earlier for text in row[1:]}
        source = _PairSource(labels=labels, without=self._without, explored=explored, used=used)
        streams = [Random(seed(run_seed, "evaluate", f"scenes of {label}", len(earlier))) for label in labels]
        sources = [
            source.in_turns(label, stream, sum(row[0] == label for row in earlier))
            for label, stream in zip(labels, streams, strict=True)
        ]
        rows: list[tuple[str, str, str]] = []
        for number in range(len(earlier), len(earlier) + n):
            label, pair = labels[number % len(labels)], next(sources[number % len(labels)], None)
            rows += [(label, pair.positive, pair.neutral)] if pair else []
        if not rows:
            raise UnansweredQuestion("the rules have no prompt for these labels that the agent did not draw")
        return seed_pairs(rows, run_seed, earlier)

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        """Writes n prompts of random scenes."""
        stream = Random(seed(run_seed, "evaluate", "unrelated scenes", 0))
        found: dict[str, None] = {}
        while len(found) < n:
            found.setdefault(prompt(draw_scene(stream, self._without)))
        return list(found)

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        """Returns the positions of the prompts that show a label, or might. A label with words outside of the grammar is
        related to all prompts with one of its other words.
        """
        return frozenset(n for n, text in enumerate(prompts) if any(_may_show(text, each) for each in claim.statements))


def _may_show(text: str, label: str) -> bool:
    if len(parts := alternatives(label)) > 1:
        return any(_may_show(text, each) for each in parts)
    if ask(label).missing:
        return bool(terms(label) & terms(text))
    return holds(scene_of(text), label) is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairSource:
    """Draws pairs for labels that are tested together."""

    labels: Sequence[str]
    without: Collection[str]
    explored: ExploredPrompts = frozenset()
    used: set[str] = field(default_factory=set[str])

    def in_turns(self, label: str, stream: Random, earlier: int = 0) -> Iterator[Pair]:
        # Pairs of each part of a label, the next after `earlier` pairs of them, while there are some.
        sources = [self._new(each, stream) for each in alternatives(label)]
        for turn in count(earlier):
            if (pair := next(sources[turn % len(sources)], None)) is None:
                return
            yield pair

    def _new(self, label: str, stream: Random) -> Iterator[Pair]:
        # Pairs of which the agent drew neither prompt. One is used again only if there is no new one, and likewise one whose
        # neutral prompt shows another label by its scenery, as a forest shows trees.
        avoid = frozenset[str]().union(*map(terms, self.labels))
        is_known = next(draw_pairs(label, Random(0), avoid, self.without), None) is not None
        quoted = {*avoid, *self.without}
        endless = draw_pairs(label, stream, avoid, self.without) if is_known else _quoted(label, quoted, stream)
        while True:
            usable = (pair for pair in islice(endless, _DRAWS) if self.explored.isdisjoint(_texts(pair)))
            spare = found = None
            for spare in usable:
                if self.used.isdisjoint(_texts(spare)) and not any(shows(spare.neutral, each) for each in self.labels):
                    found = spare
                    break
            pair = found or spare
            if pair is None:
                return
            self.used.update(_texts(pair))
            yield pair


def _texts(pair: Pair) -> frozenset[str]:
    return frozenset((fold(pair.positive), fold(pair.neutral)))


def _quoted(label: str, avoid: Collection[str], stream: Random) -> Iterator[Pair]:
    # The whole label in a random place, because prompts with only those of its words that are known would test another one.
    while True:
        scene = draw_scene(stream, avoid)
        phrase, where = stream.choice(PHRASES), PLACE_PHRASES[scene.place]
        kind = article(scene.figures[0].kind)
        yield Pair(
            positive=f"{phrase.format(label)} {where}",
            neutral=f"{phrase.format(kind)} {where}",
            part="label",
            removal="",
        )


class SceneContrasts:
    """Finds contrasts without a language model."""

    def __init__(self, without: Sequence[str] = ()):
        self._without = without

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns n contrasts for the labels in rotation, or one for each label if there are more. Dropped hypotheses are
        no near misses: those change one word."""
        sources = [
            _PairSource(labels=labels, without=self._without).in_turns(label, Random(f"contrasts of {label}"))
            for label in labels
        ]
        found: list[Contrast] = []
        for number in range(max(n, len(labels)) if labels and n else 0):
            at = number % len(labels)
            pair = next(sources[at])
            found.append(
                Contrast(
                    label=labels[at],
                    prompt=pair.positive,
                    contrast_prompt=pair.neutral,
                    shows=pair.neutral,
                    source=f"another {pair.part}",
                )
            )
        return found
