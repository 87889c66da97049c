"""Twelve exact units without noise, for tests and for a first look."""

from collections.abc import Mapping

from openmaia.targets.closed_form.concepts import INSIDE
from openmaia.targets.closed_form.unit import ClosedForm, Slot


def _unit(*slots: tuple[str, ...]) -> ClosedForm:
    return ClosedForm(slots=tuple(Slot(concepts=tuple(INSIDE[name] for name in slot)) for slot in slots))


SMALL: Mapping[str, tuple[ClosedForm, ...]] = {
    "mono": tuple(
        _unit((name,)) for name in ("red", "green", "blue", "horizontal stripes", "vertical stripes", "circle")
    ),
    "or": (
        _unit(("red",), ("horizontal stripes",)),
        _unit(("yellow",), ("vertical stripes",)),
        _unit(("green",), ("circle",)),
    ),
    "and": (_unit(("red", "circle")), _unit(("blue", "horizontal stripes")), _unit(("green", "square"))),
}
