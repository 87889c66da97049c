"""The page about the architecture names what is there."""

import re

import pytest

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs/concepts/architecture.md"
PACKAGES = sorted(path.parent.name for path in REPOSITORY.glob("openmaia/*/__init__.py"))


def test_each_path_on_the_page_exists():
    named = set(re.findall(r"`((?:openmaia|configs|ray_jobs)/[\w./-]+)`", PAGE.read_text()))
    assert len(named) > 30
    assert not [path for path in named if not (REPOSITORY / path).exists()]


@pytest.mark.parametrize("package", [*PACKAGES, "ray_jobs"])
def test_each_package_is_in_the_picture(package: str):
    assert f">{package}</text>" in PAGE.with_suffix(".svg").read_text()
