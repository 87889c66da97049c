"""What the agent's code sees: both published styles, and a prompt that says what can be called."""

import ast
import copy
import inspect
import pickle
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openmaia.agent.investigation import read_api_source
from openmaia.agent.tools import api, values
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.tools.built_in import stubs
from tests.agent.test_toolbox import Desk, exemplars, library, toolbox, viewer  # noqa: F401  (fixtures)


@pytest.fixture
def names(toolbox: Any) -> dict[str, Any]:  # noqa: F811
    """The names an experiment finds defined, with a real toolbox behind them."""
    desk = Desk(toolbox)
    return {"system": desk.system, "tools": desk.tools, "desk": desk}


FREE_FORM = """
prompt_list = ["a red circle on a grey background", "a blue circle on a grey background"]
images = tools.text2image(prompt_list)
activations, masked = system.call_neuron(images)
for activation, image in zip(activations, masked):
    tools.display(activation, image)
best = max(zip(activations, masked), key=lambda pair: pair[0])
"""

DEFINED = """
def execute_command(system, tools):
    exemplars = tools.dataset_exemplars(system)
    activation_list = [activation for activation, image in exemplars]
    image_list = [image for activation, image in exemplars]
    description = tools.summarize_images(image_list)
    edited, titles = tools.edit_images(["a red circle", "a red square"], ["make it blue", "make it green"])
    more, images = system.neuron(edited)
    tools.save_experiment_log(activation_list + more, image_list + images, ["t"] * 3 + titles, description)
    return more
answers = execute_command(system, tools)
"""

EXPERIMENT = """
def run_experiment(system, tools):
    images = tools.text2image(["a red circle"])
    activations, images = system.call_neuron(images)
    tools.log_experiment(activations, images, ["red"], image_textual_information=tools.describe_images(images, ["red"]))
    return activations
answers = run_experiment(system, tools)
"""


def test_published_free_form_runs_unchanged(names: dict[str, Any]):
    exec(FREE_FORM, names)
    assert names["best"][0] == max(names["activations"]) > 0.5
    assert sum(not isinstance(part, str) for part in names["desk"].shown) == 2


def test_first_release_style_runs_unchanged(names: dict[str, Any]):
    exec(DEFINED, names)
    red_circle, blue_circle, red_square, green_square = names["answers"]
    assert red_circle > 0.5 > blue_circle
    assert red_square > 0.5 > green_square
    assert sum(not isinstance(part, str) for part in names["desk"].shown) == 7


def test_defined_experiment_runs_unchanged(names: dict[str, Any]):
    exec(EXPERIMENT, names)
    assert names["answers"][0] > 0.5
    assert "red: 1 message, 1 pictures" in names["desk"].shown


# -- the prompt's API text -----------------------------------------------------------------------------------------------


def public(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize("name", ["call_neuron", "neuron"])
def test_every_method_of_system_is_in_the_prompt(name: str):
    assert name in public(api.System)
    assert f"system.{name}(images" in api_text({})


def test_prompt_lists_tools_with_parameters():
    text = api_text({}, available=("bank", "shared"))
    methods = {name: getattr(api.Tools, name) for name in public(api.Tools)}
    own = {name: method for name, method in methods.items() if method.__name__ == name}
    assert len(own) >= 7
    for name, method in own.items():
        line = next(line for line in text.splitlines() if line.startswith(f"tools.{name}("))
        for parameter in list(inspect.signature(method).parameters)[1:]:
            assert parameter in line


def test_every_docstring_is_in_the_prompt():
    text = " ".join(api_text({}, available=("bank", "shared")).split())
    for part in (api.System, api.System.call_neuron, *stubs().values(), api.Tools.display, values.Image):
        assert " ".join((inspect.getdoc(part) or "").split()) in text


def test_prompt_names_default_renderings():
    text = " ".join(api_text({}).split())
    assert "tools show and describe this rendering of measured images" in text
    assert "`image.original` is the plain image" in text


def test_prompt_hides_internals():
    text = api_text({})
    for word in (r"\bself\b", "_call", "typing", "openmaia", r"\bAny\b"):
        assert not re.search(word, text)


def test_changed_signature_changes_the_prompt():
    def one(image: Any, size: int = 3) -> float:
        """Measures."""
        return float(size)

    def two(image: Any, depth: int = 4) -> float:
        """Measures."""
        return float(depth)

    first, second = api_text({"measure": one}), api_text({"measure": two})
    assert "tools.measure(image, size: int = 3) -> float" in first
    assert "tools.measure(image, depth: int = 4) -> float" in second


def test_tool_without_docstring_is_listed():
    tool: Callable[[Any], Any] = lambda image: image  # noqa: E731
    assert "tools.mine(image)" in api_text({"mine": tool})


def test_examples_in_the_prompt_are_valid_python():
    examples = [line.strip()[4:] for line in api_text({}).splitlines() if line.strip().startswith((">>>", "..."))]
    assert len(examples) >= 3
    assert ast.parse("\n".join(examples))


# -- small things --------------------------------------------------------------------------------------------------------


def test_api_imports_only_what_the_sandbox_has():
    tree = ast.parse(read_api_source())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported <= set(sys.stdlib_module_names) | {"numpy", "PIL"}


def test_agents_side_stands_alone():
    module: dict[str, Any] = {"__name__": "alone"}
    exec(compile(read_api_source(), "api", "exec"), module)
    answers = {"describe_images": "a dog", "summarize_images": "dogs"}
    built = module["build"](lambda name, *args: answers.get(name, []), {"tools": {}, "scope": "unit"})
    system, tools = built["system"], built["tools"]
    assert system.call_neuron([]) == ([], [])
    assert tools.dataset_exemplars(system) == tools.text2image(["a dog"], "H1") == []
    assert tools.edit_images(["a dog"], ["a cat"], "H1") == ([], [])
    assert (tools.describe_images([]), tools.summarize_images([])) == ("a dog", "dogs")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_activation_can_be_copied(copied: Callable[[Any], Any]):
    again = copied(values.Activation(1.5, percentile=99.0, z=2.0, fired=True))
    assert (again, again.percentile, again.z, again.fired) == (1.5, 99.0, 2.0, True)


def test_activation_behaves_as_a_number():
    value = values.Activation(1.23456, percentile=98.6)
    assert f"{value:.2f} {value + 1:.1f} {round(value, 1)}" == "1.23 2.2 1.2"
    assert f"{value}" == str(value) == "1.235"
    assert repr(value) == "1.235 (percentile 99)"


def test_numbers_derived_from_activations_have_no_percentile():
    measured = [values.Activation(value, percentile=90.0 + value) for value in (1.0, 2.0, 4.5)]
    assert f"{statistics.mean(measured)} {sum(measured)} {np.mean(measured)} {measured[0].item()}" == "2.5 7.5 2.5 1.0"
    assert (str(max(measured)), repr(max(measured))) == ("4.5", "4.5 (percentile 94)")


def test_pairs_with_equal_activations_can_be_sorted():
    first, second = (values.Image(lambda *_: None, f"image-{number}") for number in (2, 10))
    pairs = [(values.Activation(1.0), second), (values.Activation(1.0), first)]
    assert [image.id for _, image in sorted(pairs)] == ["image-2", "image-10"]
    with pytest.raises(TypeError, match="not supported between"):
        sorted([first, "a text"])  # type: ignore[list-item]


@pytest.mark.parametrize("given", [3, b"png", {"image": "image-1"}, object()])
def test_non_image_is_refused_at_once(given: Any):
    called: list[Any] = []
    with pytest.raises(TypeError, match="expected an image"):
        api.System(lambda *args: called.append(args)).call_neuron([given])
    assert called == []


def test_swapped_results_are_explained():
    activation, image = values.Activation(1.5), values.Image(lambda *_: None, "image-1")
    for mistake in (lambda: activation.masked, lambda: f"{image:.2f}", lambda: values.wire(activation)):
        with pytest.raises((TypeError, AttributeError), match=r"returns \(activations, images\), in this order"):
            mistake()


def test_pairs_and_nested_lists_are_taken_as_images():
    images = [values.Image(lambda *_: None, f"image-{n}") for n in range(3)]
    pairs = [(values.Activation(n), image) for n, image in enumerate(images)]
    assert values.listed(pairs) == values.listed(pairs[0]) + values.listed(images[1:]) == values.listed([images])


def test_texts_are_drawn_before_they_are_measured(names: dict[str, Any]):
    image = Image.new("RGB", (20, 20), "white")
    activations, images = names["system"].call_neuron(["a red circle", image, "a blue circle"])
    assert len(activations) == len(images) == 3
    red, _, blue = (np.asarray(seen.pil()).reshape(-1, 3).mean(axis=0) for seen in images)
    assert red[0] > red[2] and blue[2] > blue[0]


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1"])
def test_pillow_images_of_any_mode_travel_as_rgb(names: dict[str, Any], mode: str):
    _, (seen,) = names["system"].call_neuron([Image.new("RGB", (20, 20), "white").convert(mode)])
    assert seen.pil().mode == "RGB"
