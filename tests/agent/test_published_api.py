"""What docs/published-api.md says about code that was written for the published MAIA: each row is run."""

import base64
import io
import re
import statistics
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openmaia.agent.sandbox import child
from openmaia.agent.tools import api, values
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.agent.test_toolbox import Desk, exemplars, library, toolbox, viewer  # noqa: F401  (fixtures)
from tests.conftest import REPOSITORY
from tests.helpers.investigating import ANSWER, code, said

DOC = (REPOSITORY / "docs/published-api.md").read_text()
ROWS = [line.split("|")[1:3] for line in DOC.splitlines() if line.startswith("| `")]
CALLS = [
    (call, what.strip())
    for calls, what in ROWS
    for call in re.findall(r"`([^`]+)`", calls)
    if not what.startswith(" not")
]
ABSENT = [call for calls, what in ROWS for call in re.findall(r"`([^`]+)`", calls) if what.startswith(" not")]
assert len(CALLS) > 20 and len(ABSENT) > 20, "the table has another form"


def test_no_row_of_the_table_is_unexplained():
    assert all(
        re.match(r"(the same|not there|an image in base64|those of|plain numbers)\b", what.strip()) for _, what in ROWS
    )
    rows = [line for line in DOC.splitlines() if line.startswith("|")]
    assert len(rows) == len(ROWS) + 2, "a row beside the heading has no call"


def test_table_names_everything_that_an_experiment_can_call():
    """Every public name of ours that has a published counterpart stands in a row, by the way in which it is called."""
    ours = {"Network", "responses", "layers", "unit", "bank", "shared", "effect", "drives"}
    for name, kind in (("system", api.System), ("tools", api.Tools)):
        for method in (key for key in vars(kind) if not key.startswith("_") and key not in ours):
            assert any(call.startswith(f"{name}.{method}(") for call, _ in CALLS), f"{name}.{method} is missing"


@pytest.fixture
def names(toolbox: Any) -> dict[str, Any]:  # noqa: F811
    desk = Desk(toolbox)
    images = desk.tools.text2image(["a red circle", "a blue circle"])
    buffer = io.BytesIO()
    Image.new("RGB", (20, 20), (214, 32, 32)).save(buffer, "PNG")
    return {
        "system": desk.system,
        "tools": desk.tools,
        "desk": desk,
        "images": images,
        "image": images[0],
        "prompts": ["a red circle", "a red square"],
        "orders": ["make it blue", "make it green"],
        "encoded": base64.b64encode(buffer.getvalue()).decode(),
        "np": np,
        "statistics": statistics,
    }


@pytest.mark.parametrize(("call", "what"), CALLS)
def test_published_call_does_what_the_table_says(names: dict[str, Any], call: str, what: str):
    result = eval(call, names)
    if call.startswith(("system.", "tools.edit")):
        first, second = result
        assert len(first) == len(second) == {"edit": 4}.get(call[6:10], 1 if "encoded" in call else 2)
    elif call.startswith(("tools.describe", "tools.summarize")):
        assert isinstance(result, str) and result
    elif call.startswith(("tools.display", "tools.log", "tools.save")):
        assert any(not isinstance(part, str) for part in names["desk"].shown)
    elif call.startswith("tools."):
        assert len(result) >= 2
    else:
        assert result is not None and what


@pytest.mark.parametrize("call", ABSENT)
def test_names_that_are_not_there_raise(names: dict[str, Any], call: str):
    with pytest.raises(AttributeError, match=call.rpartition(".")[2]):
        eval(call, names)


def test_details_of_the_table(names: dict[str, Any]):
    system, image = names["system"], names["image"]
    activations, images = system.call_neuron([None, image])
    assert (activations[0], images[0]) == (None, None) and activations[1] > 0.5
    assert system.call_neuron([names["encoded"]])[0] == [1.0]
    assert system.call_neuron([None]) == ([None], [None])
    _, seen = system.call_neuron([None, image, "a dog"], hypothesis=["H1", "not H1", "H2"])
    tested = [names["desk"].toolbox.images.get(one.id).entry.hypothesis for one in seen if one is not None]
    assert tested == ["not H1", "H2"]
    assert image.size == image.pil().size
    assert np.array_equal(np.array(image), np.asarray(image.pil()))
    assert (image.crop((0, 0, 9, 9)).size, image.resize((9, 9)).size) == ((9, 9), (9, 9))
    with pytest.raises(AttributeError, match=r"an image has no 'pixels'; image\.pil\(\) is a Pillow image"):
        _ = image.pixels
    with pytest.raises(AttributeError, match="'paste' would change a copy"):
        image.paste((0, 0, 0))
    assert names["tools"].edit_images([image], ["make it blue"])[1] == [
        "Original Image",
        "Editing Prompt: make it blue",
    ]
    assert not any(isinstance(part, str) and "iVBOR" in part for part in names["desk"].shown)


RED = np.zeros((16, 20, 3))
RED[:, :, 0] = 1.0


@pytest.mark.parametrize(
    "array",
    [
        RED,
        RED.astype(np.float32) * 255,
        RED.astype(bool),
        (RED * 255).astype(np.int64),
        np.moveaxis(RED, 2, 0),
        np.concatenate([RED, np.ones((16, 20, 1))], axis=2),
    ],
    ids=["0 to 1", "0 to 255", "bool", "integers", "channels first", "with alpha"],
)
def test_array_of_any_common_form_is_the_same_image(array: Any):
    pixels = np.asarray(Image.open(io.BytesIO(values.wire(array)["png"])))
    assert np.array_equal(pixels, (RED * 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (RED - 0.5, "values from -0.5 to 0.5; expected 0 to 1 or 0 to 255"),
        (RED * 1000, "values from 0 to 1000"),
        (RED * np.nan, "values from nan to nan"),
        (np.zeros((2, 16, 20, 3)), r"shape \(2, 16, 20, 3\) is no image"),
        (np.zeros((0, 4, 3)), r"shape \(0, 4, 3\) is no image"),
        (np.zeros((16, 20), dtype="U1"), "an array of <U1 is no image"),
    ],
)
def test_array_that_is_no_image_is_refused(array: Any, message: str):
    with pytest.raises(ValueError, match=message):
        values.wire(array)


def test_broken_base64_is_refused():
    with pytest.raises(ValueError, match="begins like an image in base64 is none"):
        values.wire("iVBORw0KGgo=")


def test_predefined_names_need_no_import_and_torch_is_explained(run: Investigate):
    named = re.findall(r"`(\w+)`", DOC.partition("Defined without an import:")[2].partition("`torch`")[0])
    assert set(named) == {*child.PREDEFINED, *child.TYPING, "typing"}
    used = ", ".join(name for name in named if name != "typing")
    record = run(code(f"print(len([{used}]), np.mean([1, 3]))"), code("import torch"), ANSWER)
    assert said(record, 0) == f"{len(named) - 1} 2.0\n"
    assert record.turns[1].status == "error" and record.stop is Stop.ANSWER
