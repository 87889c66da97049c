"""Compares the prompts of test images with those of the images that the agent drew in its investigation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmaia.evaluation.claims import content_words, jaccard

ExploredPrompts = frozenset[str]
"""The prompts, folded by `fold`, of all images that were drawn in an investigation. No test image may use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverlap:
    """The overlap of a trial's prompts with those of the investigation."""

    explored: int
    """Number of different prompts of the investigation."""
    exact: float
    """Share of test prompts that are prompts of the investigation, apart from case and white space."""
    words: float
    """Mean over test prompts of the highest Jaccard index of their words with those of a prompt of the investigation."""


def fold(prompt: str) -> str:
    """Returns a prompt in lower case, with single blanks between its words."""
    return " ".join(prompt.casefold().split())


def explored(prompts: Iterable[str]) -> ExploredPrompts:
    """Returns the folded prompts of an investigation."""
    return frozenset(map(fold, prompts))


def measure_overlap(prompts: Sequence[str], drawn: Collection[str]) -> PromptOverlap:
    """Compares test prompts with the folded prompts `drawn` in an investigation. Both measures are 0 without prompts."""
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
    """The overlap of the test prompts of a run with those of its investigations."""

    trials: int
    """Number of trials with images."""
    exact: float
    """Mean of `PromptOverlap.exact` over trials."""
    words: float
    """Mean of `PromptOverlap.words` over trials."""
    incomplete: int
    """Number of trials with fewer prompts than asked for, because the agent had drawn the others."""


def run_overlap(scores: Iterable[Mapping[str, Any]]) -> RunOverlap | None:
    """Returns the overlap of a run from the scores of its evaluations. None without trials with images."""
    trials = [each for each in scores if each["overlap_exact"] is not None]
    if not trials:
        return None
    exact, words = (float(np.mean([each[name] for each in trials])) for name in ("overlap_exact", "overlap_words"))
    incomplete = sum(bool(each["cause"]) for each in trials)
    return RunOverlap(trials=len(trials), exact=exact, words=words, incomplete=incomplete)
