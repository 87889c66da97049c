"""The program of the sandboxed process, which runs the experiments of an investigation in one namespace.

It exchanges messages with the parent on private descriptors; the parent captures stdout and stderr. The source of this
module is sent to the process, so it may import only the standard library.

Nothing here protects the parent: the agent's code shares this interpreter, can reach all of it (`gc`, frames, ctypes)
and can use the pipes, so the parent trusts nothing that it receives. The closures only prevent the agent's code from
breaking its connection to the tools by accident.
"""

import builtins
import contextlib
import functools
import gc
import importlib
import importlib.util
import io
import os
import random
import select
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn, cast

from openmaia.agent.sandbox import frames
from openmaia.agent.sandbox.confine import confine
from openmaia.agent.sandbox.executor import execute
from openmaia.agent.sandbox.packing import PackedFinder

_EARLY = ("numpy", "numpy.random", "PIL.Image")
"""Modules that nearly every experiment imports. They are imported while the backbone writes its first reply."""

PREDEFINED = {
    **{name: name for name in ("base64", "io", "json", "math", "os", "random", "re", "statistics", "sys", "time")},
    **{"np": "numpy", "numpy": "numpy", "PIL": "PIL"},
}
"""Modules by the name that is defined for an experiment. Code for the published MAIA uses most of them without an
import."""
TYPING = ("Any", "Dict", "List", "Optional", "Tuple", "Union")

Frame = dict[str, Any]


class CallRefused(RuntimeError):
    """A tool call failed. The agent's code knows this class as `ToolError`."""


# Tracebacks show the name by which the agent can catch it.
CallRefused.__module__, CallRefused.__name__, CallRefused.__qualname__ = "builtins", "ToolError", "ToolError"


class PackageFinder:
    """Meta path finder for numpy, Pillow and scipy alone: other packages beside them stay unavailable, and no .pth file
    is executed.

    Args:
        folders: The folder of each package, by its name.
    """

    def __init__(self, folders: dict[str, str]):
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns the spec of one of the packages; None for any other module."""
        if (folder := self._folders.get(name)) is None:
            return None
        file = f"{folder}/__init__.py"
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])


def main() -> None:
    """Confines this process, prepares the namespace, and runs experiments until it is killed."""
    source, sink = _take_pipes()
    receive = _receiver(source)
    initial = receive()
    confine(**initial["confine"])
    packed = next(finder for finder in sys.meta_path if isinstance(finder, PackedFinder))
    packed.load_libraries()
    import_early(initial["packages"])
    sys.meta_path.remove(packed)
    flush = _open_text()
    state = {"open": False}
    encode = functools.partial(frames.encode, limit=initial["limit"])
    send = _sender(sink)
    namespace = _namespace(initial, _caller(encode, send, receive, flush, state))
    for name in [name for name in sys.modules if name.split(".")[0] == "openmaia"]:
        del sys.modules[name]
    _prepare_interpreter()
    send(encode({"kind": "ready"}))
    _serve(encode, send, receive, flush, state, namespace)


def import_early(packages: dict[str, str], *finders: Any) -> None:
    """Imports what is predefined for an experiment, and what nearly every experiment imports. `packages` are the
    folders of numpy, Pillow and scipy by name; only these packages can be imported from now on, and what `finders`
    find.
    """
    sys.meta_path += [cast("Any", PackageFinder(packages)), *finders]
    for name in (*PREDEFINED.values(), *_EARLY):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _serve(
    encode: Callable[[Frame], list[bytes]],
    send: Callable[[list[bytes]], None],
    receive: Callable[[], Frame],
    flush: Callable[[], None],
    state: dict[str, bool],
    namespace: dict[str, Any],
) -> None:
    out, err, active_count = sys.stdout, sys.stderr, threading.active_count
    while True:
        experiment = receive()
        state["open"] = True
        status, error = execute(experiment["code"], experiment["number"], namespace)
        state["open"] = False
        sys.stdout, sys.stderr = out, err  # the agent may have replaced them
        flush()
        done = {"kind": "done", "number": experiment["number"], "status": status, "error": error}
        send(encode({**done, "threads": active_count()}))


def _take_pipes() -> tuple[int, int]:
    """Moves the pipes of the messages from stdin and stdout to other descriptors, and returns these (to read, to
    write).
    """
    source, sink = os.dup(0), os.dup(1)
    empty, writer = os.pipe()
    os.close(writer)
    os.dup2(empty, 0)
    os.close(empty)
    # Output of C code is captured too.
    os.dup2(2, 1)
    return source, sink


def _open_text() -> Callable[[], None]:
    buffer = io.BufferedWriter(io.FileIO(1, "wb", closefd=False))

    def stream() -> io.TextIOWrapper:
        return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True, write_through=True)

    out, err = stream(), stream()
    sys.stdin = io.TextIOWrapper(io.FileIO(0, "rb", closefd=False))
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err

    def flush() -> None:
        for each in (sys.stdout, sys.stderr, out, err):
            with contextlib.suppress(Exception):  # the agent closed or replaced it and loses its output
                each.flush()

    return flush


def _receiver(fd: int) -> Callable[[], Frame]:
    readv, read = os.readv, os.read
    parse_prefix, decode, prefix_size = frames.parse_prefix, frames.decode, frames.PREFIX.size

    def exactly(size: int) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            while size > 0:  # skip the frame: this is the agent's error and must not end the process
                size -= len(read(fd, min(size, 65536))) or _stop(0)
            raise
        view, done = memoryview(data), 0
        while done < size:
            done += readv(fd, [view[done:]]) or _stop(0)
        return data

    def receive() -> Frame:
        json_size, blob_size = parse_prefix(exactly(prefix_size))
        body = exactly(json_size + blob_size)  # in one piece, so that a MemoryError leaves no half frame unread
        return cast("Frame", decode(bytes(body[:json_size]), memoryview(body)[json_size:]))

    return receive


def _sender(fd: int) -> Callable[[list[bytes]], None]:
    write = os.write

    def send(buffers: list[bytes]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                view = view[write(fd, view) :]

    return send


def _stop(code: int) -> NoReturn:
    os._exit(code)


def _caller(
    encode: Callable[[Frame], list[bytes]],
    send: Callable[[list[bytes]], None],
    receive: Callable[[], Frame],
    flush: Callable[[], None],
    state: Mapping[str, bool],
) -> Callable[..., Any]:
    main_thread, process = threading.get_ident(), os.getpid()
    get_ident, getpid, lock = threading.get_ident, os.getpid, threading.Lock()
    bad_frame = frames.FrameError

    def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
        if not state["open"] or get_ident() != main_thread or getpid() != process or not lock.acquire(blocking=False):
            raise RuntimeError("tools can only be called from the experiment's main thread, while it runs")
        try:
            flush()
            try:
                buffers = encode({"kind": "call", "name": name, "args": args, "kwargs": kwargs})
            except bad_frame as error:
                raise ValueError(str(error)) from None
            try:
                send(buffers)
                reply = receive()
            except (MemoryError, bad_frame):
                raise  # a whole frame was read; the next frame can be read
            except BaseException:
                _stop(70)  # half a frame may have been sent, so that the parent could not read the next one
        finally:
            lock.release()
        if "error" in reply:
            raise CallRefused(reply["error"])
        return reply["result"]

    return call


def _namespace(initial: Frame, call: Callable[..., Any]) -> dict[str, Any]:
    api = types.ModuleType("openmaia_api")
    sys.modules["openmaia_api"] = api
    exec(compile(initial["api_source"], "<openmaia_api>", "exec", dont_inherit=True), api.__dict__)
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module  # classes of the agent's code find their module
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)  # -S leaves out `site`, which defines them
    namespace = main_module.__dict__
    namespace.update({"__builtins__": builtins, "ToolError": CallRefused})
    for name, module in PREDEFINED.items():
        with contextlib.suppress(ImportError):
            namespace[name] = importlib.import_module(module)
    namespace.update({name: getattr(typing, name) for name in TYPING})
    namespace.update(api.build(call, initial["manifest"]))
    return namespace


def _sleep(seconds: float, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


def _prepare_interpreter() -> None:
    random.seed(0)
    time.sleep = _sleep  # the real one waits until a time, which sandlock's fixed clock shifts by years
    if "numpy" in sys.modules:
        cast("Any", sys.modules["numpy"]).random.seed(0)
    gc.freeze()  # what was imported stays, so that the collector, which is switched off until here, need not look at it
    gc.enable()
