"""Tests several descriptions at the same time, whose questions to a language model are sent in batches."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

ItemT = TypeVar("ItemT")
OutcomeT = TypeVar("OutcomeT")
GuardedT = TypeVar("GuardedT")


def one_at_a_time(service: GuardedT, lock: threading.Lock) -> GuardedT:
    """Wraps a service of this process, whose methods must not run at the same time."""
    guarded = _GuardedLocating if hasattr(service, "locate") else _Guarded
    return cast(GuardedT, guarded(service, lock))


class _Guarded:
    def __init__(self, service: Any, lock: threading.Lock):
        self._service, self._lock = service, lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            with self._lock:
                return found(*args, **named)

        return call


class _GuardedLocating(_Guarded):
    # From Python 3.12 on, isinstance(judge, LocatingJudge) does not see what __getattr__ finds.
    def locate(self, *args: Any) -> Any:
        return self.__getattr__("locate")(*args)


def each_at_once(
    work: Callable[[ItemT], OutcomeT], items: Sequence[ItemT], at_once: int
) -> Iterator[tuple[ItemT, OutcomeT]]:
    """Yields (item, result), as they end. Raises the first exception when the others under way have ended.

    The threads are daemons, so that a command that is stopped does not wait for what may take a day.
    """
    if at_once <= 1:
        yield from ((item, work(item)) for item in items)
        return
    waiting: queue.SimpleQueue[ItemT] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[ItemT, OutcomeT | None, BaseException | None]] = queue.SimpleQueue()
    failed = threading.Event()
    for item in items:
        waiting.put(item)

    def run() -> None:
        while not failed.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                ended.put((item, work(item), None))
            except BaseException as error:
                failed.set()
                ended.put((item, None, error))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(at_once, len(items)))]
    for thread in threads:
        thread.start()
    first: BaseException | None = None
    try:
        while any(thread.is_alive() for thread in threads) or not ended.empty():
            try:
                item, result, error = ended.get(timeout=0.2)
            except queue.Empty:
                continue
            if error is None:
                yield item, cast(OutcomeT, result)
            first = first or error
    finally:
        failed.set()  # the caller was stopped: nothing further begins
    if first is not None:
        raise first
