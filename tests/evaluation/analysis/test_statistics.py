"""Measures and intervals against scipy, by hand, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from openmaia.evaluation.analysis.bootstrap import (
    BootstrapEstimate,
    ClusteredValues,
    average,
    cluster_weights,
    constant,
    estimate,
    group_mean,
    interval,
    mean_interval,
    pooled,
)
from openmaia.evaluation.analysis.statistics import MEASURES, adjust_p_values, measure

Values = list[float]


def two_groups(seed: int, n: int = 12, m: int = 9) -> tuple[Values, Values]:
    random = np.random.default_rng(seed)
    return random.normal(1, 2, n).tolist(), random.normal(0, 1, m).tolist()


# -- measures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positive", "neutral", "expected"),
    [
        ([3, 4], [1, 2], 1.0),
        ([1, 2], [3, 4], 0.0),
        ([1, 1], [1, 1], 0.5),
        ([2, 4], [1, 3], 0.75),
        ([1, 2, 2], [2], 1 / 3),
        ([], [1], None),
        ([1], [], None),
    ],
)
def test_auc_by_hand(positive: Values, neutral: Values, expected: float | None):
    assert measure("auc", positive, neutral) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("seed", range(5))
def test_auc_is_mann_whitneys_u(seed: int):
    random = np.random.default_rng(seed)
    positive, neutral = (random.integers(0, 6, size).astype(float).tolist() for size in (11, 8))
    assert measure("auc", positive, neutral) == pytest.approx(stats.mannwhitneyu(positive, neutral).statistic / 88)


def test_difference_by_hand():
    assert measure("difference", [1, 2, 6], [1, 2]) == pytest.approx(1.5)


def test_cohens_d_by_hand():
    """Means 4 and 2, variances 1 and 1 (n - 1): 2 over a pooled deviation of 1."""
    assert measure("d", [3, 4, 5], [1, 2, 3]) == pytest.approx(2.0)


def test_cohens_d_is_scaled_t_statistic():
    """d = t * sqrt(1/n + 1/m) for the t of equal variances (scipy.stats.ttest_ind)."""
    positive, neutral = two_groups(0)
    t = stats.ttest_ind(positive, neutral, equal_var=True).statistic
    assert measure("d", positive, neutral) == pytest.approx(t * np.sqrt(1 / 12 + 1 / 9))


def test_mad_by_hand():
    """Kopf et al. 2024: (5 - 2) over the population deviation of 1, 2, 3, sqrt(2/3)."""
    assert measure("mad", [5, 5], [1, 2, 3]) == pytest.approx(3 / np.sqrt(2 / 3))


def test_measures_of_constant_controls():
    assert measure("mad", [5, 6], [1, 1]) is None
    assert measure("d", [5, 5], [1, 1]) is None
    assert measure("d", [5, 6], [1, 1]) == pytest.approx(4.5 / np.sqrt(0.25))


@pytest.mark.parametrize("name", list(MEASURES))
def test_measures_of_single_images(name: str):
    found = measure(name, [2.0], [1.0])
    assert found == {"difference": 1.0, "auc": 1.0}.get(name)


@pytest.mark.parametrize("name", list(MEASURES))
def test_integer_weights_repeat_images(name: str):
    positive, neutral = (np.array(group) for group in two_groups(1, 5, 4))
    p, q = np.array([[2.0, 1, 1, 0, 3]]), np.array([[1.0, 2, 0, 1]])
    weighted = MEASURES[name](positive, p, neutral, q)[0]
    repeated = [np.repeat(values, w[0].astype(int)) for values, w in ((positive, p), (neutral, q))]
    if name == "d":
        spread = np.sqrt((repeated[0].var() * 5 + repeated[1].var() * 4) / 7)
        assert weighted == pytest.approx((repeated[0].mean() - repeated[1].mean()) / spread)
    else:
        assert weighted == pytest.approx(measure(name, repeated[0].tolist(), repeated[1].tolist()))


def test_adjusted_p_values_by_hand():
    """Benjamini and Hochberg 1995: the k-th smallest of m times m/k, made monotone from above."""
    assert adjust_p_values([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert adjust_p_values([]) == []


# -- intervals -----------------------------------------------------------------------------------------------------------


def test_weight_depends_on_cluster_name_only():
    first = cluster_weights("prompt a cat", 200, 0).copy()
    cluster_weights("prompt a dog", 200, 0)
    assert np.array_equal(first, cluster_weights("prompt a cat", 200, 0))
    assert not np.array_equal(first, cluster_weights("prompt a dog", 200, 0))
    assert not np.array_equal(first, cluster_weights("prompt a cat", 200, 1))


def test_weights_have_mean_and_deviation_one():
    drawn = cluster_weights("prompt x", 20_000, 0)
    assert (drawn.mean(), drawn.std()) == pytest.approx((1, 1), abs=0.03)


def test_images_of_one_prompt_share_a_weight():
    """Ten copies of two images are no more than two images."""
    once = estimate("difference", "u", ClusteredValues.of([1, 3], "ab"), ClusteredValues.of([0], "c"), 2000)
    tenfold = estimate(
        "difference", "u", ClusteredValues.of([1, 3] * 10, "ab" * 10), ClusteredValues.of([0], "c"), 2000
    )
    apart = estimate(
        "difference", "u", ClusteredValues.of([1, 3] * 10, map(str, range(20))), ClusteredValues.of([0], "c"), 2000
    )
    assert once and tenfold and apart
    assert once.draws == pytest.approx(tenfold.draws)
    assert interval(apart).high - interval(apart).low < 0.5 * (interval(once).high - interval(once).low)


@pytest.mark.parametrize("name", list(MEASURES))
def test_interval_contains_estimate(name: str):
    positive, neutral = two_groups(3)
    found = estimate(
        name,
        "u",
        ClusteredValues.of(positive, map(str, range(12))),
        ClusteredValues.of(neutral, map(str, range(20, 29))),
        2000,
    )
    assert found
    whole = interval(found)
    assert whole.low < whole.mean < whole.high
    assert whole.mean == pytest.approx(measure(name, positive, neutral))


def test_interval_is_close_to_scipys_bootstrap():
    positive, neutral = two_groups(4, 60, 60)
    names = [str(at) for at in range(120)]
    found = estimate(
        "difference", "u", ClusteredValues.of(positive, names[:60]), ClusteredValues.of(neutral, names[60:]), 8000
    )
    assert found
    expected = stats.bootstrap(
        (positive, neutral), lambda a, b, axis: a.mean(axis) - b.mean(axis), rng=np.random.default_rng(0)
    ).confidence_interval
    assert (interval(found).low, interval(found).high) == pytest.approx(tuple(expected), abs=0.1)


def test_shared_prompts_widen_pooled_interval():
    """With prompts of its own each unit averages them out; one that is common to all is not averaged out."""
    random = np.random.default_rng(0)
    luck = random.normal(0, 1, 4)

    def width(shared: bool) -> float:
        made = [
            estimate(
                "difference",
                f"unit {unit}",
                ClusteredValues.of(luck, [f"p{at}" if shared else f"p{at} of {unit}" for at in range(4)]),
                ClusteredValues.of([0.0], ["n"]),
                2000,
            )
            for unit in range(40)
        ]
        whole = pooled([one for one in made if one])
        return whole.high - whole.low

    assert width(True) > 3 * width(False)


def test_pooled_interval_has_nominal_coverage():
    """Unit and prompt effects of deviation 1, noise of 1; 30 units on the same 20 prompts; the truth is 0. Crossed
    resampling covers it about as often as it says, resampling units alone does not."""
    random = np.random.default_rng(0)
    crossed = alone = 0
    for trial in range(120):
        units, prompts = random.normal(0, 1, 30), random.normal(0, 1, 20)
        table = units[:, None] + prompts + random.normal(0, 1, (30, 20))
        names = [f"{trial} {at}" for at in range(20)]
        made = [
            estimate(
                "difference", f"{trial} {at}", ClusteredValues.of(row, names), ClusteredValues.of([0.0], ["none"]), 400
            )
            for at, row in enumerate(table)
        ]
        whole = pooled([one for one in made if one], seed=trial)
        crossed += whole.low <= 0 <= whole.high
        flat = mean_interval(table.mean(axis=1).tolist(), 400, seed=trial)
        alone += flat.low <= 0 <= flat.high
    assert crossed >= 105
    assert alone < crossed - 10


def test_variance_of_few_prompts_is_unbiased():
    """The variance of the mean of n values is their sample variance over n."""
    for n in (4, 8, 30):
        values = np.random.default_rng(n).normal(0, 1, n)
        group = ClusteredValues.of(values, [f"{n} {at}" for at in range(n)])
        found = group_mean("u", group, 20_000).draws.var()
        assert found == pytest.approx(values.var(ddof=1) / n, rel=0.08)


def test_pooled_interval_covers_with_few_shared_neutral_prompts():
    """40 units on the same 5 neutral prompts, whose luck all units share."""
    random, covered, trials = np.random.default_rng(0), 0, 100
    for trial in range(trials):
        shared = random.normal(0, 1, 5)
        names = [f"{trial} shared {at}" for at in range(5)]
        made = [
            estimate(
                "difference",
                f"{trial} {unit}",
                ClusteredValues.of(random.normal(0, 1, 4), [f"{trial} {unit} {at}" for at in range(4)]),
                ClusteredValues.of(shared + random.normal(0, 0.5, 5), names),
                300,
            )
            for unit in range(40)
        ]
        whole = pooled([one for one in made if one], seed=trial)
        covered += whole.low <= 0 <= whole.high
    assert 0.88 <= covered / trials <= 0.99


def test_pooled_interval_is_independent_of_order():
    made = [constant(f"u{at}", value, 500) for at, value in enumerate([0.1, 0.5, -0.2, 0.3])]
    one, other = pooled(made), pooled(made[::-1])
    assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high))


def test_interval_of_many_values_is_normal():
    values = np.random.default_rng(0).normal(0.3, 1, 400)
    found = mean_interval(values.tolist(), 2000)
    half = 1.96 * values.std() / 20
    assert (found.mean, found.low, found.high) == pytest.approx(
        (values.mean(), values.mean() - half, values.mean() + half), abs=0.02
    )


@pytest.mark.parametrize("values", [[0.3], [0.3, 0.3, 0.3]])
def test_interval_of_equal_values_is_their_value(values: Values):
    found = mean_interval(values, 500)
    assert (found.mean, found.low, found.high) == pytest.approx((0.3, 0.3, 0.3))


def test_interval_of_nothing_is_nan():
    assert np.isnan(mean_interval([], 500).mean)


def test_paired_difference_by_hand():
    own = BootstrapEstimate(unit="u", value=0.9, draws=np.array([0.8, 0.9, 1.0]))
    other = BootstrapEstimate(unit="u", value=0.6, draws=np.array([0.5, 0.6, 0.7]))
    assert own.minus(other).draws == pytest.approx([0.3, 0.3, 0.3])
    assert average([own, other], "u").value == pytest.approx(0.75)


def test_weights_of_a_group_do_not_depend_on_what_was_kept():
    """Images of one prompt have one weight, and groups that push each other out of the cache keep theirs."""
    group = ClusteredValues.of([0.0] * 3, ["a cat", "a dog", "a cat"])
    first = group.weights(500, 0)
    assert np.array_equal(first[:, 0], first[:, 2])
    for number in range(300):
        ClusteredValues.of([0.0] * 100, [f"{number} {n}" for n in range(100)]).weights(500, 0)
    again = ClusteredValues.of([1.0] * 3, group.clusters).weights(500, 0)
    assert again is not first
    assert np.array_equal(again, first)
