"""The scene graph: what a picture shows, stored as its recipe."""

import json
from dataclasses import asdict, dataclass
from typing import Any

_FORMAT = "scene-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Colours and a pattern. Empty: still open."""

    colour: str = ""
    second: str = ""
    """The other colour of a pattern."""
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a figure is, as shares of the side of the picture; y points down."""

    x: float
    y: float
    """Of its foot."""
    height: float
    angle: float = 0.0
    """In degrees, counterclockwise."""
    flip: bool = False
    far: float = 0.0
    """How far away it is: 0 near, 1 at the horizon."""
    floats: bool = False
    """Whether it stands on nothing, so that it has no shadow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One object."""

    id: int
    kind: str
    paint: Paint = Paint()
    parts: tuple[tuple[str, Paint], ...] = ()
    """The parts that a prompt colours."""
    size: str = ""
    side: str = ""
    is_lifted: bool = False
    """Whether it is in the air, though its kind is not."""
    relation: str = ""
    """How it stands to the figure `to`, such as "on"."""
    to: int = -1
    spot: Spot | None = None
    """None until the scene is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Figures in a place. What is empty is still open; see `layout.settle`."""

    figures: tuple[Figure, ...] = ()
    place: str = ""
    """A place, or `plain` for a ground of one colour or pattern."""
    ground: Paint = Paint()
    """Of a `plain` place."""
    time: str = ""
    weather: str = ""
    style: str = ""
    seed: int = 0

    @property
    def paints(self) -> list[Paint]:
        """The paints of the ground, of all figures and of their parts."""
        return [self.ground, *(f.paint for f in self.figures), *(paint for f in self.figures for _, paint in f.parts)]

    def dumps(self) -> str:
        return json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def loads(cls, recipe: str) -> "Scene":
        """Raises ValueError if the text is no recipe of a scene."""
        try:
            values: dict[str, Any] = json.loads(recipe)
            if values.pop("format") != _FORMAT:
                raise ValueError("another format")
            figures = tuple(_figure(each) for each in values.pop("figures"))
            return cls(figures=figures, ground=Paint(**values.pop("ground")), **values)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"no recipe of a scene: {error}") from error


def _figure(values: dict[str, Any]) -> Figure:
    spot = values.pop("spot")
    return Figure(
        paint=Paint(**values.pop("paint")),
        parts=tuple((name, Paint(**paint)) for name, paint in values.pop("parts")),
        spot=Spot(**spot) if spot else None,
        **values,
    )
