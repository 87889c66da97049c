"""Blind questions, and the key to them. Whoever has the questions alone cannot tell which label is whose."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from openmaia.errors import StoreError
from openmaia.evaluate.choice.pairs import Pair, Pairs
from openmaia.store.run import Run
from openmaia.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question. name: drawn at random. texts: as they are shown, first and second."""

    name: str
    pair: Pair
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What a question is about. first: which method's text is shown first, 0 or 1."""

    unit: Unit
    replicate: int
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """name: of the whole page. items: by question."""

    name: str
    methods: tuple[str, str]
    items: Mapping[str, Behind]


def blinded(found: Pairs) -> tuple[list[Asked], Key]:
    """Each pair twice: all of them in a random order and on random sides, then all again in another, sides swapped. What is
    random comes from the system, since whoever knows a seed knows the answers."""
    random = secrets.SystemRandom()
    sides = [random.randrange(2) for _ in found.pairs]
    asked: list[Asked] = []
    items: dict[str, Behind] = {}
    for swap in (0, 1):
        for at in random.sample(range(len(found.pairs)), len(found.pairs)):
            pair, first = found.pairs[at], sides[at] ^ swap
            name = secrets.token_hex(8)
            asked.append(Asked(name=name, pair=pair, texts=(pair.texts[first], pair.texts[1 - first])))
            items[name] = Behind(unit=pair.unit, replicate=pair.replicate, first=first)
    return asked, Key(name=secrets.token_hex(8), methods=found.methods, items=items)


def write_key(run: Run, key: Key) -> str:
    """Into the run's directory, away from the page. Returns where."""
    document = {"methods": key.methods, "items": {name: asdict(item) for name, item in key.items.items()}}
    run.files.write(_path(key.name), json.dumps(document).encode())
    return run.files.path(_path(key.name))


def read_key(run: Run, name: str) -> Key | None:
    """None where the run has none of that name. Raises StoreError for a damaged one."""
    data = run.files.read(_path(name)) if name.isalnum() and name.isascii() else None
    if data is None:
        return None
    try:
        document: dict[str, Any] = json.loads(data)
        one, other = document["methods"]
        items = {at: Behind(**item | {"unit": Unit(**item["unit"])}) for at, item in document["items"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{run.files.path(_path(name))} is damaged: {error!r}") from error
    return Key(name=name, methods=(one, other), items=items)


def _path(name: str) -> str:
    return f"choices/{name}/key.json"
