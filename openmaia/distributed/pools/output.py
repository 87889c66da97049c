"""Reads the output of this process and its children from Ray's log files, to which Ray redirects it."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

_MAX_BYTES = 64 * 2**10
"""Largest number of bytes that one call reads from a file. Of longer output, only the end is read."""

_RAY_MARK = re.compile(r":\w+:")
"""Matches the start of lines that Ray writes into its logs to name the actor or task."""


@dataclass(slots=True)
class OutputReader:
    """Reads what this process has written to standard output and standard error since the reader was created.

    A stream that is not redirected to a file is not read. On systems other than Linux nothing is read.
    """

    _positions: dict[Path, int] = field(default_factory=dict[Path, int])

    def __post_init__(self) -> None:
        for descriptor in (1, 2):
            path = Path(os.path.realpath(f"/proc/self/fd/{descriptor}"))
            if path.is_file():
                self._positions[path] = path.stat().st_size

    def read(self) -> list[str]:
        """Returns the lines since the last call. Of a line that was overwritten, like that of a progress bar, the last state."""
        lines: list[str] = []
        for path, position in self._positions.items():
            with path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(position, end - _MAX_BYTES))
                text = file.read(max(end - position, 0)).decode(errors="replace")
            self._positions[path] = end
            states = [line.rstrip("\r").rpartition("\r")[2].strip() for line in text.split("\n")]
            lines += [state for state in states if state and not _RAY_MARK.match(state)]
        return lines
