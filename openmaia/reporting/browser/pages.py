"""Renders pages as HTML. All values are escaped, except our style sheet and the SVG of our figures."""

import base64
import hashlib
import importlib.resources
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any, cast

import jinja2
from markupsafe import Markup

from openmaia.reporting.figures.table import TableCell

PACKAGE = "openmaia.reporting.browser"
APPLICATIONS = "applications"
"""Folder in report/ for pages that `openmaia.recipes` writes. The first page links to them by file name."""
ASSETS = "assets"


CONTROL, VOTES = "control", "votes"
"""What pages that a server renders may let their readers do: give orders to the drivers of runs, and vote on descriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBox:
    """What the box for pictures and prompts on the pages of `openmaia view --live` offers."""

    said: str
    """What is loaded, what is not, and why."""
    draws: bool
    """Whether prompts can be drawn."""
    layers: frozenset[str]
    """Those whose units can be changed."""


def render(
    template: str,
    package: str = PACKAGE,
    *,
    top: str | None = None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    asks: bool = False,
    **values: Any,
) -> bytes:
    """Renders a template of a package, which may use those of this package too.

    Args:
        top: The relative path from the page to the folder of the report, such as "../". None for a page that contains the
            style sheet itself and needs no other file.
        scripts: File names in ASSETS.
        styles: Further style sheets there, beside the one of all pages.
        asks: Whether the page may send requests to the server that it comes from.
    """
    style = "" if top is not None else Markup(_source("style.css"))
    values |= {
        "style": style,
        "assets": f"{top or ''}{ASSETS}/",
        "scripts": scripts,
        "styles": styles,
        "top": top or "",
    }
    values |= {"policy": _policy(top is not None, asks)}
    return _environment(package).get_template(template).render(values).encode("utf-8", errors="replace")


def read_assets() -> dict[str, bytes]:
    """Returns the files of ASSETS by file name."""
    return {file.name: file.read_bytes() for file in _static().iterdir() if file.is_file()}


@cache
def hash_templates() -> str:
    """Returns a hash of all templates, a part of the cache keys of pages."""
    files = sorted((importlib.resources.files(PACKAGE) / "templates").iterdir(), key=lambda file: file.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((package, PACKAGE))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast(dict[str, Callable[..., str]], environment.filters)  # pyright: ignore[reportUnknownMemberType]
    filters |= {"number": _number, "score": _score, "signed": _signed, "duration": _duration, "cell": _cell}
    filters |= {"short": short_number, "percent": _percent}
    return environment


def _policy(has_assets: bool, asks: bool) -> str:
    """Returns the content security policy of a page. It forbids network access, but for `asks` to its own server, and all
    scripts and styles but ours."""
    style = "'self'" if has_assets else f"'sha256-{_digest(_source('style.css'))}'"
    images, scripts = ("'self' data:", "'self'") if has_assets else ("data:", "'none'")
    requests = "connect-src 'self'; " if asks else ""
    return (
        f"default-src 'none'; img-src {images}; style-src {style}; script-src {scripts}; "
        f"{requests}base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _static() -> Traversable:
    return importlib.resources.files(PACKAGE) / "static"


@cache
def _source(name: str) -> str:
    return (_static() / name).read_text(encoding="utf-8")


def _number(value: float | None) -> str:
    return "n/a" if value is None or math.isnan(value) else f"{value:.4g}".replace("-", "−")


def short_number(value: float) -> str:
    """Returns a number with three digits, and two if it has an exponent."""
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}".replace("-", "−")


def _percent(value: float) -> str:
    """Returns a percentage that is 0 or 100 only if it is so exactly, as far as two decimals allow."""
    if value in (0, 100):
        return f"{value:.0f}"
    return f"{min(max(value, 0.01), 99.99):.2f}" if value > 99 or value < 1 else f"{value:.0f}"


def _score(value: float | None) -> str:
    return "n/a" if value is None or math.isnan(value) else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "n/a" if value is None or math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def _cell(cell: TableCell) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.3g}".replace("-", "−")
    return "" if cell is None else str(cell)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "n/a"
    if seconds < 60:
        return "< 0.01 s" if seconds < 0.01 else f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
