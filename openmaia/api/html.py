"""Renders results as grids of images for notebooks. All texts are escaped: agents and models wrote them."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import jinja2

from openmaia.core.images import EncodedImage, Rendering, compute_mask, pack_mask
from openmaia.core.messages import Part
from openmaia.core.services import Exemplar
from openmaia.reporting.browser.thumbnails import Thumbnails
from openmaia.reporting.browser.unit.captions import Captions
from openmaia.runs.records import LOOKED_UP, Record

if TYPE_CHECKING:
    from openmaia.api.result import UnitResult

_SIDE = 112
_PAGE_BYTES = 1_500_000
"""Of the images of one result, which are stored in the notebook."""
_EXEMPLARS, _HIGHEST, _LOWEST, _PAIRS = 8, 12, 6, 6
"""Numbers of images in the sections of a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTile:
    """An image of a grid."""

    uri: str
    """A data URI; empty if there is no image."""
    caption: str
    number: str = ""
    """The activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSection:
    """A part of a page. Each field may be empty."""

    title: str = ""
    text: str = ""
    tiles: tuple[GridTile, ...] = ()


def render_result(result: "UnitResult") -> str:
    """Returns a result as HTML: the description, its test, and images with prompts and activations."""
    record, thumbnails = result.record, Thumbnails(_PAGE_BYTES)
    sections = [
        GridSection(title="Dataset images with the highest activations", tiles=_exemplars(result, thumbnails)),
        *_measured(record, thumbnails),
        GridSection(
            title="Test: images of the description, each beside a neutral one", tiles=_tested(result, thumbnails)
        ),
    ]
    lines = [
        record.description or f"No description ({record.stop.value}{': ' + record.cause if record.cause else ''})",
        f"Labels: {', '.join(record.labels) or 'none'}",
        describe_test(result),
        f"Verdict: {result.verdict.verdict.value}. {result.verdict.reason}",
    ]
    notes = [f"Agent: {record.backbone}. {len(record.turns)} turns, {record.seconds:.0f} s."]
    notes += [f"Preprocessing: {record.preprocessing}."] if record.preprocessing else []
    return render_grids(str(record.unit), lines, [each for each in sections if each.tiles], notes)


def describe_test(result: "UnitResult") -> str:
    """Returns one sentence with the result of the test of a description, or why it was not tested."""
    scores = result.scores
    if not scores:
        return "The description was not tested."
    if scores.get("auc") is None or scores["outcome"] != "tested":
        return f"The description could not be tested: {scores['outcome']}."
    count = scores["n"]
    return (
        f"Test: mean activation {_number(scores['positive'])} on {count[0]} images of the description and "
        f"{_number(scores['neutral'])} on {count[1]} neutral ones, AUC {scores['auc']:.2f}"
    )


def render_grids(title: str, lines: Sequence[str], sections: Sequence[GridSection], notes: Sequence[str] = ()) -> str:
    """Returns an HTML fragment: a heading (may be empty), paragraphs, grids, and paragraphs at the end."""
    template = _environment().get_template("grids.html.j2")
    return template.render(title=title, lines=lines, sections=sections, notes=notes, side=_SIDE)


def render_parts(parts: Sequence[Part], labels: Sequence[str] = ()) -> str:
    """Returns texts and images in their order as HTML. `labels` are those of the images; a text before an image that is
    its label becomes its caption.
    """
    return render_grids("", (), list(_sections(parts, labels, Thumbnails(_PAGE_BYTES))))


def show(result: "UnitResult") -> None:
    """Shows a result: in a notebook as HTML, elsewhere as text."""
    if display := find_display():
        display(result)
    else:
        print(result)


def find_display() -> Any:
    """Returns IPython's function `display`, or None outside of a notebook."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return display if get_ipython() is not None else None


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("openmaia.api"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _exemplars(result: "UnitResult", thumbnails: Thumbnails) -> tuple[GridTile, ...]:
    exemplars = result.exemplars
    return tuple(
        GridTile(
            uri=thumbnails.uri(each.image, _SIDE, _mask(each, exemplars.threshold), Rendering.OUTLINE),
            caption=f"top {each.rank + 1}",
            number=_number(each.activation),
        )
        for each in exemplars.of_kind("top")[:_EXEMPLARS]
    )


def _mask(exemplar: Exemplar, threshold: float) -> bytes | None:
    return pack_mask(compute_mask(exemplar.image.size, exemplar.map, exemplar.box, threshold))


def _measured(record: Record, thumbnails: Thumbnails) -> Iterator[GridSection]:
    """Yields the images with the highest and those with the lowest activations, without exemplars."""
    captions, pictures = Captions.of(record), record.images
    entries = {
        entry.original: entry
        for call in (call for turn in record.turns for call in turn.calls)
        for entry in call.entries
        if entry.activation is not None and entry.did not in LOOKED_UP
    }
    ranked = sorted(entries.values(), key=lambda entry: -float((entry.activation or {})["value"]))
    lowest = ranked[_HIGHEST:][-_LOWEST:]
    for title, some in (("highest", ranked[:_HIGHEST]), ("lowest", lowest)):
        yield GridSection(
            title=f"Images of the investigation with the {title} activations",
            tiles=tuple(
                GridTile(
                    uri=thumbnails.uri(pictures.get(entry.original), _SIDE),
                    caption=captions.texts.get(entry.id, ""),
                    number=_number(float((entry.activation or {})["value"])),
                )
                for entry in some
            ),
        )


def _tested(result: "UnitResult", thumbnails: Thumbnails) -> tuple[GridTile, ...]:
    if result.evaluation is None:
        return ()
    stimuli = result.evaluation.trial.stimuli
    positive, neutral = ([each for each in stimuli if each.role == role][:_PAIRS] for role in ("positive", "neutral"))
    pairs = chain.from_iterable(zip_longest(positive, neutral))
    return tuple(
        GridTile(
            uri=thumbnails.uri(EncodedImage(data=each.data), _SIDE),
            caption=each.prompt,
            number=_number(each.activation),
        )
        for each in pairs
        if each is not None
    )


def _sections(parts: Sequence[Part], labels: Sequence[str], thumbnails: Thumbnails) -> Iterator[GridSection]:
    tiles: list[GridTile] = []
    captions = deque(labels)
    for part in parts:
        if isinstance(part, EncodedImage):
            tiles.append(GridTile(uri=thumbnails.uri(part, _SIDE), caption=captions.popleft() if captions else ""))
        elif not (captions and captions[0] and part.strip() == captions[0]):
            if tiles:
                yield GridSection(tiles=tuple(tiles))
                tiles = []
            yield GridSection(text=part)
    if tiles:
        yield GridSection(tiles=tuple(tiles))
