"""Exemplars: which pictures, which thresholds, and that a probe of one gives its activation again."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.core.images import EncodedImage
from openmaia.core.services import LEVELS, Probe, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import Preprocess, PreprocessPreset, TargetNetwork, published
from openmaia.offline.closed_form.target import ClosedFormTarget
from tests.helpers.dissecting import dissect
from tests.helpers.images import sample_image
from tests.models.targets.test_targets import PREPROCESS, Tokens, small

SIZES = [(64, 48), (48, 64), (100, 40), (90, 90), (48, 32)]


def pictures(count: int = 30) -> list[EncodedImage]:
    return [EncodedImage.of(np.asarray(sample_image(seed, SIZES[seed % 5])), [f"file-{seed}"]) for seed in range(count)]


def network(preset: PreprocessPreset, *layers: str) -> NetworkTarget:
    preprocess: Preprocess = PREPROCESS if preset == "weights" else published((32, 32))
    return NetworkTarget("net", TargetNetwork(module=small(), preprocess=preprocess), layers)


def units(layer: str, *indices: int) -> list[Unit]:
    return [Unit(target="net", layer=layer, index=index) for index in indices]


def of(target: NetworkTarget, wanted: Sequence[Unit], k: int = 5, quantile: float = 0.9) -> list[UnitExemplars]:
    return dissect(target, pictures(), wanted, k=k, quantile=quantile)


def values(found: UnitExemplars, kind: str) -> list[float]:
    return [exemplar.activation for exemplar in found.exemplars if exemplar.kind == kind]


def all_values(target: NetworkTarget, unit: Unit) -> list[float]:
    return sorted(answer.value for answer in target.probe([Probe(unit=unit, image=image) for image in pictures()]))


@pytest.mark.parametrize("preset", ["weights", "published"])
@pytest.mark.parametrize("layer", ["conv", "pool", "fc", "output"])
def test_probing_a_stored_exemplar_gives_its_stored_activation(preset: PreprocessPreset, layer: str, tmp_path: Path):
    target = network(preset, layer)
    wanted = units(layer, 0, 2)
    store = ExemplarStore.at(str(tmp_path), "net", "p")
    store.claim({})
    store.write(layer, of(target, wanted))
    for unit in wanted:
        exemplars = store.read(unit).exemplars
        fresh = network(preset, layer)
        answers = fresh.probe([Probe(unit=unit, image=exemplar.image) for exemplar in exemplars])
        assert len(answers) == len(exemplars) > 20
        for exemplar, answer in zip(exemplars, answers, strict=True):
            assert (answer.value, answer.box) == (exemplar.activation, exemplar.box)


def test_a_stored_map_is_the_map_of_a_probe():
    target = network("published", "conv")
    (unit,) = units("conv", 1)
    for exemplar in of(target, [unit])[0].exemplars:
        answer = target.probe([Probe(unit=unit, image=exemplar.image)])[0]
        assert exemplar.map is not None
        assert answer.map is not None
        assert np.allclose(exemplar.map, answer.map, rtol=1e-4, atol=1e-5)


def test_top_and_bottom_are_the_extremes_in_order():
    target = network("weights", "conv")
    (unit,) = units("conv", 0)
    ranked = all_values(target, unit)
    (found,) = of(target, [unit])
    assert values(found, "top") == ranked[::-1][:5]
    assert values(found, "bottom") == ranked[:5]


def test_the_ladder_climbs_evenly_from_the_lowest_to_the_highest():
    target = network("weights", "conv")
    (unit,) = units("conv", 0)
    ranked = all_values(target, unit)
    (found,) = of(target, [unit])
    assert values(found, "ladder") == [ranked[n] for n in (0, 7, 15, 22, 29)]


@pytest.mark.parametrize(("layer", "index"), [("conv", 0), ("conv", 3), ("output", 1)])
def test_levels_are_even_in_activation_and_every_image_is_counted_at_its_level(layer: str, index: int):
    target = network("weights", layer)
    (unit,) = units(layer, index)
    ranked = all_values(target, unit)
    (found,) = of(target, [unit])
    levels, counts = found.of_kind("levels"), found.count_levels()
    assert (len(counts), sum(counts)) == (LEVELS, len(ranked))
    assert [each.rank for each in levels] == [level for level, count in enumerate(counts) if count]
    assert {each.activation for each in levels} <= set(ranked) and len(levels) > 5
    step = (ranked[-1] - ranked[0]) / LEVELS
    for each in levels:
        slack = abs(each.activation) / 64 + 2.0**-10 * max(ranked)
        assert ranked[0] + each.rank * step - slack <= each.activation <= ranked[0] + (each.rank + 1) * step + slack


def test_counts_tell_what_percentage_of_images_is_below_also_in_the_tail():
    target = network("weights", "conv")
    (unit,) = units("conv", 3)
    ranked = all_values(target, unit)
    (found,) = of(target, [unit])
    assert found.counts is not None
    assert found.counts.percent_below(ranked[-1] * 1.1) == 100
    assert found.counts.percent_below(ranked[0] - 1) == 0
    assert ranked[-1] > ranked[-2] * 1.02, "else the bins do not part them"
    assert found.counts.percent_below(ranked[-1]) == pytest.approx(100 * 29.5 / 30)


def test_random_exemplars_are_the_same_for_all_units():
    first, second = of(network("weights", "conv"), units("conv", 0, 1))
    assert [e.image for e in first.of_kind("random")] == [e.image for e in second.of_kind("random")]


def test_exemplars_do_not_depend_on_the_order_of_the_pictures():
    target = network("weights", "conv")
    one = dissect(target, pictures(), units("conv", 0), k=5, quantile=0.9)[0]
    other = dissect(target, pictures()[::-1], units("conv", 0), k=5, quantile=0.9)[0]
    assert [(e.kind, e.rank, e.image) for e in one.exemplars] == [(e.kind, e.rank, e.image) for e in other.exemplars]


def test_the_threshold_is_the_quantile_over_all_positions():
    target = network("weights", "conv")
    (unit,) = units("conv", 3)
    maps = [answer.map for answer in target.probe([Probe(unit=unit, image=image) for image in pictures()])]
    positions = np.concatenate([small.ravel() for small in maps if small is not None])
    exact = float(np.quantile(positions, 0.9))
    assert of(target, [unit])[0].threshold == pytest.approx(exact, rel=1 / 64 + 0.01)


def test_the_distribution_is_of_the_maxima_per_picture():
    target = network("weights", "conv")
    (unit,) = units("conv", 3)
    ranked = all_values(target, unit)
    (found,) = of(target, [unit])
    low, high = (np.percentile(ranked, range(101), method=method) for method in ("lower", "higher"))
    slack = np.maximum(np.abs(high) / 64, 2.0**-10 * max(ranked))
    assert (low - slack <= found.maxima).all()
    assert (found.maxima <= high + slack).all()
    assert (found.maxima[0], found.maxima[100]) == (ranked[0], ranked[-1])
    assert found.mean == pytest.approx(np.mean(ranked), rel=1e-4)
    assert found.std == pytest.approx(np.std(ranked), rel=1e-3)


def test_an_output_unit_is_measured_in_probabilities_throughout():
    (found,) = of(network("weights", "output"), units("output", 1))
    assert 0 <= found.maxima.min() <= found.maxima.max() <= 1
    assert 0 <= found.threshold <= 1


def test_equal_pictures_count_once():
    target = network("weights", "conv")
    twice = [*pictures(4), *pictures(4)]
    found = dissect(target, twice, units("conv", 0), k=8, quantile=0.9)[0]
    assert len(found.of_kind("top")) == 4


def test_every_exemplar_carries_its_sources():
    (found,) = of(network("weights", "conv"), units("conv", 0))
    assert all(len(e.image.sources) == 1 and e.image.sources[0].startswith("file-") for e in found.exemplars)


def test_fewer_pictures_than_exemplars_are_all_there_are():
    found = dissect(network("weights", "conv"), pictures(2), units("conv", 0), k=15, quantile=0.99)[0]
    assert [len(found.of_kind(kind)) for kind in ("top", "bottom", "random", "ladder")] == [2, 2, 2, 2]


def test_tokens_of_pictures_that_are_not_square_are_dissected():
    target = NetworkTarget("net", TargetNetwork(module=Tokens(8), preprocess=published((32, 32))), ["block"])
    shapes = [(64, 48), (48, 64), (77, 32), (32, 32)]
    given = [EncodedImage.of(np.asarray(sample_image(seed, shape))) for seed, shape in enumerate(shapes)]
    found = dissect(target, given, units("block", 0), k=4, quantile=0.9)[0]
    shapes_found = {e.map.shape for e in found.of_kind("top") if e.map is not None}
    assert shapes_found == {(4, 5), (5, 4), (4, 9), (4, 4)}


def test_closed_form_exemplars_give_their_activation_again():
    target = ClosedFormTarget("net")
    unit = Unit(target="net", layer="mono", index=0)
    given = [
        EncodedImage.of(np.asarray(sample_image(seed).resize((300, 200), Image.Resampling.NEAREST)))
        for seed in range(6)
    ]
    for exemplar in dissect(target, given, [unit], k=6, quantile=0.9)[0].exemplars:
        assert target.probe([Probe(unit=unit, image=exemplar.image)])[0].value == exemplar.activation


# -- how high an activation is -------------------------------------------------------------------------------------------


def distribution(values: Sequence[float]) -> UnitExemplars:
    return UnitExemplars(
        unit=Unit(target="net", layer="l", index=0),
        threshold=0.0,
        maxima=np.percentile(values, np.arange(101)),
        mean=float(np.mean(values)),
        std=float(np.std(values)),
        exemplars=(),
    )


@pytest.mark.parametrize(
    ("activation", "percentile"),
    [(-1, 0), (0, 0), (25, 25), (25.5, 25.5), (50, 50), (99.9, 99.9), (100, 100), (7e9, 100)],
)
def test_percentiles_of_an_even_distribution(activation: float, percentile: float):
    assert distribution(range(101)).percentile(activation) == pytest.approx(percentile)


def test_a_percentile_is_about_the_share_of_pictures_below():
    values = np.random.default_rng(0).normal(size=2000)
    found = distribution(values)
    for activation in (-2.0, -0.3, 0.7, 2.2):
        assert found.percentile(activation) == pytest.approx(100 * np.mean(values < activation), abs=1)


def test_percentiles_never_fall_as_activations_rise():
    found = distribution(np.maximum(np.random.default_rng(0).normal(size=500), 0))
    ranked = [found.percentile(activation) for activation in np.linspace(-1, 4, 200)]
    assert ranked == sorted(ranked)


def test_a_constant_unit_is_in_the_middle():
    found = distribution([2.0] * 9)
    assert (found.percentile(2.0), found.z_score(2.0), found.z_score(5.0)) == (50, 0, 0)


def test_a_z_score_counts_deviations_above_the_mean():
    assert distribution([0.0, 2.0]).z_score(4.0) == 3.0
