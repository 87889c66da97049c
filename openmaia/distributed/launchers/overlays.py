"""Reads kustomize folders: loads the resources of a base and applies the JSON patches of overlays.

Only the features that the folders in cluster/kuberay use are supported. Other overlays are rejected; their users have
to run `kubectl kustomize`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonpatch

from openmaia.core.documents import parse_yaml_documents
from openmaia.core.errors import UsageError

Document = dict[str, Any]

KEYS = {"apiVersion", "kind", "resources", "patches"}


def documents(base: Path, overlays: Sequence[Path]) -> list[Document]:
    """Loads the YAML documents of a kustomize base, applies the patches of overlays to them, and returns them.

    Args:
        base: The folder of the base.
        overlays: The folders of the overlays. Their patches are applied in this order.

    Raises:
        UsageError: If a folder cannot be read, uses an unsupported feature, or holds a patch that cannot be applied.
    """
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
        return parse_yaml_documents(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _patched(document: Document, changes: Any, overlay: Path) -> Document:
    try:
        return jsonpatch.apply_patch(document, changes)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise UsageError(f"the patch of {overlay} does not fit to those before it: {error}") from error
