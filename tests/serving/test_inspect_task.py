"""The task of inspect_ai, with its own scripted model."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.investigating import LISTED, TESTED

pytest.importorskip("inspect_ai")


def evaluated(given: list[str], replies: list[str], log: Path, limit: int | None = None, **task: Any) -> Any:
    from inspect_ai import eval as evaluate
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from openmaia.api.inspect_task import investigations

    # Without a usage, it counts tokens by a file that it downloads.
    usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    outputs = [ModelOutput.from_content("mockllm", reply).model_copy(update={"usage": usage}) for reply in replies]
    model = get_model("mockllm/model", custom_outputs=outputs)
    investigated = investigations(" ".join(given), **task)
    (done,) = evaluate(investigated, model=model, log_dir=str(log), display="none", message_limit=limit)
    assert done.status == "success", done.error
    return done


def test_model_of_inspect_investigates_each_unit(given: list[str], tmp_path: Path):
    wrong = LISTED.replace("red", "blue")
    done = evaluated(given, [TESTED, LISTED, TESTED, wrong], tmp_path / "logs", units="mono=0,1")
    first, second = (sample.scores["labels"] for sample in sorted(done.samples, key=lambda each: each.id))
    assert first.value == {"exact": 1.0, "precision": 1.0, "recall": 1.0} and first.answer == "red"
    assert second.value["exact"] == 0.0 and "truth: " in second.explanation
    assert Path(first.metadata["record"]).is_file()
    message = done.samples[0].messages[3]
    assert message.role == "user" and "[" in message.text


def test_limit_of_inspect_ends_an_investigation_with_a_record(given: list[str], tmp_path: Path):
    done = evaluated(given, [TESTED, LISTED], tmp_path / "logs", limit=4, units="mono=0")
    (sample,) = done.samples
    assert sample.limit is not None and sample.limit.type == "message"
    metadata = sample.scores["labels"].metadata
    assert metadata["stop"] == "stopped" and metadata["labels"] == [] and Path(metadata["record"]).is_file()
