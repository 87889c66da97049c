"""Who may hand in requests, and who waits before the door."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from openmaia.remote.entrance import Entrance


def in_a_loop(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


async def waiters(entrance: Entrance, *callers: tuple[str, int]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(entrance.wait(*caller)) for caller in callers]
    await asyncio.sleep(0)
    return tasks


def test_nobody_gets_in_beyond_the_bound():
    entrance = Entrance(10)
    assert entrance.enter("a", 6) and not entrance.enter("b", 5) and entrance.enter("c", 4)
    assert not entrance.enter("d", 1)
    entrance.free(6)
    assert entrance.enter("b", 5)


def test_those_who_wait_get_in_as_they_came_and_newcomers_behind_them():
    async def story() -> None:
        entrance = Entrance(10)
        assert entrance.enter("a", 10)
        large, small = await waiters(entrance, ("large", 8), ("small", 1))
        entrance.free(4)
        await asyncio.sleep(0)
        assert not large.done() and not small.done(), "the small one does not overtake"
        assert not entrance.enter("newcomer", 1)
        entrance.free(4)
        await large
        assert not small.done() or entrance.outside == 0
        assert entrance.enter("large", 8), "its room was kept"

    in_a_loop(story())


def test_room_that_is_kept_is_the_callers_own():
    async def story() -> None:
        entrance = Entrance(4)
        assert entrance.enter("a", 4)
        (first,) = await waiters(entrance, ("b", 4))
        entrance.free(4)
        await first
        assert not entrance.enter("c", 1)
        assert entrance.enter("b", 4)
        assert not entrance.enter("b", 4), "it was kept once"

    in_a_loop(story())


def test_a_call_larger_than_the_bound_gets_in_alone():
    async def story() -> None:
        entrance = Entrance(4)
        assert entrance.enter("a", 1)
        (large,) = await waiters(entrance, ("b", 100))
        assert not large.done()
        entrance.free(1)
        await large
        assert entrance.enter("b", 100) and not entrance.enter("c", 1)
        entrance.free(100)
        assert entrance.enter("c", 1)

    in_a_loop(story())


def test_who_leaves_gives_back_its_place_and_its_room():
    async def story() -> None:
        entrance = Entrance(4)
        assert entrance.enter("a", 4)
        dead, living = await waiters(entrance, ("dead", 4), ("living", 4))
        entrance.leave("dead")
        await dead
        assert entrance.outside == 4
        entrance.free(4)
        await living
        entrance.leave("living")
        assert entrance.enter("c", 4)

    in_a_loop(story())


def test_for_who_is_gone_without_a_word_nothing_is_kept():
    async def story() -> None:
        entrance = Entrance(4)
        assert entrance.enter("a", 4)
        outside, let_in, living = await waiters(entrance, ("outside", 4), ("let in", 2), ("living", 2))
        outside.cancel()
        await asyncio.sleep(0)
        assert entrance.outside == 4
        entrance.free(4)
        let_in.cancel()  # in the moment in which it is let in
        await living
        await asyncio.gather(outside, let_in, return_exceptions=True)
        assert outside.cancelled() and let_in.cancelled()
        assert entrance.enter("living", 2) and entrance.enter("c", 2) and not entrance.enter("d", 1)

    in_a_loop(story())


def test_who_did_not_hear_that_it_was_let_in_asks_again_and_has_its_room_once():
    async def story() -> None:
        entrance = Entrance(4)
        assert entrance.enter("a", 4)
        (lost,) = await waiters(entrance, ("b", 3))
        entrance.free(4)
        await lost
        await entrance.wait("b", 3)
        assert entrance.enter("b", 3) and entrance.enter("c", 1) and not entrance.enter("d", 1)
        entrance.free(4)
        assert entrance.enter("d", 4)

    in_a_loop(story())


def test_all_may_go_when_there_is_no_service():
    async def story() -> None:
        entrance = Entrance(1)
        assert entrance.enter("a", 1)
        tasks = await waiters(entrance, ("b", 1), ("c", 3))
        entrance.let_all_go()
        await asyncio.gather(*tasks)

    in_a_loop(story())
