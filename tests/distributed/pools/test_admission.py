"""How many requests and bytes may be inside a pool, and in which order callers are admitted."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from openmaia.distributed.pools.dispatch.queueing import AdmissionControl


def in_a_loop(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


async def waiting(control: AdmissionControl, *callers: tuple[str, int, int]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(control.admit(*caller)) for caller in callers]
    await asyncio.sleep(0)
    return tasks


def test_admission_bounds_requests():
    async def story() -> None:
        control = AdmissionControl(10, 10**9)
        await control.admit("a", 6, 1)
        (late,) = await waiting(control, ("b", 5, 1))
        assert not late.done() and control.outside == 5
        await control.enter("a", 6, 1)
        control.free(6, 1)
        await late

    in_a_loop(story())


def test_admission_bounds_bytes():
    async def story() -> None:
        control = AdmissionControl(1000, 100)
        await control.admit("a", 1, 80)
        (late,) = await waiting(control, ("b", 1, 30))
        assert not late.done()
        control.free(1, 80)
        await late
        assert control.inside == (1, 30)

    in_a_loop(story())


def test_admission_keeps_the_order_of_callers():
    async def story() -> None:
        control = AdmissionControl(10, 10**9)
        await control.admit("a", 10, 0)
        large, small = await waiting(control, ("large", 8, 0), ("small", 1, 0))
        control.free(4, 0)
        await asyncio.sleep(0)
        assert not large.done() and not small.done(), "the small one does not overtake"
        control.free(4, 0)
        await large
        assert not small.done()
        control.free(2, 0)
        await small

    in_a_loop(story())


def test_admission_of_a_call_larger_than_the_bounds_happens_alone():
    async def story() -> None:
        control = AdmissionControl(4, 10)
        await control.admit("a", 9, 99)
        (late,) = await waiting(control, ("b", 1, 1))
        assert not late.done()
        control.free(9, 99)
        await late

    in_a_loop(story())


def test_admission_room_of_a_cancelled_caller_is_free_again():
    async def story() -> None:
        control = AdmissionControl(4, 10**9)
        await control.admit("a", 4, 0)
        first, second = await waiting(control, ("b", 4, 0), ("c", 4, 0))
        first.cancel()
        await asyncio.sleep(0)
        control.free(4, 0)
        await second
        assert control.inside == (4, 0) and control.outside == 0

    in_a_loop(story())


def test_admission_forgets_a_caller_that_left():
    async def story() -> None:
        control = AdmissionControl(4, 10**9)
        await control.admit("a", 4, 0)
        (b,) = await waiting(control, ("b", 2, 0))
        control.leave("a")
        await b
        assert control.inside == (2, 0)
        control.leave("b")
        assert control.inside == (0, 0)

    in_a_loop(story())


def test_admission_of_calls_without_a_reservation_waits_for_room():
    async def story() -> None:
        control = AdmissionControl(4, 10**9)
        await control.enter("a", 3, 9)
        # It was admitted by a dispatcher that died, or was too small to ask before.
        late = asyncio.create_task(control.enter("b", 2, 9))
        await asyncio.sleep(0)
        assert not late.done() and control.outside == 2
        control.free(3, 9)
        await late
        assert control.inside == (2, 9)

    in_a_loop(story())
