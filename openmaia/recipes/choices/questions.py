"""Makes blind questions: which of two methods' texts fits a unit's exemplars better? The answer key is stored
separately.
"""

import io
import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from PIL import Image

from openmaia.core.documents import parse_json
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import darken_outside, unpack_mask
from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim, following_units, read_claims
from openmaia.reporting.browser.unit.claims import find_exemplar_images
from openmaia.runs.records import Record
from openmaia.runs.run import InvestigationId, Run

_MAX_EXEMPLARS = 10
_IMAGE_SIZE = 192
"""Pixels of the longer side of an exemplar on a page."""

OWN_UNIT, FOREIGN = "own", "of another unit"
CHECK = "Choose this one. It is no label: it checks that you read both."
_FEWEST_CHECKS, _BETWEEN_CHECKS = 3, 10
"""Number of attention checks of a page for people: one for each _BETWEEN_CHECKS questions, and at least _FEWEST_CHECKS."""
_UNSEEN = "their records show no exemplars, or are damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePair:
    """The statements of two methods about one unit."""

    unit: Unit
    replicate: int
    exemplars: tuple[bytes, ...]
    """The first top exemplars that the agent requested, as WebP, darkened where the unit is inactive. Empty if `truth` is
    shown."""
    truth: str = ""
    """Empty if exemplars are shown instead."""
    texts: tuple[str, str]
    """For each method its labels joined by "; ", or its description if there are no labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePairs:
    """The pairs of two methods."""

    methods: tuple[str, str]
    """OWN_UNIT and FOREIGN (texts of the same run about other units) if only one run is given."""
    pairs: tuple[ChoicePair, ...]
    left_out: Mapping[str, int]
    """Investigations of the first run for which there is no pair, by the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceQuestion:
    """One question of a page."""

    name: str
    """Random."""
    pair: ChoicePair
    texts: tuple[str, str]
    """In the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSource:
    """Where the texts of a question come from."""

    unit: Unit
    replicate: int
    first: int
    """Index (0 or 1) of the method whose text is shown first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKey:
    """Says which method made which statement of a page."""

    name: str
    """Of the page."""
    methods: tuple[str, str]
    """`QuestionSource.first` is an index into them."""
    items: Mapping[str, QuestionSource]
    """By the name of the question."""
    checks: Mapping[str, int] = field(default_factory=dict[str, int])
    """The right answer (1 or 2) to each attention check, by the name of the question."""


def choice_pairs(runs: Sequence[tuple[Run, str]], truths: Mapping[tuple[str, int], str] | None = None) -> ChoicePairs:
    """Pairs the statements of two runs about the same units, or each statement of one run with one about another unit
    of the layer.

    `truths` (by layer and index), if given, are shown in place of exemplars, as in the MAIA paper. Raises UsageError
    for more than two runs, or if no pair is left.
    """
    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs were given; a choice is between the labels of two runs, or within one")
    methods = (OWN_UNIT, FOREIGN) if len(runs) == 1 else (runs[0][1], runs[1][1])
    first = _statements(runs[0][0])
    second = _foreign(first) if len(runs) == 1 else _statements(runs[1][0])
    pairs: list[ChoicePair] = []
    left_out: Counter[str] = Counter()
    for investigation, text in sorted(first.items()):
        texts = text, second.get(investigation, "")
        reason, unit = _unfit(*texts), investigation.unit
        truth = "" if truths is None else " ".join(truths.get((unit.layer, unit.index), "").split())
        record = None if reason or truths is not None else next(runs[0][0].records([investigation]), None)
        exemplars = tuple(_exemplars(record)) if record else ()
        if not reason and (exemplars or truth):
            replicate = investigation.replicate
            pairs.append(ChoicePair(unit=unit, replicate=replicate, exemplars=exemplars, truth=truth, texts=texts))
        else:
            left_out[reason or (_UNSEEN if truths is None else "without a true label")] += 1
    if not pairs:
        reasons = "; ".join(f"{count} {why}" for why, count in left_out.items()) or "no investigation is finished"
        raise UsageError(f"{runs[0][0].files.root} gives nothing to choose between: of its investigations {reasons}")
    return ChoicePairs(methods=methods, pairs=tuple(pairs), left_out=left_out)


def _statements(run: Run) -> dict[InvestigationId, str]:
    return {claim.investigation: _statement(claim) for claim in read_claims(run)}


def _statement(claim: Claim) -> str:
    return "; ".join(" ".join(text.split()) for text in claim.statements)


def _foreign(statements: Mapping[InvestigationId, str]) -> dict[InvestigationId, str]:
    """Finds for each investigation the statement of the same replicate about the next unit of the layer with another
    text.
    """
    foreign: dict[InvestigationId, str] = {}
    for own, text in statements.items():
        others = {
            other.unit: words
            for other, words in statements.items()
            if other.replicate == own.replicate and words and words.casefold() != text.casefold()
        }
        foreign[own] = next((others[unit] for unit in following_units(own.unit, others)), "")
    return foreign


def _unfit(text: str, other: str) -> str:
    """Returns why two statements cannot be compared; empty if they can."""
    if not text:
        return "without labels"
    if not other:
        return "without labels to choose between"
    return "with the same labels" if text.casefold() == other.casefold() else ""


def _exemplars(record: Record) -> Iterator[bytes]:
    for stored, mask in find_exemplar_images(record, _MAX_EXEMPLARS):
        pixels = stored.pixels
        height, width = pixels.shape[:2]
        if mask is not None and len(mask) == height * ((width + 7) // 8):
            pixels = darken_outside(pixels, unpack_mask(mask, (width, height)))
        image = Image.fromarray(pixels)
        image.thumbnail((_IMAGE_SIZE, _IMAGE_SIZE))
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=80)  # encoded again, so that no metadata of the original file is left
        yield buffer.getvalue()


def make_blind(found: ChoicePairs) -> tuple[list[ChoiceQuestion], AnswerKey]:
    """Turns each pair into two questions that show it in opposite order.

    All pairs are asked once in random order, and then again in another.
    """
    # From the operating system, because the answer key could be computed from a seed.
    random = secrets.SystemRandom()
    sides = [random.randrange(2) for _ in found.pairs]
    questions: list[ChoiceQuestion] = []
    items: dict[str, QuestionSource] = {}
    for swap in (0, 1):
        for number in random.sample(range(len(found.pairs)), len(found.pairs)):
            pair, first = found.pairs[number], sides[number] ^ swap
            name = secrets.token_hex(8)
            questions.append(ChoiceQuestion(name=name, pair=pair, texts=(pair.texts[first], pair.texts[1 - first])))
            items[name] = QuestionSource(unit=pair.unit, replicate=pair.replicate, first=first)
    return questions, AnswerKey(name=secrets.token_hex(8), methods=found.methods, items=items)


def add_checks(questions: Sequence[ChoiceQuestion], key: AnswerKey) -> tuple[list[ChoiceQuestion], AnswerKey]:
    """Adds questions at random places in which one text is CHECK, and their answers to the key."""
    random = secrets.SystemRandom()
    mixed, checks = list(questions), dict[str, int]()
    for _ in range(max(_FEWEST_CHECKS, len(questions) // _BETWEEN_CHECKS)):
        pair, right, name = random.choice(questions).pair, random.randrange(2), secrets.token_hex(8)
        texts = (CHECK, pair.texts[0]) if right == 0 else (pair.texts[0], CHECK)
        mixed.insert(random.randrange(len(mixed) + 1), ChoiceQuestion(name=name, pair=pair, texts=texts))
        checks[name] = right + 1
    return mixed, replace(key, checks=checks)


def write_key(run: Run, key: AnswerKey) -> str:
    """Stores the answer key of a page in the run directory. Returns the path of its file."""
    items = {name: asdict(item) for name, item in key.items.items()}
    document = {"methods": key.methods, "items": items, "checks": key.checks}
    run.files.write(_path(key.name), json.dumps(document).encode())
    return run.files.path(_path(key.name))


def read_key(run: Run, name: str) -> AnswerKey | None:
    """Reads the answer key of a page; None if the run has no such page. Raises StoreError if the key is damaged."""
    data = run.files.read(_path(name)) if name.isalnum() and name.isascii() else None
    if data is None:
        return None
    try:
        document: dict[str, Any] = parse_json(data)
        one, other = document["methods"]
        items = {at: QuestionSource(**item | {"unit": Unit(**item["unit"])}) for at, item in document["items"].items()}
        checks = {str(at): int(right) for at, right in document.get("checks", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{run.files.path(_path(name))} is damaged: {error!r}") from error
    return AnswerKey(name=name, methods=(one, other), items=items, checks=checks)


def _path(name: str) -> str:
    return f"choices/{name}/key.json"
