"""Keeps messages of Pillow and libtiff about damaged files, which datasets count and name, out of the terminal."""

import ctypes
import ctypes.util
import logging
from functools import cache
from pathlib import Path

import PIL


@cache
def silence() -> None:
    """Removes libtiff's handlers of messages, and silences Pillow's log unless the program has set up logging."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    # libtiff writes to the descriptor of the process, which Python cannot redirect for one thread alone.
    package = Path(PIL.__file__).parent
    bundled = [*package.parent.glob("pillow.libs/libtiff*"), *package.glob(".dylibs/libtiff*")]
    for name in bundled or filter(None, [ctypes.util.find_library("tiff")]):
        try:
            library = ctypes.CDLL(str(name))
            for handler in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
                function = library[handler]
                function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
                function(None)
        except (OSError, AttributeError):
            continue  # another build of libtiff: its messages stay
