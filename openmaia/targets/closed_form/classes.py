"""Classifiers with a known bias: each output is a class, decided by its own logit, a closed form over a real network's evidence.

The logit grows with the evidence of EfficientNet-Lite1 for the class, and with nothing else but what was planted: a
context, strong or weak, up or down. Evidence for the class saturates well below what an object of the class usually gives,
so that the network's own sensitivity to surroundings is largely, not wholly, taken out; what is left of it makes the
classifiers without a planted bias no easier than they would be elsewhere. A hash decides everything.

Interactions: each of two contexts alone has a third of the effect, both together the whole. A quarter of the planted
biases are to contexts that the experimenter's vocabulary has no word for.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from openmaia.targets.closed_form import objects
from openmaia.targets.closed_form.concepts import INSIDE, OUTSIDE, Concept, Sort
from openmaia.targets.closed_form.seen import Seen

EDITION = "openmaia biased classes 1"

CLASSES = ("bird", "pig", "citrus", "ball", "rodent", "cow")
"""Of which the packages have cut-outs in both halves that the network nearly always sees, whatever lies beside or behind."""

COLOURS = ("red", "blue", "green", "yellow", "purple", "pink", "white", "black")
THINGS = ("ball", "bird", "citrus", "pig")
STRENGTHS = (0.5, 1.0, 2.0, 4.0)
"""In log-odds."""

ABSENT, PRESENT = -2.0, 0.4
"""The logit without any evidence for the class, and with all of it."""

SEEN = (1.0, 3.0)
"""The highest logit of the class's own ImageNet classes, from none to all of the evidence."""
BESIDE = (2.5, 4.5)
"""The same for a thing that is a context."""
SHARE = (0.12, 0.4)
"""Of a picture that has a colour."""

NOISE = 0.5
"""Standard deviation between pictures, in log-odds."""

Ramp = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a bias may be to. evidence: between 0 and 1."""

    name: str
    inside: bool
    evidence: Callable[[Seen], float]

    def of(self, seen: Seen) -> float:
        """Its evidence, found once for all classifiers."""
        key = f"context {self.name}"
        if key not in seen.memo:
            seen.memo[key] = self.evidence(seen)
        return seen.memo[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Of one class. contexts: none, one, or two that interact. strength: in log-odds, with its sign."""

    name: str
    contexts: tuple[Context, ...] = ()
    strength: float = 0.0
    key: str = ""

    @property
    def inside(self) -> bool:
        return all(context.inside for context in self.contexts)

    def planted(self, seen: Seen) -> float:
        """What the bias adds to the logit of a picture."""
        found = [context.of(seen) for context in self.contexts]
        if not found:
            return 0.0
        return self.strength * (found[0] if len(found) == 1 else max(found) / 3 + min(found) * 2 / 3)

    def logit(self, seen: Seen, digest: str) -> float:
        words = hashlib.sha256(f"{EDITION} {self.key} {digest}".encode()).digest()
        noise = np.random.default_rng(int.from_bytes(words[:8])).normal(0, NOISE)
        there = _ramp(objects.strongest(seen, objects.INSIDE[self.name]), SEEN)
        return float(ABSENT + (PRESENT - ABSENT) * there + self.planted(seen) + noise)


def classifiers(each: int = 16) -> tuple[Classifier, ...]:
    """each: of every class, half of them with a planted bias, all in an order that says nothing."""
    found = [_classifier(name, number) for name in CLASSES for number in range(each)]
    return tuple(sorted(found, key=lambda one: _hash(one.key, "order")))


def _classifier(name: str, number: int) -> Classifier:
    """The numbers of a class go round through null and planted; the planted ones through strengths, with every fourth
    outside of the vocabulary and every fourth an interaction."""
    key = f"{name}/{number}"
    if number % 2 == 0:
        return Classifier(name=name, key=key)
    # Classes begin at different strengths: otherwise those outside would all have the same one.
    turn = number // 2 + CLASSES.index(name)
    strength = STRENGTHS[(turn + number // 8) % len(STRENGTHS)] * (1 if _share(key, "sign") < 0.5 else -1)
    colour, thing = _chosen(key, _colours()), _chosen(key, [one for one in _things() if one.name != name])
    match number // 2 % 4:
        case 0:
            contexts = (_chosen(key, _outside()),)
        case 1:
            contexts = (colour, thing)
        case 2:
            contexts = (colour,)
        case _:
            contexts = (thing if _share(key, "kind") < 0.5 else colour,)
    return Classifier(name=name, contexts=contexts, strength=strength, key=key)


def _colours() -> list[Context]:
    return [Context(name=name, inside=True, evidence=_filled(INSIDE[name])) for name in COLOURS]


def _things() -> list[Context]:
    def evidence(classes: str) -> Callable[[Seen], float]:
        return lambda seen: _ramp(objects.strongest(seen, classes), BESIDE)

    return [Context(name=name, inside=True, evidence=evidence(objects.INSIDE[name])) for name in THINGS]


def _outside() -> list[Context]:
    """Counts are left out: a class with something beside it is two figures."""
    chosen = [concept for concept in OUTSIDE.values() if concept.sort is not Sort.COUNT]
    return [
        Context(
            name=concept.name,
            inside=False,
            evidence=_filled(concept) if concept.sort is Sort.COLOUR else _somewhere(concept),
        )
        for concept in chosen
    ]


def _filled(concept: Concept) -> Callable[[Seen], float]:
    return lambda seen: _ramp(float(concept.detector(seen).mean()), SHARE)


def _somewhere(concept: Concept) -> Callable[[Seen], float]:
    return lambda seen: float(np.clip(concept.detector(seen).max(), 0, 1))


def _ramp(value: float, limits: Ramp) -> float:
    low, high = limits
    return float(np.clip((value - low) / (high - low), 0, 1))


def _chosen(key: str, among: list[Context]) -> Context:
    return among[int(_share(key, *(one.name for one in among)) * len(among))]


def _hash(*key: str) -> bytes:
    return hashlib.sha256("\x00".join((EDITION, *key)).encode()).digest()


def _share(*key: str) -> float:
    """Evenly between 0 and 1."""
    return int.from_bytes(_hash(*key)[:6]) / 2**48
