"""Reads files that other projects published as plain data, with limits on their size."""

import io
from pathlib import Path
from tokenize import TokenError
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from openmaia.core import tables
from openmaia.core.documents import parse_json
from openmaia.core.errors import OpenMaiaError

_JSON_BYTES = 256_000_000
"""Maximum size of a JSON or text file. The largest history.json of a published MAIA investigation has 3 MB."""

_CSV_BYTES = 64_000_000
"""Maximum size of a CSV file. The largest table that the supported projects published has 0.5 MB."""

_ARRAY_ERRORS = (
    OSError, EOFError, ValueError, TypeError, KeyError, ArithmeticError, SyntaxError, TokenError, MemoryError, RecursionError,
)  # fmt: skip
"""What numpy raises for an array file with a damaged or malicious header."""


class Refused(OpenMaiaError):
    """Raised for a file that cannot be imported. The message continues a sentence that begins with the file's path."""


def read_text(path: Path, limit: int = _JSON_BYTES) -> str:
    """Reads a text file of at most `limit` bytes, in UTF-8 or in UTF-16 with a byte order mark.

    Raises:
        Refused: The file is missing, too large, of another encoding, or not a regular file.
    """
    try:
        return tables.decode(_bytes(path, limit))
    except tables.UnreadableTable as error:
        raise Refused(error.message) from error


def _bytes(path: Path, limit: int) -> bytes:
    _check_regular(path)
    try:
        size = path.stat().st_size
        if size > limit:
            raise Refused(f"has {size:,} bytes, and at most {limit:,} are read")
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"cannot be read ({error.strerror or error})") from error


def read_json(path: Path) -> Any:
    """Returns the value in a JSON file. Raises Refused if the file cannot be read or parsed."""
    content = read_text(path)
    try:
        return parse_json(content)
    except ValueError as error:
        raise Refused(f"is not JSON ({error})") from error


def read_table(path: Path) -> tables.Table:
    """Reads a table with a header, see `core.tables.read`. Raises Refused if that is not possible."""
    try:
        return tables.read(_bytes(path, _CSV_BYTES))
    except tables.UnreadableTable as error:
        raise Refused(error.message) from error


def read_numbers(path: Path) -> npt.NDArray[np.float64]:
    """Returns the numbers in a CSV file without a header, shape (lines, numbers per line).

    Raises:
        Refused: The file is empty or cannot be read as a table of numbers.
    """
    content = read_text(path, _CSV_BYTES)
    if not content.strip():
        raise Refused("is empty")
    try:
        return np.loadtxt(io.StringIO(content), delimiter=",", ndmin=2, dtype=np.float64, comments=None)
    except ValueError as error:
        raise Refused(f"is no table of numbers ({error})") from error


def read_array(path: Path) -> npt.NDArray[Any]:
    """Returns the array in a .npy file, memory-mapped. Nothing is unpickled.

    Raises:
        Refused: The file is missing or does not hold a complete array.
    """
    _check_regular(path)
    try:
        with np.errstate(over="raise"):
            loaded: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except _ARRAY_ERRORS as error:
        raise Refused(f"is no NumPy array, or an incomplete one ({error})") from error
    if not isinstance(loaded, np.ndarray):
        raise Refused("is an archive of arrays; expected one array (.npy)")
    return cast("npt.NDArray[Any]", loaded)


def _check_regular(path: Path) -> None:
    # Reading a pipe could block forever.
    if not path.is_file():
        raise Refused("cannot be read (there is no such file)" if not path.exists() else "is no regular file")
