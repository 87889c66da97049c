"""The style of all matplotlib figures, which are written as SVG and PNG.

All texts are literal: a dollar sign does not start a formula, and no text becomes markup in the SVG. Lengths are in
points (1/72 inch).
"""

# pyright: reportUnknownMemberType=false
# The type stubs of matplotlib do not type keyword arguments.

import io
import re
import threading
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openmaia.core.text import printable

WHITE, INK, SOFT, LINE = "#ffffff", "#1b1d21", "#5f6570", "#e4e4e0"
POSITIVE, PALE, NEUTRAL, WORSE = "#2f62d9", "#acc0f0", "#8b919c", "#b3352c"
RUNS = (POSITIVE, "#0f766e", "#b45309", "#9333ea", WORSE, SOFT)
"""Colours of runs in their order. After the last colour they start again."""

_FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Arial Unicode MS")
"""Fonts that are searched for a character in this order. Fonts that are not installed are left out."""
_DPI = 144
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "openmaia",
    "text.parse_math": False,
    "text.color": INK,
    "font.size": 10.5,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 1.0,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in (("major.size", 0), ("minor.size", 0), ("color", SOFT))},
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "legend.handletextpad": 0.5,
    "lines.solid_capstyle": "butt",
}  # fmt: skip

_SVG, _LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
_UNWANTED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}
_LOCK = threading.RLock()


@contextmanager
def styled() -> Generator[None]:
    """Context manager and decorator that applies _STYLE to figures drawn or saved in it, under a lock, as settings are
    global."""
    installed = set(font_manager.get_font_names())
    style: dict[Any, Any] = _STYLE | {"font.family": [name for name in _FONTS if name in installed]}
    with _LOCK, mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of the given size in points."""
    return Figure(figsize=(width / 72, height / 72), facecolor=WHITE)


def add_axes(figure: Figure, left: float, top: float, right: float, bottom: float) -> Axes:
    """Adds axes to a figure, with the given margins in points to its edges."""
    width, height = figure.get_size_inches() * 72
    return figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))


@styled()
def png(figure: Figure) -> bytes:
    """Returns the figure as PNG, with two pixels per point."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()


@styled()
def svg(figure: Figure, label: str, titles: Mapping[str, str] | None = None) -> Markup:
    """Returns the figure as SVG, which can be a file or be embedded in a page. All texts are escaped.

    `label` describes it to screen readers, and `titles` are tooltips by the address of a link.

    matplotlib's style sheet and `style` attributes are replaced by SVG attributes such as `fill`. The content security
    policy of our pages forbids inline styles, and the pages' style sheet for dark mode can change only SVG attributes.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    root = ElementTree.fromstring(
        re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", buffer.getvalue())
    )
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in _UNWANTED]:
            parent.remove(child)
        _use_attributes(parent)
        if parent.tag == f"{{{_SVG}}}a":
            _link(parent, titles or {})
    root.attrib |= {
        "class": "plot",
        "role": "group" if root.find(f".//{{{_SVG}}}a") is not None else "img",
        "aria-label": printable(label),
        "stroke-linejoin": "round",
    }
    root.attrib["font-family"] = ", ".join([*(f"'{name}'" for name in _FONTS), "sans-serif"])
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _link(element: ElementTree.Element, titles: Mapping[str, str]) -> None:
    address = element.attrib.pop(_LINK)
    element.attrib.pop("target", None)
    element.set("href", address)
    title = ElementTree.Element(f"{{{_SVG}}}title")
    title.text = printable(titles.get(address, ""))
    element.insert(0, title)


def _use_attributes(element: ElementTree.Element) -> None:
    if element.tag == f"{{{_SVG}}}g":
        element.attrib.pop("id", None)
    for declaration in filter(None, element.attrib.pop("style", "").split(";")):
        name, _, value = declaration.partition(":")
        if name.strip() != "font-family":
            element.set(name.strip(), value.strip())
