"""After the answer the loop tests it itself: pictures of the labels that no experiment has seen, and near misses of them."""

import re
from collections import Counter
from collections.abc import Sequence

from openmaia.agent.evidence import ID, assess
from openmaia.pictures.near import Near, pairs
from openmaia.services import Generation, Probe, Services
from openmaia.store.evidence import Confirmation, Shot
from openmaia.store.records import Turn
from openmaia.tasks.grammar import Answer, Parsed
from openmaia.tasks.rule import Rule
from openmaia.tools.seeds import seed
from openmaia.units import Scope, Unit

DROPPED = 8
"""Hypotheses that were given up, at most, the latest first, from which near misses are made."""


def is_due(unit: Unit, last: Parsed | None, rule: Rule, answer: Answer) -> bool:
    """Whether something was claimed that is a statement about pictures of one unit."""
    return bool(last and last.labels and rule.confirm and not answer.choices and unit.scope is Scope.UNIT)


def confirm(
    unit: Unit,
    last: Parsed | None,
    turns: Sequence[Turn],
    services: Services,
    run_seed: int,
    rule: Rule,
    answer: Answer,
) -> Confirmation | None:
    """None where it is not due. Raises ServiceError where a service stays dead."""
    if last is None or not is_due(unit, last, rule, answer):
        return None
    before = services.ledger.spent()
    wanted = pairs(last.labels, dropped(turns, last, answer), rule.confirm)
    requests = _requests(wanted, run_seed)
    drawn = services.generator.generate(requests)
    answers = services.target.probe([Probe(unit=unit, picture=one.picture) for one in drawn])
    known = services.exemplars.read(unit)
    shots = [
        Shot(
            label=near.label,
            prompt=request.prompt,
            near_miss=near.shows if at % 2 else "",
            control=near.control if at % 2 else "",
            seed=request.seed,
            digest=one.picture.digest,
            activation=found.value,
            percentile=round(known.percentile(found.value), 1),
            undrawn=one.undrawn,
        )
        for at, (near, request, one, found) in enumerate(
            zip([near for near in wanted for _ in range(2)], requests, drawn, answers, strict=True)
        )
    ]
    return Confirmation(
        shots=tuple(shots),
        spent=services.ledger.since(before),
        pictures={one.picture.digest: one.picture for one in drawn},
    )


def dropped(turns: Sequence[Turn], last: Parsed, answer: Answer) -> list[str]:
    """Hypotheses that were listed once and are no part of the answer, the latest first, without their ids."""
    kept = [_words(text) for text in (*last.labels, *(one.hypothesis for one in assess(Rule(), turns, answer).tested))]
    listed = dict.fromkeys(ID.sub("", entry).lstrip(" :.)-") for turn in reversed(turns) for entry in turn.hypotheses)
    apart = [
        entry for entry in listed if _words(entry) and not any(_words(entry) <= k or k <= _words(entry) for k in kept)
    ]
    return apart[:DROPPED]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", ID.sub("", text).casefold()))


def _requests(wanted: Sequence[Near], run_seed: int) -> list[Generation]:
    """In turn a picture and its near miss, of one seed: layout, size and ground are the same."""
    asked: Counter[str] = Counter()
    requests: list[Generation] = []
    for near in wanted:
        pair = f"{near.prompt} | {near.near}"
        number = seed(run_seed, "confirm", pair, asked[pair])
        asked[pair] += 1
        requests += [Generation(prompt=prompt, seed=number) for prompt in (near.prompt, near.near)]
    return requests
