"""Compares the prompts of test images with those of the investigation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmaia.evaluation.claims import content_words, jaccard

ExploredPrompts = frozenset[str]
"""The prompts of an investigation, normalised by `fold`. Test images use none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverlap:
    """How far the prompts of a trial are those of the investigation."""

    explored: int
    """Different prompts of the investigation."""
    exact: float
    """Share of test prompts that are prompts of the investigation, apart from case and white space."""
    words: float
    """Mean over test prompts of the Jaccard index of their words with the most similar prompt of the investigation."""


def fold(prompt: str) -> str:
    """Returns a prompt in lower case, with single blanks between its words."""
    return " ".join(prompt.casefold().split())


def explored(prompts: Iterable[str]) -> ExploredPrompts:
    """Normalises the prompts of an investigation."""
    return frozenset(map(fold, prompts))


def measure_overlap(prompts: Sequence[str], drawn: Collection[str]) -> PromptOverlap:
    """Compares test prompts with those of the investigation, normalised by `fold`. Shares are 0 without test prompts."""
    known = {content_words(prompt) for prompt in drawn}
    tested = {prompt: content_words(prompt) for prompt in prompts}
    nearest = {prompt: max((jaccard(words, other) for other in known), default=0.0) for prompt, words in tested.items()}
    return PromptOverlap(
        explored=len(drawn),
        exact=float(np.mean([fold(prompt) in drawn for prompt in prompts])) if prompts else 0.0,
        words=float(np.mean([nearest[prompt] for prompt in prompts])) if prompts else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverlap:
    """Means over the trials of a run."""

    trials: int
    """With images."""
    exact: float
    words: float
    incomplete: int
    """Trials with fewer prompts than planned, because the agent had used the others itself."""


def run_overlap(scores: Iterable[Mapping[str, Any]]) -> RunOverlap | None:
    """Averages the overlap over the values of `Run.scores`; None if no trial has images."""
    trials = [each for each in scores if each["overlap_exact"] is not None]
    if not trials:
        return None
    exact, words = (float(np.mean([each[name] for each in trials])) for name in ("overlap_exact", "overlap_words"))
    incomplete = sum(bool(each["cause"]) for each in trials)
    return RunOverlap(trials=len(trials), exact=exact, words=words, incomplete=incomplete)
