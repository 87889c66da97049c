"""Tables as spreadsheet programs and pandas write them."""

import pytest

from openmaia.core import tables
from openmaia.core.tables import UnreadableTable

ROWS = [
    (2, {"layer": "layer4", "unit": "1", "text": "a, b; c"}),
    (3, {"layer": "layer3", "unit": "2", "text": 'of "q"'}),
]
COMMAS = 'layer,unit,text\nlayer4,1,"a, b; c"\nlayer3,2,"of ""q"""\n'


def written(delimiter: str) -> str:
    lines = (["Layer", "unit", " text"], ["layer4", "1", '"a, b; c"'], ["layer3", "2", '"of ""q"""'])
    return "".join(f"{delimiter.join(line)}\n" for line in lines)


@pytest.mark.parametrize(
    "data",
    [
        COMMAS.encode(), written(";").encode(), written("\t").encode(), written("|").encode(), b"\xef\xbb\xbf" + COMMAS.encode(),
        written("\t").encode("utf-16"), written(";").replace("\n", "\r\n").encode(), written(";").replace("\n", "\r").encode(),
        (written(";") + ";;\n\n").encode(), written(";").replace("\n", ";;\n").encode(),
    ],
)  # fmt: skip
def test_dialect_is_recognised(data: bytes):
    assert tables.read(data).rows == ROWS


def test_line_that_names_the_separator_is_skipped():
    rows = tables.read(("sep=;\r\n" + written(";")).encode()).rows
    assert rows == [(number + 1, cells) for number, cells in ROWS]


def test_rows_have_the_numbers_of_a_spreadsheet():
    rows = tables.read(b'a,b\n1,"two\nlines"\n\n3,4\n').rows
    assert rows == [(2, {"a": "1", "b": "two\nlines"}), (4, {"a": "3", "b": "4"})]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,b\n1,caf\xe9\n", "not UTF-8 .* code page .* cp1252"),
        ("a,b\n1,2\n".encode("utf-16-le"), "null characters"),
        (b"PK\x03\x04", "spreadsheet"),
        (b"a,b\n1,bow ties, knots\n", "3 cells in row 2, and 2 columns"),
        (b"a,b,a\n1,2,3\n", "several columns named a"),
        (b'a,b\n1,"open\n', "no table"),
    ],
)
def test_unreadable_table_is_refused_by_its_cause(data: bytes, message: str):
    with pytest.raises(UnreadableTable, match=message):
        tables.read(data)


@pytest.mark.parametrize(
    ("cell", "expected"), [("122", 122), ("122.0", 122), (" 122,0 ", 122), ("122.", 122), ("0", 0)]
)
def test_unit_is_a_whole_number(cell: str, expected: int):
    assert tables.parse_index(cell) == expected


@pytest.mark.parametrize("cell", ["", "1.5", "-1", "1.000", "1e3", "nan", "1_0", "x", "9" * 12])
def test_other_unit_is_refused(cell: str):
    with pytest.raises(ValueError, match="expected a whole number"):
        tables.parse_index(cell)
