"""What the grammar of scenes makes of 300 prompts that were written before anybody looked at how it reads them: half as a person
writes them, half as a language model does. Writes understood.csv, a row per prompt.

prompts.csv has for each prompt what it asks for that the world can show (`drawn`), and the words that it cannot (`outside`), both
by hand. An item of `drawn` is a place, time, weather or style; or a kind with its number (`+`: several, `*`: any) and its colours,
pattern and coloured parts; or `plain` with those of a ground. Sizes, sides and how figures stand to one another are not compared.
"""

import csv
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from openmaia.evaluation.analysis.statistics import proportion
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render
from openmaia.offline.scenes.words import members

PROMPTS, CSV = (Path(__file__).with_name(f"{name}.csv") for name in ("prompts", "understood"))
SIDES = (64, 96, 224, 512)
_WORD = re.compile(r"[a-z]+")
_NUMBERS = ("+", "*")
_GROUPS = frozenset(wider for kind in kinds().values() for wider in kind.wider) - kinds().keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of one prompt."""

    extra: tuple[str, ...]
    """Drawn, but not asked for."""
    lost: tuple[str, ...]
    """Asked for and in the world, but not drawn."""
    silent: tuple[str, ...]
    """Words that the world lacks, and that are not named."""
    needless: tuple[str, ...]
    """Words that are named as not drawn though the world has all that the prompt asks for. Beside an unknown noun, its adjectives are
    rightly named."""
    is_whole: bool
    """Whether the world has all that the prompt asks for."""

    @property
    def outcome(self) -> str:
        """`whole`: drawn as asked; `rest`: what the world has is drawn, and all else is named; `extra`, `lost`."""
        if self.extra:
            return "extra"
        if self.lost or self.silent or self.needless:
            return "lost"
        return "whole" if self.is_whole else "rest"


def measure(smoke: bool) -> dict[str, Any]:
    prompts = list(csv.DictReader(PROMPTS.open(newline="")))
    found = [understood(each["prompt"], each["drawn"], each["outside"]) for each in prompts]
    if not smoke:
        write_readings(prompts, found)
    writers = dict.fromkeys(each["writer"] for each in prompts)
    figures = {
        writer: summarised([one for one, each in zip(found, prompts, strict=True) if each["writer"] == writer])
        for writer in writers
    }
    return figures if smoke else figures | {"cpu_ms": milliseconds([each["prompt"] for each in prompts[::5]])}


def milliseconds(prompts: Sequence[str]) -> dict[str, float]:
    """Returns the processor time from a prompt to its pixels, as the median over prompts, by the side of the image."""
    found: dict[str, float] = {}
    for side in SIDES:
        spent: list[float] = []
        for prompt in prompts:
            began = time.process_time()
            render(settle(read(prompt, 0)[0]), side)
            spent.append(1000 * (time.process_time() - began))
        found[str(side)] = round(median(spent), 2)
    return found


def understood(prompt: str, drawn: str, outside: str) -> Reading:
    """Compares what is drawn of a prompt with what it asks for."""
    scene, missing = read(prompt, 0)
    own, lost = list(items(scene)), list[str]()
    for asked in filter(None, map(str.strip, drawn.split(";"))):
        found = [each for each in own if _is_part(each, asked)]
        found = found if _numbered(asked)[1][0] in _GROUPS else found[:1]
        own = [each for each in own if each not in found]
        lost += [] if _is_all(found, asked) else [asked]
    named, known = (set(_WORD.findall(text.lower())) for text in (" ".join(missing), outside))
    return Reading(
        extra=tuple(own),
        lost=tuple(lost),
        silent=tuple(sorted(known - named)),
        needless=() if outside else tuple(missing),
        is_whole=not outside,
    )


def items(scene: Scene) -> Iterator[str]:
    """Yields what a scene that is not settled shows, in the notation of prompts.csv."""
    for what in (scene.place, scene.time, scene.weather, "" if scene.style == "flat" else scene.style):
        if what == "plain":
            yield " ".join(["plain", *_look(scene.ground)])
        elif what:
            yield what
    figures = Counter(
        " ".join([each.kind, *_look(each.paint), *(f"{part}:{' '.join(_look(paint))}" for part, paint in each.parts)])
        for each in scene.figures
    )
    yield from (f"{count} {figure}" if count > 1 else figure for figure, count in figures.items())


def _look(paint: Paint) -> list[str]:
    pattern = "stripes" if paint.pattern.endswith(" stripes") else paint.pattern
    return [each for each in (paint.colour, paint.second, pattern) if each]


def _is_part(item: str, asked: str) -> bool:
    # Whether an item shows nothing else than what is asked for, though perhaps less.
    (count, own), (number, words) = _numbered(item), _numbered(asked)
    is_kind = own[0] == words[0] or own[0] in members(words[0])
    return is_kind and set(own[1:]) <= set(words[1:]) and (number in _NUMBERS or int(count) <= int(number))


def _is_all(found: Sequence[str], asked: str) -> bool:
    number, words = _numbered(asked)
    several = [_numbered(each) for each in found]
    count = sum(int(each) for each, _ in several)
    is_enough = count > 1 if number == "+" else count >= (1 if number == "*" else int(number))
    return is_enough and all(set(own[1:]) == set(words[1:]) for _, own in several)


def _numbered(item: str) -> tuple[str, list[str]]:
    first, *rest = item.split()
    return (first, rest) if first in _NUMBERS or first.isdigit() else ("1", [first, *rest])


def summarised(found: Sequence[Reading]) -> dict[str, Any]:
    outcomes = Counter(each.outcome for each in found)
    return {
        "prompts": len(found),
        "outcomes": dict(sorted(outcomes.items())),
        "whole": proportion([each.outcome == "whole" for each in found if each.is_whole]),
        "as_far_as_the_world_goes": proportion([each.outcome in ("whole", "rest") for each in found]),
        "nothing_else_drawn": proportion([not each.extra for each in found]),
        "nothing_silent": proportion([not each.silent for each in found]),
    }


def write_readings(prompts: Sequence[Mapping[str, str]], found: Collection[Reading]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("writer prompt outcome extra lost silent needless".split())
        for each, reading in zip(prompts, found, strict=True):
            several = (reading.extra, reading.lost, reading.silent, reading.needless)
            table.writerow([each["writer"], each["prompt"], reading.outcome, *("; ".join(some) for some in several)])
