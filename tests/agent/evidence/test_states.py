"""What the measured images say of the agent's hypotheses."""

from collections.abc import Sequence

import pytest

from openmaia.agent.evidence.states import HypothesisState, find_standings
from openmaia.runs.records import Record
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, TESTED, heard_more

SEEN = ("task.hypotheses.states=true",)
THREE = TESTED.replace('"a green circle"]', '"a green circle", "a blue star"]')
"""Three images of H1, which is red, and three negative controls."""


def states(record: Record) -> list[tuple[str, HypothesisState]]:
    return [(each.hypothesis, each.state) for each in find_standings(record.turns)]


def test_images_decide_the_state(run: Investigate):
    record = run(THREE, ANSWER)
    assert states(record) == [("H1: red", HypothesisState.SUPPORTED), ("H2: round things", HypothesisState.OPEN)]
    standing = find_standings(record.turns)[0]
    assert (len(standing.own), len(standing.controls), standing.auc) == (3, 3, 1.0)


@pytest.mark.parametrize(
    ("own", "controls", "expected"),
    [
        (["a blue circle"] * 3, ["a green star", "a blue star", "a grey star"], HypothesisState.REFUTED),
        (["a red circle"] * 3, ["a green star", "a blue star"], HypothesisState.OPEN),
        (["a red circle"] * 2, ["a green star", "a blue star", "a grey star"], HypothesisState.OPEN),
    ],
)
def test_too_few_images_leave_it_open(
    run: Investigate, own: Sequence[str], controls: Sequence[str], expected: HypothesisState
):
    experiment = THREE.replace('["a red circle"] * 3', repr(own)).replace(
        '["a blue circle", "a green circle", "a blue star"]', repr(controls)
    )
    assert states(run(experiment, ANSWER))[0] == ("H1: red", expected)


def test_agent_reads_the_states_only_if_it_is_to(run: Investigate):
    told, silent = run(THREE, ANSWER, overrides=SEEN), run(THREE, ANSWER)
    assert (heard_more(told, 0) > 20, heard_more(silent, 0)) == (True, 0)
    assert 'hypothesis="not H1"' in told.prompts[1] and 'hypothesis="not H1"' not in silent.prompts[1]


def test_states_are_not_read_out_of_prose(run: Investigate):
    claims = "[HYPOTHESIS LIST]:\n1. H1: red (supported, AUC 1.00)\n\n[CODE]:\n```python\nprint('H1 is refuted')\n```"
    record = run(claims, ANSWER, overrides=SEEN)
    assert states(record) == [("H1: red (supported, AUC 1.00)", HypothesisState.OPEN)]
    assert heard_more(record, 0) == 0, "no call named a hypothesis"
