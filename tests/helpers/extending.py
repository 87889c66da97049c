"""The files and commands of docs/extending.md, word by word."""

import re
import shlex
from pathlib import Path

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/extending.md").read_text()


def write(folder: Path) -> None:
    """Writes all files of the page, and a link to our configs, into a folder."""
    for _, name, text in re.findall(r'^(`{3,})\w+ title="([\w/]+\.\w+)"\n(.*?)\n\1$', PAGE, re.DOTALL | re.MULTILINE):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    (folder / "configs").symlink_to(REPOSITORY / "configs")


def commands() -> list[list[str]]:
    """The commands of the page, each as the arguments of `openmaia`."""
    return [shlex.split(line) for line in re.findall(r"^openmaia (.*)$", PAGE, re.MULTILINE)]


def together() -> list[str]:
    """The config sources of the command that uses one component of each kind."""
    return commands()[[command[-1] for command in commands()].index("name=mine")][1:]
