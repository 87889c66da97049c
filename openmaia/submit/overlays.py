"""The documents of a folder of cluster/kuberay as kustomize would give them: resources, with JSON patches applied.

Only what our own files use is known here, and everything else is refused: an overlay of yours that needs more goes through
`kubectl kustomize`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from openmaia.errors import UsageError

Document = dict[str, Any]

KEYS = {"apiVersion", "kind", "resources", "patches"}


def documents(base: Path, overlays: Sequence[Path]) -> list[Document]:
    """Those of the base, with the patches of each overlay one after the other. Raises UsageError for what is not known."""
    found = [document for name in _read(base).get("resources", []) for document in _load(base / name)]
    for overlay in overlays:
        for patch in _read(overlay).get("patches", []):
            changes: Any = _load(overlay / patch["path"])[0]
            kind = patch["target"]["kind"]
            found = [_patched(each, changes, overlay) if each["kind"] == kind else each for each in found]
    return found


def _read(folder: Path) -> Document:
    path = folder / "kustomization.yaml"
    if not path.is_file():
        raise UsageError(f"--overlay: {folder} has no kustomization.yaml; give cpu, pools, … or a folder of your own")
    loaded: Document = _load(path)[0]
    patches = loaded.get("patches", [])
    if set(loaded) - KEYS or any(
        set(each) != {"path", "target"} or set(each["target"]) != {"kind"} for each in patches
    ):
        raise UsageError(f"{path}: more than resources and patches of one kind each; use kubectl kustomize for it")
    return loaded


def _load(path: Path) -> list[Any]:
    try:
        return list(yaml.safe_load_all(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _patched(document: Document, changes: Any, overlay: Path) -> Document:
    try:
        return jsonpatch.apply_patch(document, changes)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise UsageError(f"the patch of {overlay} does not fit to those before it: {error}") from error
