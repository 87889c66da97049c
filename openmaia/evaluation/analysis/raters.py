"""How far several people, or models, give the same answers."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence


def krippendorff(items: Iterable[Sequence[Hashable]]) -> float | None:
    """Returns Krippendorff's alpha for nominal answers: 1 if all agree, 0 as by chance, below it if they disagree more.

    The source is Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C.

    Args:
        items: For each item the answers that it got, in any order. Items with fewer than two do not count.

    Returns:
        None without an item that counts, and where all answers are the same, because chance would agree as well.
    """
    answers, disagreement = Counter[Hashable](), 0.0
    for given in items:
        if len(given) > 1:
            counted = Counter(given)
            answers += counted
            disagreement += (len(given) ** 2 - sum(n * n for n in counted.values())) / (len(given) - 1)
    total = answers.total()
    expected = total**2 - sum(n * n for n in answers.values())
    return None if not expected else 1 - (total - 1) * disagreement / expected
