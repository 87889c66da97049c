"""Finds the units whose most exciting images of the bank show what a question asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.analysis.search import TextSearch
from openmaia.evaluation.analysis.statistics import adjust_p_values
from openmaia.evaluation.analysis.verdict import LEVEL

LEAST_SHOWN = 0.5
"""The smallest share of a unit's most exciting images that show it. Measured, see measure/asking.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankEvidence:
    """How many of a unit's most exciting images of the bank show what was asked for, by their prompts."""

    shown: int
    of: int
    """Number of the unit's most exciting images that were looked at."""
    base: float
    """The share of all images of the bank that show it."""
    q: float
    """The probability of so many without a connection (hypergeometric), adjusted over the units that were asked (Benjamini and
    Hochberg)."""

    @property
    def text(self) -> str:
        """The evidence for people."""
        return f"{self.shown} of {self.of} best bank images (base {self.base:.2f})"


def find_shown(
    search: TextSearch, prompts: Sequence[str], tops: Sequence[Sequence[str]], least: float = LEAST_SHOWN
) -> list[BankEvidence | None]:
    """Returns the evidence for each unit; None where there is none.

    Args:
        search: The question.
        prompts: Those of all images of the bank.
        tops: For each unit the prompts of the images that excite it most.
        least: LEAST_SHOWN but for measurements.
    """
    from scipy import stats  # which takes a second, and few runs have a bank

    answering = [match is not None for match in search.find([[prompt] for prompt in prompts])]
    hits = dict(zip(prompts, answering, strict=True))
    count, total = sum(answering), len(prompts)
    shown = [sum(hits.get(prompt, False) for prompt in top) for top in tops]
    p = [float(stats.hypergeom.sf(x - 1, total, count, len(top))) for x, top in zip(shown, tops, strict=True)]
    return [
        BankEvidence(shown=x, of=len(top), base=count / total, q=q)
        if x and x >= least * len(top) and q <= LEVEL
        else None
        for x, top, q in zip(shown, tops, adjust_p_values(p), strict=True)
    ]
