"""Published files, written by hand as their authors lay them out: few units, three exemplars, 32 x 32 pixels."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.images import EncodedImage

UNITS, K, SIDE = 3, 3, 32
ACTIVATIONS = np.array([[9.5, 8.25, 7.0], [3.0, 2.5, 2.5], [0.75, 0.5, 0.25]])
THRESHOLDS = np.array([4.0, 1.0, 0.125])


def images(units: int = UNITS, k: int = K) -> npt.NDArray[np.uint8]:
    """(units, k, height, width, 3)"""
    return np.random.default_rng(0).integers(0, 256, (units, k, SIDE, SIDE, 3), dtype=np.uint8)


def masks(units: int = UNITS, k: int = K) -> npt.NDArray[np.bool_]:
    """(units, k, height, width): a rectangle of its own for each exemplar."""
    found = np.zeros((units, k, SIDE, SIDE), dtype=np.bool_)
    for unit in range(units):
        for rank in range(k):
            found[unit, rank, 4 + unit : 14 + rank, 6 + rank : 20 + 2 * unit] = True
    return found


def layer(folder: Path, **changes: Any) -> Path:
    """A real network's layer. changes: arrays by file name without ending; None leaves the file out."""
    content: dict[str, Any] = {
        "images": images().transpose(0, 1, 4, 2, 3),
        "masks": masks()[:, :, None].astype(np.uint8),
        "activations": ACTIVATIONS,
        "thresholds": THRESHOLDS,
        **changes,
    }
    folder.mkdir(parents=True)
    for name, data in content.items():
        if data is None:
            continue
        if name in ("images", "masks", "units"):
            np.save(folder / f"{name}.npy", data)
        else:
            np.savetxt(folder / f"{name}.csv", data, delimiter=",", fmt="%.5e")
    return folder


def synthetic_layer(folder: Path, **changes: Any) -> Path:
    """Channels last, masks up to 255 and three times over, no thresholds."""
    grey = np.repeat(masks()[..., None].astype(np.uint8) * 255, 3, axis=-1)
    content = {"images": images(), "masks": grey, "activations": ACTIVATIONS / 10, "thresholds": None}
    return layer(folder, **(content | changes))


def png(seed: int = 0) -> EncodedImage:
    return EncodedImage.of(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8))


def address(image: EncodedImage) -> str:
    """As published: PNG data that claims to be JPEG."""
    return f"data:image/jpeg;base64,{base64.b64encode(image.data).decode()}"


ANSWER = """Enough seen.

[DESCRIPTION]: a first thought
[DESCRIPTION]:
The unit fires for bow ties,
worn around a neck.

**[LABEL 1]:** bow ties
[LABEL 2]: neckwear"""


def history(answer: str = ANSWER) -> list[dict[str, Any]]:
    def said(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "content": list(parts)}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    image = {"type": "image_url", "image_url": {"url": address(png())}}
    return [
        said("system", text("the instruments; end with [DESCRIPTION]: and [LABEL]:")),
        said("user", text("describe the unit")),
        said("assistant", text("[CODE]:\n```python\nif a < b: tools.display(x)\n```")),
        said("user", text("activation 9.5"), image),
        said("assistant", text(answer)),
    ]


def page(messages: list[dict[str, Any]]) -> str:
    """The same conversation as the published page shows it: unescaped."""
    said = ["<html><head><title>Experiment Log</title></head><body><h1>results</h1>"]
    for message in messages:
        if message["role"] == "assistant":
            said.append(f"<h2>MAIA</h2><pre>{message['content'][0]['text']}</pre><br><h2>Experiment Execution</h2>")
            continue
        for part in message["content"]:
            shown = part["type"] == "image_url"
            said.append(f'<img src="{part["image_url"]["url"]}"/>' if shown else f"<pre>{part['text']}</pre>")
    return "".join([*said, "</body></html>"])


SCORES = {
    "average_positive_score": 8.0,
    "average_negative_score": 1.5,
    "positive_prompts": ["a bow tie", "a man in a bow tie"],
    "negative_prompts": ["a lake", "a wall"],
    "positive_scores": [7.0, 9.0],
    "negative_scores": [1.0, 2.0],
}


def result(folder: Path, **changes: Any) -> Path:
    """A unit's folder. changes: by file name with `_` for the dot; None leaves the file out."""
    content: dict[str, Any] = {
        "history_json": json.dumps(history()),
        "experiment_html": page(history()),
        "description_txt": "The unit fires for bow ties,",
        "eval_results_json": json.dumps(SCORES),
        **changes,
    }
    folder.mkdir(parents=True)
    for name, data in content.items():
        if data is not None:
            (folder / ".".join(name.rsplit("_", 1))).write_text(data)
    return folder


def prompts(root: Path) -> Path:
    """Prompts for two agents. As published, `final.txt` is in the folder `open` alone."""
    texts = {
        "claude/api.txt": "the instruments of claude {x}",
        "claude/user_neuron_description.txt": "describe the unit (claude)",
        "open/api.txt": "the instruments of open",
        "open/user_neuron_description.txt": "describe the unit (open)",
        "open/user_bias.txt": "look for biases",
        "open/final.txt": "answer now",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
