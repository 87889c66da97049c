"""Writes the reference of all commands from what Typer knows of them."""

import re

import typer
from typer.cli import get_docs_for_click

from openmaia.cli.main import app

HEAD = """# Commands

All commands with their arguments and options. The page is generated from the program itself; `openmaia COMMAND --help` prints
the same.

Exit codes: 0 all done, 1 some investigations failed, 2 a mistake in what was given, 3 stopped by a signal.
"""


def render() -> str:
    """Returns the page as Markdown, with a heading for each command."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="openmaia")
    text = text.partition("**Commands**:")[2].partition("\n## ")[2]  # the list of all commands is the table of contents
    text = re.sub(r"^(#+) `(.*)`$", _heading, "## " + text, flags=re.MULTILINE)
    text = re.sub(r"^Example: (.*)$", r"```\n\1\n```", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*Usage\*\*:\n\n```console\n\$ (.*)\n```\n", r"**Usage:** `\1`\n", text, flags=re.MULTILINE)
    text = re.sub(r" <(?:list\[)?\w+\]?>`", "`", text)  # the types of values
    return HEAD + "\n" + re.sub(r"^\* `--help`: .*\n", "", text, flags=re.MULTILINE)


def _heading(match: re.Match[str]) -> str:
    words = match[2].split()
    return f"{match[1]} `{match[2]}` {{ #{'-'.join(words[1:])} }}"
