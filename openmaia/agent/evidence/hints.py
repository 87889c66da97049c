"""Hints that tell the agent the correct call. The mistakes were observed with real models."""

import re

from openmaia.runs.records import Turn

_PAIRS = "tools.dataset_exemplars(system) returns a list of pairs: for activation, image in tools.dataset_exemplars(system): …"
_ORDER = "system.call_neuron(images) returns two lists, in this order: activations, images = system.call_neuron(images)"
_NO_TORCH = (
    "torch is not available; the network is only called through system.call_neuron, and arrays are those of numpy (np)"
)
_DEFINED = "system and tools are defined already; do not import or create them"
_ON_TOOLS = (
    "system has call_neuron alone; the instruments are called on tools, for example tools.dataset_exemplars(system) and "
    "tools.text2image(prompts)"
)
_ON_SYSTEM = "images are measured with system.call_neuron(images)"

REPEATED = (
    "Your last message was the same as an earlier one above, or as the example in your instructions, which is about another "
    "unit. It brought nothing new and is left out here. Write a different message."
)
EMPTY = "Your last message arrived empty, as one does that is too long. Write a short one."
OTHERWISE = " If an experiment is still needed, generate images of your own with tools.text2image and measure them."

_PRINTED = re.compile(r"<image image-\d+>")
"""What `print` shows of an image of the tools."""
DISPLAY = "call tools.display(activation, image) for each of them to see what they show"

_HINTS = (
    (r"'System' object has no attribute", r"", _ON_TOOLS),
    (r"'Tools' object has no attribute '(call_)?neuron", r"", _ON_SYSTEM),
    (r"TypeError: .*dataset_exemplars\(\) missing", r"", _PAIRS),
    (r"(too many|not enough) values to unpack", r"dataset_exemplars\(", _PAIRS),
    (r"(too many|not enough) values to unpack", r"call_neuron\(", _ORDER),
    (
        r"values to unpack",
        r"edit_images\(",
        "tools.edit_images(images, instructions) returns two lists: images, captions",
    ),
    (r"'Activation' object|not a number|object is not subscriptable", r"call_neuron\(", _ORDER),
    (r"(Import|ModuleNotFound)Error", r"(from|import) +(tools|system|openmaia|maia)\b", _DEFINED),
    (r"NameError: name '(System|Tools)' is not defined", r"", _DEFINED),
    (r"No module named 'torch|name 'torch' is not defined", r"", _NO_TORCH),
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
"""Rows of (pattern of the error, pattern of the code, hint). The first row that matches is used."""


def make_repetition_hint(turn: Turn, *, can_generate: bool) -> str:
    """Returns the hint after a turn that is left out; `can_generate` adds the advice to measure generated images."""
    # No object that images could show is named: a small model would make it the subject of its next experiment.
    return f"\nHint: {REPEATED if turn.reply.strip() else EMPTY}{OTHERWISE if can_generate else ''}\n"


def find_hint(turn: Turn) -> str:
    """Returns a hint about a mistake in the code of a turn; empty if none applies."""
    if not turn.raised:
        printed = any(isinstance(part, str) and _PRINTED.search(part) for part in turn.observation)
        is_shown = any(call.name == "display" for call in turn.calls)
        return f"\nHint: {DISPLAY}.\n" if printed and not is_shown else ""
    error = "".join(part for part in turn.observation[-1:] if isinstance(part, str))[-2000:]
    for in_error, in_code, advice in _HINTS:
        if re.search(in_error, error) and re.search(in_code, turn.code, re.MULTILINE):
            return f"\nHint: {advice}.\n"
    return ""
