"""A whole ablation on Ray: units computed from pixels, replayed conversations, a few drawn pictures."""

from pathlib import Path

import pytest

from openmaia.assembly.sweeps import run_ablation
from openmaia.cli.terminal.output import Terminal
from openmaia.config.loading import load
from openmaia.evaluation.analysis.ablation import FULL, OTHER, ablation_results
from openmaia.runs.run import Run
from tests.helpers.sweeping import sources

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.timeout(300)
def test_tool_sets_run_over_the_same_units_and_are_tested_with_one_generator(tmp_path: Path):
    given = [*sources(tmp_path), "units=mono=0-1", "ray.num_cpus=2", "evaluate.pictures=0", "exemplars.k=2"]
    configs = {
        FULL: load([*given, "name=full"]),
        "no-editing": load([*given, "name=less", "without=[edit_images]"]),
        OTHER: load([*given, "name=other", "generator.size=96"]),
    }
    with Terminal() as terminal:
        made = run_ablation(configs, terminal)
    assert list(made) == [FULL, "no-editing", OTHER]
    assert {name: len(run.evaluated()) for name, run in made.items()} == dict.fromkeys(made, 2)
    found = ablation_results(made, 100)
    # The same answers, tested with the same images, whatever the agent's own generator was.
    assert [row.against.mean for row in found if row.against] == [0.0, 0.0]
    stamps = [_stamps(run) for run in made.values()]
    with Terminal() as terminal:
        run_ablation(configs, terminal)
    assert [_stamps(run) for run in made.values()] == stamps, "what is done is not done again"


def _stamps(run: Run) -> list[int]:
    root = run.files.local
    assert root is not None
    return [
        path.stat().st_mtime_ns
        for folder in ("records", "evaluation")
        for path in sorted((root / folder).rglob("*.parquet"))
    ]
