"""Draws the predicted duration of a sweep as a function of the number of GPUs."""

# pyright: reportUnknownMemberType=false
# The type stubs of matplotlib do not type keyword arguments.

from collections.abc import Sequence

from matplotlib.axes import Axes

from openmaia.core.text import printable
from openmaia.reporting.costs.estimate import Prediction
from openmaia.reporting.figures.style import INK, RUNS, SOFT, add_axes, new_figure, styled, svg

_TITLE = "Predicted duration of a sweep, by number of GPUs"
_KEY = "Solid: pools, replicas balanced. Dotted: each GPU holds all models and runs one investigation after the other."
_TICKS = {
    60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 36e3: "10 h", 864e2: "1 d", 864e3: "10 d", 864e4: "100 d", 864e5: "1,000 d",
}  # fmt: skip


@styled()
def scaling(predictions: Sequence[Prediction], source: str) -> bytes:
    """Draws predicted durations of sweeps over the number of GPUs as SVG, a line for each number of units, logarithmic.

    Dotted lines show the durations if each GPU holds all models and runs one investigation at a time. `source`, the
    origin of the service times, stands below. Raises ValueError for fewer than two numbers of GPUs, or for 0 GPUs.
    """
    gpus = sorted({prediction.gpus for prediction in predictions})
    if len(gpus) < 2 or gpus[0] <= 0:
        raise ValueError("a figure of scaling needs predictions for two numbers of GPUs at least")
    times = [time for one in predictions for time in (one.seconds, one.serial or one.seconds)]
    low, high = min(times) / 2.6, max(times) * 1.6
    figure = new_figure(720, 360)
    axes = add_axes(figure, 72, 40, 110, 64)
    axes.set(xscale="log", yscale="log", xlim=(gpus[0] / 1.2, gpus[-1] * 1.1), ylim=(low, high))
    axes.grid(visible=False, axis="x")
    axes.grid(axis="y")
    axes.minorticks_off()
    axes.set_xticks(gpus, [f"{number:g} GPUs" for number in gpus])
    ticks = {time: text for time, text in _TICKS.items() if low <= time <= high}
    axes.set_yticks(list(ticks), list(ticks.values()))
    for number, units in enumerate(sorted({one.units for one in predictions})):
        own = sorted((one for one in predictions if one.units == units), key=lambda one: one.gpus)
        _draw(axes, own, RUNS[number % len(RUNS)])
    figure.text(16 / 720, 334 / 360, _TITLE, weight="bold")
    figure.text(16 / 720, 24 / 360, _KEY, color=SOFT)
    figure.text(16 / 720, 8 / 360, f"Service times {printable(source)}", color=SOFT)
    return svg(figure, _TITLE).encode()


def _draw(axes: Axes, predictions: Sequence[Prediction], colour: str) -> None:
    serial = [(one.gpus, one.serial) for one in predictions if one.serial]
    axes.plot(
        [gpus for gpus, _ in serial], [seconds for _, seconds in serial], ":", color=colour, linewidth=1.5, alpha=0.7
    )
    places = [(one.gpus, one.seconds) for one in predictions]
    axes.plot(
        [gpus for gpus, _ in places],
        [seconds for _, seconds in places],
        "o-",
        color=colour,
        linewidth=2.5,
        markersize=8,
    )
    for place in places:
        axes.annotate(_duration(place[1]), place, (0, -18), textcoords="offset points", ha="center", color=INK)
    name = f"{predictions[-1].units:,} units"
    axes.annotate(name, places[-1], (12, 0), textcoords="offset points", va="center", color=colour, weight="bold")


def _duration(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.1f} d"
