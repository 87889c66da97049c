"""Who writes the prompts that a claim is tested with, by protocol.

labels   n prompts, the labels taking turns, each with a matched neutral one (our default; the writer may be rule-based)
paper    7 positive and 7 neutral prompts from the description, by another language model than the agent's
repo     n of each from the labels, as the published evaluation script asks for them
pairing  7 of each from every description of a unit, and a judge who picks from all of them (entailment.py)
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from openmaia.evaluate import prompts
from openmaia.evaluate.asking import Asker, Question, listed, listed_pairs, text
from openmaia.evaluate.claims import Claim
from openmaia.tools.seeds import seed

Preset = Literal["labels", "paper", "repo", "pairing"]
Role = Literal["positive", "neutral"]
ROLES: tuple[Role, ...] = ("positive", "neutral")

PUBLISHED = 7
"""Prompts of each kind in the papers' protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A prompt of a test. label: what it tests, "" for the whole description. seed: of its image; the two of a pair share
    one, so that layout, size and ground are the same."""

    role: Role
    label: str
    prompt: str
    seed: int


class Writer(Protocol):
    @property
    def name(self) -> str: ...

    def write(self, claim: Claim, n: int, run_seed: int) -> list[Shot]:
        """n positive shots, then n neutral ones. Raises Unanswered where no usable prompts came."""
        ...


class RuleWriter:
    """The embedded default: no language model. It reads labels alone."""

    name = "rules (no language model)"

    def write(self, claim: Claim, n: int, run_seed: int) -> list[Shot]:
        labels = [label for label in claim.labels if label.strip()] or [claim.description]
        return _paired([(pair.label, pair.positive, pair.neutral) for pair in prompts.write(labels, n)], run_seed)


@dataclass(frozen=True, slots=True)
class ModelWriter:
    """A language model that writes per label."""

    asker: Asker

    @property
    def name(self) -> str:
        return self.asker.name

    def write(self, claim: Claim, n: int, run_seed: int) -> list[Shot]:
        labels = [label for label in claim.labels if label.strip()] or [claim.description]
        written: list[tuple[str, str, str]] = []
        for at, label in enumerate(labels):
            count = n // len(labels) + (at < n % len(labels))
            if count:
                rest = [other for other in labels if other != label]
                avoid = f"Neither prompt may show any of these: {'; '.join(rest)}." if rest else ""
                question = text("pairs", claim=label, n=count, avoid=avoid) + "\n" + text("lines", n=count)
                pairs = self.asker.ask(_question(question, run_seed), lambda answer, k=count: listed_pairs(answer, k))
                written += [(label, positive, neutral) for positive, neutral in pairs]
        return _paired(written, run_seed)


@dataclass(frozen=True, slots=True)
class PublishedWriter:
    """The published protocols: one question for the positive prompts, one for the neutral ones."""

    asker: Asker
    preset: Preset

    @property
    def name(self) -> str:
        return self.asker.name

    def write(self, claim: Claim, n: int, run_seed: int) -> list[Shot]:
        said = "\n".join(claim.labels) if self.preset == "repo" else claim.description
        shots: list[Shot] = []
        for role in ROLES:
            question = text(role, claim=said or claim.description or "\n".join(claim.labels), n=n)
            question = _question(question + "\n" + text("lines", n=n), run_seed)
            for prompt in self.asker.ask(question, lambda answer: listed(answer, n)):
                shots.append(Shot(role=role, label="", prompt=prompt, seed=seed(run_seed, "evaluate", prompt, 0)))
        return shots


def _question(words: str, run_seed: int) -> Question:
    return Question(parts=(words,), seed=seed(run_seed, "evaluate", words, 0) >> 32)


def _paired(written: Sequence[tuple[str, str, str]], run_seed: int) -> list[Shot]:
    """(label, positive, neutral) each. Equal pairs, whoever's, get equal images, and a repeated one new ones."""
    asked: Counter[str] = Counter()
    seeds: list[int] = []
    for _, positive, neutral in written:
        pair = f"{positive} | {neutral}"
        seeds.append(seed(run_seed, "evaluate", pair, asked[pair]))
        asked[pair] += 1
    return [
        Shot(role=role, label=row[0], prompt=row[1 + at], seed=number)
        for at, role in enumerate(ROLES)
        for row, number in zip(written, seeds, strict=True)
    ]
