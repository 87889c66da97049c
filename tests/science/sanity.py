"""The missing-label and extra-label tests of our metrics over the closed-form units. Writes openmaia/evaluate/sanity.json.

Detection is tested without a judge's errors: the pictures are drawn, and their prompts say what they show.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import openmaia.evaluate
from openmaia.evaluate.prompts import unrelated, write
from openmaia.evaluate.protocol import Design, Instruments
from openmaia.evaluate.sanity import Known, sanity
from openmaia.evaluate.writers import RuleWriter
from openmaia.generators.collage import CollageGenerator
from openmaia.images import Picture
from openmaia.pictures.library import Library
from openmaia.pictures.packages import fetch
from openmaia.pictures.vocabulary import find
from openmaia.services import Generation
from openmaia.targets.closed_form import ClosedFormTarget, layers
from openmaia.units import Unit
from tests.prepare import CACHE

FILE = Path(openmaia.evaluate.__file__).parent / "sanity.json"


class ByPrompt:
    """A judge who knows from which prompt each picture was drawn."""

    name = "the prompts"

    def __init__(self, prompts: dict[str, str]):
        self._words = {digest: {word.name for word in find(prompt)} for digest, prompt in prompts.items()}

    def judge(self, pictures: Sequence[Picture], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        wanted = [{word.name for word in find(label)} for label in labels]
        return [tuple(words <= self._words[picture.digest] for words in wanted) for picture in pictures]


def units() -> list[Known]:
    """The wrong labels are those of another unit of the layer that share no word with the true ones."""
    found: list[Known] = []
    for layer in ("mono", "or"):
        truths = [tuple(" ".join(slot) for slot in unit.truth) for unit in layers("small")[layer]]
        for at, truth in enumerate(truths):
            others = [other for other in truths[at + 1 :] + truths[:at] if not {*other} & {*truth}]
            found.append(Known(unit=Unit(target="t", layer=layer, index=at), truth=truth, wrong=others[0]))
    return found


def measure(smoke: bool) -> dict[str, dict[str, bool]]:
    found = sanity_of(
        CollageGenerator(Library.open(fetch(CACHE, print)), 224), 2 if smoke else 12, 10 if smoke else 120
    )
    if not smoke:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    return found


def sanity_of(generator: CollageGenerator, n: int, count: int) -> dict[str, dict[str, bool]]:
    labels = sorted({label for one in units() for label in one.truth})
    prompts = [*unrelated(count), *(pair.positive for pair in write(labels, count))]
    drawn = generator.generate(
        [Generation(prompt=prompt, seed=1000 + at, half="test") for at, prompt in enumerate(prompts)]
    )
    pictures = {one.picture.digest: one.picture for one in drawn}
    judge = ByPrompt({one.picture.digest: prompt for one, prompt in zip(drawn, prompts, strict=True)})
    instruments = Instruments(
        generator=generator,
        target=ClosedFormTarget("t"),
        writer=RuleWriter(),
        judge=judge,
        pictures=list(pictures.values()),
    )
    return sanity(units(), instruments, Design(n=n, detect=4 * count))
