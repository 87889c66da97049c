"""Parsing claims, and prompts that a language model writes."""

from collections.abc import Sequence

import numpy as np
import pytest

from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation
from openmaia.recipes.bias.pairs import ClaimedContext, Matcher, ModelContextWriter
from tests.evaluation.scripted_model import answering, model
from tests.recipes.bias.circles import UNIT, CircleClassifier


@pytest.mark.parametrize(
    ("label", "sign", "text"),
    [
        ("+ snow", 1, "snow"),
        ("- a ball beside it", -1, "a ball beside it"),
        ("− dark rooms.", -1, "dark rooms"),
        ("**+ red background**", 1, "red background"),
        ("indoors", 0, "indoors"),
    ],
)
def test_claim_has_a_sign_and_a_text(label: str, sign: int, text: str):
    assert ClaimedContext.parse(label) == ClaimedContext(label=label, sign=sign, text=text)


def test_model_pairs_are_repeated_with_new_seeds():
    lines = "\n".join(f"{n}. a pig on snow, scene {n} | a pig on mud, scene {n}" for n in range(1, 21))
    generator = Recording()
    matcher = Matcher(
        writer=ModelContextWriter(model(answering(lines))), generator=generator, target=CircleClassifier(0)
    )
    assert len(matcher.pairs(UNIT, "pig", ClaimedContext.parse("+ snow"), 30, 0)) == 30
    having, without = generator.requests[::2], generator.requests[1::2]
    assert having[20].prompt == having[0].prompt == "a pig on snow, scene 1"
    assert [one.seed for one in having] == [one.seed for one in without]
    assert len({one.seed for one in having}) == 30


class Recording:
    """A generator of plain images that keeps the requests."""

    def __init__(self):
        self.requests: list[Generation] = []

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        self.requests += requests
        return [GeneratedImage(image=EncodedImage.of(np.zeros((4, 4, 3), np.uint8))) for _ in requests]
