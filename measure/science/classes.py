"""Class outputs of EfficientNet-Lite0 as units of known truth: a description is right if it names the class, judged by words
and by WordNet's hierarchy. Writes classes.csv, a row per unit, and its section of RESULTS.md.

The units are all classes of which a word of the offline vocabulary is a name, and two classes of each word that is only a
hypernym. They were chosen by `measure.science.wordnet` before anything was measured.
"""

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

from measure.measuring import machine, shown
from measure.science import sections, setting, wordnet
from measure.science.real import command
from measure.science.wordnet import ImageNetClass
from openmaia.core.units import OUTPUT, Unit
from openmaia.evaluation.analysis.significance import compute_significance
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import TESTED, UnitVerdict, Verdict, run_verdicts
from openmaia.evaluation.claims import read_claims
from openmaia.evaluation.storage import StoredTrials
from openmaia.runs.run import Run

K = TypeVar("K")

CSV = Path(__file__).with_name("classes.csv")
SECTION = "Class outputs"
NAMED, KIND = "with a word for the class", "with a word for its kind only"


def measure(smoke: bool) -> dict[str, Any]:
    classes = wordnet.read()
    groups = {
        NAMED: [each for each in classes if each.is_exact],
        KIND: [each for each in classes if not each.is_exact],
    }
    found: dict[str, list[Described]] = {}
    figures: dict[str, Any] = {}
    for name, group in groups.items():
        run = investigated(group[:2] if smoke else group, f"classes-{'named' if name is NAMED else 'kind'}", smoke)
        found[name] = described(run, group)
        figures[name] = summarised(found[name]) | {"wrong": wrong_names(run, found[name])}
    if not smoke:
        write_units(found)
        sections.write(SECTION, section(figures))
    return figures


def investigated(classes: Sequence[ImageNetClass], name: str, smoke: bool) -> Run:
    """Runs the investigations with their tests, or continues them."""
    runs = setting.CACHE / "science" / "runs"
    command(
        "run",
        "configs/classes.yaml",
        f"name={name}{'-few' if smoke else ''}",
        f"paths.runs={runs}",
        f"paths.cache={setting.CACHE}",
        f"units={OUTPUT}={','.join(str(each.index) for each in classes)}",
        f"exemplars.dataset={'few' if smoke else 'packages'}",
        *setting.few(smoke),
    )
    return Run.open(str(runs / f"{name}{'-few' if smoke else ''}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A class with the labels that its output got, and their verdict."""

    of: ImageNetClass
    unit: Unit
    labels: tuple[str, ...]
    verdict: UnitVerdict

    @property
    def is_right(self) -> bool:
        """Whether there are labels, and each is a name of the class or of a kind that includes it, and nothing else."""
        return bool(self.labels) and all(self.of.names_it(each) or self.of.includes_it(each) for each in self.labels)

    @property
    def is_exact(self) -> bool:
        """Whether the description is right, and a label names the class itself."""
        return self.is_right and any(map(self.of.names_it, self.labels))


def described(run: Run, classes: Sequence[ImageNetClass]) -> list[Described]:
    of = {each.index: each for each in classes}
    verdicts = run_verdicts(run)
    return [
        Described(of=of[claim.unit.index], unit=claim.unit, labels=claim.labels, verdict=verdicts[claim.investigation])
        for claim in read_claims(run)
    ]


def summarised(units: Sequence[Described]) -> dict[str, Any]:
    supported = [each for each in units if each.verdict.verdict is Verdict.SUPPORTED]
    return {
        "units": len(units),
        "exact": proportion([each.is_exact for each in units]),
        "right": proportion([each.is_right for each in units]),
        "supported_exact": sum(each.is_exact for each in supported),
        "supported_right": proportion([each.is_right and each in supported for each in units]),
        "supported_wrong": sum(not each.is_right for each in supported),
        **{
            each.value: sum(unit.verdict.verdict is each for unit in units)
            for each in (Verdict.UNDECIDED, Verdict.NOT_SUPPORTED, Verdict.ABSTAINED)
        },
    }


def wrong_names(run: Run, units: Sequence[Described]) -> dict[str, Any]:
    """Gives every unit the description of every other one that shares no label with its own, and counts those that are
    supported, by the rule for its own: of all pairs, and of those in which no label is right by the hierarchy."""
    return counted(given_names(units), supported_pairs(run, len(units)))


def supported_pairs(run: Run, each: int) -> set[tuple[Unit, Unit]]:
    """Gives every unit the description of `each` other ones, and returns which units are given whose supported description."""
    stored = StoredTrials(run)
    passed = compute_significance(
        stored, lambda claim: stored.cached(claim.investigation), stored.words, wrong=each, sharing=stored.sharing
    ).passed
    return {(claim.unit, other.unit) for claim, other in passed}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenName:
    """The description of one class given to another, with which it shares no label."""

    to: Described
    of: Described

    @property
    def is_near(self) -> bool:
        """Whether a label names the class, or a kind that includes it: such a description is not wrong."""
        return any(self.to.of.names_it(each) or self.to.of.includes_it(each) for each in self.of.labels)


def given_names(units: Sequence[Described]) -> list[GivenName]:
    tested = [each for each in units if each.verdict.verdict in TESTED]
    pairs = list_unlike({at: each.labels for at, each in enumerate(tested)})
    return [GivenName(to=tested[to], of=tested[of]) for to, of in pairs]


def list_unlike(labels: Mapping[K, Sequence[str]]) -> list[tuple[K, K]]:
    """Returns the ordered pairs of keys that have no label in common, whatever their case."""
    folded = {key: {label.casefold() for label in each} for key, each in labels.items()}
    return [(one, other) for one, other in permutations(folded, 2) if not folded[one] & folded[other]]


def counted(given: Sequence[GivenName], supported: Collection[tuple[Unit, Unit]]) -> dict[str, Any]:
    """`supported` are pairs of the unit that is given a description, and of the unit whose it is."""
    passed = [(each.to.unit, each.of.unit) in supported for each in given]
    near = [each.is_near for each in given]
    return {
        "pairs": len(given),
        "supported": proportion(passed),
        "near": sum(near),
        "supported_near": sum(one and other for one, other in zip(passed, near, strict=True)),
        "supported_wrong": proportion([one for one, other in zip(passed, near, strict=True) if not other]),
    }


def write_units(groups: Mapping[str, Sequence[Described]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("class word named verdict right exact p q worst_low labels truth".split())
        for name, units in groups.items():
            for each in units:
                numbers = (each.verdict.p, each.verdict.q, each.verdict.worst.low if each.verdict.worst else None)
                table.writerow([
                    each.of.index, each.of.word, int(name is NAMED), each.verdict.verdict.value, int(each.is_right),
                    int(each.is_exact), *("" if value is None else f"{value:.4g}" for value in numbers),
                    "; ".join(each.labels), "; ".join(each.of.names),
                ])  # fmt: skip


def section(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {each['units']} | {shown(each['supported_right'], '.1%')} | {each['supported_exact']} | "
        f"{each['supported_wrong']} | {each['undecided']} | {each['not supported']} | {each['abstained']} | "
        f"{shown(each['exact'], '.1%')} | {shown(each['right'], '.1%')} | {_of_wrong(each['wrong'])} |"
        for name, each in figures.items()
    ]
    named, kind = figures[NAMED]["units"], figures[KIND]["units"]
    return f"""Units are outputs of EfficientNet-Lite0, {machine()}, {date.today().isoformat()}, `make science only=classes`. The truth is the class.
A label can only be found if the offline vocabulary has a word for it, which needs pictures in both halves of the picture set: a
name for {named} of the 1000 classes. For further ones there is a word for their kind; {kind} of them were drawn by a hash, at most {wordnet.EACH} of each word. *Right*:
every label is a name of the class, or of a kind that includes it by WordNet's hypernyms; with any other word a label is wrong.
*Exact*: right, and a name of the class itself is among the labels. Wrong names: every unit is given the descriptions of all others that
share no label with its own; after the semicolon, those of which no label is right by the hierarchy. Each unit is in classes.csv,
synonyms and hypernyms are in wordnet.csv.

| classes | units | supported and right | … by its exact name | supported and wrong | undecided | not supported | abstained | exact, whatever the verdict | right, whatever the verdict | wrong names that are supported |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _of_wrong(given: Mapping[str, Any]) -> str:
    """All pairs, and those that are wrong by the hierarchy too."""
    wrong = given["pairs"] - given["near"]
    return (
        f"{shown(given['supported'], '.1%')} of {given['pairs']}; {shown(given['supported_wrong'], '.1%')} of {wrong}"
    )
