"""Finds descriptions that answer a question: by meaning with sentence embeddings, else by words.

By words, a question and each label are lists of things. A thing is a set of names: a word of the run's lexicon stands for all that
it names, so that "ocean" is "sea" and "animal" has a name in common with "dog"; any other word stands for itself, without its
plural. A label answers a thing of the question if it has a name in common with it. What a label denies ("boat without night")
is none of its things. A word of the question that neither the lexicon nor any text has is not asked for: people ask in words
that nobody could list ("what is tuned to boats?").
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from openmaia.analysis.concepts import find_concepts
from openmaia.analysis.likeness import vectorize
from openmaia.core.components import ALIASES, stored
from openmaia.evaluation.claims import STOP_WORDS
from openmaia.models.text_embedding import TextEmbedding

WordNames = Mapping[str, frozenset[str]]
"""What words and phrases in lower case name: synonyms the same, a wider word all that is narrower."""

_Thing = frozenset[str]

LEAST_COVERED = 1.0
"""The smallest share of a question's things that a label answers. Measured, see measure/asking.py."""
LEAST_COSINE = 0.5
"""The smallest cosine of the embeddings of a question and a label, that of similar descriptions (`likeness`)."""

QUESTION_WORDS = STOP_WORDS | frozenset(
    "which what who where when how do does did is are be can could would will was were there that this these those any all some "
    "unit units neuron neurons feature features channel channels layer layers class classes output outputs network "
    "respond responds responding responded react reacts reacting fire fires firing activate activates activated active excite "
    "excites excited detect detects detecting see sees like likes look looks recognise recognises recognize recognizes show shows "
    "showing know knows find me i you we give list tell about by for from if as it them they strongly most more mostly "
    "image images picture pictures photo photos photograph photographs something anything kind kinds type types sort sorts s t".split()
)
"""Words of a question that name nothing, unless it has no others."""

DENIALS = frozenset("without not no except excluding never but".split())
"""Words after which a text names what it does not mean, up to the next mark of punctuation."""
_LONGEST = 6
"""Words of a phrase that is looked for in a lexicon, at most."""
_READ = 5000
"""Characters of a text that are read."""
_WORD = re.compile(r"\w+|[,;.:!?]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """A text that answers a question."""

    text: str
    score: float
    """The share of the question's things that it answers, or the cosine of both."""
    focus: float
    """The share of its own things that were asked for; 1 by meaning."""

    @property
    def order(self) -> tuple[float, float]:
        """The sort key: the best first."""
        return -self.score, -self.focus


def stem(phrase: str) -> str:
    """Returns a phrase in lower case without the endings of plurals, for comparisons: "boxes" and "box" become "box"."""
    return " ".join(map(_stem, phrase.casefold().split()))


@lru_cache(4096)
def _stem(word: str) -> str:
    if len(word) <= 3 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    word = word.removesuffix("s")
    return word.removesuffix("e") if len(word) > 3 else word


def run_lexicon(config: Mapping[str, Any]) -> WordNames:
    """Returns the words of the rules that go with a run's stored config, for a writer or generator with a closed vocabulary.
    Empty if there are none. Nothing of the user is imported."""
    sections = [
        stored({"kind": config["evaluate"]["sharing"]}, "writer"),
        stored(config["evaluate"]["writer"] or {}, "writer"),
    ]
    drawing = config["evaluate"]["generator"] or config["generator"]
    for found in (stored(config["backbone"], "backbone"), stored(drawing, "generator")):
        rules = found[0].rules(found[1]) if found else None
        sections.append(stored({"kind": rules.kind}, "writer") if rules else None)
        if found and rules is None and found[0].vocabulary(found[1]) is not None:
            sections.append(stored({"kind": next(iter(ALIASES["writer"]))}, "writer"))
    named = (getattr(each[0], "lexicon", None) for each in sections if each)
    empty: WordNames = {}
    words: WordNames = next((each() for each in named if each), empty)
    return {stem(phrase): names for phrase, names in words.items()}


def find_lexicon(texts: Iterable[str], embed: TextEmbedding | None) -> dict[str, frozenset[str]]:
    """Returns the words of texts that have the meaning of another one, for where no question can be embedded. Words are alike
    as labels of one concept are. Empty without `embed`."""
    if embed is None:
        return {}
    words = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text.casefold()) if word.isalpha()))
    words = [word for word in words if word not in QUESTION_WORDS]
    found = find_concepts([[word] for word in words], embed)
    sizes = Counter(found.positions)
    return {
        stem(word): frozenset([found.names[at]])
        for word, at in zip(words, found.positions, strict=True)
        if at is not None and sizes[at] > 1
    }


def read_things(text: str, lexicon: WordNames) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields the words of a text that name something, each or each phrase of a lexicon with its names."""
    words = _WORD.findall(text[:_READ].casefold())
    at, is_denied = 0, False
    phrase, meant, length = "", None, 1
    while at < len(words):
        if words[at] in ",;.:!?":
            at, is_denied = at + 1, False
            continue
        for length in range(min(_LONGEST, len(words) - at), 0, -1):
            phrase = " ".join(words[at : at + length])
            if (meant := lexicon.get(stem(phrase))) is not None or length == 1:
                break
        is_denied = is_denied or phrase in DENIALS
        if not is_denied and (meant or phrase not in STOP_WORDS):
            yield phrase, meant or frozenset([stem(phrase)])
        at += length


class TextSearch:
    """A question about texts. With `embed` it is asked by meaning, else by words, with those of `lexicon`.

    `covered` is LEAST_COVERED but for measurements.
    """

    def __init__(
        self,
        question: str,
        lexicon: WordNames | None = None,
        embed: TextEmbedding | None = None,
        covered: float = LEAST_COVERED,
    ):
        self._lexicon, self._embed, self._covered = lexicon or {}, embed, covered
        found = list(read_things(question, self._lexicon))
        asked = [each for each in found if each[0] not in QUESTION_WORDS] or found[-1:]
        self._asked = asked
        # The labels and the prompts of a bank are read several times.
        self._read = lru_cache(None)(self._read_names)
        self.asked = " ".join(dict.fromkeys(words for words, _ in asked))
        """What the question asks for. Empty if it has no word."""
        self._things = list(dict.fromkeys((thing, stem(words) in self._lexicon) for words, thing in asked))

    @property
    def by(self) -> str:
        """How it is searched, for people."""
        return "meaning" if self._embed else "words and their synonyms" if self._lexicon else "words"

    def find(self, texts: Sequence[Sequence[str]], beside: Iterable[str] = ()) -> list[TextMatch | None]:
        """Returns the best text of each list that answers the question; None if none does.

        Words that only texts `beside` these have are asked for, too.
        """
        if not self._things:
            return [None] * len(texts)
        flat = list(dict.fromkeys(text for several in texts for text in several if text.strip()))
        found = self._by_meaning(flat) if self._embed else self._by_words(flat, beside)
        matched = [[match for text in several if (match := found.get(text))] for several in texts]
        return [min(several, key=lambda each: each.order, default=None) for several in matched]

    def _by_words(self, texts: Sequence[str], beside: Iterable[str]) -> dict[str, TextMatch | None]:
        known = self._names([*texts, *beside])
        wanted = [thing for thing, is_meant in self._things if is_meant or thing & known]
        return {text: self._match(text, wanted) for text in texts} if wanted else {}

    def _match(self, text: str, wanted: Sequence[_Thing]) -> TextMatch | None:
        own = self._read(text)
        covered = sum(any(asked & thing for thing in own) for asked in wanted) / len(wanted)
        if not covered or covered < self._covered:
            return None
        focus = sum(any(asked & thing for asked in wanted) for thing in own) / len(own)
        return TextMatch(text=text, score=covered, focus=focus)

    def unknown(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Returns the words of the question that are not asked for by words, because none of these texts has them."""
        known = self._names(texts)
        left = (words for words, thing in self._asked if stem(words) not in self._lexicon and not thing & known)
        return () if self._embed else tuple(dict.fromkeys(left))

    def _read_names(self, text: str) -> frozenset[_Thing]:
        return frozenset(thing for _, thing in read_things(text, self._lexicon))

    def _names(self, texts: Iterable[str]) -> frozenset[str]:
        return frozenset[str]().union(*(thing for text in texts for thing in self._read(text)))

    def _by_meaning(self, texts: Sequence[str]) -> dict[str, TextMatch]:
        if not texts:
            return {}
        vectors: Any = vectorize([self.asked, *texts], self._embed)
        cosines = np.asarray(vectors[1:] @ vectors[0])
        return {
            text: TextMatch(text=text, score=float(value), focus=1.0)
            for text, value in zip(texts, cosines, strict=True)
            if value >= LEAST_COSINE
        }
