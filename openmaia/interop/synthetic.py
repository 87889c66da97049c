"""Reads and writes synthetic units in the layout of the published MAIA data.

<root>/<label>/00.png          the unit's exemplars by rank; the label consists of the unit's concepts, joined by `_`
<root>/labels/<mode>.json      [{"label", "image_names", "activations"}], one entry per unit, from unit 0 on

The mode is "mono" for units with one concept, and "or", "and" or "andnot" for units with two. It names their layer.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from openmaia.core.services import UnitExemplars
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused

METHOD = "ground truth"


def read_truths(data: list[Any], mode: str, target: str, source: str) -> list[Label]:
    """Returns labels with the true concepts of synthetic units, by the method "ground truth".

    Args:
        data: The content of <mode>.json.
        mode: See the module.
        target: Name of the target.
        source: Name of the imported file, which is stored with each label.

    Raises:
        Refused: The list is empty, or an entry has no label.
    """
    names = [cast(dict[str, Any], entry).get("label") if isinstance(entry, dict) else None for entry in data]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Refused('is no list of synthetic units; expected [{"label": ..., "image_names": [...]}]')
    joined = {"andnot": "and not"}.get(mode, mode)
    labels = [cast(str, name).replace("_", f" {joined} ") for name in names]
    return [
        Label(method=METHOD, target=target, layer=mode, unit=index, labels=(label,), source=source)
        for index, label in enumerate(labels)
    ]


def write(root: Path, mode: str, concepts: Sequence[tuple[str, ...]], units: Sequence[UnitExemplars]) -> list[str]:
    """Writes the top exemplars of synthetic units, and replaces the files of an earlier call for the same units.

    Args:
        root: The folder to write to.
        mode: See the module.
        concepts: The concepts of each unit, from unit 0 on.
        units: The exemplars of each unit.

    Returns:
        The label of each unit, which is the name of its folder.

    Raises:
        ValueError: A concept cannot be the name of a folder, or contains `_`, which separates concepts.
    """
    entries: list[dict[str, Any]] = []
    for names, unit in zip(concepts, units, strict=True):
        label = "_".join(names)
        if Path(label).name != label or any("_" in name for name in names):
            raise ValueError(f"{label!r} is no folder name")
        top = sorted(unit.of_kind("top"), key=lambda exemplar: exemplar.rank)
        images = {f"{exemplar.rank:02d}.png": exemplar.image for exemplar in top}
        folder = root / label
        folder.mkdir(parents=True, exist_ok=True)
        for stale in set(folder.glob("[0-9][0-9].png")) - {folder / name for name in images}:
            stale.unlink()
        for name, image in images.items():
            image.pil().save(folder / name)
        entries.append({"label": label, "image_names": list(images), "activations": [e.activation for e in top]})
    (root / "labels").mkdir(exist_ok=True)
    (root / "labels" / f"{mode}.json").write_text(json.dumps(entries, indent=1), encoding="utf-8")
    return [entry["label"] for entry in entries]
