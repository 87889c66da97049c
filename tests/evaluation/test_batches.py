"""Descriptions that are tested together, while their questions to a language model are in batches."""

from pathlib import Path

import pytest

from openmaia.assembly.evaluation import design, in_process
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.evaluation.run import evaluate_run, untested_claims
from openmaia.evaluation.together import each_at_once
from openmaia.runs.purse import read_spending
from tests.helpers.batching import batching
from tests.helpers.sweeping import sources
from tests.helpers.written import described, write

SINGLE = (11 * 10 + 3 * 100) / 1e6


def test_an_evaluation_sends_the_questions_of_all_units_in_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with batching() as server:
        server.say = write
        config, run = described(tmp_path, f"{server.base}/v1", {"batch": True})
        evaluate_run(run, in_process(config, run), design(config))
        assert not untested_claims(run) and len(run.evaluated()) == 3
        asked = len(server.sent) + len(server.singly)
        assert len(server.singly) == 1 and len(server.batches) < len(server.sent)
        assert len(set(server.sent)) == len(server.sent)
        assert read_spending(run).dollars == pytest.approx(SINGLE * (1 + (asked - 1) / 2))


def test_batches_are_for_what_nobody_waits_for(tmp_path: Path):
    own = ["backbone.kind=openai", "backbone.model=m", "backbone.base_url=http://127.0.0.1:9/v1"]
    with pytest.raises(UsageError, match="backbone.batch=true: an agent or a viewer cannot wait"):
        load([*sources(tmp_path), *own, "backbone.batch=true"])


def test_the_first_failure_ends_what_has_not_begun():
    begun = list[int]()

    def work(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise ValueError(item)
        return item

    with pytest.raises(ValueError, match="2"):
        list(each_at_once(work, range(100), 1))
    assert begun == [0, 1, 2]
    assert sorted(each_at_once(str, range(50), 8)) == [(n, str(n)) for n in range(50)]
    with pytest.raises(ValueError, match="2"):
        list(each_at_once(work, range(100), 4))
