"""What the next turn has to be, and which turns the agent sees no more."""

from collections.abc import Callable, Sequence

import pytest

from openmaia.agent.evidence.hints import EMPTY, OTHERWISE
from openmaia.agent.tasks.task import load as load_task
from openmaia.core.messages import Chat, Reply, TurnKind
from openmaia.core.services import Backbone
from openmaia.runs.records import ReplyNote, Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, LISTED, code, heard, heard_more, repeated, said

RULE = ("task.evidence.experiments=1", "task.evidence.controls=2", "task.evidence.replicates=3")


def test_answer_is_accepted_after_the_soft_limit(run: Investigate):
    measured = code("print(system.call_neuron(tools.text2image(['a red circle']), hypothesis='H1')[0])")
    record = run(measured, *[LISTED] * 9, overrides=(*RULE, "limits.soft_turns=4"))
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.ANSWER, 4, 2)
    assert record.evidence.state == "missing"


def test_answer_without_experiments_is_never_accepted(run: Investigate):
    record = run(*[LISTED] * 9, overrides=(*RULE, "limits.soft_turns=3", "limits.turns=5"))
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.LIMIT, 5, 5)
    assert (record.description, record.labels, record.confirmation) == ("", (), None)


def test_answer_beside_an_experiment_is_set_aside(run: Investigate):
    both = f"{code('print(1)')}\n\n{ANSWER}"
    record = run(both, ANSWER)
    assert record.turns[0].code and said(record, 0) == "1\n"
    assert record.turns[0].notes == (ReplyNote.SET_ASIDE,)
    assert (len(record.turns), record.stop) == (2, Stop.ANSWER)
    assert heard_more(record, 0) == len(load_task("description").set_aside.split())


def test_answer_beside_an_experiment_counts_when_experiments_are_used_up(run: Investigate):
    both = f"{code('print(2)')}\n\n{ANSWER}"
    record = run(code("print(1)"), both, overrides=("limits.soft_turns=1",))
    assert (len(record.turns), record.stop, record.turns[1].code) == (2, Stop.ANSWER, "")
    assert record.turns[1].notes == (ReplyNote.NOT_RUN,)


def test_soft_limit_asks_for_the_answer(run: Investigate):
    record = run(code("print(1)"), code("print(2)"), ANSWER, overrides=("limits.soft_turns=2",))
    assert [heard_more(record, turn) for turn in (0, 1)] == [0, len(load_task("description").final.split())]


def test_answer_is_asked_for_only_with_the_demanded_experiments(run: Investigate):
    first, second = (code(f"print(system.call_neuron(['a red {shape}'])[0])") for shape in ("circle", "star"))
    rule = ("task.evidence.experiments=2", "limits.soft_turns=1")
    record = run(code("print(1)"), first, second, ANSWER, overrides=rule)
    assert [heard_more(record, turn) for turn in (0, 1)] == [0, 0]
    assert heard_more(record, 2) == len(load_task("description").final.split())
    assert record.stop is Stop.ANSWER


@pytest.mark.parametrize("without", [(), ("without=[text2image]",)])
@pytest.mark.parametrize("experiment", ["print(tools.dataset_exemplars(system)[0][0])", "print(tools.nothing)"])
def test_repeated_turns_are_left_out_of_the_conversation(run: Investigate, without: tuple[str, ...], experiment: str):
    looking = code(experiment)
    rule = ("task.evidence.experiments=1", "limits.soft_turns=5", "limits.turns=5")
    record = run(looking, looking, looking, code("print(2)"), ANSWER, overrides=(*rule, *without))
    told = repeated(can_generate=not without).split()
    assert ("tools.text2image" in told) is not without
    first, again, third, after = heard(record)
    assert first >= len(looking.split()) + len(said(record, 0).split())
    assert (again, third) == (len(told), 0)
    assert after == len(code("print(2)").split()) + len(said(record, 3).split()) - len(told)


def test_same_reply_without_an_experiment_is_left_out_of_the_conversation(run: Investigate):
    record = run("I see.", "I see.", code("print(2)"), "I see.", ANSWER)
    no_code, told = len(load_task("description").no_code.split()), len(repeated(can_generate=True).split())
    experiment = len(code("print(2)").split()) + len(said(record, 2).split())
    assert heard(record) == [2 + no_code, told, experiment - told, 2 + no_code]


def test_empty_reply_is_left_out_and_the_agent_is_told(run: Investigate):
    record = run("", code("print(1)"), " ", "", ANSWER)
    told, experiment = f"Hint: {EMPTY}{OTHERWISE}".split(), code("print(1)").split()
    assert [turn.reply.strip() for turn in record.turns] == ["", code("print(1)").strip(), "", "", ANSWER.strip()]
    assert heard(record) == [len(told), len(experiment) + len(said(record, 1).split()) - len(told), len(told), 0]
    assert record.stop is Stop.ANSWER


def test_answer_beside_a_repeated_experiment_is_not_left_out(run: Investigate):
    looking = code("print(1)")
    record = run(looking, f"{looking}\n\n{ANSWER}", ANSWER)
    assert heard(record)[1] > len(load_task("description").set_aside.split())


@pytest.mark.parametrize("soft_turns", [1, 2])
def test_answer_is_asked_for_once_after_a_repeated_turn(run: Investigate, soft_turns: int):
    looking = code("print(1)")
    record = run(looking, looking, ANSWER, overrides=(f"limits.soft_turns={soft_turns}",))
    told, final = repeated(can_generate=False).split(), load_task("description").final.split()
    opening = record.turns[0].prompt_tokens + len(looking.split()) + len(said(record, 0).split())
    assert record.turns[2].prompt_tokens == opening + len(told) + len(final)


def test_answer_is_asked_for_after_a_repeated_turn(run: Investigate):
    looking = code("print(1)")
    record = run(looking, looking, ANSWER, overrides=("limits.soft_turns=2",))
    assert heard(record)[1] == len(repeated(can_generate=False).split()) + len(load_task("description").final.split())


def test_agent_that_repeats_itself_twice_is_asked_for_its_answer_once_it_has_measured_enough(run: Investigate):
    made: list[Recorder] = []
    recorder = recording(made)
    looking, first, second = (
        code("print(1)"),
        *(code(f"print(system.call_neuron(['a red {s}'])[0])") for s in ("circle", "star")),
    )
    rule = ("task.evidence.experiments=2", "limits.soft_turns=8")
    record = run(looking, first, looking, looking, second, looking, looking, ANSWER, overrides=rule, backbone=recorder)
    assert made[0].expected == ["experiment"] * 3 + ["measurement"] * 2 + ["any", "any", "answer"]
    told = len(repeated(can_generate=False).split()) + len(load_task("description").final.split())
    assert heard(record)[6] == told - len(repeated(can_generate=True).split())


def test_answer_that_a_repeating_agent_was_asked_for_is_accepted_without_tests_of_its_labels(run: Investigate):
    looking = code("print(1)")
    first, second = (code(f"print(system.call_neuron(['a blue {s}'])[0])") for s in ("circle", "star"))
    rule = ("task.evidence.experiments=2", "task.evidence.labels=1", "limits.soft_turns=9")
    record = run(first, second, looking, looking, looking, ANSWER, overrides=rule)
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.ANSWER, 6, 0)


def test_agent_of_a_task_without_demands_is_not_asked_for_its_answer_because_it_repeats_itself(run: Investigate):
    looking = code("print(1)")
    record = run(looking, looking, looking, ANSWER, overrides=("task.evidence.experiments=0",))
    assert heard(record)[2] == 0


class Recorder:
    """The same backbone, which keeps what was expected of it."""

    def __init__(self, backbone: Backbone):
        self._backbone = backbone
        self.expected: list[TurnKind] = []
        self.repetitions: list[int] = []

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.expected += [chat.expected for chat in chats if chat.is_turn]
        self.repetitions += [chat.repetitions for chat in chats if chat.is_turn]
        return self._backbone.reply(chats)


def recording(made: list[Recorder]) -> Callable[[Backbone], Backbone]:
    """Returns what wraps each backbone in a Recorder, which is added to `made`."""

    def recorder(backbone: Backbone) -> Backbone:
        made.append(Recorder(backbone))
        return made[-1]

    return recorder


def test_answer_is_expected_after_the_demanded_experiments_and_at_the_end_nothing_else(run: Investigate):
    made: list[Recorder] = []
    recorder = recording(made)
    first, second = (code(f"print(system.call_neuron(['a red {shape}'])[0])") for shape in ("circle", "star"))
    looking, other = code("print(1)"), code("print(2)")
    rule = ("task.evidence.experiments=2", "limits.soft_turns=5", "limits.turns=9")
    run(looking, first, second, looking, other, ANSWER, overrides=rule, backbone=recorder)
    assert made[0].expected == [*["experiment"] * 3, "any", "any", "answer"]
    run(looking, looking, ANSWER, overrides=("limits.soft_turns=1", "limits.turns=3"), backbone=recorder)
    assert made[1].expected == ["any", "answer", "answer"]


@pytest.mark.parametrize(("without", "expected"), [([], "measurement"), (["without=[text2image]"], "experiment")])
def test_agent_that_repeats_itself_is_expected_to_measure_new_images(
    run: Investigate, without: list[str], expected: str
):
    made: list[Recorder] = []
    recorder = recording(made)
    looking, other = code("print(1)"), code("print(2)")
    rule = ("task.evidence.experiments=2", "limits.soft_turns=4", "limits.turns=4", *without)
    run(looking, looking, other, ANSWER, overrides=rule, backbone=recorder)
    assert made[0].expected == ["experiment", "experiment", expected, "experiment"]


def test_backbone_learns_how_often_in_a_row_the_agent_repeated_itself(run: Investigate):
    made: list[Recorder] = []
    recorder = recording(made)
    one, other = code("print(1)"), code("print(2)")
    run(one, one, one, other, one, ANSWER, backbone=recorder)
    assert made[0].repetitions == [0, 0, 1, 2, 0, 1]
