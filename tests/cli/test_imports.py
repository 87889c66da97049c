"""What an import costs: the loop and the light modules load nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "transformers", "diffusers", "vllm", "wandb", "torchvision")
LIGHT = ("scipy", "pyarrow", "sandlock")


def loaded(module: str, *names: str) -> list[str]:
    """Which of the names are imported by importing a module in a fresh interpreter."""
    code = f"import sys, {module}; print(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "openmaia", "openmaia.agent", "openmaia.agent.loop", "openmaia.config.loading", "openmaia.core.services", "openmaia.core.units",
        "openmaia.runs.run", "openmaia.exemplars.store", "openmaia.agent.tools.toolbox", "openmaia.agent.tools.api_text",
        "openmaia.agent.tasks.task", "openmaia.agent.tasks.grammar", "openmaia.evaluation.run", "openmaia.datasets.library",
        "openmaia.agent.sandbox", "openmaia.offline.collage", "openmaia.cli.assembly.hosts", "openmaia.cli.assembly.investigations", "openmaia.cli.main", "openmaia.interop.importing", "openmaia.interop.export",
        "openmaia.reporting.tracking", "openmaia.reporting.figures.agents", "openmaia.apps.spurious.study", "openmaia.apps.spurious.page",
    ],
)  # fmt: skip
def test_importing_it_loads_nothing_heavy(module: str):
    assert loaded(module, *HEAVY) == []


@pytest.mark.parametrize(
    "module", ["openmaia", "openmaia.config.loading", "openmaia.core.services", "openmaia.cli.main"]
)
def test_importing_it_is_light(module: str):
    assert loaded(module, *LIGHT) == []
