"""Sandboxes in which nothing has run yet, for the next investigation of the same process.

Starting one costs a tenth of a second or two of a core. An investigation that ends without an experiment, as one does
that answers in its first turn, leaves its own to the next; none of the agent's code was ever in it.
"""

import threading

from openmaia.sandbox.contract import Limits
from openmaia.sandbox.frames import Json
from openmaia.sandbox.sandbox import Sandbox


class Spares:
    """For use from several threads. keep: at most so many wait; 0 closes each when its investigation ends."""

    def __init__(self, keep: int = 0):
        self._keep = keep
        self._idle: list[Sandbox] = []
        self._lock = threading.Lock()

    def take(self, *, api_source: str, manifest: Json, limits: Limits, allow_none: bool) -> Sandbox:
        """One that waits, or a new one; the caller starts it, which does nothing where it runs already."""
        wanted = Sandbox(api_source=api_source, manifest=manifest, limits=limits, allow_none=allow_none)
        with self._lock:
            found = next((spare for spare in self._idle if spare.settings == wanted.settings), None)
            if found is not None:
                self._idle.remove(found)
        if found is not None and not found.is_untouched:  # it died while it waited
            found.close()
            return wanted
        return found or wanted

    def give_back(self, sandbox: Sandbox) -> None:
        """Closes it, unless it can serve another investigation."""
        if sandbox.is_untouched:
            with self._lock:
                if len(self._idle) < self._keep:
                    self._idle.append(sandbox)
                    return
        sandbox.close()

    def close(self) -> None:
        with self._lock:
            left, self._idle = self._idle, []
        for sandbox in left:
            sandbox.close()
