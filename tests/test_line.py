"""Who is served next, and where a conversation stays."""

import pytest

from openmaia.remote.line import Homes, Item, Line


def items(caller: str, count: int, method: str = "probe", conversation: str = "") -> list[Item]:
    return [Item(method=method, request=f"{caller}{i}", caller=caller, conversation=conversation) for i in range(count)]


def taken(line: Line, limit: int = 4, idle: bool = True) -> list[str]:
    return [item.request for item in line.take(limit, lambda item: True, idle=idle)]


def test_a_batch_is_filled_across_callers():
    line = Line()
    for caller in "abc":
        line.push(items(caller, 1))
    assert taken(line) == ["a0", "b0", "c0"]
    assert len(line) == 0


def test_a_long_call_does_not_keep_others_waiting():
    line = Line()
    line.push(items("a", 100))
    assert taken(line) == ["a0", "a1", "a2", "a3"]
    line.push(items("b", 2))
    line.push(items("c", 1))
    assert taken(line) == ["a4", "a5", "a6", "a7"]
    assert taken(line) == ["b0", "b1", "c0", "a8"]


def test_a_caller_keeps_the_order_of_its_requests_under_any_company():
    line = Line()
    line.push(items("a", 7))
    line.push(items("b", 5))
    line.push(items("a", 2, method="late"))
    served: list[str] = []
    while len(line):
        served += taken(line, 3)
    assert [s for s in served if s.startswith("a")] == [f"a{i}" for i in range(7)] + ["a0", "a1"]
    assert [s for s in served if s.startswith("b")] == [f"b{i}" for i in range(5)]


def test_a_batch_holds_one_method_only():
    line = Line()
    line.push(items("a", 1))
    line.push(items("b", 1, method="info"))
    line.push(items("c", 1))
    assert taken(line) == ["a0", "c0"]
    assert taken(line) == ["b0"]


def test_what_is_tried_again_goes_first_alone_and_to_an_idle_replica_only():
    line = Line()
    line.push(items("a", 2))
    line.push_again(items("z", 2))
    assert taken(line, idle=False) == []
    assert taken(line) == ["z0"]
    assert taken(line) == ["z1"]
    assert taken(line) == ["a0", "a1"]


def test_what_comes_back_goes_first_in_the_company_of_others():
    line = Line()
    line.push(items("a", 3))
    line.push(items("z", 1, method="probe"))
    line.push_first(items("b", 2))
    assert taken(line, idle=False) == ["b0", "b1", "a0", "a1"]


def test_dropping_a_caller_leaves_the_others():
    line = Line()
    line.push(items("a", 3))
    line.push(items("b", 1))
    line.push_again(items("a", 1))
    assert len(line.drop("a")) == 4
    assert line.drop("nobody") == []
    assert taken(line) == ["b0"]


def entered(homes: Homes, names: str) -> list[Item]:
    """A request of each conversation."""
    found = [items(name, 1, conversation=name)[0] for name in names]
    for item in found:
        homes.enter(item)
    return found


def present(replicas: int) -> Homes:
    homes = Homes()
    for replica in range(replicas):
        homes.arrive(replica)
    return homes


def test_conversations_start_where_the_least_is_under_way_and_stay():
    homes = present(3)
    first, second, third, fourth = (items(c, 1, conversation=c)[0] for c in "abcd")
    for item in (first, second, third):
        homes.enter(item)
    where = {c.conversation: [r for r in range(3) if homes.is_at(c, r)] for c in (first, second, third)}
    assert sorted(where.values()) == [[0], [1], [2]]
    homes.leave(second)
    homes.enter(fourth)
    assert homes.is_at(fourth, where["b"][0])
    homes.enter(second)
    assert homes.is_at(second, where["b"][0]), "it stays, although that replica has more to do now"


def test_a_load_that_has_gone_does_not_count():
    homes = present(2)
    for _ in range(50):
        item = items("a", 1, conversation="a")[0]
        homes.enter(item)
        homes.leave(item)
    homes.release("a")
    one, two = items("b", 1, conversation="b")[0], items("c", 1, conversation="c")[0]
    homes.enter(one)
    homes.enter(two)
    assert sorted(r for r in range(2) for item in (one, two) if homes.is_at(item, r)) == [0, 1]


def test_conversations_of_a_dead_replica_move_apart():
    homes = present(3)
    conversations = entered(homes, "abcdef")
    homes.depart(0)
    counts = [sum(homes.is_at(item, r) for item in conversations) for r in range(3)]
    assert counts == [0, 3, 3]


def test_no_conversation_waits_for_a_replica_that_is_not_there():
    homes = Homes()
    conversations = entered(homes, "abcd")
    assert all(homes.is_at(item, r) for item in conversations for r in range(2)), "whoever comes first"
    homes.arrive(1)
    conversations += entered(homes, "ef")
    assert all(homes.is_at(item, 1) for item in conversations)
    homes.depart(1)
    homes.arrive(0)
    assert all(homes.is_at(item, 0) for item in conversations)


def test_a_replica_that_comes_late_takes_its_share():
    homes = present(1)
    conversations = entered(homes, "abcdef")
    homes.arrive(1)
    counts = [sum(homes.is_at(item, r) for item in conversations) for r in range(2)]
    assert counts == [3, 3]
    for item in conversations:
        homes.leave(item)
        homes.release(item.caller)
    one, two = items("b", 1, conversation="y")[0], items("c", 1, conversation="z")[0]
    homes.enter(one)
    homes.enter(two)
    assert homes.is_at(one, 0) != homes.is_at(two, 0), "what moved does not count twice"


@pytest.mark.parametrize("replica", [0, 1])
def test_a_single_question_goes_anywhere(replica: int):
    homes = present(2)
    question = items("a", 1)[0]
    homes.enter(question)
    assert homes.is_at(question, replica)
