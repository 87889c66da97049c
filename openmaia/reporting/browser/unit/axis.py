"""The activations of a unit on one axis: the dataset, images of the description, and controls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, log10

from openmaia.core.errors import StoreError
from openmaia.core.services import LEVELS
from openmaia.evaluation.analysis.verdict import ControlScore, UnitVerdict, all_controls
from openmaia.evaluation.trials import EXEMPLARS, Trial
from openmaia.reporting.browser.unit.dataset import DatasetView, Level
from openmaia.reporting.browser.unit.pictures import SMALL, Origin, PagePictures, Picture
from openmaia.reporting.browser.unit.scored import EvaluationView, ScoredImage
from openmaia.reporting.browser.unit.shared import RunSources
from openmaia.runs.run import InvestigationId

_COLUMNS, _COLUMNS_PHONE = 40, 20
"""Pictures side by side in a row."""
FILM = 7
"""Images above the histogram, each for LEVELS / FILM levels."""
_ONE = 0.3
"""Height of a bar of one image, in decades."""
_HIGHEST = 7
"""Pictures above one another. More of one column overlap."""

_CONTROLS = {
    "auc": ("neutral", "matched neutral images"),
    "auc_against": ("others", "images of other units’ descriptions"),
    "auc_unrelated": ("unrelated", "images of unrelated prompts"),
    "auc_random": ("random", "images of the dataset’s test half"),
}
"""For each control that the axis shows the role of its images, and its name in a sentence."""


def name_control(key: str) -> str:
    """Returns the name of a control of a verdict (a key of `all_controls`) in a sentence."""
    return _CONTROLS[key][1] if key in _CONTROLS else all_controls()[key].name


@dataclass(frozen=True, slots=True)
class Axis:
    """The scale of all activations of a page. It contains 0."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Returns where an activation stands, from 0 (left) to 1."""
        return min(max((value - self.low) / ((self.high - self.low) or 1.0), 0.0), 1.0)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round numbers on the axis, at most nine."""
        span = (self.high - self.low) or 1.0
        rough = span / 7
        unit = 10 ** floor(log10(rough))
        step = unit * next(each for each in (1, 2, 5, 10) if each * unit >= rough)
        first = -floor(-self.low / step)
        return tuple(round((first + n) * step, 10) for n in range(int((self.high - first * step) / step) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An image on the axis."""

    picture: Picture
    title: str
    label: str
    activation: float
    percent: float | None
    """Percentage of the dataset's images with a lower activation; None if unknown."""
    place: float
    """From 0 to 1."""
    column: int
    height: float
    """In pictures above the axis."""
    column_phone: int
    height_phone: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRow:
    """Images of one kind on the axis, from the lowest activation to the highest."""

    name: str
    marks: tuple[Mark, ...]
    mean: float
    mean_place: float
    rows: int
    """Pictures above one another, from 2 to _HIGHEST."""
    rows_phone: int
    score: ControlScore | None = None
    """The comparison of the description's images with these; None for these images themselves, or if it was not measured."""

    @property
    def has_pictures(self) -> bool:
        """Whether the images are stored, and not only the activations on them."""
        return any(mark.picture.number is not None for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of the histogram of the dataset, in shares of the plot's width and height."""

    level: Level
    left: float
    width: float
    height: float
    """In proportion to the logarithm of the count; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisView:
    """The axis of a page."""

    axis: Axis
    bars: tuple[Bar, ...] = ()
    decades: tuple[tuple[int, float], ...] = ()
    """Powers of ten of the histogram's counts, each with its height."""
    film: tuple[int | None, ...] = ()
    """Numbers of the levels whose images stand above the histogram at first; None where no image is."""
    own: AxisRow | None = None
    """None if nothing was tested."""
    hardest: AxisRow | None = None
    """The control that decides the verdict."""
    easier: tuple[AxisRow, ...] = ()


def make_axis(
    dataset: DatasetView,
    evaluation: EvaluationView | None,
    verdict: UnitVerdict,
    others: Sequence[ScoredImage],
) -> AxisView:
    """Prepares the axis. `others` are images of other units' descriptions (`read_others`)."""
    images = {**(evaluation.by_role if evaluation else {}), "others": tuple(others)}
    shown = {role: [one for one in each if one.shows is not False] for role, each in images.items()}
    values = [one.activation for each in shown.values() for one in each]
    values += [dataset.levels[0].low, dataset.levels[-1].high] if dataset.levels else []
    values += [one.activation for one in dataset.top]
    axis = Axis(min([0.0, *values]), max([0.0, *values]) or 1.0)
    highest = max((level.count for level in dataset.levels), default=1)
    view = AxisView(
        axis=axis,
        bars=tuple(_bar(level, axis, highest) for level in dataset.levels),
        decades=tuple((10**n, _height(10**n, highest)) for n in range(1, 9) if 10**n <= highest),
        film=tuple(_film(dataset.levels)),
    )
    if not shown.get("positive") or not verdict.controls:
        return view
    scores = {each.key: each for each in verdict.controls}
    worst = verdict.worst.key if verdict.worst else ""
    rows = {
        key: _row(name, shown.get(role, ()), axis, dataset, scores.get(key))
        for key, (role, name) in _CONTROLS.items()
        if shown.get(role)
    }
    return replace(
        view,
        own=_row("Drawn from the description", shown["positive"], axis, dataset),
        hardest=rows.pop(worst, None),
        easier=tuple(sorted(rows.values(), key=lambda row: row.score.low if row.score else 1.0)),
    )


def _bar(level: Level, axis: Axis, highest: int) -> Bar:
    left = axis.place(level.low)
    return Bar(level=level, left=left, width=axis.place(level.high) - left, height=_height(level.count, highest))


def _height(count: int, highest: int) -> float:
    # A single image is a bar, too.
    return (log10(count) + _ONE) / (log10(highest) + _ONE) if count else 0.0


def _film(levels: Sequence[Level]) -> Iterator[int | None]:
    each = LEVELS // FILM
    for first in range(0, len(levels), each):
        shown = [level.number for level in levels[first : first + each] if level.image]
        yield shown[len(shown) // 2] if shown else None


def read_others(sources: RunSources, investigation: InvestigationId, pictures: PagePictures) -> Iterator[ScoredImage]:
    """Yields the images of other units' descriptions that are a control of a unit, with its activations on them."""
    found = next(sources.trials.evaluations([investigation]), None)
    if found is None or found.trial.standard != EXEMPLARS:
        return
    for other in found.others:
        try:
            trial = sources.trials.read(other.claim.investigation, images=True)
        except StoreError:
            continue
        yield from _of_other(trial, found.index, pictures)


def _of_other(trial: Trial, unit: int, pictures: PagePictures) -> Iterator[ScoredImage]:
    for row in trial.rows("positive", verified=True):
        one = trial.stimuli[row]
        yield ScoredImage(
            picture=pictures.picture(one.digest, one.data, side=SMALL, origin=Origin.DRAWN),
            label=one.label,
            prompt=one.prompt,
            verdict="",
            activation=float(trial.matrix[row, unit]) * float(trial.scale[unit]) + float(trial.location[unit]),
        )


def _row(
    name: str, images: Sequence[ScoredImage], axis: Axis, dataset: DatasetView, score: ControlScore | None = None
) -> AxisRow:
    ordered = sorted(images, key=lambda one: one.activation)
    places = [axis.place(one.activation) for one in ordered]
    wide, phone = _pile(places, _COLUMNS), _pile(places, _COLUMNS_PHONE)
    mean = sum(one.activation for one in ordered) / len(ordered)
    return AxisRow(
        name=name,
        marks=tuple(
            Mark(
                picture=one.picture,
                title=one.prompt or "an image of the dataset",
                label=one.label,
                activation=one.activation,
                percent=dataset.percent(one.activation),
                place=place,
                column=column,
                height=height,
                column_phone=column_phone,
                height_phone=height_phone,
            )
            for one, place, (column, height), (column_phone, height_phone) in zip(
                ordered, places, wide, phone, strict=True
            )
        ),
        mean=mean,
        mean_place=axis.place(mean),
        rows=_rows(wide),
        rows_phone=_rows(phone),
        score=score,
    )


def _pile(places: Sequence[float], columns: int) -> list[tuple[int, float]]:
    """Returns the column of each picture, and how many pictures high above the axis it stands."""
    at = [min(int(place * columns), columns - 1) for place in places]
    piles = {column: at.count(column) for column in at}
    found: list[tuple[int, float]] = []
    seen: dict[int, int] = {}
    for column in at:
        step = min(1.0, (_HIGHEST - 1) / max(piles[column] - 1, 1))
        found.append((column, round(seen.get(column, 0) * step, 3)))
        seen[column] = seen.get(column, 0) + 1
    return found


def _rows(piled: Sequence[tuple[int, float]]) -> int:
    return max(2, min(_HIGHEST, int(max(height for _, height in piled)) + 1))


def count_pairs(auc: float) -> int:
    """Returns an AUC as a number of pairs of 100. Only an AUC of exactly 0 or 1 becomes 0 or 100.

    Halves are rounded up, as on the wall (`countPairs` in wall.js).
    """
    pairs = int(auc * 100 + 0.5)
    return pairs if auc in (0.0, 1.0) else min(max(pairs, 1), 99)
