"""What the agent's code can call: `system` and `tools`.

The source is sent into the sandbox together with `values.py`, which says what both may import, and the tools of
`built_in`. The prompt shows the signatures and docstrings of System, Network, Tools and Image; `api_text.py` reads them.
"""

from collections.abc import Callable
from typing import Any, cast

from openmaia.agent.tools.built_in import stubs
from openmaia.agent.tools.values import (
    ToolCaller,
    also_named,
    hypotheses_of,
    image_of,
    is_prompt,
    listed,
    passed,
    received,
    shown,
    wire,
    with_methods,
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
        wired = _wired(self._call, given, hypothesis)
        tested = _of(hypothesis, given, lambda image: image is not None)
        unit = self._unit if tested is None else (*(self._unit or (None, None)), hypotheses_of(tested))
        answers = iter(self._call("call_neuron", wired, *unit) if wired or not given else ())
        seen = [None if image is None else image_of(self._call, next(answers)) for image in given]
        return [image and image.activation for image in seen], seen

    @also_named(image_list="images")
    def effect(self, images: list[Any], set: Any = None, add: Any = None) -> list[Any]:
        """Changes the unit inside of the network, and shows how the network's answer changes: what the unit does.

        Returns a list of pairs (class, change), the largest first: by how much more than the average class this class becomes
        likely (its logit, averaged over the images; not compared where several classes may be right). images: a list of images; texts in it are drawn first.
        set: the value of the unit everywhere in the image, 0 if nothing is given, or "mean" for its mean over the dataset.
        add: what is added to the unit's own value instead.

        >>> for name, change in system.effect(images, set=0):
        ...     print(name, change)
        """
        wired = _wired(self._call, listed(images))
        return [(name, change) for name, change in self._call("effect", wired, _plain(set), _plain(add), *self._unit)]

    def drives(self) -> list[Any]:
        """Returns the classes that the unit raises most on images of the dataset: a list of pairs (class, rise). A rise is an
        estimate, from gradients, of how much the class falls if the unit is set to 0, see `system.effect`."""
        return [(name, rise) for name, rise in self._call("drives", *self._unit)]

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


@with_methods(stubs())
class Tools:
    """What experiments need."""

    def __init__(self, call: ToolCaller):
        self._call = call

    def display(self, *items: Any) -> None:
        """Shows texts, numbers and images in the next message, in this order. Only so do you see images."""
        self._call("display", [shown(item) for item in _flat(items)])

    def _image(self, id: str) -> Any:
        # For experiments that `openmaia.serving` writes: its callers name images by their ids.
        return image_of(self._call, {"image": id})

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


def _of(hypothesis: Any, given: list[Any], is_meant: Callable[[Any], bool]) -> Any:
    """Returns the hypotheses of the images for which `is_meant` holds, if there is one for each image."""
    if not isinstance(hypothesis, (list, tuple)):
        return hypothesis
    names = cast("list[Any]", hypothesis)
    is_each = len(names) == len(given)
    return [name for image, name in zip(given, names, strict=True) if is_meant(image)] if is_each else names


def _wired(call: ToolCaller, given: list[Any], hypothesis: Any = None) -> list[Any]:
    """What a call is sent for images, without those that are None. Texts are drawn first."""
    prompts, tested = [image for image in given if is_prompt(image)], _of(hypothesis, given, is_prompt)
    tools: Any = Tools(call)
    drawn = iter(tools.text2image(prompts, tested) if prompts else ())
    return [wire(next(drawn) if is_prompt(image) else image) for image in given if image is not None]


def _plain(value: Any) -> Any:
    """NumPy's numbers as numbers."""
    return value if value is None or isinstance(value, str) else float(value)


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
