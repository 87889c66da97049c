"""Shared by the tests of archives."""

from pathlib import Path

import pytest

from tests.pictures.archiving import pictures


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The same pictures as plain files."""
    for name, data in pictures().items():
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / name).write_bytes(data)
    return tmp_path
