"""Reads searches such as `boats verdict:supported worst>0.8 -night`: words, and conditions on the fields of units.

The search box of the report reads the same language (`static/units.js`), with the fields of `search_fields`.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from openmaia.analysis.concepts import find_concepts
from openmaia.core.errors import UsageError
from openmaia.core.text import first_line
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.data import search_fields, table_columns
from openmaia.reporting.tables import UnitRow

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip
_TOKEN = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_COMPARED = re.compile(r"([a-z_]+)(>=|<=|>|<|=)(-?[\d.]+(?:e-?\d+)?)", re.IGNORECASE)
_NAMED = re.compile(r"([a-z_]+):(.+)", re.IGNORECASE)
_OF_PLACE: Mapping[str, Callable[[UnitRow], str]] = {"layer": lambda row: row.unit.layer, "run": lambda row: row.run}
_OF_UNIT: Mapping[str, Callable[[UnitRow], float]] = {
    "index": lambda row: row.unit.index,
    "replicate": lambda row: row.investigation.replicate,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitQuery:
    """A search that was read."""

    words: str
    """What is no condition."""
    without: tuple[str, ...]
    """Words in lower case that a unit must not have."""
    conditions: tuple[tuple[str, str, str, bool], ...]
    """Field, comparison (`:` for one with a word), value, and whether it is negated."""

    def select(self, rows: Sequence[UnitRow], embed: TextEmbedding | None = None) -> list[UnitRow]:
        """Returns the rows that meet all conditions, in their order. `embed` finds the concepts, if one is asked for."""
        kept = [row for row in rows if not any(word in _text(row) for word in self.without)]
        concepts: Mapping[str, str] = {}
        if any(name == "concept" for name, *_ in self.conditions):
            found = find_concepts([row.header.get("labels") or () for row in rows], embed)
            concepts = {
                row.page: found.names[at] for row, at in zip(rows, found.positions, strict=True) if at is not None
            }
        return [row for row in kept if all(_meets(row, each, concepts) for each in self.conditions)]


def read_query(text: str) -> UnitQuery:
    """Reads a search.

    Raises:
        UsageError: A condition has an unknown field; the message names the nearest. Or it compares a word with a number.
    """
    words, without, conditions = list[str](), list[str](), list[tuple[str, str, str, bool]]()
    for minus, quoted, plain in _TOKEN.findall(re.sub(r"\?\s*$", "", text)):
        condition = _condition(plain) if plain else None
        if condition:
            conditions.append((*condition, bool(minus)))
        elif minus:
            without.append((quoted or plain).casefold())
        else:
            words.append(quoted or plain)
    return UnitQuery(
        words=" ".join(filter(None, words)), without=tuple(filter(None, without)), conditions=tuple(conditions)
    )


def _condition(token: str) -> tuple[str, str, str] | None:
    if compared := _COMPARED.fullmatch(token):
        name, sign, value = compared.groups()
    elif named := _NAMED.fullmatch(token):
        name, value = named.groups()
        sign = ":"
    else:
        return None
    fields = search_fields()
    if (column := fields.get(name.lower())) is None:
        nearest = get_close_matches(name.lower(), list(fields), 1, 0.0)[0]
        raise UsageError(f"There is no field {name}; the nearest is {nearest}. Quotes search for the text itself.")
    if (column in _words()) != (sign == ":"):
        example = f"{name}:{_example(column)}" if column in _words() else f"{name}>0.5"
        raise UsageError(f"{first_line(token, 80)}: ask for {name} in the form {example}")
    try:
        float(value) if sign != ":" else None
    except ValueError as error:
        raise UsageError(f"{first_line(token, 80)}: {value} is no number") from error
    return column, sign, value


def _words() -> set[str]:
    return {*_OF_PLACE, "concept"} | {name for name, column in table_columns().items() if column.names}


def _example(column: str) -> str:
    own = table_columns().get(column)
    return _spell(own.names[0]) if own else "NAME"


def _meets(row: UnitRow, condition: tuple[str, str, str, bool], concepts: Mapping[str, str]) -> bool:
    name, sign, value, is_negated = condition
    if sign == ":":
        return (_spell(_word(row, name, concepts)) == _spell(value)) != is_negated
    own = _OF_UNIT[name](row) if name in _OF_UNIT else table_columns()[name].value(row)
    return (own is not None and _COMPARISONS[sign](own, float(value))) != is_negated


def _word(row: UnitRow, name: str, concepts: Mapping[str, str]) -> str:
    if name in _OF_PLACE:
        return _OF_PLACE[name](row)
    if name == "concept":
        return concepts.get(row.page, "")
    column = table_columns()[name]
    at = column.value(row)
    return "" if at is None else column.names[int(at)]


def _spell(text: str) -> str:
    return re.sub(r"\s+", "_", text.lower())


def _text(row: UnitRow) -> str:
    labels = row.header.get("labels") or ()
    return "\n".join((row.name, *labels, row.header.get("description") or "", row.cause, row.class_name)).casefold()
