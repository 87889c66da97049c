"""Parsing claims, and prompts that a language model writes."""

import pytest

from openmaia.recipes.bias.contexts import ClaimedContext, ModelContextWriter
from tests.evaluation.scripted_model import answering, model


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
    pairs = ModelContextWriter(model(answering(lines))).write("pig", ClaimedContext.parse("+ snow"), 30, 0)
    assert len(pairs) == 30
    assert pairs[20].with_context == pairs[0].with_context
    assert len({pair.seed for pair in pairs}) == 30
