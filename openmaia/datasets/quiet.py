"""Keeps messages about damaged files, which Pillow and libtiff write to the terminal, out of it.

Such files are counted and named by the datasets.
"""

import ctypes
import ctypes.util
import logging
from functools import cache
from pathlib import Path

import PIL


@cache
def silence() -> None:
    """Removes libtiff's handlers of messages, and keeps Pillow's log from the terminal unless the program has set up
    logging. libtiff writes to the descriptor of the process, which Python cannot redirect for one thread alone."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())
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
