"""The template of this process's supervisors, which starts with its first sandbox and ends with this process."""

import atexit
import contextlib
import importlib.util
import os
import socket
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from openmaia.agent.sandbox import policy

_END_SECONDS = 5.0


class Template:
    """A process that forks a supervisor for each sandbox (see `supervisor.py`). `script` is the source of its program."""

    def __init__(self, script: str):
        ours, theirs = socket.socketpair()
        spec = importlib.util.find_spec("sandlock")
        packages = str(Path(spec.origin).resolve().parents[1]) if spec and spec.origin else ""
        with theirs:
            self._process = subprocess.Popen(
                [policy.find_python(), *policy.FLAGS, "-c", script, str(theirs.fileno()), packages],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                # sandlock asks for the home folder when it is imported.
                env=policy.ENVIRONMENT | {"HOME": "/"}, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self._socket = ours

    def hand_over(self, descriptors: Iterable[int]) -> None:
        """Has a supervisor forked that gets copies of these descriptors. Raises OSError if the template has ended."""
        socket.send_fds(self._socket, [b"\0"], list(descriptors))

    def close(self) -> None:
        """Lets go of the template without waiting for its end."""
        self._socket.close()

    def has_ended(self) -> bool:
        """Returns whether the process has ended. One that was killed just now gets a moment for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        return self._process.returncode is not None

    def end(self) -> str:
        """Ends the template and with it the sandboxes that it started. Returns what it printed."""
        self.close()
        try:
            text = self._process.communicate(timeout=_END_SECONDS)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            text = self._process.communicate()[1]
        return text[-20_000:].decode(errors="replace")


_lock = threading.Lock()
_current: Template | None = None
_running: list[Template] = []
"""The current one, and those that start no other sandboxes. Those that they started may still be in use."""


def hand_over(script: str, descriptors: Iterable[int]) -> Template:
    """Has the template of this process, which is started if there is none, fork a supervisor that gets copies of
    these descriptors. Returns the template. One that ends at once has forked nothing: no supervisor answers.
    """
    global _current
    with _lock:
        if _current is not None:
            try:
                _current.hand_over(descriptors)
                return _current
            except ConnectionError:  # it was killed
                # Forgotten first: another one may not start, for want of memory or descriptors.
                ended, _current = _current, None
                _running.remove(ended)
                ended.end()
        _current = Template(script)
        _running.append(_current)
        with contextlib.suppress(ConnectionError):
            _current.hand_over(descriptors)
        return _current


def leave(template: Template) -> str:
    """Has other sandboxes started by another template than one that did not answer. The sandboxes that it started go on,
    unless it has ended; then returns what it printed.
    """
    global _current
    with _lock:
        if _current is template:
            _current = None
        if not template.has_ended():
            return ""
        if template in _running:
            _running.remove(template)
    return template.end()


def end() -> None:
    """Ends the templates of this process and with them its sandboxes. The next sandbox starts another one."""
    global _current
    with _lock:
        templates, _current = [*_running], None
        _running.clear()
    for template in templates:
        template.end()


def _forget() -> None:
    """Leaves the template to the process that this one was forked from. A copy of its socket would keep it alive."""
    global _current, _lock
    _current, _lock = None, threading.Lock()
    for template in _running:
        with contextlib.suppress(OSError):
            template.close()
    _running.clear()


atexit.register(end)
os.register_at_fork(after_in_child=_forget)
