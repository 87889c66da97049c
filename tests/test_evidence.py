"""The stopping rule, and the loop's own test of an answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.agent.evidence import assess
from openmaia.config import load
from openmaia.errors import ServiceError, UsageError
from openmaia.pictures import near
from openmaia.pictures.vocabulary import find
from openmaia.services import Drawn, Generation
from openmaia.store.evidence import State
from openmaia.store.files import Files
from openmaia.store.journal import FolderJournal
from openmaia.store.parquet import read_record, write_record
from openmaia.store.records import ImageEntry, Record, Stop, comparable
from openmaia.tasks.grammar import DESCRIBED
from openmaia.tasks.rule import Rule
from openmaia.tasks.task import load as load_task
from tests.conftest import REPOSITORY
from tests.samples import turn
from tests.test_loop import ANSWER, UNIT, code, configured, pictures

__all__ = ["pictures"]

RULE = ("task.evidence.experiments=1", "task.evidence.controls=2", "task.evidence.replicates=3")
TESTED = """[HYPOTHESIS LIST]:
1. H1: red
2. H2: round things

[CODE]:
```python
own = tools.text2image(["a red circle"] * 3, hypothesis="H1")
controls = tools.text2image(["a blue circle", "a green circle"], hypothesis="not H1")
print(system.call_neuron(own + controls)[0])
```"""
LISTED = f"[HYPOTHESIS LIST]:\n1. H1: red\n\n{ANSWER}"

Run = Callable[..., Record]


@pytest.fixture
def run(pictures: Path, tmp_path: Path, exemplars_folder: Path) -> Run:
    """Runs an investigation in which the agent says these things."""

    def go(*replies: str, overrides: Sequence[str] = (), journal: FolderJournal | None = None, draw=None) -> Record:
        config = configured(pictures, exemplars_folder, tmp_path, replies, tuple(overrides))
        services = build.services(config, exemplars.make(config, [UNIT.layer]))
        if draw is not None:
            services = replace(services, generator=draw)
        return investigate(UNIT, load_task(config.task.name), services, build.options(config), journal=journal)

    return go


def heard(record: Record, turn: int) -> int:
    """Words that were sent back to the reply of a turn, besides the observation."""
    turns = record.turns
    observed = sum(len(part.split()) for part in turns[turn].observation if isinstance(part, str))
    return turns[turn + 1].prompt_tokens - turns[turn].prompt_tokens - len(turns[turn].reply.split()) - observed


# -- the rule --------------------------------------------------------------------------------------------------------


def test_the_prompt_states_what_is_required_and_nothing_else(run: Run):
    asked = run(ANSWER, overrides=("task.evidence.experiments=3", "limits.soft_turns=1")).prompts[1]
    assert "at least 3 experiments" in asked
    assert "negative controls of each" not in asked
    assert "{" not in asked
    assert "rests on" not in run(ANSWER).prompts[1], "nothing is required by default"


def test_an_early_answer_is_sent_back_with_what_it_lacks(run: Run):
    record = run(LISTED, TESTED, LISTED, overrides=RULE)
    assert record.stop is Stop.ANSWER and len(record.turns) == 3
    assert record.evidence.sent_back == 1
    assert record.evidence.state == "met"
    lacking = assess(Rule(experiments=1, controls=2, replicates=3), record.turns[:1], DESCRIBED).checks
    assert [check.state for check in lacking] == [State.MISSING, State.UNVERIFIED, State.UNVERIFIED]
    missing = load_task("description").missing.replace("{missing}", "\n".join(f"- {c.detail}" for c in lacking))
    assert heard(record, 0) == len(missing.split())


def test_what_was_measured_for_a_hypothesis_stands_in_the_record(run: Run):
    (tested,) = run(TESTED, LISTED).evidence.tested
    assert (tested.hypothesis, tested.images, tested.controls) == ("H1: red", 3, 2)
    assert tested.mean is not None and tested.control_mean is not None and tested.mean > 0.9 > tested.control_mean


def test_where_the_agent_is_asked_for_its_answer_any_is_taken_and_the_lack_recorded(run: Run):
    record = run(*[LISTED] * 9, overrides=(*RULE, "limits.soft_turns=3"))
    assert (record.stop, len(record.turns), record.evidence.sent_back) == (Stop.ANSWER, 3, 2)
    assert record.evidence.state == "missing"


def test_what_cannot_be_checked_is_asked_for_once_and_then_reported_as_unverified(run: Run):
    record = run(code("print(1)"), ANSWER, ANSWER, overrides=("task.evidence.replicates=2",))
    assert len(record.turns) == 3
    assert record.evidence.state == "unverified"


def test_an_abstention_needs_the_experiments_alone(run: Run):
    tried = code("system.call_neuron(tools.text2image(['a red circle']))")
    record = run("[DESCRIPTION]: NONE", tried, "[DESCRIPTION]: NONE", overrides=RULE)
    assert (record.stop, len(record.turns), record.evidence.state) == (Stop.ABSTAIN, 3, "met")
    assert record.confirmation is None


def test_an_interrupted_investigation_knows_that_its_answer_was_sent_back(run: Run, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError, match="holds 1 replies"):
        run(LISTED, overrides=RULE, journal=journal)
    resumed = run(LISTED, TESTED, LISTED, overrides=RULE, journal=journal)
    assert comparable(resumed) == comparable(run(LISTED, TESTED, LISTED, overrides=RULE))


@pytest.mark.parametrize("named", ["H1", "h1: red", "1"])
def test_a_hypothesis_goes_by_its_id_or_the_number_of_its_entry(run: Run, named: str):
    tried = TESTED.replace('"H1"', f'"{named}"').replace('"not H1"', f'"not {named}"')
    assert run(tried, LISTED, overrides=RULE).evidence.state == "met"


def test_a_hypothesis_goes_by_its_words_also_where_only_a_label_names_it(run: Run):
    tried = TESTED.replace("H1: ", "").replace("H1", "red")
    assert run(tried, ANSWER, overrides=RULE).evidence.state == "met"


def test_one_picture_counts_once_however_often_it_is_measured():
    entries = tuple(
        ImageEntry(id=str(n), original="same", mask=None, activation={"value": 1.0}, hypothesis="red") for n in range(5)
    )
    one = turn(reply=f"[HYPOTHESIS LIST]:\n1. red\n{ANSWER}", code="", hypotheses=("red",))
    calls = (replace(one.calls[0], entries=entries),)
    found = assess(Rule(replicates=2), [replace(one, calls=calls)], DESCRIBED)
    assert [(check.found, check.state) for check in found.checks] == [(1, State.MISSING)]


def test_a_picture_that_lacks_what_was_asked_tests_nothing(run: Run):
    drawn = code("system.call_neuron(tools.text2image(['a red circle', 'an ocarina'], hypothesis='red'))")
    (tested,) = run(drawn, LISTED.replace("H1: ", "")).evidence.tested
    assert tested.images == 1


def test_hypotheses_that_do_not_fit_the_images_are_the_agents_mistake(run: Run):
    record = run(code("tools.text2image(['red', 'blue'], hypothesis=['H1'])"), ANSWER)
    assert "1 names for 2 images" in (record.turns[0].calls[0].error or "")


def test_numbers_below_nothing_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"task\.evidence\.controls=-1"):
        load([str(REPOSITORY / "configs/closed-form.yaml"), "task.evidence.controls=-1"])
    (tmp_path / "user.md").write_text("?")
    (tmp_path / "task.yaml").write_text("evidence: {experiments: -2}")
    with pytest.raises(UsageError, match=r"evidence\.experiments=-2"):
        load_task(str(tmp_path))


# -- the loop's own test ---------------------------------------------------------------------------------------------


def test_a_true_label_is_told_from_its_near_misses_and_a_wrong_one_is_not(run: Run):
    true = run(ANSWER).confirmation
    wrong = run(ANSWER.replace("1]: red", "1]: circle")).confirmation
    assert true is not None and wrong is not None
    assert true.auc() == 1.0
    assert wrong.auc() == 0.5
    assert len(true.shots) == 8, "four of the label, four near misses"


def test_the_worst_label_shows_beside_the_whole(run: Run):
    found = run(f"{ANSWER}\n[LABEL 2]: blue").confirmation
    assert found is not None
    assert (found.auc("red"), found.worst) == (1.0, ("blue", 0.5))


def test_it_is_tested_on_pictures_that_no_experiment_has_seen(run: Run):
    asked = [shot.prompt for shot in _shots(run(ANSWER))]
    record = run(code(f"system.call_neuron(tools.text2image({asked!r}))"), ANSWER)
    seen = {entry.original for call in record.turns[0].calls for entry in call.entries}
    assert [shot.prompt for shot in _shots(record)] == asked
    assert not seen & {shot.digest for shot in _shots(record)}


def _shots(record: Record):
    assert record.confirmation is not None
    return record.confirmation.shots


def test_record_and_pictures_come_back_as_they_were(run: Run):
    record = run(TESTED, LISTED, overrides=RULE)
    again = read_record(write_record(record))
    assert again.evidence == record.evidence
    assert _shots(again) == _shots(record)
    assert len(again.turns) == 2
    assert {shot.digest for shot in _shots(again)} <= again.pictures.keys()
    assert again.spent["generator"].requests == record.spent["generator"].requests == 5 + 8


def test_where_the_test_fails_the_answer_is_kept_and_not_asked_for_again(run: Run, tmp_path: Path):
    class Dead:
        def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
            raise ServiceError("dead")

    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError, match="dead"):
        run(ANSWER, journal=journal, draw=Dead())
    record = run(journal=journal)  # a backbone that has nothing left to say
    assert record.description and record.confirmation is not None


def test_the_last_turn_is_journaled_where_something_follows_that_may_fail(run: Run, tmp_path: Path):
    untested, tested = (FolderJournal(Files(str(tmp_path / "journal")), name) for name in ("untested", "tested"))
    record = run(TESTED, ANSWER, overrides=("task.evidence.confirm=0",), journal=untested)
    assert (len(record.turns), len(untested.turns())) == (2, 1)
    record = run(TESTED, ANSWER, journal=tested)
    assert (len(record.turns), len(tested.turns())) == (2, 2)


def test_a_task_that_asks_for_a_choice_is_not_tested(run: Run):
    record = run("[REASONING]: it is\n[LABEL]: SELECTIVE", overrides=("task.name=spurious", "task.evidence.confirm=2"))
    assert record.labels == ("SELECTIVE",) and record.confirmation is None


def test_nothing_is_tested_where_it_is_switched_off(run: Run):
    assert run(ANSWER, overrides=("task.evidence.confirm=0",)).confirmation is None


# -- near misses -----------------------------------------------------------------------------------------------------


def test_a_near_miss_of_a_combination_keeps_one_half_of_it():
    kept = [set(pair.shows.split()) & {"red", "circle"} for pair in near.pairs(["red circle"], (), 4)]
    assert kept == [{"circle"}, {"red"}] * 2


def test_a_near_miss_of_a_phrase_exchanges_one_word_of_it():
    shown = [pair.shows for pair in near.pairs(["a dog that wears a red hat"], (), 2)]
    assert all(pair.startswith("a ") and pair.endswith(" hat") for pair in shown)
    assert "red" in shown[0] and "dog" not in shown[0]
    assert "dog" in shown[1] and "red" not in shown[1]


def test_no_near_miss_shows_what_another_label_names():
    for pair in near.pairs(["red", "blue", "dog"], (), 60):
        assert not {word.name for word in find(pair.shows)} & {"red", "blue", "dog"}
        assert not {word.name for word in find(pair.near)} & {"red", "blue", "dog"}


def test_of_words_nobody_knows_the_dropped_hypotheses_are_the_near_misses():
    assert {pair.shows for pair in near.pairs(["bow ties"], ["neckties", "collars"], 4)} == {"neckties", "collars"}
    assert {pair.control for pair in near.pairs(["bow ties"], (), 2)} == {near.APART}


def test_hypotheses_of_the_answer_are_no_near_misses(run: Run):
    listed = "[HYPOTHESIS LIST]:\n1. H1: bow ties\n2. H2: neckties\n\n"
    record = run(listed + "[CODE]:\n```python\nprint(1)\n```", "[DESCRIPTION]: ties\n[LABEL 1]: bow ties")
    assert {shot.near_miss for shot in _shots(record) if shot.near_miss} == {"neckties"}
