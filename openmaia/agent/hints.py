"""Hints that tell the agent the correct call after frequent mistakes. The mistakes were observed with real models."""

import re
from collections.abc import Sequence

from openmaia.agent.evidence import WRITTEN
from openmaia.core.messages import Part
from openmaia.runs.records import Turn

PAIRS = "tools.dataset_exemplars(system) returns a list of pairs: for activation, image in tools.dataset_exemplars(system): …"
ORDER = "system.call_neuron(images) returns two lists, in this order: activations, images = system.call_neuron(images)"
NO_TORCH = (
    "torch is not available; the network is only called through system.call_neuron, and arrays are those of numpy (np)"
)
DEFINED = "system and tools are defined already; do not import or create them"
ON_TOOLS = (
    "system has call_neuron alone; the instruments are called on tools, for example tools.dataset_exemplars(system) and "
    "tools.text2image(prompts)"
)
ON_SYSTEM = "images are measured with system.call_neuron(images)"

IMAGE_ID = re.compile(r"image-\d+")

REPEATED = (
    "\nHint: this experiment repeats an earlier one and tells nothing new. Test what the strongest images have in common on "
    "other images, with and without it, and print their activations.\n"
)

HINTS = (
    (r"'System' object has no attribute", r"", ON_TOOLS),
    (r"'Tools' object has no attribute '(call_)?neuron", r"", ON_SYSTEM),
    (r"TypeError: .*dataset_exemplars\(\) missing", r"", PAIRS),
    (r"(too many|not enough) values to unpack", r"dataset_exemplars\(", PAIRS),
    (r"(too many|not enough) values to unpack", r"call_neuron\(", ORDER),
    (
        r"values to unpack",
        r"edit_images\(",
        "tools.edit_images(images, instructions) returns two lists: images, captions",
    ),
    (r"'Activation' object|not a number|object is not subscriptable", r"call_neuron\(", ORDER),
    (r"(Import|ModuleNotFound)Error", r"(from|import) +(tools|system|openmaia|maia)\b", DEFINED),
    (r"NameError: name '(System|Tools)' is not defined", r"", DEFINED),
    (r"No module named 'torch|name 'torch' is not defined", r"", NO_TORCH),
    (r"'(list|tuple)' object has no attribute", r"text2image\(", "tools.text2image(prompts) returns a list of images"),
    (
        r"SyntaxError",
        r"^\s*\[[A-Z ]+\d*\]",
        "the code block must hold Python only; headings such as [CODE]: belong outside",
    ),
    (
        r"FileNotFoundError|PermissionError",
        r"",
        "files cannot be used; images come from tools.text2image and exemplars",
    ),
)
"""Rows of (pattern of the error message, pattern of the code, hint). The first row of which both match is used."""


def repeats(turn: Turn, earlier: Sequence[Turn]) -> bool:
    """Returns whether an experiment has the code and the output of an earlier one, apart from the ids of images.

    Experiments that generate or edit images do not count, because they measure new images. Experiments that did not end
    normally do not count either, because another try may succeed.
    """
    if not turn.code or turn.status != "ok" or any(call.name in WRITTEN for call in turn.calls):
        return False
    same = [other for other in earlier if other.code.strip() == turn.code.strip()]
    return any(_seen(other) == _seen(turn) for other in same)


def _seen(turn: Turn) -> list[Part]:
    return [IMAGE_ID.sub("", part) if isinstance(part, str) else part for part in turn.observation]


def hint(turn: Turn) -> str:
    """Returns a hint for a turn whose experiment ended with an exception; empty if no hint applies."""
    error = "".join(part for part in turn.observation[-1:] if isinstance(part, str))[-2000:]
    for in_error, in_code, advice in HINTS:
        if re.search(in_error, error) and re.search(in_code, turn.code, re.MULTILINE):
            return f"\nHint: {advice}.\n"
    return ""
