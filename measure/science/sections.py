"""The sections of RESULTS.md that parts of the measurement write."""

import re
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def read(heading: str) -> str:
    """The section below a heading of the second level, up to the next one."""
    return _section(heading)[0]


def write(heading: str, body: str) -> None:
    """Replaces the section below a heading."""
    section = _section(heading)
    text = RESULTS.read_text()
    RESULTS.write_text(f"{text[: section.start()]}\n{body}\n{text[section.end() :]}")


def _section(heading: str) -> re.Match[str]:
    found = re.search(rf"(?<=^## {re.escape(heading)}\n).*?(?=^## |\Z)", RESULTS.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"RESULTS.md has no section {heading!r}"
    return found
