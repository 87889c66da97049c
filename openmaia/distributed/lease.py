"""Ensures that only one driver, the process that executes a run, works on a run directory at a time.

The driver holds a lease: a lock on the directory that expires unless it is renewed. A thread of the driver renews it.
"""

import threading
from _thread import interrupt_main
from collections.abc import Generator
from contextlib import contextmanager, suppress

from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.lease import LEASE_SECONDS
from openmaia.runs.run import Run


@contextmanager
def driving(run: Run) -> Generator[None]:
    """Context manager that holds the lease of a run and renews it in a thread.

    The lease is a lock on the run directory that expires unless it is renewed. It ensures that only one driver, the
    process that executes the run, works on the directory.

    Raises:
        UsageError: If another driver holds the lease at the start, or takes it over while the block runs. In the second
            case the block is interrupted.
    """
    lease = run.take_lease()
    ended = threading.Event()
    lost: list[UsageError] = []

    def renew() -> None:
        while not ended.wait(LEASE_SECONDS / 4):
            try:
                lease.renew()
            except StoreError:
                continue  # a short failure of the file system; the lease lasts for four renewal intervals
            except UsageError as error:
                lost.append(error)
                interrupt_main()
                return

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if lost:
            raise lost[0] from None
        raise
    finally:
        ended.set()
        thread.join()
        with suppress(StoreError):  # the lease also expires by itself
            lease.release()
