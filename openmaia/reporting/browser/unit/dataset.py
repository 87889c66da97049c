"""What excites a unit in the dataset: the strongest images, and images at all levels of activation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from openmaia.core.errors import StoreError
from openmaia.core.images import seen_part
from openmaia.core.services import LEVELS, Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.reporting.browser.unit.observation import ImageView
from openmaia.reporting.browser.unit.pictures import SMALL, Origin, PagePictures, Picture, trace_frame, trace_map
from openmaia.reporting.browser.unit.shared import RunSources

_TOP = 9
"""Number of the strongest images on a page."""
_STATES = {
    "dead": "The unit has the same activation on all images of the dataset.",
    "not finite": "The unit’s activation on some images of the dataset is not a number.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownImage:
    """An image of the dataset, and the unit's activation on it."""

    picture: Picture
    activation: float
    percent: float | None = None
    """Percentage of the dataset's images with a lower activation; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One of the LEVELS of activation."""

    number: int
    low: float
    high: float
    count: int
    """Number of the dataset's images."""
    image: ShownImage | None
    """None if no image has such an activation, or none is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetView:
    """What the page shows of the dataset."""

    top: tuple[ShownImage, ...] = ()
    levels: tuple[Level, ...] = ()
    """Empty if the counts are unknown, or the activation is the same on all images."""
    images: int = 0
    """Number of images behind `levels`."""
    class_name: str = ""
    remark: str = ""
    """What is missing and why, in one sentence; empty if nothing is."""
    exemplars: UnitExemplars | None = None

    def percent(self, activation: float) -> float | None:
        """Returns the percentage of the dataset's images with a lower activation; None if unknown."""
        counts = self.exemplars.counts if self.exemplars else None
        return None if counts is None else counts.percent_below(activation)


def read_dataset(
    sources: RunSources, unit: Unit, asked: Callable[[], Sequence[ImageView]], pictures: PagePictures
) -> DatasetView:
    """Prepares what the page shows of the dataset. `asked` returns the exemplars in the record, for a store that is lost."""
    try:
        exemplars = sources.exemplars(unit)
    except StoreError as error:
        remark = f"The exemplars cannot be read: {error.message}."
        if Origin.DATASET in pictures.withheld:
            return DatasetView(remark=remark)
        shown = asked()
        remark += " Shown are those that the agent asked for." if shown else " The agent asked for none."
        return DatasetView(top=tuple(map(_asked, shown)), remark=remark)
    view = DatasetView(exemplars=exemplars, class_name=exemplars.class_name, remark=_STATES.get(exemplars.state, ""))
    shown = () if Origin.DATASET in pictures.withheld else exemplars.of_kind("top")[:_TOP]
    top = tuple(_image(view, each, pictures) for each in shown)
    counts = exemplars.count_levels()
    if not counts and not view.remark:
        view = replace(view, remark="How many images have which activation was not measured for these exemplars.")
    return replace(view, top=top, images=sum(counts))


def show_levels(view: DatasetView, pictures: PagePictures) -> DatasetView:
    """Adds the images at all levels. Apart from `read_dataset`, because larger images of the page come first."""
    exemplars = view.exemplars
    counts = exemplars.count_levels() if exemplars else ()
    if exemplars is None or exemplars.maxima is None or not counts or exemplars.state != "ok":
        return view
    low, high = float(exemplars.maxima[0]), float(exemplars.maxima[-1])
    step, stored = (high - low) / LEVELS, {each.rank: each for each in exemplars.of_kind("levels")}
    stored = {} if Origin.DATASET in pictures.withheld else stored
    levels = tuple(
        Level(
            number=number,
            low=low + number * step,
            high=low + (number + 1) * step,
            count=count,
            image=_image(view, stored[number], pictures, side=SMALL) if number in stored else None,
        )
        for number, count in enumerate(counts)
    )
    return replace(view, levels=levels)


def _asked(image: ImageView) -> ShownImage:
    value = float(image.activation["value"]) if image.activation else 0.0
    return ShownImage(picture=image.picture, activation=value)


def _image(view: DatasetView, exemplar: Exemplar, pictures: PagePictures, side: int = 0) -> ShownImage:
    image = exemplar.image
    picture = pictures.picture(image.digest, image.data, side=side)
    if picture.number is not None and not side:  # an image without a number may be none
        size = image.size
        threshold = view.exemplars.threshold if view.exemplars else 0.0
        outline = "" if exemplar.map is None else trace_map(exemplar.map, exemplar.box, size, threshold)
        picture = replace(picture, outline=outline, frame=trace_frame(seen_part(size, exemplar.box), size))
    return ShownImage(picture=picture, activation=exemplar.activation, percent=view.percent(exemplar.activation))
