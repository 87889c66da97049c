"""The classifiers with a known bias."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load
from openmaia.assembly import investigations
from openmaia.assembly.exemplars import make
from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.offline.closed_form.classes import STRENGTHS, ClosedFormClasses, classifiers
from openmaia.offline.closed_form.view import DetectorInput
from openmaia.offline.collage import paint
from tests.helpers.investigating import code, configured, pictures, said

__all__ = ["pictures"]

EVERY = classifiers()


def test_half_of_the_classifiers_are_biased():
    planted = [one for one in EVERY if one.contexts]
    assert (len(EVERY), len(planted)) == (96, 48)
    assert sum(not one.inside for one in planted) == 12
    assert sum(len(one.contexts) == 2 for one in planted) == 12
    assert {abs(one.strength) for one in planted} == set(STRENGTHS)
    assert min(Counter(abs(one.strength) for one in planted).values()) >= 10
    assert {one.strength > 0 for one in planted} == {True, False}


def test_order_and_names_do_not_reveal_the_bias():
    names = Counter((one.name, bool(one.contexts)) for one in EVERY)
    assert set(names.values()) == {8}
    assert 0.35 < np.mean([bool(one.contexts) for one in EVERY[:48]]) < 0.65


def ground(colour: str) -> EncodedImage:
    return EncodedImage.of(np.asarray(paint.plain(paint.PAINTS[colour], 224, np.random.default_rng(0))))


def test_planted_bias_has_its_strength():
    biased = next(one for one in EVERY if len(one.contexts) == 1 and one.contexts[0].name in paint.PAINTS)
    colour = biased.contexts[0].name
    other = next(name for name in ("red", "blue") if name != colour)
    assert biased.planted(DetectorInput(ground(colour).pixels)) == pytest.approx(biased.strength)
    assert biased.planted(DetectorInput(ground(other).pixels)) == pytest.approx(0, abs=0.05)
    null = next(one for one in EVERY if not one.contexts)
    assert null.planted(DetectorInput(ground(colour).pixels)) == 0


def test_contexts_interact():
    pair = next(one for one in EVERY if len(one.contexts) == 2)
    seen = DetectorInput(ground("grey").pixels)
    for evidence, share in (((1.0, 0.0), 1 / 3), ((0.0, 1.0), 1 / 3), ((1.0, 1.0), 1.0), ((0.0, 0.0), 0.0)):
        seen.memo |= {f"context {c.name}": value for c, value in zip(pair.contexts, evidence, strict=True)}
        assert pair.planted(seen) == pytest.approx(pair.strength * share)


def test_outputs_have_probability_and_logit():
    target = ClosedFormClasses("biased")
    info, image = target.info(), ground("red")
    assert info.layers == {OUTPUT: 96} and len(info.classes) == 96
    one = target.probe([Probe(unit=Unit(target="biased", layer=OUTPUT, index=5), image=image)])[0]
    assert one.raw is not None
    assert one.value == pytest.approx(1 / (1 + np.exp(-one.raw)), rel=1e-4)
    assert target.respond([LayerProbe(layer=OUTPUT, image=image)])[0][5] == one.value


def test_agents_see_the_logit(pictures: Path, exemplars_folder: Path, tmp_path: Path):
    look = code(
        "one = system.call_neuron(tools.text2image(['a red circle']))[0][0]\n"
        "print(abs(float(one) - 1 / (1 + 2.718281828459045**-one.raw)) < 1e-4)"
    )
    given = ("target.family=biased", "target.name=biased")
    config = configured(pictures, exemplars_folder, tmp_path, (look, "[BIAS]: NONE"), given)
    services = investigations.services(config, make(config, [OUTPUT]))
    unit = Unit(target="biased", layer=OUTPUT, index=0)
    record = investigate(unit, load("bias"), services, investigations.options(config))
    assert said(record, 0) == "True\n"
    assert f"The class is: {EVERY[0].name}\n" in record.prompts[1]
