"""Makes the data files of a report's table of units: one with the columns of numbers, and several with the texts.

A page that is opened from a folder may not fetch files, but it may run scripts of the same folder. Each data file is
therefore a script that passes a JSON string to a function of the page. Browsers parse such a string faster than an
object literal of JavaScript. The values of a column are the bytes of an array in base64, from which the page makes one that
takes as much memory; numbers in JSON would take ten times as much while they are read. Texts are a line of JSON for each
row, which the page reads when it shows the row.
"""

import base64
import json
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openmaia.analysis.concepts import find_concepts
from openmaia.analysis.search import DENIALS, LEAST_COVERED, QUESTION_WORDS, WordNames, find_lexicon
from openmaia.evaluation.analysis.verdict import Verdict, all_controls
from openmaia.evaluation.claims import STOP_WORDS
from openmaia.evaluation.metric import metrics_shown
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.rows import RunSummary
from openmaia.reporting.tables import UnitRow
from openmaia.runs.records import dumps
from openmaia.runs.state import STATES

SHARD = 2_000
"""Rows of the table in each data file with texts."""
_VERDICTS = tuple(verdict.value for verdict in Verdict)
_STATE_NAMES = tuple(state.value for state in STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataColumn:
    """A column of the table of units."""

    title: str
    """Empty for a column whose values are only shown as a part of another column."""
    value: Callable[[UnitRow], float | int | None]
    hint: str = ""
    names: tuple[str, ...] = ()
    """The names of categories: the values are positions in this tuple. Empty for numbers."""
    visible: bool = False
    """Whether the table shows it at first."""
    score: bool = False
    """Whether the values are between 0 and 1, so that they have a bar."""


def _of_scores(name: str) -> Callable[[UnitRow], float | None]:
    return lambda row: _rounded(row.scores.get(name))


def _of_header(name: str) -> Callable[[UnitRow], float | None]:
    return lambda row: _rounded(row.header.get(name))


def _of_worst(name: str) -> Callable[[UnitRow], float | None]:
    return lambda row: _rounded(getattr(row.verdict.worst, name)) if row.verdict.worst else None


def _position(value: str, names: Sequence[str]) -> int | None:
    return names.index(value) if value in names else None


def _metric_columns() -> dict[str, DataColumn]:
    return {
        each.name: DataColumn(
            title=each.column or each.title,
            value=_of_scores(each.name),
            hint=each.hint,
            visible=each.visible,
            score=each.bounds == (0, 1),
        )
        for each in metrics_shown("table")
    }


def table_columns() -> dict[str, DataColumn]:
    """Returns the columns in the order of the table, under the names that searches such as `worst>0.8` use."""
    controls = tuple(each.name for each in all_controls().values())
    return {
        "verdict": DataColumn(title="Verdict", value=lambda row: _VERDICTS.index(row.verdict.verdict.value), names=_VERDICTS, visible=True),
        "worst": DataColumn(title="Worst control", value=_of_worst("auc"), visible=True, score=True, hint="AUC against the control that the description tells apart worst, with its 95 % interval"),
        "low": DataColumn(title="", value=_of_worst("low")),
        "high": DataColumn(title="", value=_of_worst("high")),
        "images": DataColumn(title="", value=_of_worst("positive")),
        "controls": DataColumn(title="", value=_of_worst("control")),
        "control": DataColumn(title="Control", value=lambda row: _position(row.verdict.worst.name, controls) if row.verdict.worst else None, names=controls, hint="The worst control"),
        "q": DataColumn(title="q", value=lambda row: _rounded(row.verdict.q), visible=True, hint="p adjusted for the number of descriptions of the run"),
        "p": DataColumn(title="p", value=lambda row: _rounded(row.verdict.p), hint="From a permutation of descriptions within the layer"),
        **_metric_columns(),
        "shown": DataColumn(title="", value=lambda row: row.verdict.shown.exemplars[0] if row.verdict.shown else None),
        "known": DataColumn(title="", value=lambda row: row.verdict.shown.exemplars[1] if row.verdict.shown else None),
        "turns": DataColumn(title="Turns", value=_of_header("turns")),
        "seconds": DataColumn(title="Seconds", value=_of_header("seconds"), hint="Duration of the investigation, including waiting times"),
        "stop": DataColumn(title="Ended", value=lambda row: _position(row.stop, _STATE_NAMES), names=_STATE_NAMES, hint="How the investigation ended"),
    }  # fmt: skip


def search_fields() -> dict[str, str]:
    """Returns the column behind each field that a search may have a condition on, by the name of the field."""
    names = [*table_columns(), "concept", "layer", "run", "index", "replicate"]
    return {name: name for name in names} | {"score": "worst"}


def make_data_files(
    summaries: Sequence[RunSummary],
    version: str,
    has_tile: Callable[[UnitRow], bool],
    lexicon: WordNames,
    embed: TextEmbedding | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each data file.

    While a run continues, the page loads the data again if `version` changes. `has_tile` says whether the file with the
    images of a row exists. `lexicon` says what words mean. Without `embed`, concepts are found by the words of labels.
    """
    rows = [row for summary in summaries for row in summary.rows]
    table = _table(rows, version, has_tile, embed) | _language(rows, lexicon, embed)
    packed = {name: _pack(column.pop("values")) for name, column in table["columns"].items()}
    # A call for each column: as parts of one JSON text, all of them would be in memory twice.
    calls = [make_call(f'receiveValues("{name}", "{kind}", ', text) for name, (kind, text) in packed.items()]
    yield "table.js", b"".join([*calls, make_call("receive", dumps(table))])
    for shard, first in enumerate(range(0, len(rows), SHARD)):
        texts = [_texts(row) for row in rows[first : first + SHARD]]
        yield f"texts-{shard}.js", make_call(f"receiveTexts({shard}, ", "\n".join(map(dumps, texts)))


def _table(
    rows: Sequence[UnitRow], version: str, has_tile: Callable[[UnitRow], bool], embed: TextEmbedding | None
) -> dict[str, Any]:
    places = {_place(row): None for row in rows}
    numbers = {place: number for number, place in enumerate(places)}
    own = [numbers[_place(row)] for row in rows]
    columns: dict[str, Any] = {
        "place": {"values": own},
        "index": {"values": [row.unit.index for row in rows]},
        "replicate": {"values": [row.investigation.replicate for row in rows]},
        "labels": {"values": _ranks(rows)},
        "page": {"values": [int(bool(row.header)) for row in rows]},
        "tile": {"values": [int(has_tile(row)) for row in rows]},
    }
    concepts = find_concepts([row.header.get("labels") or () for row in rows], embed)
    hint = "Units with similar labels, named by the most frequent one"
    columns["concept"] = {"title": "Concept", "hint": hint, "names": concepts.names, "values": concepts.positions}
    columns["alike"] = {"values": concepts.ranks}
    own_columns = table_columns()
    for name, column in own_columns.items():
        facts = {key: getattr(column, key) for key in ("title", "hint", "names", "visible", "score")}
        columns[name] = {key: value for key, value in facts.items() if value} | {
            "values": [column.value(row) for row in rows]
        }
    return {
        "version": version,
        "places": [dict(zip(("run", "target", "layer", "folder"), place, strict=True)) for place in places],
        "columns": columns,
        "order": [*own_columns, "concept"],
        "fields": search_fields(),
        "shard": SHARD,
        "shards": -(-len(rows) // SHARD),
    }


_EXACT = 10**7
"""Whole numbers up to this one are exact in 4 bytes, and written with the 7 digits that the page shows of a float."""


def _pack(values: Sequence[float | int | None]) -> tuple[str, str]:
    """Returns the type of the smallest array that holds numbers (u1, u2, u4, f4 or f8), and its bytes, little-endian in
    base64. None becomes NaN."""
    whole = [value for value in values if isinstance(value, int)]
    low, high = min(whole, default=0), max(whole, default=0)
    if len(whole) == len(values) and low >= 0 and high < 2**32:
        code, name = ("B", "u1") if high < 2**8 else ("H", "u2") if high < 2**16 else ("I", "u4")
    else:
        code, name = ("f", "f4") if max(-low, high) < _EXACT else ("d", "f8")
    packed = array(code, [float("nan") if value is None else value for value in values] if code in "fd" else whole)
    if sys.byteorder == "big":
        packed.byteswap()
    return name, base64.b64encode(packed.tobytes()).decode()


def _language(rows: Sequence[UnitRow], lexicon: WordNames, embed: TextEmbedding | None) -> dict[str, Any]:
    texts = [text for row in rows for text in (*(row.header.get("labels") or ()), row.header.get("description") or "")]
    words = {phrase: sorted(names) for phrase, names in {**find_lexicon(texts, embed), **lexicon}.items()}
    lists = {"stop": STOP_WORDS, "asking": QUESTION_WORDS, "denials": DENIALS}
    return {
        "language": {"lexicon": words, "covered": LEAST_COVERED} | {name: sorted(each) for name, each in lists.items()}
    }


def _place(row: UnitRow) -> tuple[str, str, str, str]:
    return row.run, row.unit.target, row.unit.layer, row.stem.rpartition("/")[0] + "/"


def _ranks(rows: Sequence[UnitRow]) -> list[int | None]:
    labels = [(", ".join(row.header.get("labels") or ())).casefold() for row in rows]
    ranks = {text: rank for rank, text in enumerate(sorted(set(labels) - {""}))}
    return [ranks.get(text) for text in labels]


def _texts(row: UnitRow) -> list[Any]:
    header = row.header
    cause = row.damage or row.cause
    return [header.get("labels") or [], header.get("description") or "", cause, row.verdict.reason, row.class_name]


def _rounded(value: float | int | None) -> float | int | None:
    """Rounds a float to 4 significant digits, which keeps the data files small. NaN becomes None."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.4g}") if value == value else None


def make_call(function: str, text: str) -> bytes:
    """Returns a script that passes a text to a JavaScript function of the object `openmaia`.

    `function` may end with its first arguments, such as `receiveTexts(3, `.
    """
    opening = function if "(" in function else f"{function}("
    return f"openmaia.{opening}{json.dumps(text)});\n".encode()
