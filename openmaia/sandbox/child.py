"""The sandboxed process: frames on private descriptors, captured text on 1 and 2, one namespace. Stdlib only.

Nothing here protects the parent: the agent's code shares this interpreter and can reach all of it (`gc`, frames,
ctypes). What it finds is two ends of pipes, behind which the parent believes nothing. The closures only keep the agent
from breaking its own proxies by accident.
"""

import builtins
import contextlib
import importlib
import io
import os
import random
import select
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from openmaia.sandbox import frames
from openmaia.sandbox.confine import confine
from openmaia.sandbox.executor import execute
from openmaia.sandbox.imports import EARLY, HandedOver, Packages

Message = dict[str, Any]


class ToolError(RuntimeError):
    """A tool was called wrongly."""


ToolError.__module__ = "builtins"  # so that tracebacks name it the way the agent can


def main(handed_over: HandedOver) -> None:
    source, sink = _take_pipes()
    receive = _receiver(source)
    initial = receive()
    confine(**initial["confine"])
    sys.meta_path.append(cast("Any", Packages(initial["packages"])))
    flush = _open_text()
    state = {"open": False}
    send = _sender(sink, initial["limit"])
    namespace = _namespace(initial, _caller(send, receive, flush, state))
    for name in [name for name in sys.modules if name.split(".")[0] == "openmaia"]:
        del sys.modules[name]
    _seed()
    handed_over.end()
    send({"kind": "ready"})
    _serve(send, receive, flush, state, namespace)


def _serve(
    send: Callable[[Message], None],
    receive: Callable[[], Message],
    flush: Callable[[], None],
    state: dict[str, bool],
    namespace: dict[str, Any],
) -> None:
    out, err, active_count = sys.stdout, sys.stderr, threading.active_count
    while True:
        order = receive()
        state["open"] = True
        status, error = execute(order["code"], order["number"], namespace)
        state["open"] = False
        sys.stdout, sys.stderr = out, err  # the agent may have replaced them
        flush()
        done = {"kind": "done", "number": order["number"], "status": status, "error": error}
        send({**done, "threads": active_count()})


def _take_pipes() -> tuple[int, int]:
    """Frames move to private descriptors; 0 becomes empty, 1 joins 2, so that output from C code is captured too."""
    source, sink = os.dup(0), os.dup(1)
    empty, writer = os.pipe()
    os.close(writer)
    os.dup2(empty, 0)
    os.close(empty)
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
            with contextlib.suppress(Exception):  # closed or replaced by the agent: its own loss
                each.flush()

    return flush


def _receiver(fd: int) -> Callable[[], Message]:
    readv, read = os.readv, os.read

    def exactly(size: int) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            while size > 0:  # keep the stream in step: this is the agent's error, not the end of the process
                size -= len(read(fd, min(size, 65536))) or _stop(0)
            raise
        view, done = memoryview(data), 0
        while done < size:
            done += readv(fd, [view[done:]]) or _stop(0)
        return data

    def receive() -> Message:
        json_size, count = frames.parse_prefix(exactly(frames.PREFIX.size))
        sizes = frames.parse_lengths(exactly(frames.LENGTH.size * count), 0, count)
        body = exactly(json_size + sum(sizes))  # in one piece: a MemoryError must not leave half a frame unread
        parts: list[bytes] = []
        start = 0
        for size in (json_size, *sizes):
            parts.append(bytes(body[start : start + size]))
            start += size
        return cast("Message", frames.decode(parts[0], parts[1:]))

    return receive


def _sender(fd: int, limit: int) -> Callable[[Message], None]:
    encode, write = frames.encode, os.write

    def send(message: Message) -> None:
        for buffer in encode(message, limit):
            view = memoryview(buffer)
            while view:
                view = view[write(fd, view) :]

    return send


def _stop(code: int) -> NoReturn:
    os._exit(code)


def _caller(
    send: Callable[[Message], None],
    receive: Callable[[], Message],
    flush: Callable[[], None],
    state: Mapping[str, bool],
) -> Callable[..., Any]:
    home, process = threading.get_ident(), os.getpid()
    get_ident, getpid, lock = threading.get_ident, os.getpid, threading.Lock()
    bad_frame = frames.FrameError

    def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
        if not state["open"] or get_ident() != home or getpid() != process or not lock.acquire(blocking=False):
            raise RuntimeError("tools can only be called from the experiment's main thread, while it runs")
        try:
            flush()
            send({"kind": "call", "name": name, "args": args, "kwargs": kwargs})
            reply = receive()
        except bad_frame as error:
            raise ValueError(str(error)) from None  # nothing was sent
        except (MemoryError, TypeError):
            raise  # nothing was sent, or a whole frame was read: the stream is in step
        except BaseException:
            _stop(70)  # half a frame may be on its way; nothing after it could be trusted
        finally:
            lock.release()
        if "error" in reply:
            raise ToolError(reply["error"])
        return reply["result"]

    return call


def _namespace(initial: Message, call: Callable[..., Any]) -> dict[str, Any]:
    api = types.ModuleType("openmaia_api")
    sys.modules["openmaia_api"] = api
    exec(compile(initial["api_source"], "<openmaia_api>", "exec", dont_inherit=True), api.__dict__)
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module  # classes of the agent's code find their module
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)  # `site` would define them
    namespace = main_module.__dict__
    namespace.update({"__builtins__": builtins, "ToolError": ToolError})
    namespace.update(api.build(call, initial["manifest"]))
    return namespace


def _sleep(seconds: float, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


def _seed() -> None:
    """Imports while nobody waits, and fixes the seeds."""
    random.seed(0)
    time.sleep = _sleep  # sandlock's fixed clock shifts the deadline of the real one by years; select's is relative
    for name in EARLY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "numpy" in sys.modules:
        cast("Any", sys.modules["numpy"]).random.seed(0)
