"""Prints scores of descriptions: of a run, of runs and tool sets in comparison, and of forced choices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openmaia.cli.terminal.output import format_interval, say, show_table
from openmaia.core.text import percent
from openmaia.evaluation.analysis.ablation import ToolSetResult
from openmaia.evaluation.analysis.comparison import (
    PairedDifference,
    RunComparison,
    compare_runs,
    compared_measures,
)
from openmaia.evaluation.analysis.reliability import read_reliability
from openmaia.evaluation.analysis.sanity import warning
from openmaia.evaluation.analysis.selective import COVERAGES
from openmaia.evaluation.analysis.statistics import share_difference
from openmaia.evaluation.analysis.summary import PooledScores, run_scores
from openmaia.evaluation.metric import Metric, metrics_shown
from openmaia.evaluation.truth import read_truth, truth_scores
from openmaia.reporting.figures.papers import published
from openmaia.reporting.tables import RunShares, describe_kinds, mean_sizes, run_shares
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.recipes.choices.answers import ChoiceScore


def show_scores(run: Run, resamples: int) -> None:
    """Prints the mean scores of a run's descriptions, with 95 % confidence intervals.

    Prints nothing if no unit has been evaluated.

    Args:
        run: The run.
        resamples: The number of bootstrap resamples.
    """
    scores = run_scores(run, resamples)
    if not scores.units:
        return
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in scores.outcomes.items())
    columns = ("of tested descriptions", "mean", "95 % interval", "n", "sanity")
    metrics = metrics_shown("summary")
    ours = _score_rows(scores, [each for each in metrics if not each.project])
    others = _score_rows(scores, [each for each in metrics if each.project])
    show_table(f"evaluation of {run.name}: {outcomes}", columns, ours)
    if others:
        show_table("protocols of other projects, on these units", columns, others)
    say("intervals: bootstrap over prompts and units, crossed; of shares: Wilson, over units", dim=True)


def _score_rows(scores: PooledScores, metrics: Sequence[Metric]) -> list[tuple[str, ...]]:
    return [
        (
            metric.text,
            f"{each.mean:.3f}",
            f"{each.low:.3f} to {each.high:.3f}",
            str(scores.counts[metric.name]),
            warning(metric.name),
        )
        for metric in metrics
        if (each := scores.measures[metric.name]).mean == each.mean
    ]


def show_supported(run: Run, scores: PooledScores) -> None:
    """Prints a table that compares the units' own descriptions with those of other units and with random words.

    Prints nothing if the run has no stored shares.
    """
    kinds = describe_kinds(run, scores)
    if not any(kind.supported for kind in kinds):
        return
    measured, counted = scores.counts["auc"], scores.counts["auc_all"]
    cells = [
        (
            kind.title,
            format_interval(kind.auc),
            format_interval(kind.auc_all),
            "{} ({} to {})".format(*map(percent, kind.supported)) if kind.supported else "n/a",
        )
        for kind in kinds
    ]
    columns = ("descriptions", f"AUC, {measured} tested", f"AUC, all {counted}", "supported")
    show_table(f"what the descriptions of {run.name} are worth, beside wrong ones", columns, cells)
    if measured < counted:
        say(f"AUC, all: {counted - measured} without a tested description count as 0.5, which is chance", dim=True)


def show_sizes(scores: PooledScores) -> None:
    """Prints the mean activations in standard deviations of the dataset. Prints nothing if they are not known."""
    count = scores.counts["z_positive"]
    if count:
        listed = ", ".join(f"{images} {mean:+.2f}" for images, mean in mean_sizes(scores).items())
        say(f"mean activation of {count} units, in standard deviations of the dataset: {listed}")


def show_truth(runs: Sequence[tuple[Run, str]]) -> None:
    """Prints how well the labels that runs gave to units match what these units are known to respond to.

    Prints nothing if this is known for none of the units.

    Args:
        runs: Each run with its name.
    """
    cells = [
        (
            name,
            each.by,
            str(each.units),
            *(format_interval(interval) or "none" for interval in (each.exact, each.precision, each.recall)),
            str(each.unknown) if each.unknown else "",
        )
        for run, name in runs
        for each in truth_scores(read_truth(run))
    ]
    if cells:
        columns = ("run", "compared by", "units", "exact", "precision", "recall", "unknown")
        show_table("labels against what the units are known to respond to", columns, cells, left=2)
        say("intervals: 95 %; exact: Wilson, over units; precision and recall: bootstrap over units", dim=True)


def show_methods(runs: Sequence[tuple[Run, str]], resamples: int) -> None:
    """Prints the mean activations by layer for several methods, as in Table A3 of the MAIA paper.

    There are two means for each method. One is over images that show what its descriptions name, the other over
    neutral images. Also compares the scores of each pair of methods by their differences, paired by unit.

    Args:
        runs: The run of each method with its name.
        resamples: The number of bootstrap resamples.
    """
    found = {name: run_scores(run, resamples).activations for run, name in runs}
    layers = sorted({layer for each in found.values() for layer in each.layers})
    rows = [
        (layer, name, len(each.units[layer]), each.layers[layer])
        for layer in layers
        for name, each in found.items()
        if layer in each.layers
    ]
    rows += [("average", name, sum(map(len, each.units.values())), each.whole) for name, each in found.items()]
    cells = [
        (layer, name, str(units), *(format_interval(means[role], ".3g") for role in ("positive", "neutral")))
        for layer, name, units, means in rows
    ]
    columns = ("layer", "method", "units", "positive", "neutral")
    show_table("mean activations, as in Table A3 of the MAIA paper", columns, cells, left=2)
    show_comparison(compare_runs(runs, resamples))


def show_beside(runs: Sequence[tuple[Run, str]], resamples: int) -> None:
    """Prints a row for each run, whose units may be other ones, such as those of the same network untrained. Below, how far
    the shares of the first run differ from those of the others.
    """
    shares = run_shares(runs)
    pooled = {name: run_scores(run, resamples).measures for run, name in runs}
    cells = [
        (
            each.name,
            str(each.investigations),
            *(f"{count} ({percent(low)} to {percent(high)})" for count, (_, low, high) in _counted(each)),
            format_interval(pooled[each.name]["auc_minus_other_all"]) or "n/a",
        )
        for each in shares
    ]
    columns = ("run", "units", "supported", "shown by exemplars", "own minus other")
    show_table("runs beside each other", columns, cells)
    for other in shares[1:]:
        supported, shown = map(share_difference, shares[0].shares, other.shares)
        say(
            f"{shares[0].name} minus {other.name}: supported {_points(supported)}, and shown by exemplars {_points(shown)}"
        )
    say(
        "shown by exemplars: supported and shown; own minus other: of AUCs, over all units, with chance where nothing was tested; "
        "intervals: 95 %, of shares Wilson, of their differences Newcombe, over units",
        dim=True,
    )


def _counted(each: RunShares) -> list[tuple[int, tuple[float, float, float]]]:
    return list(zip((each.supported, each.shown), each.shares, strict=True))


def _points(difference: tuple[float, float, float]) -> str:
    return "{} ({} to {})".format(*(percent(each, sign="+") for each in difference))


def show_comparison(comparisons: Sequence[RunComparison]) -> None:
    """Prints a table for each pair of runs: the differences of their scores, paired by unit."""
    for pair in comparisons:
        title = f"{pair.one} minus {pair.other}"
        if pair.cause:
            say(f"{title}: not compared, {pair.cause}")
            continue
        show_table(
            f"{title}: {pair.units} units in both, {pair.alone[0]} and {pair.alone[1]} in one alone",
            _DIFFERENCE_COLUMNS,
            map(_difference, pair.differences),
            whole=_DIFFERENCE_COLUMNS[1:],
        )
        for each in pair.differences:
            if warned := warning(each.measure):
                say(f"{compared_measures()[each.measure]}: {warned}", dim=True)
        if pair.differing:
            say(f"configs differ in {', '.join(pair.differing)}")
    if any(pair.differences for pair in comparisons):
        say(
            "first, second: means of the two methods; intervals: bootstrap over prompts and units, crossed; p: Wilcoxon's "
            "signed-rank test over units, adjusted for the false discovery rate over all rows",
            dim=True,
        )


_DIFFERENCE_COLUMNS = ("", "units", "first", "second", "difference (95 %)", "p")


def _difference(each: PairedDifference) -> list[str]:
    return [
        compared_measures()[each.measure],
        str(each.units),
        f"{each.one.mean:.3f}",
        f"{each.other.mean:.3f}",
        format_interval(each.difference, "+.3f"),
        "" if each.adjusted is None else f"{each.adjusted:.3g}",
    ]


def show_reliability(run: Run) -> None:
    """Prints the agreement between investigations of the same unit, and risk-coverage curves.

    A curve gives, for several shares of the units, the mean risk (1 minus AUC) of the most certain units. The certainty
    of a unit is, for example, the agreement between its investigations.
    """
    reliability = read_reliability(run)
    if by := reliability.agreements:
        cells = [
            ("runs of one unit", *(format_interval(each.within) for each in by)),
            ("runs of different units", *(format_interval(each.between) for each in by)),
            ("gap, unit by unit", *(format_interval(each.gap, "+.2f") for each in by)),
            ("nearest run is its own unit's", *(format_interval(each.identified) for each in by)),
            ("the same by chance", *(f"{each.chance:.2f}" for each in by)),
            ("units", *(str(each.units) for each in by)),
        ]
        show_table(f"agreement between investigations of {run.name}", ("", *(each.by for each in by)), cells)
    if curves := reliability.selective:
        cells = [
            (f"{percent(share)} of units", *(format_interval(curve.risks[number][1]) for curve in curves))
            for number, share in enumerate(COVERAGES)
        ]
        cells += [
            ("mean over coverages", *(format_interval(curve.area) for curve in curves)),
            ("less than at random by", *(format_interval(curve.gain, "+.2f") for curve in curves)),
            ("units", *(str(curve.units) for curve in curves)),
        ]
        show_table("risk (1 minus AUC) of the most certain, by", ("", *(curve.by for curve in curves)), cells)
    if not reliability.is_empty:
        say("intervals: 95 %, bootstrap over units", dim=True)


def show_ablation(name: str, results: Sequence[ToolSetResult], generator: str) -> None:
    """Prints the scores of descriptions made with each tool set, and the numbers of Table A5 of the MAIA paper.

    A tool set is a choice of the tools that the agent may use.

    Args:
        name: The name of the ablation.
        results: The results of the tool sets.
        generator: The name of the generator of the test images.
    """
    units = results[0].units if results else 0
    cells = [
        (
            result.name,
            str(result.tested),
            *(format_interval(each, ".3g") or "none" for each in (result.positive, result.neutral, result.auc)),
            format_interval(result.auc_all, ".3g"),
            format_interval(result.against, "+.3g"),
            format_interval(result.against_all, "+.3g"),
        )
        for result in results
    ]
    columns = ("tool set", "tested", "positive", "neutral", "AUC", "AUC, all", "AUC minus full", "the same, all")
    show_table(f"ablation of {name}, ours: {units} units, each under every tool set", columns, cells)
    say(
        f"tested with images of {generator}, whatever the agent had; means and AUCs of tested descriptions, paired where both "
        "are; all: the others count as 0.5 (chance); 95 % bootstrap intervals over prompts and units, crossed",
        dim=True,
    )
    show_table(
        "published (MAIA, table A5): other units, images and agent; no intervals were printed",
        ("network", "tool set", "positive", "neutral"),
        [
            (row["network"], row["method"], f"{float(row['positive']):.2f}", f"{float(row['neutral']):.2f}")
            for row in published("ablation")
        ],
        left=2,
    )


def show_choice(score: "ChoiceScore", model: str = "") -> None:
    """Prints how often labels of one method were preferred to those of another (two-alternative forced choice).

    Also prints the results that the MAIA paper gives for its own labels.

    Args:
        score: The result of the choices.
        model: The name of the model that chose. Empty if people chose.
    """
    one, other = score.methods
    people = len(score.participants)
    by = f"by a model, {model}" if model else f"by {people} {'person' if people == 1 else 'people'}"
    say(
        f"two-alternative forced choice {by}: labels {one} over labels {other} {score.share.mean:.2f}, 95 % interval "
        f"{score.share.low:.2f} to {score.share.high:.2f}, over {score.units} units"
    )
    alike = (
        "" if score.consistent is None else f"; {percent(score.consistent)} of pairs were answered alike in both orders"
    )
    say(
        f"{score.answered} of {score.questions} questions answered; the label shown first was chosen {percent(score.first)} of "
        f"the time{alike}"
    )
    if score.alpha is not None:
        say(f"agreement between them (Krippendorff's alpha): {score.alpha:.2f}")
    if score.inattentive:
        say(f"left out, because they failed the attention checks: {', '.join(score.inattentive)}")
    choices = published("choices")
    printed = ", ".join(f"{each['preferred']} over {each['over']} {float(each['share']):g}" for each in choices)
    if model:
        say(
            f"not comparable with what people chose in the paper ({printed}; {choices[0]['source']}): here a model chose"
        )
    else:
        say(f"the paper's own, of other units and labels: {printed} ({choices[0]['source']})")
