"""Activations and images as the agent's code sees them, and how they travel to the tools and back.

This file and `api.py` run in two places: their source is sent into the sandbox, whose process sees nothing else of this
package but the tools of `built_in`, and a notebook imports them as they are. They import only the standard library (NumPy
and Pillow where pixels are needed), and call tools through a `ToolCaller`.
"""

import base64
import binascii
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

ToolCaller = Callable[..., Any]
"""(name, *arguments) -> the result of a tool."""
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ClassT = TypeVar("ClassT", bound=type)

_BASE64 = ("iVBORw0KGgo", "/9j/", "data:image/")
"""How texts begin that hold a PNG or JPEG file in base64."""


_ORDER = "call_neuron returns (activations, images), in this order"


class Activation(float):
    """A number that also knows how high it is for this unit. A number that is derived from it, such as a mean, does not.

    Formatted or as a text it is a plain number; printed in a list, it shows its percentile.
    """

    percentile: float | None
    """Share (0 to 100) of the dataset's images that excite the unit less, ties counting half. None if it is unknown, as for
    imported exemplars."""
    z: float | None
    """Standard deviations above the mean over those images, or None."""
    fired: bool | None
    """Whether the unit rose above its mask threshold anywhere in the image."""
    raw: float | None
    """The logit, if the activation is the probability of a class."""

    def __new__(
        cls,
        value: float,
        percentile: float | None = None,
        z: float | None = None,
        fired: bool | None = None,
        raw: float | None = None,
    ) -> "Activation":
        self = super().__new__(cls, value)
        self.percentile, self.z, self.fired, self.raw = percentile, z, fired, raw
        return self

    def __repr__(self) -> str:
        return str(self) if self.percentile is None else f"{self} (percentile {self.percentile:.0f})"

    def __str__(self) -> str:
        return f"{float(self):.4g}"

    def item(self) -> float:
        """The plain number, as `item` of a NumPy number."""
        return float(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an activation is a number and has no {name!r}; {_ORDER}")

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


def also_named(**names: str) -> Callable[[FunctionT], FunctionT]:
    """Returns a decorator that accepts further names of arguments: also_named(image_list="images")."""

    def decorate(function: FunctionT) -> FunctionT:
        @functools.wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

        return cast("FunctionT", renamed)

    return decorate


def with_methods(methods: Mapping[str, Callable[..., Any]]) -> Callable[[ClassT], ClassT]:
    """Returns a decorator that gives a class methods by their names."""

    def extend(cls: ClassT) -> ClassT:
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return extend


class View:
    """One rendering of an image, named explicitly: `image.original` or `image.masked`."""

    def __init__(self, image: "Image", name: str):
        self.image, self.name = image, name

    def pil(self) -> Any:
        """This rendering as a Pillow image (RGB)."""
        return self.image.pil(self.name)

    def _repr_png_(self) -> bytes:
        return self.image.png(self.name)

    def __repr__(self) -> str:
        return f"<{self.image.id}.{self.name}>"


_IN_PLACE = frozenset(
    "alpha_composite apply_transparency frombytes load paste putalpha putdata putpalette putpixel seek thumbnail verify".split()
)


class Image:
    """An image, as the tools return and take it. `image.masked` is the image darkened wherever the unit stays below its
    threshold: tools show and describe this rendering of measured images. A white frame encloses the part that the network
    sees, if it does not see the whole image. `image.original` is the plain image, and
    `image.pil()` a Pillow image. Pillow images and uint8 arrays (height, width, 3) can be measured and edited as well.
    """

    # As in published transcripts, `size`, `crop`, `resize` and so on are those of the Pillow image.

    def __init__(self, call: ToolCaller, id: str, activation: Activation | None = None):
        self._call, self.id, self.activation = call, id, activation

    @property
    def original(self) -> View:
        """The image itself."""
        return View(self, "original")

    @property
    def masked(self) -> View:
        """The image with the region in which the unit responds."""
        return View(self, "masked")

    def pil(self, view: str = "original") -> Any:
        """A rendering as a Pillow image (RGB)."""
        import PIL.Image

        return PIL.Image.open(io.BytesIO(self.png(view))).convert("RGB")

    def png(self, view: str) -> bytes:
        """A rendering as PNG."""
        return self._call("pixels", self.id, view)

    def __lt__(self, other: object) -> bool:
        """Orders images by number, so that pairs of activation and image can be sorted where activations are equal."""
        if not isinstance(other, Image):
            return NotImplemented
        return (len(self.id), self.id) < (len(other.id), other.id)

    def __getattr__(self, name: str) -> Any:
        import PIL.Image

        if name in _IN_PLACE:
            raise AttributeError(f"{name!r} would change a copy; take copy = image.pil(), change the copy and use it")
        if name.startswith("_") or not hasattr(PIL.Image.Image, name):
            raise AttributeError(f"an image has no {name!r}; image.pil() is a Pillow image")
        return getattr(self.pil(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.asarray(self.pil(), dtype=dtype)

    def _repr_png_(self) -> bytes:
        return self.png("masked")

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(f"expected a number, not an image; {_ORDER}")
        return repr(self)

    def __repr__(self) -> str:
        return f"<image {self.id}>"


def image_of(call: ToolCaller, answer: dict[str, Any]) -> Image:
    """Returns the image that a tool's answer, {"image": id, "activation": fields or None}, names."""
    activation = answer.get("activation")
    return Image(call, answer["image"], None if activation is None else Activation(**activation))


def looked_up(call: ToolCaller, answers: Sequence[dict[str, Any]]) -> list[tuple[Activation | None, Image, str]]:
    """Returns (activation, image, prompt) of each answer that names a prompt, too."""
    images = [image_of(call, answer) for answer in answers]
    return [(image.activation, image, answer["prompt"]) for image, answer in zip(images, answers, strict=True)]


def received(call: ToolCaller, value: Any) -> Any:
    """Returns the result of a user's tool, with images in place of {"$image": answer}."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "$image" in fields:
            return image_of(call, fields["$image"])
        return {key: received(call, item) for key, item in fields.items()}
    return [received(call, item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def listed(images: Any) -> list[Any]:
    """Returns images in any nesting as a list. Of a pair (activation, image) the image is meant."""
    if not isinstance(images, (list, tuple)):
        return [images]
    items = cast("list[Any]", images)
    if len(items) == 2 and isinstance(items[0], Activation) and not isinstance(items[1], float):
        return listed(items[1])
    return [image for item in items for image in listed(item)]


def texts_of(values: Any) -> list[Any]:
    """Returns one text, or several values, as a list of texts."""
    return [values] if isinstance(values, str) else [str(value) for value in values]


def is_prompt(value: Any) -> bool:
    """Returns whether a value is a text that is not an image in base64."""
    return isinstance(value, str) and not value.startswith(_BASE64)


def hypotheses_of(hypothesis: Any) -> Any:
    """Converts a hypothesis, or one for each image, to the form in which it is sent to the tools."""
    if isinstance(hypothesis, (list, tuple)):
        return [None if name is None else str(name) for name in cast("list[Any]", hypothesis)]
    return str(hypothesis)


def hypothesis_argument(hypothesis: Any) -> tuple[Any, ...]:
    """Returns the last arguments of a call that may name the hypothesis which it tests."""
    return () if hypothesis is None else (hypotheses_of(hypothesis),)


def wire(image: Any) -> dict[str, Any]:
    """Converts an image to the form in which it is sent to the tools.

    An image of the tools becomes {"image": id, "view": rendering or ""}, and one that the agent's code made (a Pillow
    image, an array, or a PNG or JPEG file in base64) becomes {"png": bytes}.
    """
    if isinstance(image, Image):
        return {"image": image.id, "view": ""}
    if isinstance(image, View):
        return {"image": image.image.id, "view": image.name}
    if isinstance(image, (int, float)):
        raise TypeError(f"expected an image, not the number {float(image):g}; {_ORDER}")
    if not _is_pixels(image):
        raise TypeError(f"expected an image of the tools, a Pillow image or an array, not {type(image).__name__}")
    buffer = io.BytesIO()
    _pillow(image).convert("RGB").save(buffer, "PNG")
    return {"png": buffer.getvalue()}


def _pillow(image: Any) -> Any:
    import PIL.Image

    if isinstance(image, str):
        return _decoded(image)
    return image if hasattr(image, "save") else PIL.Image.fromarray(_bytes_of(image))


def _decoded(text: str) -> Any:
    import PIL.Image

    try:
        data = base64.b64decode(text.rpartition("base64,")[2], validate=True)
        return PIL.Image.open(io.BytesIO(data)).convert("RGB")
    except (binascii.Error, OSError) as error:
        raise ValueError(
            f"a text that begins like an image in base64 is none ({error}); use the images of the tools"
        ) from error


def _bytes_of(array: Any) -> Any:
    """Converts an array to uint8 and (height, width, channels) or (height, width).

    Channels may also come first. Other numbers than uint8 must be from 0 to 1 (floats), or from 0 to 255.
    """
    import numpy as np

    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not pixels.size or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        raise ValueError(f"an array of shape {np.shape(array)} is no image; expected (height, width, 3)")
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    if pixels.dtype.kind not in "buif":
        raise ValueError(f"an array of {pixels.dtype} is no image; expected uint8, or numbers from 0 to 1 or 0 to 255")
    low, high = float(pixels.min()), float(pixels.max())
    if not 0 <= low <= high <= 255:
        raise ValueError(f"an image with values from {low:g} to {high:g}; expected 0 to 1 or 0 to 255")
    scale = 255 if pixels.dtype.kind in "bf" and high <= 1 else 1
    return np.ascontiguousarray(np.rint(pixels.astype(np.float64) * scale).astype(np.uint8))


def shown(item: Any) -> Any:
    """Converts an item of `display` to the form in which it is sent: images as by `wire`, other values as text."""
    if isinstance(item, (list, tuple)):
        return [shown(part) for part in cast("list[Any]", item)]
    if isinstance(item, (Image, View)) or _is_pixels(item):
        return wire(item)
    return repr(item) if isinstance(item, Activation) else str(item)


def passed(item: Any) -> Any:
    """Converts an argument of a user's tool to the form in which it is sent: JSON values, images, otherwise text."""
    if isinstance(item, (list, tuple)):
        return [passed(part) for part in cast("list[Any]", item)]
    if getattr(item, "ndim", None) == 0 and hasattr(item, "item"):
        item = item.item()  # a NumPy number
    if isinstance(item, float):
        return float(item)
    return item if item is None or isinstance(item, (str, bool, int)) else shown(item)


def _is_pixels(value: Any) -> bool:
    is_encoded = isinstance(value, str) and not is_prompt(value)
    # NumPy numbers have the interface of an array, too.
    is_array = hasattr(value, "__array_interface__") and getattr(value, "ndim", 2) >= 2
    return is_encoded or hasattr(value, "save") or is_array
