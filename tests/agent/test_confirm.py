"""The loop's own test of an answer, with near misses from rules and from the backbone."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from openmaia.agent.contrasts import WRITTEN
from openmaia.agent.tools.seeds import seed
from openmaia.core.errors import ServiceError
from openmaia.core.services import GeneratedImage, Generation
from openmaia.runs.evidence import ConfirmationSample
from openmaia.runs.files import Files
from openmaia.runs.journal import FolderJournal
from openmaia.runs.parquet import read_record, write_record
from openmaia.runs.records import Record
from tests.agent.conftest import Investigate, first_requests
from tests.helpers.investigating import ANSWER, LISTED, TESTED, code
from tests.helpers.samples import comparable


class DeadGenerator:
    """A generator that always fails."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        raise ServiceError("dead")


def samples_of(record: Record) -> tuple[ConfirmationSample, ...]:
    assert record.confirmation is not None
    return record.confirmation.samples


def test_true_label_differs_from_near_misses(run: Investigate):
    true = run(ANSWER).confirmation
    wrong = run(ANSWER.replace("1]: red", "1]: circle")).confirmation
    assert true is not None and wrong is not None
    assert true.auc() == 1.0
    assert wrong.auc() == 0.5
    assert len(true.samples) == 8, "four of the label, four near misses"


def test_worst_label_is_known(run: Investigate):
    confirmation = run(f"{ANSWER}\n[LABEL 2]: blue").confirmation
    assert confirmation is not None
    assert (confirmation.auc("red"), confirmation.worst) == (1.0, ("blue", 0.5))


def test_images_were_in_no_experiment(run: Investigate):
    prompts = [sample.prompt for sample in samples_of(run(ANSWER))]
    record = run(code(f"system.call_neuron(tools.text2image({prompts!r}))"), ANSWER)
    seen = {entry.original for call in record.turns[0].calls for entry in call.entries}
    assert [sample.prompt for sample in samples_of(record)] == prompts
    assert not seen & {sample.digest for sample in samples_of(record)}


def test_images_show_the_test_split(run: Investigate):
    requests = first_requests(run, ANSWER)
    assert {request.split for request in requests} == {"test"}
    explored = {seed(0, "explore", request.prompt, n) for request in requests for n in range(50)}
    evaluated = {seed(0, "evaluate", request.prompt, n) for request in requests for n in range(50)}
    assert not {request.seed for request in requests} & (explored | evaluated)


def test_record_keeps_samples_and_images(run: Investigate):
    record = run(TESTED, LISTED)
    again = read_record(write_record(record))
    assert again.evidence == record.evidence
    assert samples_of(again) == samples_of(record)
    assert {sample.digest for sample in samples_of(again)} <= again.images.keys()
    assert again.spent["generator"].requests == record.spent["generator"].requests == 5 + 8


def test_answer_survives_a_failed_test(run: Investigate, tmp_path: Path):
    journal = FolderJournal(Files(str(tmp_path / "journal")), "unit")
    with pytest.raises(ServiceError, match="dead"):
        run(ANSWER, journal=journal, generator=DeadGenerator())
    record = run(journal=journal)  # the backbone has no reply left
    assert record.description and record.confirmation is not None


def test_choice_is_not_tested(run: Investigate):
    record = run("[REASONING]: it is\n[LABEL]: SELECTIVE", overrides=("task.name=spurious", "task.evidence.confirm=2"))
    assert record.labels == ("SELECTIVE",) and record.confirmation is None


def test_confirm_zero_tests_nothing(run: Investigate):
    assert run(ANSWER, overrides=("task.evidence.confirm=0",)).confirmation is None


def test_dropped_hypotheses_become_near_misses(run: Investigate):
    listed = "[HYPOTHESIS LIST]:\n1. H1: bow ties\n2. H2: neckties\n\n"
    record = run(listed + "[CODE]:\n```python\nprint(1)\n```", "[DESCRIPTION]: ties\n[LABEL 1]: bow ties")
    assert {sample.near_miss for sample in samples_of(record) if sample.near_miss} == {"neckties"}


# The replay backbone gives its first reply both to the investigation and to the request for contrasts.
WRITTEN_PAIRS = f"{ANSWER}\n\n1 | a red circle | a blue circle | blue\n1 | a red star | a green star | green"


def test_backbone_writes_contrasts(run: Investigate):
    record = run(WRITTEN_PAIRS, overrides=("task.evidence.confirm=2",), contrasts=None)
    prompts = [(sample.prompt, sample.near_miss, sample.control) for sample in samples_of(record)]
    assert prompts == [
        ("a red circle", "", ""), ("a blue circle", "blue", WRITTEN),
        ("a red star", "", ""), ("a green star", "green", WRITTEN),
    ]  # fmt: skip
    assert record.confirmation is not None and record.confirmation.auc() == 1.0
    assert record.confirmation.spent["backbone"].requests == 1
    assert record.spent["backbone"].requests == 2, "the answer and the contrasts"
    assert not record.notes
    assert comparable(record) == comparable(run(WRITTEN_PAIRS, overrides=("task.evidence.confirm=2",), contrasts=None))


def test_missing_contrasts_are_noted(run: Investigate):
    record = run(WRITTEN_PAIRS, "no idea", contrasts=None)
    assert len(samples_of(record)) == 4
    assert record.notes == ("the answer was tested with 2 of 4 pairs: no more usable near misses were found",)
    assert record.spent["backbone"].requests == 3, "it was asked once more"


def test_answer_without_any_contrast_is_recorded(run: Investigate):
    record = run(ANSWER, "no idea", contrasts=None)
    assert record.description and samples_of(record) == ()
    again = read_record(write_record(record))
    assert again.confirmation is not None and again.confirmation.spent["backbone"].requests == 2
