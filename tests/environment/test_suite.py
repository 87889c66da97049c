"""What the suite, the lock files and the names promise: skips are seen in CI, what is installed is pinned with its hash, and
a type has one home.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "code"), [pytest.param("", 0, marks=pytest.mark.nightly), ("true", 1)])
def test_skip_of_an_end_to_end_test_fails_in_ci_only(tmp_path: Path, ci: str, code: int):
    (tmp_path / "chromium").mkdir()  # a PATH without the program
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    command = [sys.executable, "-m", "pytest", "tests/reporting/test_browser.py", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, done.stdout
    assert "no chromium on this machine" in done.stdout


@pytest.mark.parametrize("name", ["demo.lock", "cluster/requirements.lock"])
def test_locked_package_has_a_version_and_a_hash(name: str):
    text = re.sub(r"\\\n", " ", (REPOSITORY / name).read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "--"))]
    assert lines
    for line in lines:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?==[^\s;]+", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), line


def test_locked_versions_are_those_that_the_project_allows():
    text = (REPOSITORY / "cluster/requirements.lock").read_text()
    locked = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+).*?==([^\s;]+)", text, re.M)}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"--extra (\w+)", text)
    assert {"gpu", "api", "quantized"} <= {*extras}
    for each in [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]:
        wanted = Requirement(each)
        assert locked[canonicalize_name(wanted.name)] in wanted.specifier, each


def type_names(path: Path) -> Iterator[str]:
    """The classes and type aliases at the top level of a module. Constants are in capitals."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
                yield target.id


def test_no_type_name_is_defined_twice():
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for package in ("openmaia", "ray_jobs"):
        for path in (REPOSITORY / package).rglob("*.py"):
            for name in type_names(path):
                homes[name].append(str(path.relative_to(REPOSITORY)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
