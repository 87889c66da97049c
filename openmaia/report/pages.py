"""From view models to HTML. Autoescape is on; the only markup that passes it are the two files of our own below, and the
papers' figures, which another template with autoescape has drawn."""

import base64
import hashlib
import importlib.resources
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import jinja2
from markupsafe import Markup

from openmaia.costs.totals import costs
from openmaia.evaluate.sanity import NAMES, measured, warning
from openmaia.figures.charts import short
from openmaia.report.agents import Figure
from openmaia.report.agents import Shown as ShownAgents
from openmaia.report.conversation import Shown
from openmaia.report.papers import Papers
from openmaia.report.rows import STOPS, Row, Summary
from openmaia.report.scored import Scored
from openmaia.report.strips import ShownStrip
from openmaia.store.records import Record

TEMPLATES = (
    "base.html.j2",
    "costs.html.j2",
    "damaged.html.j2",
    "figure.svg.j2",
    "figures.html.j2",
    "index.html.j2",
    "papers.html.j2",
    "sheet.html.j2",
    "spurious.html.j2",
    "unit.html.j2",
    "figure.css",
    "style.css",
    "script.js",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLinks:
    """Of one run. layers: layer -> its contact sheets, each with its file and what it shows. missing: why some are not
    there, "" where all are."""

    layers: Mapping[str, Sequence[tuple[str, str]]]
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """File names of the pages of the unit's layer before and after it, with the units' names; None at the ends."""

    before: tuple[str, str] | None
    after: tuple[str, str] | None


def index_page(
    summaries: Sequence[Summary],
    strips: Mapping[str, Sequence[str]],
    exemplars: Mapping[str, SheetLinks],
    agents: Mapping[str, ShownAgents],
) -> bytes:
    """strips: data URIs of exemplars by page. exemplars, agents: by the run's name."""
    rows = [row for summary in summaries for row in summary.rows]
    present = {row.stop for row in rows}
    return _rendered(
        "index.html.j2",
        script=_script(),
        policy=_policy(_script()),
        summaries=summaries,
        rows=rows,
        strips=strips,
        exemplars=exemplars,
        agents=agents,
        layers=sorted({row.unit.layer for row in rows}),
        stops=[stop for stop in STOPS if stop in present],
        blind={name: warning(name) for name in ("auc", "auc_minus_other", "difference")},
        sanity=[(NAMES[name], tests) for name, tests in measured().items()],
    )


def unit_page(
    row: Row, record: Record, scored: Scored | None, turns: Sequence[Shown], strip: Sequence[str], near: Neighbours
) -> bytes:
    return _rendered(
        "unit.html.j2",
        policy=_policy(""),
        row=row,
        record=record,
        costs=costs([row.header]),
        scored=scored,
        turns=turns,
        strip=strip,
        near=near,
        is_collage=record.config.get("generator") and record.config["generator"]["kind"] == "collage",
        top="../" * row.page.count("/"),
    )


def sheet_page(
    *,
    target: str,
    layer: str,
    rows: Sequence[ShownStrip],
    facts: Mapping[str, Any],
    near: Neighbours,
    part: tuple[int, int],
    run: str,
    top: str,
) -> bytes:
    """facts: of all exemplars there, as they were claimed. part: (number, of how many sheets). run: "" without a run."""
    states = Counter(row.state for row in rows)
    return _rendered(
        "sheet.html.j2",
        policy=_policy(""),
        target=target,
        layer=layer,
        rows=rows,
        facts=facts,
        states=states,
        near=near,
        part=part,
        run=run,
        top=top,
        is_masked=any(tile.masked is not None for row in rows for tile in row.tiles),
    )


def papers_page(papers: Papers) -> bytes:
    return _rendered("papers.html.j2", policy=_policy(""), papers=papers)


def figure_svg(figure: Figure) -> bytes:
    """A figure as a file of its own. XML, other than HTML, has no room for control characters, not even as references."""
    svg = _rendered("figure.svg.j2", figure=figure, style=Markup(_source("figure.css"))).decode()
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]", "\ufffd", svg).strip().encode()


def damaged_page(row: Row, damage: str) -> bytes:
    return _rendered("damaged.html.j2", policy=_policy(""), row=row, damage=damage, top="../" * row.page.count("/"))


def application_page(template: str, **values: Any) -> bytes:
    """A page of an application, in the style of the others. template: one of this package's."""
    return _rendered(template, policy=_policy(""), **values)


@cache
def design() -> str:
    """The digest of how pages look: those of another design are written anew."""
    return hashlib.sha256("".join(_source(name) for name in TEMPLATES).encode()).hexdigest()[:16]


def _rendered(template: str, **values: Any) -> bytes:
    values = {"style": Markup(_source("style.css"))} | values
    return _environment().get_template(template).render(values).encode("utf-8", errors="replace")


@cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("openmaia.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast(dict[str, Callable[..., str]], found.filters)  # pyright: ignore[reportUnknownMemberType]
    filters |= {"number": _number, "score": _score, "signed": _signed, "duration": _duration, "short": short}
    return found


def _policy(script: str) -> str:
    """Nothing is fetched from anywhere, and no script or style runs but the ones of this package."""
    scripts = f"'sha256-{_digest(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{_digest(_source('style.css'))}'; "
        f"script-src {scripts}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script() -> Markup:
    return Markup(_source("script.js"))


@cache
def _source(name: str) -> str:
    return (importlib.resources.files("openmaia.report") / "templates" / name).read_text(encoding="utf-8")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}".replace("-", "−")


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return "< 0.01 s" if seconds < 0.01 else f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
