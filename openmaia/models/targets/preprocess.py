"""Makes inputs of a network from images: cropping and resizing yields an image, which is then normalised."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, Protocol

import numpy as np
import torch
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels, ViewBox, whole
from openmaia.models.targets.meaning import OutputMeaning

PreprocessPreset = Literal["weights", "published"]
"""The preprocessing of the network's weights, or that of the published MAIA code."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# Largest shift, in pixels of the input, that `verify` accepts, because libraries round sides and margins to whole
# pixels. A wrong crop or value range causes a far larger difference.
TOLERANCE = 1.5

# Difference of pixel values, of 0 to 1, that `verify` accepts in addition, because resizing rounds values and
# overshoots at edges.
GREY_LEVELS = 3 / 255


class Preprocessing(Protocol):
    """Makes a network's inputs in two steps: `view` selects what the network sees, `tensor` converts it."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the network's input in pixels."""
        ...

    @property
    def channels(self) -> int:
        """Number of channels of the network's input."""
        ...

    @property
    def any_shape(self) -> bool:
        """Whether inputs may have proportions other than those of `size`."""
        ...

    @property
    def description(self) -> str:
        """What is done to an image, in words: the same for equal preprocessing."""
        ...

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Returns the image that the network receives, and the part of the given image that it shows."""
        ...

    def tensor(self, view: Pixels) -> torch.Tensor:
        """Converts what `view` returned to an input, shape (channels, height, width)."""
        ...

    def batch(self, views: Sequence[Pixels], device: torch.device) -> torch.Tensor:
        """Converts images of one size that `view` returned to float32, shape (images, channels, height, width)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """The usual preprocessing of an image: a central crop, resizing, and a normalisation of each channel.

    For example, resizing the shorter side to 256 pixels and cropping the central 224 x 224 pixels is the same as
    `size=(224, 224)` and `crop=0.875`.
    """

    size: tuple[int, int]
    """Height and width of the network's input in pixels. The cropped region is resized to it."""
    crop: float | None
    """Relative size of the cropped region, which lies in the centre of the image. 1 is the largest region with the
    proportions of `size`; with 0.875, its sides are 0.875 times as long. None keeps the whole image: its shorter side
    is scaled to the shorter side of `size`, and its proportions stay the same."""
    resample: Image.Resampling
    """Interpolation method of the resizing."""
    mean: tuple[float, ...]
    """Mean of each channel, which is subtracted from pixel values between 0 and 1. Three numbers for red, green and
    blue, or one for a network of grey images."""
    std: tuple[float, ...]
    """Standard deviation of each channel, by which the difference is divided. As many numbers as `mean`."""
    longest: int = 0
    """Of a whole image (`crop` None), the longest side in pixels, for which its shorter side becomes smaller. 0: any."""
    multiple: int = 1
    """With `longest`, both sides are rounded down to a multiple of this."""
    squash: bool = False
    """If true, the cropped region has the proportions of the image: `crop` times its height and `crop` times its width.
    Resizing to `size` then distorts it."""

    def __post_init__(self) -> None:
        is_number = all(math.isfinite(value) for value in (*self.mean, *self.std))
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean) or not is_number or min(self.std) <= 0:
            raise UsageError(
                f"a preprocessing has {len(self.mean)} means ({_listed(self.mean[:4])}) and {len(self.std)} standard deviations "
                f"({_listed(self.std[:4])}); images have three channels, or one in grey, so give as many of each, and "
                "deviations above 0. Nothing can tell the other bands of a network that takes more: give a function of "
                "yours that makes its input from an image, in Python preprocess=FUNCTION"
            )

    @property
    def any_shape(self) -> bool:
        return self.crop is None

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colours."""
        return len(self.mean)

    @property
    def description(self) -> str:
        size, filtered = f"{self.size[1]} x {self.size[0]} pixels", self.resample.name.lower()
        if self.crop is None:
            geometry = f"shorter side scaled to {min(self.size)} pixels ({filtered})"
            geometry += f", but the longer one to at most {self.longest}" if self.longest else ""
            geometry += f", both rounded down to multiples of {self.multiple}" if self.multiple > 1 else ""
        else:
            of = "each side" if self.squash else "the shorter side"
            geometry = f"central {100 * self.crop:.4g} % of {of}, scaled to {size} ({filtered})"
            if self.crop != 1:  # else the sentence holds for them, too
                geometry += ", but images of this size as they are"
        mean, std = (", ".join(f"{value:.6g}" for value in values) for values in (self.mean, self.std))
        grey = "" if self.channels == 3 else "in grey, "
        return f"{geometry}, {grey}values of 0 to 1 minus ({mean}), divided by ({std})"

    def view(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        """Crops and resizes an RGB image, uint8 of shape (height, width, 3). One that has the size of the input already
        stays as it is."""
        height, width = pixels.shape[:2]
        if (height, width) == self.size:
            return pixels, whole(pixels)
        if self.crop is None:
            return self._uncropped(pixels)
        aspect = self.size[1] / self.size[0]
        kept_height = (height if self.squash else min(height, width / aspect)) * self.crop
        kept_width = width * self.crop if self.squash else kept_height * aspect
        left, top = (width - kept_width) / 2, (height - kept_height) / 2
        box = (left, top, left + kept_width, top + kept_height)
        view = Image.fromarray(pixels).resize((self.size[1], self.size[0]), self.resample, box=box)
        return np.asarray(view), box

    def _uncropped(self, pixels: Pixels) -> tuple[Pixels, ViewBox]:
        height, width = pixels.shape[:2]
        scale = min(self.size) / min(height, width)
        shape = self._limited(width, height) if self.longest else (round(width * scale), round(height * scale))
        view = pixels if shape == (width, height) else np.asarray(Image.fromarray(pixels).resize(shape, self.resample))
        return view, whole(pixels)

    def _limited(self, width: int, height: int) -> tuple[int, int]:
        # Rounded as by `get_size_with_aspect_ratio` of transformers, so that sides are the same.
        (short, long), side = sorted((width, height)), float(min(self.size))
        is_long = long / short * side > self.longest
        side = self.longest * short / long if is_long else side
        sides = (short, long) if short == round(side) else (round(side), int(side * long / short))
        small, large = (max(each - each % self.multiple, self.multiple) for each in sides)
        return (small, large) if width < height else (large, small)

    def tensor(self, view: Pixels) -> torch.Tensor:
        """Normalises what `view` returned, float32 of shape (channels, height, width). A network of grey images
        receives it in grey."""
        return self.batch([view], torch.device("cpu"))[0]

    def batch(self, views: Sequence[Pixels], device: torch.device) -> torch.Tensor:
        # Bytes are moved, which are a quarter of the inputs, and normalised on the device.
        shape = (len(views), *views[0].shape[:2], self.channels)
        # From pinned memory, a GPU copies 40 times as fast, and while the next batch is prepared.
        colours = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for own, view in zip(colours.numpy(), views, strict=True):
            own[:] = view if self.channels == 3 else np.asarray(Image.fromarray(view).convert("L"))[:, :, None]
        values = colours.to(device, non_blocking=True).permute(0, 3, 1, 2).float().contiguous()
        # Tensors, not numbers: by a number, a GPU divides only approximately.
        levels, mean, std = (_column(each, device) for each in ((255.0,), self.mean, self.std))
        return values.div_(levels).sub_(mean).div_(std)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPreprocess:
    """What the config says about preprocessing. An empty or zero field stands for the network's own value."""

    size: int = 0
    """Side of the input in pixels."""
    crop: float = 0.0
    """As `Preprocess.crop`."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def changed(self, declared: Preprocess) -> Preprocess:
        """Returns the network's own preprocessing with these values."""
        return replace(
            declared,
            size=(self.size, self.size) if self.size else declared.size,
            crop=self.crop or declared.crop,
            mean=self.mean or declared.mean,
            std=self.std or declared.std,
        )

    def whole(self, network: str) -> Preprocess:
        """Returns the preprocessing of a network that declares none: by default without a crop, and bilinear.

        Raises:
            UsageError: Size or normalisation is not given. There is no default, because a network responds differently
                to inputs that are normalised otherwise than in its training.
        """
        if not (self.size and self.mean and self.std):
            raise UsageError(
                f"{network} declares no preprocessing, and without its own a network has other units; give target.mean, "
                "target.std and target.size as in its training (for ImageNet's usual ones "
                f"target.mean={_listed(IMAGENET_MEAN)} target.std={_listed(IMAGENET_STD)} target.size=224; for values of "
                "0 to 1 as they are target.mean=[0,0,0] target.std=[1,1,1]), in Python preprocess=TRANSFORM, or let "
                "the function return a TargetNetwork"
            )
        side = (self.size, self.size)
        crop, resample = self.crop or 1.0, Image.Resampling.BILINEAR
        return Preprocess(size=side, crop=crop, resample=resample, mean=self.mean, std=self.std)


@cache
def _column(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    # Cached, because a copy may wait for the GPU.
    return torch.tensor(values, dtype=torch.float32).to(device)[:, None, None]


def _listed(values: tuple[float, ...]) -> str:
    return "[" + ",".join(f"{value:g}" for value in values) + "]"


def published(size: tuple[int, int]) -> Preprocess:
    """Returns that of the published code for ResNet and DINO: scaled without a crop, normalised as ImageNet."""
    return Preprocess(size=size, crop=None, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def verify(ours: Preprocess, theirs: Callable[[Image.Image], torch.Tensor], network: str) -> Preprocess:
    """Checks that a preprocessing gives the same result as the transform of a network's library, and returns it.

    Args:
        ours: As it was derived from the library's configuration.
        theirs: The library's transform from an RGB image to an input of shape (3, height, width).
        network: For messages.

    Raises:
        UsageError: The results differ. `Preprocess` cannot express padding, several crops or other value ranges.
    """
    rows, columns = np.mgrid[0:480, 0:720]
    ramps = np.stack([columns / 719, rows / 479, (columns + rows) / 1198], axis=2)
    pixels = np.asarray((ramps * 255).round(), dtype=np.uint8)
    expected = theirs(Image.fromarray(pixels)).float()
    # A fraction above one would pad the image.
    if ours.crop is None or ours.crop <= 1:
        actual = ours.tensor(ours.view(pixels)[0])
        scale = torch.tensor(ours.std).view(3, 1, 1)
        tolerance = TOLERANCE / min(ours.size) + GREY_LEVELS
        if expected.shape == actual.shape and float(((expected - actual) * scale).abs().max()) < tolerance:
            return ours
    raise UsageError(
        f"target.network={network!r} prepares its inputs in a way that OpenMAIA cannot reproduce: the result, of shape "
        f"{tuple(expected.shape)}, differs from what its configuration was understood to say ({ours}); load it by a factory "
        "of your own (package.module:factory) that returns a TargetNetwork with its Preprocess"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNetwork:
    """A network with its preprocessing and the names of its outputs and layers.

    To study a network of your own, pass such an object as `model` to `openmaia.investigate`. Or write a function that
    returns it, and give the function's name, such as `package.module:function`, as the config key `target.network`.
    """

    module: torch.nn.Module
    """The network, in evaluation mode."""
    preprocess: Preprocessing
    """Converts images to inputs of the network. Usually a `Preprocess`."""
    labels: tuple[str, ...] = ()
    """Names of the network's outputs, such as its classes. Empty if unknown."""
    heads: tuple[int, ...] = ()
    """Numbers of outputs of each head, in the order of `labels`, if the network answers several questions about an image.
    The classes of one head exclude one another, and one of each is predicted. Empty if all are of one."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of layers, such as those in publications: `{"layer1": "stages.0"}` lets users write `layer1` for the
    module `stages.0`."""
    output: OutputMeaning | None = None
    """What the output of the network means. The activations of the layer `output` are probabilities for `SOFTMAX` and
    `SIGMOID`, and its values otherwise. None: it is found out when the network is loaded, from the last module and the
    outputs for some images."""
    entries: Mapping[str, str] = field(default_factory=dict[str, str])
    """The entry to read, by layer, where a layer's output is a tuple, a mapping or an object of several tensors, such as
    `{"output": "logits"}`. Those of nested ones are joined with dots. Usually the entry is found without it."""
    outputs: str = ""
    """What `output` is, in words, if that depends on more than the weights, as on texts. Exemplars and records hold it."""
    published: Preprocess | None = None
    """The preprocessing of the published MAIA code for this network. `target.preprocess=published` in a config selects
    it. None: images are scaled without a crop, and normalised with the mean and standard deviation of ImageNet."""

    def __post_init__(self) -> None:
        if self.heads and (min(self.heads) < 1 or sum(self.heads) != len(self.labels)):
            raise UsageError(
                f"a TargetNetwork has heads={self.heads} and {len(self.labels)} labels; give for each head the number of its "
                "labels, at least 1, so that their sum is that of all"
            )
