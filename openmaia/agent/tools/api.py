"""What the agent's code can call: `system` and `tools`.

The source is sent into the sandbox together with `values.py`, which says what both may import. The prompt shows the
signatures and docstrings of System, Network, Tools and Image; `api_text.py` reads them.
"""

from collections.abc import Callable
from typing import Any, cast

from openmaia.agent.tools.values import (
    ToolCaller,
    also_named,
    image_of,
    is_prompt,
    listed,
    passed,
    received,
    shown,
    texts_of,
    wire,
)


class System:
    """The unit."""

    def __init__(self, call: ToolCaller, *unit: Any):
        self._call, self._unit = call, unit

    @also_named(image_list="images")
    def call_neuron(self, images: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """Measures the unit's activation for each image. Returns two lists: (activations, images).

        images: a list of images; texts in it are drawn first. An activation is a float with `.percentile`: the share of
        dataset images (0 to 100) with a lower activation, so 99 is high and 50 is nothing special; None if unknown.
        hypothesis: optional, the hypothesis that the images test, such as "H1", or "not H1" for its controls.

        >>> activations, images = system.call_neuron(images)
        """
        given = listed(images)
        prompts = [image for image in given if is_prompt(image)]
        tested = _of(hypothesis, given, is_prompt)
        drawn = iter(Tools(self._call).text2image(prompts, tested) if prompts else ())
        wired = [wire(next(drawn) if is_prompt(image) else image) for image in given if image is not None]
        tested = _of(hypothesis, given, lambda image: image is not None)
        unit = self._unit if tested is None else (*(self._unit or (None, None)), _tests(tested))
        answers = iter(self._call("call_neuron", wired, *unit) if wired or not given else ())
        seen = [None if image is None else image_of(self._call, next(answers)) for image in given]
        return [image and image.activation for image in seen], seen

    @also_named(image_list="images")
    def neuron(self, images: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """The same as call_neuron."""
        return self.call_neuron(images, hypothesis)


class Network:
    """The units under study, many of them."""

    def __init__(self, call: ToolCaller):
        self._call = call

    def layers(self) -> dict[str, int]:
        """The layers that can be asked about, with their numbers of units."""
        return self._call("layers")

    def unit(self, layer: str, index: int) -> System:
        """One unit: it has `call_neuron(images)`, and `tools.dataset_exemplars` takes it."""
        return System(self._call, layer, index)

    def responses(self, images: list[Any], layer: str) -> list[Any]:
        """Show images to all units of a layer at once. Returns one list per image, with a number per unit of the layer."""
        return self._call("responses", [wire(image) for image in listed(images)], layer)


class Tools:
    """What experiments need."""

    def __init__(self, call: ToolCaller):
        self._call = call

    def dataset_exemplars(self, system: System, kind: str = "top", as_lists: bool = False) -> Any:
        """Returns images of the dataset with the unit's activations: a list of pairs (activation, image).

        kind: "top" (highest activations), "bottom" (lowest), "random", or "ladder" (from the lowest to the highest).
        as_lists=True returns two lists instead: (activations, images).

        >>> for activation, image in tools.dataset_exemplars(system):
        ...     tools.display(activation, image)
        """
        answers = self._call("dataset_exemplars", kind, *getattr(system, "_unit", ()))
        images = [image_of(self._call, answer) for answer in answers]
        activations = [image.activation for image in images]
        return (activations, images) if as_lists else list(zip(activations, images, strict=True))

    @also_named(prompt_list="prompts")
    def text2image(self, prompts: list[Any], hypothesis: Any = None) -> list[Any]:
        """Generates one image per prompt and returns the list of images. A repeated prompt gives another image each time."""
        return [
            image_of(self._call, answer) for answer in self._call("text2image", texts_of(prompts), *_named(hypothesis))
        ]

    @also_named(
        base_images="images",
        image_list="images",
        editing_prompts="instructions",
        editing_instructions_list="instructions",
    )
    def edit_images(self, images: list[Any], instructions: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
        """Edits each image by its instruction, such as "replace the crane with a boat" or "remove the desk".

        images: a list of images or of prompts, which are generated first. Returns two lists, (images, captions), in which
        each original stands before its edit: original, edited, original, edited, …
        """
        wired = [image if is_prompt(image) else wire(image) for image in listed(images)]
        answers = self._call("edit_images", wired, texts_of(instructions), *_named(hypothesis))
        return [image_of(self._call, answer["image"]) for answer in answers], [answer["caption"] for answer in answers]

    @also_named(image_list="images", image_title="titles", image_titles="titles")
    def describe_images(self, images: list[Any], titles: Any = None) -> str:
        """Asks another observer to describe each image. Returns text, one line per image, led by its title."""
        titles = [f"image {n + 1}" for n in range(len(listed(images)))] if titles is None else titles
        return self._call("describe_images", [wire(image) for image in listed(images)], texts_of(titles))

    @also_named(image_list="images")
    def summarize_images(self, images: list[Any]) -> str:
        """Asks another observer what the images have in common. Returns text."""
        return self._call("summarize_images", [wire(image) for image in listed(images)])

    def display(self, *items: Any) -> None:
        """Shows texts, numbers and images in the next message, in this order. Only so do you see images."""
        self._call("display", [shown(item) for item in _flat(items)])

    @also_named(image_title="image_titles")
    def log_experiment(
        self,
        activation_list: list[Any],
        image_list: list[Any],
        image_titles: Any = None,
        image_textual_information: Any = None,
    ) -> None:
        """Displays images with their titles, activations and further texts."""
        self.display(_interleaved(activation_list, image_list, image_titles, image_textual_information))

    save_experiment_log = log_experiment


def build(call: ToolCaller, manifest: Any) -> dict[str, Any]:
    """Returns the names that are defined for an experiment. `manifest` is that of `Sandbox`."""
    tools = Tools(call)
    for name, doc in manifest["tools"].items():
        setattr(tools, name, _user_tool(call, name, doc))
    return {"system": System(call) if manifest["scope"] == "unit" else Network(call), "tools": tools}


def _user_tool(call: ToolCaller, name: str, doc: str) -> Callable[..., Any]:
    def tool(*args: Any, **kwargs: Any) -> Any:
        named = {key: passed(arg) for key, arg in kwargs.items()}
        return received(call, call("user_tool", name, [passed(arg) for arg in args], named))

    tool.__name__, tool.__doc__ = name, doc
    return tool


def _named(hypothesis: Any) -> tuple[Any, ...]:
    return () if hypothesis is None else (_tests(hypothesis),)


def _of(hypothesis: Any, given: list[Any], is_meant: Callable[[Any], bool]) -> Any:
    """Returns the hypotheses of the images for which `is_meant` holds, if there is one for each image."""
    if not isinstance(hypothesis, (list, tuple)):
        return hypothesis
    names = cast("list[Any]", hypothesis)
    is_each = len(names) == len(given)
    return [name for image, name in zip(given, names, strict=True) if is_meant(image)] if is_each else names


def _tests(hypothesis: Any) -> Any:
    if isinstance(hypothesis, (list, tuple)):
        return [None if name is None else str(name) for name in cast("list[Any]", hypothesis)]
    return str(hypothesis)


def _flat(items: Any) -> list[Any]:
    return [leaf for item in items for leaf in (_flat(item) if isinstance(item, (list, tuple)) else [item])]


def _interleaved(activations: Any, images: Any, titles: Any, texts: Any) -> list[Any]:
    def at(values: Any, n: int) -> list[Any]:
        items = cast("list[Any]", values) if isinstance(values, (list, tuple)) else []
        return [items[n]] if n < len(items) else []

    rows = [
        part
        for n, image in enumerate(listed(images))
        for part in (*at(titles, n), *[f"activation: {value}" for value in at(activations, n)], image, *at(texts, n))
    ]
    return [*rows, texts] if isinstance(texts, str) else rows
