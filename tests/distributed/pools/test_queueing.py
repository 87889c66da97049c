"""Who is served next, and where a conversation stays."""

from dataclasses import replace

import pytest

from openmaia.distributed.pools.dispatch.affinity import AffinityRouter
from openmaia.distributed.pools.dispatch.queueing import FairQueue, QueuedRequest, RequestRef


def requests(caller: str, count: int, method: str = "probe", conversation: str = "") -> list[QueuedRequest]:
    return [
        QueuedRequest(method=method, reference=RequestRef(f"{caller}{i}", 0), caller=caller, conversation=conversation)
        for i in range(count)
    ]


def alone(caller: str, count: int) -> list[QueuedRequest]:
    return [replace(request, alone=True) for request in requests(caller, count)]


def taken(queue: FairQueue, limit: int = 4, idle: bool = True) -> list[str]:
    return [request.reference.payload for request in queue.take(limit, lambda request: True, set(), idle=idle)]


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


def test_one_replica_empties_for_each_request_that_is_tried_alone():
    queue = FairQueue()
    queue.push(requests("a", 2))
    queue.push(alone("z", 1))
    awaited = set[QueuedRequest]()
    assert queue.take(4, lambda request: True, awaited, idle=False) == []
    assert [one.caller for one in queue.take(4, lambda request: True, awaited, idle=False)] == ["a", "a"]
    assert [one.caller for one in queue.take(4, lambda request: True, awaited, idle=True)] == ["z"]


def test_a_retry_that_comes_back_stays_alone():
    queue = FairQueue()
    queue.push(alone("z", 1))
    again = queue.take(4, lambda request: True, set(), idle=True)
    queue.push(requests("a", 2))
    queue.push(again)
    assert len(queue) == 3
    assert taken(queue, idle=False) == []
    assert taken(queue) == ["z0"]
    assert taken(queue) == ["a0", "a1"]


def test_dropping_a_caller_leaves_the_others():
    queue = FairQueue()
    queue.push(requests("a", 3))
    queue.push(requests("b", 1))
    queue.push(alone("a", 1))
    assert len(queue.drop("a")) == 4
    assert queue.drop("nobody") == []
    assert taken(queue) == ["b0"]


def entered(router: AffinityRouter, names: str) -> list[QueuedRequest]:
    """A request of each conversation."""
    found = [requests(name, 1, conversation=name)[0] for name in names]
    for item in found:
        router.open(item)
    return found


def present(replicas: int) -> AffinityRouter:
    router = AffinityRouter()
    for replica in range(replicas):
        router.add_replica(replica)
    return router


def test_conversations_start_where_the_least_is_under_way_and_stay():
    router = present(3)
    first, second, third, fourth = (requests(c, 1, conversation=c)[0] for c in "abcd")
    for item in (first, second, third):
        router.open(item)
    where = {c.conversation: [r for r in range(3) if router.accepts(c, r)] for c in (first, second, third)}
    assert sorted(where.values()) == [[0], [1], [2]]
    router.close(second)
    router.open(fourth)
    assert router.accepts(fourth, where["b"][0])
    router.open(second)
    assert router.accepts(second, where["b"][0]), "it stays, although that replica has more to do now"


def test_a_load_that_has_gone_does_not_count():
    router = present(2)
    for _ in range(50):
        item = requests("a", 1, conversation="a")[0]
        router.open(item)
        router.close(item)
    router.forget("a")
    one, two = requests("b", 1, conversation="b")[0], requests("c", 1, conversation="c")[0]
    router.open(one)
    router.open(two)
    assert sorted(r for r in range(2) for item in (one, two) if router.accepts(item, r)) == [0, 1]


def test_conversations_of_a_dead_replica_move_apart():
    router = present(3)
    conversations = entered(router, "abcdef")
    router.remove_replica(0)
    counts = [sum(router.accepts(item, r) for item in conversations) for r in range(3)]
    assert counts == [0, 3, 3]


def test_no_conversation_waits_for_a_replica_that_is_not_there():
    router = AffinityRouter()
    conversations = entered(router, "abcd")
    assert all(router.accepts(item, r) for item in conversations for r in range(2)), "whoever comes first"
    router.add_replica(1)
    conversations += entered(router, "ef")
    assert all(router.accepts(item, 1) for item in conversations)
    router.remove_replica(1)
    router.add_replica(0)
    assert all(router.accepts(item, 0) for item in conversations)


def test_a_replica_that_comes_late_takes_its_share():
    router = present(1)
    conversations = entered(router, "abcdef")
    router.add_replica(1)
    counts = [sum(router.accepts(item, r) for item in conversations) for r in range(2)]
    assert counts == [3, 3]
    for item in conversations:
        router.close(item)
        router.forget(item.caller)
    one, two = requests("b", 1, conversation="y")[0], requests("c", 1, conversation="z")[0]
    router.open(one)
    router.open(two)
    assert router.accepts(one, 0) != router.accepts(two, 0), "what moved does not count twice"


@pytest.mark.parametrize("replica", [0, 1])
def test_a_single_question_goes_anywhere(replica: int):
    router = present(2)
    question = requests("a", 1)[0]
    router.open(question)
    assert router.accepts(question, replica)
