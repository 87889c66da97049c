"""Commands in the process of the test."""

import re
import time

from typer.testing import CliRunner

from openmaia.cli.main import app
from openmaia.core.errors import OpenMaiaError, UsageError

SECONDS = 15.0
"""Longest processor time of a refusal, in which torch may be imported; the clock depends on what else the machine does."""


def refused(*arguments: str) -> str:
    """Returns the only message of a command that has to be refused as the user's mistake."""
    began = time.thread_time()
    result = CliRunner().invoke(app, arguments)
    assert time.thread_time() - began < SECONDS
    assert "Traceback" not in result.output
    if isinstance(result.exception, OpenMaiaError):
        assert isinstance(result.exception, UsageError), result.exception
        return result.exception.message
    assert result.exit_code == 2, (result.exception, result.output)
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())


def output(*arguments: str) -> str:
    """Returns what a command prints that succeeds."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output
