"""Compares the prompts of test images with those of the images that the agent generated in its investigation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmaia.evaluation.claims import content_words, jaccard

ExploredPrompts = frozenset[str]
"""The prompts of all images that an agent generated in an investigation, normalised by `fold`. Test images use none of
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverlap:
    """The overlap of the prompts that test a unit's description with those that the agent used in its investigation."""

    explored: int
    """Number of different prompts of the investigation."""
    exact: float
    """Share of test prompts that are prompts of the investigation, apart from case and white space."""
    words: float
    """Mean over test prompts of the Jaccard index of their words with the most similar prompt of the investigation."""


def fold(prompt: str) -> str:
    """Returns a prompt in lower case, with single blanks between its words."""
    return " ".join(prompt.casefold().split())


def explored(prompts: Iterable[str]) -> ExploredPrompts:
    """Returns the set of the prompts that an agent used in an investigation, each normalised by `fold`."""
    return frozenset(map(fold, prompts))


def measure_overlap(prompts: Sequence[str], drawn: Collection[str]) -> PromptOverlap:
    """Compares the prompts of test images with those of the images that the agent generated in its investigation.

    Args:
        prompts: The prompts of the test images.
        drawn: The prompts of the investigation, normalised by `fold`.

    Returns:
        The overlap. Its `exact` and `words` are 0 if there are no test prompts.
    """
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
    """The mean overlap of test prompts with the prompts that the agent used in its investigations, for one run.

    The means are over the run's trials. A trial is the test of one description.
    """

    trials: int
    """Number of trials with images."""
    exact: float
    """Mean of `PromptOverlap.exact` over trials."""
    words: float
    """Mean of `PromptOverlap.words` over trials."""
    incomplete: int
    """Number of trials with fewer test prompts than planned, because the agent had used the other prompts itself."""


def run_overlap(scores: Iterable[Mapping[str, Any]]) -> RunOverlap | None:
    """Averages the overlap of test prompts with the agent's prompts over the trials (tested descriptions) of a run.

    Args:
        scores: The scores of each trial: the values of the dict that `Run.scores` returns.

    Returns:
        The mean overlap, or None if no trial has images.
    """
    trials = [each for each in scores if each["overlap_exact"] is not None]
    if not trials:
        return None
    exact, words = (float(np.mean([each[name] for each in trials])) for name in ("overlap_exact", "overlap_words"))
    incomplete = sum(bool(each["cause"]) for each in trials)
    return RunOverlap(trials=len(trials), exact=exact, words=words, incomplete=incomplete)
