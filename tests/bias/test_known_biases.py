"""The classifiers of known bias, and the measurement made with them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.generators.collage import paint
from openmaia.images import Picture
from openmaia.services import LayerProbe, Probe
from openmaia.targets.closed_form import ClosedFormClasses
from openmaia.targets.closed_form.classes import STRENGTHS, classifiers
from openmaia.targets.closed_form.seen import Seen
from openmaia.tasks.task import load
from openmaia.units import OUTPUT, Unit
from tests.conftest import REPOSITORY
from tests.test_loop import code, configured, pictures, said

__all__ = ["pictures"]

EVERY = classifiers()


def test_half_are_planted_and_a_quarter_of_these_lie_outside_of_the_vocabulary():
    planted = [one for one in EVERY if one.contexts]
    assert (len(EVERY), len(planted)) == (96, 48)
    assert sum(not one.inside for one in planted) == 12
    assert sum(len(one.contexts) == 2 for one in planted) == 12
    assert {abs(one.strength) for one in planted} == set(STRENGTHS)
    assert min(Counter(abs(one.strength) for one in planted).values()) >= 10
    assert {one.strength > 0 for one in planted} == {True, False}


def test_their_order_and_names_do_not_tell_which_are_planted():
    names = Counter((one.name, bool(one.contexts)) for one in EVERY)
    assert set(names.values()) == {8}
    assert 0.35 < np.mean([bool(one.contexts) for one in EVERY[:48]]) < 0.65


def ground(colour: str) -> Picture:
    return Picture.of(np.asarray(paint.plain(paint.COLOURS[colour], 224, np.random.default_rng(0))))


def test_a_planted_bias_moves_the_logit_by_its_strength_and_a_null_by_nothing():
    biased = next(one for one in EVERY if len(one.contexts) == 1 and one.contexts[0].name in paint.COLOURS)
    colour = biased.contexts[0].name
    other = next(name for name in ("red", "blue") if name != colour)
    assert biased.planted(Seen(ground(colour).pixels)) == pytest.approx(biased.strength)
    assert biased.planted(Seen(ground(other).pixels)) == pytest.approx(0, abs=0.05)
    null = next(one for one in EVERY if not one.contexts)
    assert null.planted(Seen(ground(colour).pixels)) == 0


def test_two_contexts_interact():
    pair = next(one for one in EVERY if len(one.contexts) == 2)
    seen = Seen(ground("grey").pixels)
    for evidence, share in (((1.0, 0.0), 1 / 3), ((0.0, 1.0), 1 / 3), ((1.0, 1.0), 1.0), ((0.0, 0.0), 0.0)):
        seen.memo |= {f"context {c.name}": value for c, value in zip(pair.contexts, evidence, strict=True)}
        assert pair.planted(seen) == pytest.approx(pair.strength * share)


def test_they_answer_as_outputs_with_probability_and_logit():
    target = ClosedFormClasses("biased")
    info, picture = target.info(), ground("red")
    assert info.layers == {OUTPUT: 96} and len(info.classes) == 96
    one = target.probe([Probe(unit=Unit(target="biased", layer=OUTPUT, index=5), picture=picture)])[0]
    assert one.raw is not None
    assert one.value == pytest.approx(1 / (1 + np.exp(-one.raw)), rel=1e-4)
    assert target.respond([LayerProbe(layer=OUTPUT, picture=picture)])[0][5] == one.value


def test_agents_see_the_logit_behind_a_probability(pictures: Path, exemplars_folder: Path, tmp_path: Path):
    look = code(
        "one = system.call_neuron(tools.text2image(['a red circle']))[0][0]\n"
        "print(abs(float(one) - 1 / (1 + 2.718281828459045**-one.raw)) < 1e-4)"
    )
    given = ("target.family=biased", "target.name=biased", "target.layers=[output]")
    config = configured(pictures, exemplars_folder, tmp_path, (look, "[BIAS]: NONE"), given)
    services = build.services(config, exemplars.make(config, [OUTPUT]))
    unit = Unit(target="biased", layer=OUTPUT, index=0)
    record = investigate(unit, load("bias"), services, build.options(config))
    assert said(record, 0) == "True\n"
    assert f"The class is: {EVERY[0].name}\n" in record.prompts[1]


@pytest.mark.slow
def test_the_measurement_runs(settings: list[str]):
    """At a scale that proves nothing but that a strong bias can be found and confirmed."""
    command = [sys.executable, "-m", "tests.applications", "only=bias", "smoke=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])["bias"]
    assert (found["planted"], found["nulls"]) == (1, 1)
    assert found["supported"] >= 1
    assert found["false_discoveries"][0] == 0
