"""Activations and images as the agent's code sees them, and how they travel to the tools and back.

This file and `api.py` run in two places: their source is sent into the sandbox, whose process sees nothing else of this
package, and a notebook imports them as they are. They import only the standard library (NumPy and Pillow where pixels are
needed) and reach the rest of the world through one function, a `ToolCaller`.
"""

import io
from collections.abc import Callable
from typing import Any, cast

ToolCaller = Callable[..., Any]
"""(name, *arguments) -> the result of a tool."""


ORDER = "call_neuron returns (activations, images), in this order"


class Activation(float):
    """A number that also knows how high it is for this unit. A number that is derived from it, such as a mean, does not."""

    percentile: float | None
    """Share (0 to 100) of the dataset's images that excite the unit less, ties counting half."""
    z: float | None
    """Standard deviations above the mean over those images."""
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
        known = "" if self.percentile is None else f" (percentile {self.percentile:.0f})"
        return f"{float(self):.4g}{known}"

    __str__ = __repr__

    def item(self) -> float:
        """The plain number, as `item` of a NumPy number."""
        return float(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an activation is a number and has no {name!r}; {ORDER}")

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else repr(self)


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


class Image:
    """An image, as the tools return and take it. `image.masked` is the image darkened wherever the unit stays below its
    threshold: tools show and describe this rendering of measured images. `image.original` is the plain image, and
    `image.pil()` a Pillow image. Pillow images and uint8 arrays (height, width, 3) can be measured and edited as well.
    """

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

    def __lt__(self, other: "Image") -> bool:
        """Orders images by id, so that pairs of activation and image can be sorted where activations are equal."""
        return self.id < other.id

    def _repr_png_(self) -> bytes:
        return self.png("masked")

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(f"expected a number, not an image; {ORDER}")
        return repr(self)

    def __repr__(self) -> str:
        return f"<image {self.id}>"


def image_of(call: ToolCaller, answer: dict[str, Any]) -> Image:
    """Returns the image that a tool's answer, {"image": id, "activation": fields or None}, names."""
    activation = answer.get("activation")
    return Image(call, answer["image"], None if activation is None else Activation(**activation))


def received(call: ToolCaller, value: Any) -> Any:
    """Returns the result of a user's tool, in which images replace references of the form {"$image": answer}."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "$image" in fields:
            return image_of(call, fields["$image"])
        return {key: received(call, item) for key, item in fields.items()}
    return [received(call, item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def listed(images: Any) -> list[Any]:
    """Returns one image, or images in any nesting, as a list. Of a pair (activation, image) the image is meant."""
    if not isinstance(images, (list, tuple)):
        return [images]
    items = cast("list[Any]", images)
    if len(items) == 2 and isinstance(items[0], Activation) and not isinstance(items[1], float):
        return listed(items[1])
    return [image for item in items for image in listed(item)]


def texts_of(values: Any) -> list[Any]:
    """Returns one text, or several values, as a list of texts."""
    return [values] if isinstance(values, str) else [str(value) for value in values]


def wire(image: Any) -> dict[str, Any]:
    """Converts an image to the form in which it is sent to the tools.

    An image of the tools becomes {"image": id, "view": rendering or ""}, and an image that the agent's code made
    becomes {"png": bytes}.
    """
    if isinstance(image, Image):
        return {"image": image.id, "view": ""}
    if isinstance(image, View):
        return {"image": image.image.id, "view": image.name}
    if isinstance(image, (int, float)):
        raise TypeError(f"expected an image, not the number {float(image):g}; {ORDER}")
    if not _is_pixels(image):
        raise TypeError(f"expected an image of the tools, a Pillow image or an array, not {type(image).__name__}")
    import PIL.Image

    pillow = image if hasattr(image, "save") else PIL.Image.fromarray(image)
    buffer = io.BytesIO()
    pillow.convert("RGB").save(buffer, "PNG")
    return {"png": buffer.getvalue()}


def shown(item: Any) -> Any:
    """Converts an item of `display` to the form in which it is sent: images as by `wire`, other values as text."""
    if isinstance(item, (list, tuple)):
        return [shown(part) for part in cast("list[Any]", item)]
    return wire(item) if isinstance(item, (Image, View)) or _is_pixels(item) else str(item)


def passed(item: Any) -> Any:
    """Converts an argument of a user's tool to the form in which it is sent: JSON values, images, otherwise text."""
    if isinstance(item, (list, tuple)):
        return [passed(part) for part in cast("list[Any]", item)]
    if isinstance(item, float):
        return float(item)
    return item if item is None or isinstance(item, (str, bool, int)) else shown(item)


def _is_pixels(value: Any) -> bool:
    return hasattr(value, "save") or hasattr(value, "__array_interface__")
