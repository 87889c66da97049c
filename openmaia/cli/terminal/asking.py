"""Prints the answers to questions about a run."""

from typing import Any

from openmaia.assembly.asking import CitedUnit, RunAnswer
from openmaia.cli.terminal.output import say, show_table
from openmaia.core.text import first_line

_TEXT = 120
"""Characters of labels that are shown."""


def show_answer(answer: RunAnswer, most: int) -> None:
    """Prints an answer with at most `most` units."""
    if answer.phrased:
        say(answer.phrased)
        if len(answer.told) < len(answer.units):
            say(f"the model was told of the best {len(answer.told)} of {len(answer.units):,} units", dim=True)
        say(
            "only the names of units are checked in the words of the model; what the run says of them is in the table (--top N)",
            dim=True,
        )
    if answer.struck:
        say(
            f"struck, because it is none of the units that the model was told of: {first_line(', '.join(answer.struck))}"
        )
    if answer.unphrased:
        say(f"the model gave no answer that can be used: {first_line(answer.unphrased)}")
    if answer.reasons:
        say(f"predicted: {first_line(answer.reasons.predicted, _TEXT)}, probability {answer.reasons.probability:.2f}")
    also = " or to the pictures" if any(each.responses for each in answer.units) else ""
    said = f' to "{first_line(answer.asked, _TEXT)}"{also}' if answer.asked else ""
    if answer.reasons:
        said = ": without them the class is less likely"
    count = len(answer.units)
    verb = "answer" if count > 1 else "answers"
    say(f"{count or 'None'} of {answer.considered:,} units {verb}{said}")
    if answer.units:
        rows = [_cells(each) for each in answer.units[:most]]
        show_table("", ["unit", "label", "verdict", "score", "evidence"], rows, left=5, whole=["unit", "verdict"])
    if count > most:
        say(f"{count - most:,} more (--top {count} shows all)", dim=True)
    say(f"searched: {'; '.join(answer.sources)}", dim=True)
    if answer.reasons and answer.reasons.unchangeable:
        say(f"units of {', '.join(answer.reasons.unchangeable)} cannot be ablated and are left out", dim=True)


def _cells(unit: CitedUnit) -> list[str]:
    said = "; ".join(unit.labels) or unit.row.header.get("description") or unit.row.class_name or "n/a"
    score = "" if unit.score is None else f"{unit.score:.2f}"
    shown = [f"such as {first_line(unit.prompts[0], 60)!r}"] if unit.prompts else []
    return [unit.name, first_line(said, _TEXT), unit.verdict, score, "; ".join([*unit.evidence, *shown])]


def answer_document(answer: RunAnswer) -> dict[str, Any]:
    """Returns an answer as plain data for programs."""
    return {
        "question": answer.question,
        "asked": answer.asked,
        "considered": answer.considered,
        "searched": list(answer.sources),
        "phrased": answer.phrased,
        "told": len(answer.told),
        "struck": list(answer.struck),
        "unphrased": answer.unphrased,
        "predicted": answer.reasons.predicted if answer.reasons else None,
        "units": [
            {
                "unit": str(each.row.investigation),
                "labels": list(each.labels),
                "description": each.row.header.get("description") or "",
                "verdict": each.verdict,
                "score": each.score,
                "evidence": list(each.evidence),
                "bank_prompts": list(each.prompts),
                "percent": [one.percent for one in each.responses],
                "effect": each.effect,
                "page": each.row.href,
            }
            for each in answer.units
        ],
    }
