"""How well agents follow the protocol, counted over real investigations."""

from openmaia.agent.tasks.grammar import DESCRIBED
from openmaia.analysis.conduct import conduct
from tests.agent.conftest import Investigate, pictures, run
from tests.helpers.investigating import ANSWER, code

__all__ = ["pictures", "run"]


def test_conduct_counts_what_agents_did(run: Investigate):
    first = run(
        f"{code('1 / 0')}\n{ANSWER}",  # set aside
        "I think it is red.",
        ANSWER,  # sent back
        code("tools.display(system.call_neuron(['red'])[1])").replace("```python", "```py"),
        ANSWER,
        overrides=("task.evidence.experiments=1",),
    )
    second = run(code("print(1)"), code("print(1)"), "[DESCRIPTION]: NONE")
    found = conduct([first, second], DESCRIBED)
    assert found.ended == {"answer": 1, "abstain": 1}
    assert (found.investigations, found.turns, found.unmeasured) == (2, 8, 1)
    assert (found.empty, found.set_aside, found.sent_back, found.cut) == (1, 1, 1, 0)
    assert (found.experiments, found.repeated, found.tracebacks, found.stopped, found.images) == (4, 1, 1, 0, 1)
    assert found.forgiven["a fence marked 'py' instead of 'python'"] == 1
    assert found.prompt_tokens > found.generated_tokens > 0 and found.seconds > 0


def test_run_without_records_has_counts_of_zero():
    assert conduct([], DESCRIBED).turns == 0


def test_what_came_after_failed_tests_is_counted(run: Investigate):
    wrong, rounds = ANSWER.replace("1]: red", "1]: circle"), ("task.evidence.rounds=1",)
    none = "[DESCRIPTION]: NONE"
    records = [run(wrong, after, overrides=rounds) for after in (ANSWER, wrong, none)]
    records.append(run(wrong, code("print(1)"), overrides=(*rounds, "limits.turns=2", "limits.soft_turns=2")))
    assert conduct(records, DESCRIBED).rounds == dict.fromkeys(
        ("another answer", "the same labels again", "an abstention", "no further answer"), 1
    )
