"""What the agent's code sees: `system`, `tools` and the images they hand out.

This file runs in two places: its source is sent into the sandbox, whose process sees nothing else of this package, and
it is imported as it is for a person in a notebook. It therefore imports only the standard library (NumPy and Pillow
where a picture is touched) and reaches the rest of the world through one function, `call`. The signatures and
docstrings of System, Tools and Image are what the prompt shows: api_text.py reads them.
"""

import io
from collections.abc import Callable
from typing import Any, cast

Call = Callable[..., Any]


class Activation(float):
    """A number that also knows how high it is for this unit.

    percentile: share (0 to 100) of the dataset's pictures that excite the unit less, ties counting half. z: standard deviations above the
    mean over those pictures. fired: whether the unit rose above its mask threshold anywhere in the image. raw: of a
    class whose activation is a probability, the logit behind it; None elsewhere.
    """

    percentile: float
    z: float
    fired: bool
    raw: float | None

    def __new__(
        cls, value: float, percentile: float = 0.0, z: float = 0.0, fired: bool = False, raw: float | None = None
    ) -> "Activation":
        self = super().__new__(cls, value)
        self.percentile, self.z, self.fired, self.raw = percentile, z, fired, raw
        return self

    def __repr__(self) -> str:
        return f"{float(self):.4g} (percentile {self.percentile:.0f})"

    __str__ = __repr__

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
    """An image. `.original` is the picture itself; `.masked` darkens it to a quarter wherever the unit stays below its
    threshold (the same as `.original` for an image the unit has not been shown). `.pil()` gives a Pillow image (RGB) of
    the original, `.masked.pil()` of the masked rendering.
    """

    def __init__(self, call: Call, id: str, activation: Activation | None = None):
        self._call, self.id, self.activation = call, id, activation

    @property
    def original(self) -> View:
        return View(self, "original")

    @property
    def masked(self) -> View:
        return View(self, "masked")

    def pil(self, view: str = "original") -> Any:
        import PIL.Image

        return PIL.Image.open(io.BytesIO(self.png(view))).convert("RGB")

    def png(self, view: str) -> bytes:
        return self._call("pixels", self.id, view)

    def _repr_png_(self) -> bytes:
        return self.png("masked")

    def __repr__(self) -> str:
        return f"<image {self.id}>"


class System:
    """The unit under study."""

    def __init__(self, call: Call, *unit: Any):
        self._call, self._unit = call, unit

    def call_neuron(self, images: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """Show images to the unit.

        images: a list of images from the tools, or Pillow images, or uint8 arrays (height, width, 3). The original is
        shown to the unit unless you pass `image.masked`. hypothesis: which entry of your hypothesis list the images test,
        such as "H1", or "not H1" for negative controls of it; or a list with one for each image. Images that were drawn
        for a hypothesis need none.
        Returns (activations, images): one number per image, and the same images with their `.masked` rendering. Each
        number is a float that also has `.percentile` (share of dataset pictures that excite the unit less, 0 to 100),
        `.z` (standard deviations above the dataset's mean), `.fired`, and `.raw` (the logit behind a class's
        probability); printing it shows the percentile.

        >>> activations, images = system.call_neuron(tools.text2image(["a dog on grass", "grass"]))
        >>> tools.display(*[part for pair in zip(activations, images) for part in pair])
        """
        wired = [_wire(image) for image in _listed(images)]
        unit = self._unit if hypothesis is None else (*(self._unit or (None, None)), _tests(hypothesis))
        answers = self._call("call_neuron", wired, *unit)
        seen = [_image(self._call, answer) for answer in answers]
        return [image.activation for image in seen], seen

    def neuron(self, images: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """The same as call_neuron."""
        return self.call_neuron(images, hypothesis)


class Network:
    """The units under study, many of them."""

    def __init__(self, call: Call):
        self._call = call

    def layers(self) -> dict[str, int]:
        """The layers that can be asked about, with their numbers of units."""
        return self._call("layers")

    def unit(self, layer: str, index: int) -> System:
        """One unit: it has `call_neuron(images)`, and `tools.dataset_exemplars` takes it."""
        return System(self._call, layer, index)

    def responses(self, images: list[Any], layer: str) -> list[Any]:
        """Show images to all units of a layer at once. Returns one list per image, with a number per unit of the layer."""
        return self._call("responses", [_wire(image) for image in _listed(images)], layer)


class Tools:
    """Instruments for experiments."""

    def __init__(self, call: Call):
        self._call = call

    def dataset_exemplars(self, system: System, kind: str = "top", as_lists: bool = False) -> Any:
        """Dataset pictures and the unit's activations to them.

        kind: "top" (the highest activations), "bottom" (the lowest), "random", or "ladder" (evenly spaced from the
        lowest to the highest). Returns a list of (activation, image); with as_lists=True two lists instead.

        >>> for activation, image in tools.dataset_exemplars(system):
        ...     tools.display(activation, image)
        """
        answers = self._call("dataset_exemplars", kind, *getattr(system, "_unit", ()))
        images = [_image(self._call, answer) for answer in answers]
        activations = [image.activation for image in images]
        return (activations, images) if as_lists else list(zip(activations, images, strict=True))

    def text2image(self, prompts: list[Any], hypothesis: Any = None) -> list[Any]:
        """Draw one image per prompt. A repeated prompt gives a new image each time; words that could not be drawn are
        reported in the output of the experiment. hypothesis: what they test, as for call_neuron."""
        return [_image(self._call, answer) for answer in self._call("text2image", _texts(prompts), *_named(hypothesis))]

    def edit_images(self, images: list[Any], instructions: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """Edit each image by its instruction, for example "replace the dog with a cat" or "change the background to
        grass". images: a list of images (the original is edited unless you pass `image.masked`) or of prompts, which
        are drawn first. hypothesis: what the edited ones test, as for call_neuron.
        Returns (images, captions), in turn the original and its edit: original, edited, original, …
        """
        wired = [image if isinstance(image, str) else _wire(image) for image in _listed(images)]
        answers = self._call("edit_images", wired, _texts(instructions), *_named(hypothesis))
        return [_image(self._call, answer["image"]) for answer in answers], [answer["caption"] for answer in answers]

    def describe_images(self, images: list[Any], titles: Any = None) -> str:
        """Ask a fresh viewer, who knows nothing of this investigation, to describe each image (the masked rendering
        unless you pass `image.original`). titles: one per image."""
        titles = [f"image {n + 1}" for n in range(len(_listed(images)))] if titles is None else titles
        return self._call("describe_images", [_wire(image) for image in _listed(images)], _texts(titles))

    def summarize_images(self, images: list[Any]) -> str:
        """Ask a fresh viewer what the images have in common (the masked rendering unless you pass `image.original`)."""
        return self._call("summarize_images", [_wire(image) for image in _listed(images)])

    def display(self, *items: Any) -> None:
        """Show texts, numbers and images (the masked rendering unless you pass `image.original`), in this order. This
        is how you get to see images: they appear in the next message."""
        self._call("display", [_shown(item) for item in _flat(items)])

    def log_experiment(
        self,
        activation_list: list[Any],
        image_list: list[Any],
        image_titles: Any = None,
        image_textual_information: Any = None,
    ) -> None:
        """Display images with their titles, activations and further texts in one go."""
        self.display(_interleaved(activation_list, image_list, image_titles, image_textual_information))

    save_experiment_log = log_experiment


def build(call: Call, manifest: Any) -> dict[str, Any]:
    """The names that an experiment finds defined. manifest: {"tools": {name: docstring}} of the user's own tools, and the
    scope of the investigation: "unit", or more than one."""
    tools = Tools(call)
    for name, doc in manifest["tools"].items():
        setattr(tools, name, _user_tool(call, name, doc))
    return {"system": System(call) if manifest["scope"] == "unit" else Network(call), "tools": tools}


def _user_tool(call: Call, name: str, doc: str) -> Callable[..., Any]:
    def tool(*args: Any, **kwargs: Any) -> Any:
        named = {key: _passed(arg) for key, arg in kwargs.items()}
        return _received(call, call("user_tool", name, [_passed(arg) for arg in args], named))

    tool.__name__, tool.__doc__ = name, doc
    return tool


def _image(call: Call, answer: dict[str, Any]) -> Image:
    activation = answer.get("activation")
    return Image(call, answer["image"], None if activation is None else Activation(**activation))


def _received(call: Call, value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return (
            _image(call, fields["$image"]) if "$image" in fields else {k: _received(call, v) for k, v in fields.items()}
        )
    return [_received(call, item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _listed(images: Any) -> list[Any]:
    return list(cast("list[Any]", images)) if isinstance(images, (list, tuple)) else [images]


def _flat(items: Any) -> list[Any]:
    return [leaf for item in items for leaf in (_flat(item) if isinstance(item, (list, tuple)) else [item])]


def _texts(values: Any) -> list[Any]:
    if isinstance(values, str):
        return [values]
    return [str(value) for value in values]


def _named(hypothesis: Any) -> tuple[Any, ...]:
    return () if hypothesis is None else (_tests(hypothesis),)


def _tests(hypothesis: Any) -> Any:
    if isinstance(hypothesis, (list, tuple)):
        return [None if name is None else str(name) for name in cast("list[Any]", hypothesis)]
    return str(hypothesis)


def _shown(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return [_shown(part) for part in cast("list[Any]", item)]
    return _wire(item) if isinstance(item, (Image, View)) or _is_pixels(item) else str(item)


def _passed(item: Any) -> Any:
    """An argument of a user's tool: what JSON has stays what it is, images travel, the rest becomes text."""
    if isinstance(item, (list, tuple)):
        return [_passed(part) for part in cast("list[Any]", item)]
    if isinstance(item, float):
        return float(item)
    return item if item is None or isinstance(item, (str, bool, int)) else _shown(item)


def _is_pixels(value: Any) -> bool:
    return hasattr(value, "save") or hasattr(value, "__array_interface__")


def _wire(image: Any) -> dict[str, Any]:
    """An image as it travels: a name the tools gave it, or the PNG of one that the agent made."""
    if isinstance(image, Image):
        return {"image": image.id, "view": ""}
    if isinstance(image, View):
        return {"image": image.image.id, "view": image.name}
    if not _is_pixels(image):
        raise TypeError(f"expected an image of the tools, a Pillow image or an array, not {type(image).__name__}")
    import PIL.Image

    picture = image if hasattr(image, "save") else PIL.Image.fromarray(image)
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "PNG")
    return {"png": buffer.getvalue()}


def _interleaved(activations: Any, images: Any, titles: Any, texts: Any) -> list[Any]:
    def at(values: Any, n: int) -> list[Any]:
        listed = cast("list[Any]", values) if isinstance(values, (list, tuple)) else []
        return [listed[n]] if n < len(listed) else []

    rows = [
        part
        for n, image in enumerate(_listed(images))
        for part in (*at(titles, n), *[f"activation: {value}" for value in at(activations, n)], image, *at(texts, n))
    ]
    return [*rows, texts] if isinstance(texts, str) else rows
