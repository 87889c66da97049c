"""Names are names, wherever they are given."""

import pytest

from openmaia.core.errors import UsageError
from openmaia.runs.people import checked_name, checked_text


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31mb", "a\x00b", "x" * 81, "@ada", "=1+1"])
def test_names_are_refused(name: str):
    with pytest.raises(UsageError, match="is no name of a person"):
        checked_name(name)


def test_one_name_has_one_form():
    assert checked_name(" Zoe\u0308\n  B. ") == checked_name("Zo\u00eb B.") == "Zo\u00eb B."


def test_a_label_may_be_empty():
    assert checked_text(" ", 10, "label") == ""
