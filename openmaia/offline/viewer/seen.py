"""What is seen in an image, in numbers and in words that the grammar of scenes reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmaia.offline.scenes.captions import describe
from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import HORIZON, INDOORS, TIMELESS, Box
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.scenes.words import STRIPES

Probabilities = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFigure:
    """An object, as the network sees it."""

    kind: str
    confidence: float
    """Between 0 and 1."""
    colours: Probabilities
    """Of each colour. A pattern has two of them."""
    patterns: Probabilities
    """Of each pattern, and of none under the name ""."""
    box: Box
    """Left, top, right and bottom, as shares of the image."""
    area: float
    """What is visible, as a share of the image."""

    @property
    def paint(self) -> Paint:
        """The most likely colours and pattern."""
        return _paint(self.colours, self.patterns) if kinds()[self.kind].colours else Paint()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An image, as the network sees it."""

    figures: tuple[SeenFigure, ...]
    """Those that are likely, the largest first."""
    kinds: Probabilities
    """That a kind is shown at all."""
    setting: Mapping[str, Probabilities]
    """Of each place, time, weather, style, ground colour and ground pattern, by these words."""

    def most_likely(self, question: str) -> str:
        """Returns the most likely answer to a question about the setting, such as "place"."""
        return _best(self.setting[question])

    @property
    def scene(self) -> Scene:
        """The most likely scene, without anything that its place or style cannot show."""
        place, style = self.most_likely("place"), self.most_likely("style")
        return Scene(
            figures=_alike_together(self.figures, is_grey=style in GREY_STYLES),
            place=place,
            time="" if place in TIMELESS else self.most_likely("time"),
            weather="" if place in INDOORS else self.most_likely("weather"),
            ground=_paint(self.setting["ground colour"], self.setting["ground pattern"])
            if place == "plain"
            else Paint(),
            style=style,
        )

    @property
    def sentence(self) -> str:
        """Says what the image shows, such as "a red boat and two clouds on the sea at dusk"."""
        scene = self.scene
        text = describe(scene).strip()
        return text if scene.figures else text.removeprefix("on ").removeprefix("in ")

    @property
    def evidence(self) -> Probabilities:
        """The probability that the image shows something, by each word of the grammar but sizes. Words for many kinds have that of the likeliest."""
        found = dict(self.kinds)
        for kind, value in self.kinds.items():
            for wider in kinds()[kind].wider:
                found[wider] = max(found.get(wider, 0.0), value)
        for question in ("place", "time", "weather", "style"):
            found |= self.setting[question]
        ground = self.setting["place"]["plain"]
        paints = [(each.confidence, each.colours, each.patterns) for each in self.figures if kinds()[each.kind].colours]
        for sure, colours, patterns in [
            *paints,
            (ground, self.setting["ground colour"], self.setting["ground pattern"]),
        ]:
            for name, value in {**colours, **patterns, "stripes": sum(patterns[each] for each in STRIPES)}.items():
                found[name] = max(found.get(name, 0.0), sure * value)
        found.pop("", None)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPart:
    """The part of an image where a unit responds."""

    whole: Seen
    figures: tuple[SeenFigure, ...]
    """Those in the part, the largest first."""
    share: float
    """Of the image."""
    middle: float
    """How far down the middle of the part is: 0 at the top, 1 at the bottom."""

    @property
    def is_small(self) -> bool:
        """Whether the part says more than the whole."""
        return 0.005 < self.share < 0.9

    @property
    def sentence(self) -> str:
        """Says what the part shows: its figures, otherwise the sky or the place."""
        scene = self.whole.scene
        if self.figures:
            text = describe(
                Scene(figures=_alike_together(self.figures, is_grey=scene.style in GREY_STYLES), style=scene.style)
            )
            return text.partition(" on a background")[0]
        if scene.place not in INDOORS and self.middle < HORIZON[scene.place]:
            return "the sky"
        return describe(Scene(place=scene.place, ground=scene.ground)).strip().removeprefix("on ").removeprefix("in ")


def _alike_together(seen: Sequence[SeenFigure], *, is_grey: bool) -> tuple[Figure, ...]:
    # The largest figure comes first, and those that look like it follow.
    looks = [(each.kind, Paint(pattern=each.paint.pattern) if is_grey else each.paint) for each in seen]
    ordered = sorted(looks, key=looks.index)
    return tuple(Figure(id=n, kind=kind, paint=paint) for n, (kind, paint) in enumerate(ordered))


def _paint(colours: Probabilities, patterns: Probabilities) -> Paint:
    first, second = sorted(colours, key=lambda each: -colours[each])[:2]
    pattern = _best(patterns)
    return Paint(colour=first, second=second if pattern else "", pattern=pattern)


def _best(probabilities: Probabilities) -> str:
    return max(probabilities, key=lambda each: probabilities[each])
