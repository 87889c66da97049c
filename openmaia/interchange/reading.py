"""Published files as plain data, bounded before they are read, and one way of saying why a file is not taken."""

import csv
import io
import json
from pathlib import Path
from tokenize import TokenError
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from openmaia.errors import OpenMaiaError

JSON_BYTES = 256_000_000
CSV_BYTES = 64_000_000
"""The largest published history has 3 MB, the largest table half a megabyte."""

_NOT_AN_ARRAY = (
    OSError, EOFError, ValueError, TypeError, KeyError, ArithmeticError, SyntaxError, TokenError, MemoryError, RecursionError,
)  # fmt: skip
"""What numpy raises on a damaged or hostile header."""


class Refused(OpenMaiaError):
    """A file that is not taken; the message says why, in words that follow its path."""


def text(path: Path, limit: int) -> str:
    _check_file(path)
    try:
        size = path.stat().st_size
        if size > limit:
            raise Refused(f"has {size:,} bytes, and at most {limit:,} are read")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Refused(f"cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise Refused("is no UTF-8 text") from error


def json_data(path: Path) -> Any:
    said = text(path, JSON_BYTES)
    try:
        return json.loads(said)
    except ValueError as error:
        raise Refused(f"is no JSON ({error})") from error
    except RecursionError as error:
        raise Refused("is nested too deeply") from error


def records(path: Path) -> list[dict[str, str]]:
    """The rows of a table by its header; cells that a short row lacks are empty."""
    reader = csv.DictReader(io.StringIO(text(path, CSV_BYTES), newline=""), restval="")
    try:
        return [{key: value for key, value in row.items() if isinstance(value, str)} for row in reader]
    except csv.Error as error:
        raise Refused(f"is no table ({error})") from error


def header(path: Path) -> tuple[str, ...]:
    """Names of the columns. Reads the whole file, which is bounded."""
    try:
        return tuple(next(csv.reader(io.StringIO(text(path, CSV_BYTES), newline="")), ()))
    except csv.Error as error:
        raise Refused(f"is no table ({error})") from error


def numbers(path: Path) -> npt.NDArray[np.float64]:
    """(lines, numbers per line)"""
    said = text(path, CSV_BYTES)
    if not said.strip():
        raise Refused("is empty")
    try:
        return np.loadtxt(io.StringIO(said), delimiter=",", ndmin=2, dtype=np.float64, comments=None)
    except ValueError as error:
        raise Refused(f"is no table of numbers ({error})") from error


def array(path: Path) -> npt.NDArray[Any]:
    """Mapped into memory: what is not asked for is not read. A pickle is never loaded."""
    _check_file(path)
    try:
        with np.errstate(over="raise"):
            found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except _NOT_AN_ARRAY as error:
        raise Refused(f"is no NumPy array, or one that is not whole ({error})") from error
    if not isinstance(found, np.ndarray):
        raise Refused("is an archive of arrays; one array (.npy) was expected")
    return cast("npt.NDArray[Any]", found)


def _check_file(path: Path) -> None:
    """A pipe or a device could keep a reader for ever."""
    if not path.is_file():
        raise Refused("cannot be read (there is no such file)" if not path.exists() else "is no ordinary file")
