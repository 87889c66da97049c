"""A convention that no linter knows: a docstring for each public function and class."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

PACKAGES = ("openmaia", "ray_jobs")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            yield path.relative_to(REPOSITORY), ast.parse(path.read_text(encoding="utf-8"))


def test_public_functions_and_classes_have_docstrings():
    """Methods may have none: an implementer of a Protocol documents only what differs."""
    missing: list[str] = []
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _lacks(node):
                missing.append(f"{path}: {node.name}")
    assert missing == []


def _lacks(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return not node.name.startswith("_") and not ast.get_docstring(node)
