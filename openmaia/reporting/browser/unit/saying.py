"""A verdict in one plain sentence."""

from openmaia.evaluation.analysis.statistics import CHANCE
from openmaia.evaluation.analysis.verdict import LEVEL, ControlScore, UnitVerdict, Verdict
from openmaia.reporting.browser.unit.axis import count_pairs, name_control


def say_verdict(verdict: UnitVerdict) -> str:
    """Returns why a unit has its verdict, without the numbers that only a statistician reads."""
    match verdict.verdict, verdict.worst:
        case Verdict.SUPPORTED, ControlScore() as worst:
            return (
                "Pictures drawn from these words excite the unit more than every kind of comparison picture; even against "
                f"the hardest kind they win {count_pairs(worst.auc)} of 100 pairs."
            )
        case Verdict.UNDECIDED, ControlScore() as worst:
            return f"Pictures drawn from these words {_why_undecided(verdict, worst)}"
        case Verdict.NOT_SUPPORTED, ControlScore():
            return f"Pictures drawn from these words {_why_not(verdict)}"
        case _:
            return verdict.reason


def _why_undecided(verdict: UnitVerdict, worst: ControlScore) -> str:
    if worst.low <= CHANCE:
        return (
            f"do not win clearly against {name_control(worst.key)}: {count_pairs(worst.auc)} of 100 pairs, so few pictures that "
            "it could be luck; chance is 50."
        )
    if verdict.p is None or verdict.q is None:
        return "win against every kind, but whether descriptions of other units do as well is not measured yet."
    if verdict.p > LEVEL:
        return "win against every kind, but descriptions of other units or random words often do as well."
    return "win against every kind, but with this many descriptions tested it could be luck."


def _why_not(verdict: UnitVerdict) -> str:
    refuting = next((each for each in verdict.controls if each.high <= CHANCE), None)
    if refuting is None:
        return "excite the unit less than images of the dataset do, on average."
    return (
        f"excite the unit no more than {name_control(refuting.key)} do: they win {count_pairs(refuting.auc)} of 100 pairs; "
        "chance is 50."
    )
