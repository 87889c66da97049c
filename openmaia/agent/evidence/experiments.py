"""What the experiments of an investigation did, as its record says."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.agent.tasks.task import FUNCTION_WORDS
from openmaia.runs.records import Did, ExperimentStatus, ImageEntry, Turn

_MADE = (Did.DREW, Did.COPIED, Did.EDITED)
_NUMBERED = re.compile(r"image-\d+|<experiment \d+>")
"""Names in an output whose numbers change when an experiment is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentFacts:
    """Both are False for a turn without an experiment."""

    counts: bool
    """Whether the experiment differs from all before it, measured an image that was not drawn from a prompt of the
    example, and ended without an exception."""
    is_repeated: bool
    """Whether it repeats an earlier experiment, or copies the example in the instructions.

    - An experiment that made images is a repetition if two earlier ones have the same code, prompts or instructions,
      and edited images. One is no reason, because every run makes new images.
    - One that made none, or raised an exception, is a repetition if an earlier one has the same code and output.
    - One that ended otherwise, such as by a timeout, is none, because another try may succeed.
    - An experiment copies the example if it only makes images of prompts in it, and at most measures these."""


def examine(turns: Sequence[Turn]) -> list[ExperimentFacts]:
    """Returns the facts of each turn. Later turns do not change them."""
    before, copied, facts = Counter[tuple[str, ...]](), frozenset[str](), list[ExperimentFacts]()
    for turn in turns:
        copied |= find_copied([turn])
        experiment = _key(turn)
        times = before[experiment]
        if turn.code:
            before[experiment] += 1
        is_again = (
            times > (1 if _made(turn) else 0) if turn.status is ExperimentStatus.OK else turn.raised and times > 0
        )
        counts = turn.completed and not times and _measured_own(turn, copied)
        facts.append(ExperimentFacts(counts=counts, is_repeated=is_again or _is_copy(turn)))
    return facts


def count_measuring(turns: Sequence[Turn]) -> int:
    """Counts the experiments that count as evidence (see `ExperimentFacts`)."""
    return sum(facts.counts for facts in examine(turns))


def find_copied(turns: Sequence[Turn]) -> frozenset[str]:
    """Returns the digests of the images that were drawn from prompts of the example in the instructions."""
    return frozenset(entry.original for entry in _entries(turns) if entry.did is Did.COPIED)


def list_words_not_drawn(turns: Sequence[Turn]) -> list[str]:
    """Returns the words of prompts and instructions that could not be drawn, without duplicates."""
    return list(dict.fromkeys(word for entry in _entries(turns) for word in entry.missing))


def find_measured_words(turns: Sequence[Turn]) -> frozenset[str]:
    """Returns the content words of the prompts and instructions of measured images, and of the hypotheses that they
    test, without words that could not be drawn and images copied from the example.
    """
    copied, words = find_copied(turns), set[str]()
    made = {entry.id: _shown_words(entry) for entry in _entries(turns) if entry.did in _MADE}
    for entry in _entries(turns):
        if entry.did is Did.MEASURED:
            words |= made.get(entry.of, frozenset())
            words |= content_words(entry.hypothesis) if entry.original not in copied else frozenset()
    for call in (call for turn in turns for call in turn.calls if call.name == "responses" and call.error is None):
        words |= frozenset[str]().union(*(made.get(image.id, frozenset()) for image in call.given))
    return frozenset(words)


def content_words(text: str) -> frozenset[str]:
    """Returns the words in lower case without a plural s, function words apart."""
    words = {word.removesuffix("s") for word in re.findall(r"\w+", text.casefold())}
    return frozenset(words - FUNCTION_WORDS)


def _shown_words(entry: ImageEntry) -> frozenset[str]:
    return (
        frozenset() if entry.did is Did.COPIED else content_words(entry.prompt) - content_words(" ".join(entry.missing))
    )


def _entries(turns: Sequence[Turn]) -> Iterator[ImageEntry]:
    return (entry for turn in turns for call in turn.calls for entry in call.entries)


def _made(turn: Turn) -> list[ImageEntry]:
    return [entry for entry in _entries([turn]) if entry.did in _MADE]


def _measured_own(turn: Turn, copied: frozenset[str]) -> bool:
    entries = _entries([turn])
    return any(entry.did is Did.MEASURED and entry.original not in copied for entry in entries) or any(
        call.name == "responses" and call.error is None for call in turn.calls
    )


def _is_copy(turn: Turn) -> bool:
    made, has_exemplars = _made(turn), any(entry.did is Did.EXEMPLAR for entry in _entries([turn]))
    is_copied = bool(made) and all(entry.did is Did.COPIED for entry in made)
    return (
        turn.status is ExperimentStatus.OK
        and is_copied
        and not has_exemplars
        and not _measured_own(turn, find_copied([turn]))
    )


def _key(turn: Turn) -> tuple[str, ...]:
    """Returns texts that are equal for turns with the same experiment."""
    made = _made(turn)
    # The output of an experiment that makes images is never the same, so what it asked for is compared.
    if turn.status is ExperimentStatus.OK and made:
        bases = (entry.original for entry in _entries([turn]) if entry.did is Did.BASE)
        return (turn.code.strip(), *(entry.prompt for entry in made), *bases)
    parts = (_NUMBERED.sub("", part) if isinstance(part, str) else part.digest for part in turn.observation)
    return (turn.code.strip(), *parts)
