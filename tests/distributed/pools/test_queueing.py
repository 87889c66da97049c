"""Who is served next, and where a conversation stays."""

import asyncio

import pytest

from openmaia.distributed.pools.dispatch.queueing import AffinityRouter, FairQueue, Request, Stored


def requests(
    caller: str, count: int, method: str = "probe", conversation: str = "", *, alone: bool = False
) -> list[Request]:
    async def made() -> list[Request]:
        return [
            Request(method, Stored(f"{caller}{i}", 0), [caller], conversation=conversation, alone=alone)
            for i in range(count)
        ]

    return asyncio.run(made())


def alone(caller: str, count: int) -> list[Request]:
    return requests(caller, count, alone=True)


def taken(queue: FairQueue, limit: int = 4, idle: bool = True) -> list[str]:
    return [request.data.payload for request in queue.take(limit, lambda request: True, idle=idle)]


def test_a_batch_is_filled_across_callers():
    queue = FairQueue()
    for caller in "abc":
        queue.push(requests(caller, 1))
    assert taken(queue) == ["a0", "b0", "c0"]
    assert len(queue) == 0


def test_a_long_call_does_not_keep_others_waiting():
    queue = FairQueue()
    queue.push(requests("a", 100))
    assert taken(queue) == ["a0", "a1", "a2", "a3"]
    queue.push(requests("b", 2))
    queue.push(requests("c", 1))
    assert taken(queue) == ["a4", "a5", "a6", "a7"]
    assert taken(queue) == ["b0", "b1", "c0", "a8"]


def test_a_caller_keeps_the_order_of_its_requests_under_any_company():
    queue = FairQueue()
    queue.push(requests("a", 7))
    queue.push(requests("b", 5))
    queue.push(requests("a", 2, method="late"))
    served: list[str] = []
    while len(queue):
        served += taken(queue, 3)
    assert [s for s in served if s.startswith("a")] == [f"a{i}" for i in range(7)] + ["a0", "a1"]
    assert [s for s in served if s.startswith("b")] == [f"b{i}" for i in range(5)]


def test_a_batch_holds_one_method_only():
    queue = FairQueue()
    queue.push(requests("a", 1))
    queue.push(requests("b", 1, method="info"))
    queue.push(requests("c", 1))
    assert taken(queue) == ["a0", "c0"]
    assert taken(queue) == ["b0"]


def test_what_is_tried_again_goes_first_alone_and_to_an_idle_replica_only():
    queue = FairQueue()
    queue.push(requests("a", 2))
    queue.push(alone("z", 2))
    queue.push(alone("y", 1))
    assert taken(queue, idle=False) == []
    assert taken(queue) == ["z0"]
    assert taken(queue) == ["z1"]
    assert taken(queue) == ["y0"]
    assert taken(queue) == ["a0", "a1"]


def test_a_retry_that_comes_back_stays_alone():
    queue = FairQueue()
    queue.push(alone("z", 1))
    again = queue.take(4, lambda request: True, idle=True)
    queue.push(requests("a", 2))
    queue.push(again)
    assert len(queue) == 3
    assert taken(queue, idle=False) == []
    assert taken(queue) == ["z0"]
    assert taken(queue) == ["a0", "a1"]


def test_removing_requests_leaves_the_others():
    queue = FairQueue()
    queue.push(requests("a", 3))
    queue.push(requests("b", 1))
    queue.push(alone("a", 1))
    assert len(queue.remove(lambda one: one.caller == "a")) == 4
    assert queue.remove(lambda one: one.caller == "nobody") == []
    assert taken(queue) == ["b0"]
    queue.push(requests("c", 2))
    assert len(queue.remove(lambda one: True)) == 2 and len(queue) == 0


def conversations(names: str) -> list[Request]:
    return [requests(name, 1, conversation="c")[0] for name in names]


def present(replicas: int) -> AffinityRouter:
    router = AffinityRouter()
    for replica in range(replicas):
        router.add_replica(replica)
    return router


def homes(router: AffinityRouter, asked: list[Request], replicas: range) -> list[int]:
    """The replica of each conversation, of which there is one."""
    found = [[replica for replica in replicas if router.accepts(one, replica)] for one in asked]
    assert all(len(one) == 1 for one in found)
    return [one for (one,) in found]


def test_conversations_start_where_the_fewest_are_and_stay():
    router = present(3)
    asked = conversations("abc")
    assert homes(router, asked, range(3)) == [0, 1, 2]
    router.forget("b")
    assert homes(router, conversations("d"), range(3)) == [1]
    assert homes(router, asked[:1], range(3)) == [0]


def test_conversations_of_one_caller_are_apart_and_end_with_it():
    router = present(2)
    asked = [requests("a", 1, conversation=name)[0] for name in "xy"]
    assert homes(router, asked, range(2)) == [0, 1]
    router.forget("a")
    assert homes(router, conversations("b"), range(2)) == [0]


def test_conversations_of_a_dead_replica_move_apart():
    router = present(3)
    asked = conversations("abcdef")
    assert sorted(homes(router, asked, range(3))) == [0, 0, 1, 1, 2, 2]
    router.remove_replica(0)
    assert sorted(homes(router, asked, range(3))) == [1, 1, 1, 2, 2, 2]


def test_no_conversation_waits_for_a_replica_that_is_not_there():
    router, asked = AffinityRouter(), conversations("abcd")
    assert all(router.accepts(one, replica) for one in asked for replica in range(2)), "whoever comes first"
    router.add_replica(1)
    assert homes(router, asked, range(1, 2)) == [1] * 4
    router.remove_replica(1)
    router.add_replica(0)
    assert homes(router, asked, range(1)) == [0] * 4


def test_a_replica_that_comes_late_takes_its_share():
    router, asked = present(1), conversations("abcdef")
    assert homes(router, asked, range(1)) == [0] * 6
    router.add_replica(1)
    assert sorted(homes(router, asked, range(2))) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("replica", [0, 1])
def test_a_single_question_goes_anywhere(replica: int):
    assert present(2).accepts(requests("a", 1)[0], replica)
