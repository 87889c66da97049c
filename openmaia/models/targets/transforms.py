"""The transforms of users: functions from an image to the input of a network.

A transform is first probed with test images. If it crops, scales and normalises like a `Preprocess`, the `Preprocess`
replaces it, because it also tells which part of an image the network sees. Any other transform is called as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels, ViewBox, whole
from openmaia.models.targets.preprocess import GREY_LEVELS, TOLERANCE, Preprocess, Preprocessing

Transform = Callable[[Image.Image], torch.Tensor]
"""Takes an RGB image, returns a float tensor of shape (channels, height, width)."""

FILTERS = (
    Image.Resampling.BILINEAR,
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
    Image.Resampling.NEAREST,
    Image.Resampling.BOX,
    Image.Resampling.HAMMING,
)

# Heights and widths of test images. They differ in size and proportions, because a crop may depend on both.
PROBE_SHAPES = ((480, 720), (300, 260))

# For a textured image, with pixel values of 0 to 1. Not 0, because libraries round the sides of a scaled image to whole
# pixels, which shifts a texture by up to one pixel of the input.
MEAN_DIFFERENCE = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformPreprocess:
    """A transform whose steps are not known. The network is assumed to see the whole image, and masks rely on it."""

    transform: Transform
    size: tuple[int, int]
    """Height and width of the input for a square image."""
    channels: int
    any_shape: bool
    """Whether the shape of the input depends on the image."""
    description: str

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        return pixels, whole(pixels)

    def tensor(self, view: Pixels) -> torch.Tensor:
        """Raises UsageError if the transform fails or returns no valid input."""
        return _applied(self.transform, view)

    def batch(self, views: Sequence[Pixels], device: torch.device) -> torch.Tensor:
        return torch.stack([self.tensor(view) for view in views]).to(device)


def from_transform(transform: Transform) -> Preprocessing:
    """Returns the `Preprocess` that gives nearly the same results for test images, or else a `TransformPreprocess`.

    Raises:
        UsageError: The transform fails, returns something else than a float tensor of shape (channels, height, width),
            or gives different results for the same image.
    """
    texture = _texture(*PROBE_SHAPES[0])
    first, second = _applied(transform, texture), _applied(transform, texture)
    if first.shape != second.shape or not torch.equal(first, second):
        raise UsageError(
            "preprocess gives another result each time for the same image; pass the transform of the evaluation, without "
            "random crops, flips and colours"
        )
    found = _identified(transform)
    if found is not None and all(_is_same(found, transform, shape) for shape in PROBE_SHAPES):
        return found
    shapes = {tuple(_applied(transform, _texture(*shape)).shape) for shape in ((240, 240), (240, 320))}
    square = _applied(transform, _texture(240, 240))
    return TransformPreprocess(
        transform=transform,
        size=(square.shape[1], square.shape[2]),
        channels=square.shape[0],
        any_shape=len(shapes) > 1,
        description=f"the function {_name(transform)}, whose steps OpenMAIA does not know",
    )


def _name(transform: Transform) -> str:
    return getattr(transform, "__qualname__", None) or type(transform).__qualname__


def _applied(transform: Transform, pixels: Pixels) -> torch.Tensor:
    given = f"an RGB image of {pixels.shape[1]} x {pixels.shape[0]} pixels"
    try:
        result: Any = transform(Image.fromarray(pixels))
    except Exception as error:  # the user's function may fail in any way
        raise UsageError(
            f"preprocess failed with {type(error).__name__}: {error}; it is called with a Pillow image ({given})"
        ) from error
    expected = "expected a float tensor of shape (channels, height, width), such as (3, 224, 224)"
    if isinstance(result, np.ndarray):
        result = torch.from_numpy(result)
    if not isinstance(result, torch.Tensor):
        hint = ", so add ToTensor() or another step that makes a tensor" if isinstance(result, Image.Image) else ""
        raise UsageError(f"preprocess returned {type(result).__name__} for {given}; {expected}{hint}")
    shape = tuple(result.shape)
    if not result.is_floating_point():
        raise UsageError(f"preprocess returned values of {result.dtype} for {given}; {expected}")
    if len(shape) != 3 or (shape[0] > 4 and shape[2] <= 4):
        raise UsageError(f"preprocess returned a tensor of shape {shape} for {given}; {expected}")
    if not bool(torch.isfinite(result).all()):
        raise UsageError(f"preprocess returned NaN or infinite values for {given}; {expected}")
    return result.detach().to("cpu", torch.float32)


# -- test images ---------------------------------------------------------------------------------------------------------


def _plain(level: int) -> Pixels:
    return np.full((*PROBE_SHAPES[0], 3), level, dtype=np.uint8)


def _ramp(values: npt.NDArray[np.float64]) -> Pixels:
    """A grey image of shape PROBE_SHAPES[0], whose brightness of 0 to 1 is `values`, broadcast."""
    levels = (np.broadcast_to(values, PROBE_SHAPES[0]) * 255).round().astype(np.uint8)
    return np.repeat(levels[:, :, None], 3, axis=2)


def _texture(height: int, width: int) -> Pixels:
    """Smoothly varying colours and sharp edges, whose values cover only a part of the range."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [np.sin(rows / 11 + n) * np.cos(columns / (7 + 3 * n)) for n in range(3)]
    stripes = ((rows // 40 + columns // 56) % 2)[:, :, None] * 60
    return (np.stack(waves, axis=2) * 45 + 90 + stripes).round().astype(np.uint8)


# -- identification ------------------------------------------------------------------------------------------------------


def _identified(transform: Transform) -> Preprocess | None:
    """Derives the likeliest `Preprocess` from a transform's results for test images, if one can give them."""
    black, white = _applied(transform, _plain(0)), _applied(transform, _plain(255))
    channels, height, width = black.shape
    scale = (white - black).mean(dim=(1, 2))
    is_plain = all(float(each.std(dim=(1, 2)).max()) < 1e-3 * float(scale.abs().max()) for each in (black, white))
    if channels not in (1, 3) or white.shape != black.shape or not is_plain or float(scale.min()) <= 0:
        return None
    offset = black.mean(dim=(1, 2))

    def extent(values: npt.NDArray[np.float64], axis: int) -> tuple[float, float] | None:
        """Measures which part of the image the transform keeps along one side, as fractions of it, by a ramp along this
        side. `axis` of the result is along the other. None: the result has another shape than before."""
        result = _applied(transform, _ramp(values))
        if result.shape != black.shape:
            return None
        levels = ((result - offset.view(-1, 1, 1)) / scale.view(-1, 1, 1)).mean(dim=(0, axis)).double().numpy()
        inner = slice(len(levels) // 5, max(-(len(levels) // 5), 2 - len(levels)))
        places = (np.arange(len(levels)) + 0.5)[inner]
        slope, start = np.polyfit(places, levels[inner], 1)
        return float(start), float(start + slope * len(levels))

    rows, columns = PROBE_SHAPES[0]
    across = extent(((np.arange(columns) + 0.5) / columns)[None, :], 1)
    down = extent(((np.arange(rows) + 0.5) / rows)[:, None], 2)
    if across is None or down is None:
        return None
    kept = (down[1] - down[0]) * rows, (across[1] - across[0]) * columns
    return _closest(transform, _geometries((height, width), kept), _digits(-offset / scale), _digits(1 / scale))


def _digits(values: torch.Tensor) -> tuple[float, ...]:
    # Six digits remove the errors of single precision.
    return tuple(float(f"{value:.6g}") + 0.0 for value in values.tolist())


def _closest(
    transform: Transform, geometries: Sequence["_Geometry"], mean: tuple[float, ...], std: tuple[float, ...]
) -> Preprocess:
    """The `Preprocess` most like a transform, among those with these geometries and one of FILTERS."""
    pixels = _texture(*PROBE_SHAPES[0])
    expected = _applied(transform, pixels)
    tried = [
        Preprocess(size=size, crop=crop, squash=squash, resample=FILTERS[0], mean=mean, std=std)
        for size, crop, squash in geometries
    ]
    best = min(tried, key=lambda each: _difference(each, pixels, expected))
    filtered = [replace(best, resample=resample) for resample in FILTERS]
    return min(filtered, key=lambda each: _difference(each, pixels, expected))


_Geometry = tuple[tuple[int, int], float | None, bool]  # `Preprocess.size`, `crop`, `squash`


def _geometries(size: tuple[int, int], kept: tuple[float, float]) -> Sequence[_Geometry]:
    """What may explain results of a size (height, width) that show a part `kept` (likewise) of a test image of shape
    PROBE_SHAPES[0]."""
    rows, columns = PROBE_SHAPES[0]
    if abs(size[1] / size[0] - columns / rows) < 0.02 and min(kept[0] / rows, kept[1] / columns) > 0.98:
        return [((min(size), min(size)), None, False)]
    found: list[_Geometry] = []
    shorter = min(rows, columns * size[0] / size[1])
    for fraction, squash in ((kept[0] / shorter, False), (kept[0] / rows, True)):
        # Libraries scale a side to a whole number of pixels before they crop.
        before = max(round(size[0] / max(fraction, 0.05)), 1)
        found += [(size, min(size[0] / side, 1.0), squash) for side in (before, before - 1, before + 1) if side > 0]
    return list(dict.fromkeys(found))


def _is_same(found: Preprocess, transform: Transform, shape: tuple[int, int]) -> bool:
    """Whether both give nearly the same inputs, for coloured ramps and for a texture of a height and width."""
    height, width = shape
    rows, columns = np.mgrid[0:height, 0:width]
    ramps = [columns / (width - 1), rows / (height - 1), (columns + rows) / (width + height - 2)]
    colours = (np.stack(ramps, axis=2) * 255).round().astype(np.uint8)
    actual, expected = found.tensor(found.view(colours)[0]), _applied(transform, colours)
    if actual.shape != expected.shape:
        return False
    scale = torch.tensor(found.std).view(-1, 1, 1)
    largest = float(((actual - expected) * scale).abs().max())
    texture = _texture(height, width)
    is_close = largest < TOLERANCE / min(found.size) + GREY_LEVELS
    return is_close and _difference(found, texture, _applied(transform, texture)) < MEAN_DIFFERENCE


def _difference(found: Preprocess, pixels: Pixels, expected: torch.Tensor) -> float:
    """The mean absolute difference, with pixel values of 0 to 1. Infinite if the shapes differ."""
    actual = found.tensor(found.view(pixels)[0])
    if actual.shape != expected.shape:
        return float("inf")
    return float(((actual - expected) * torch.tensor(found.std).view(-1, 1, 1)).abs().mean())
