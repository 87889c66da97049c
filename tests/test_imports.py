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
        "openmaia", "openmaia.agent", "openmaia.agent.attempt", "openmaia.config", "openmaia.services", "openmaia.units",
        "openmaia.store.run", "openmaia.store.exemplars", "openmaia.tools.toolbox", "openmaia.tools.api_text",
        "openmaia.tasks.task", "openmaia.tasks.grammar", "openmaia.evaluate.run", "openmaia.pictures.library",
        "openmaia.sandbox", "openmaia.generators.collage", "openmaia.build", "openmaia.cli", "openmaia.interchange.maia", "openmaia.interchange.export",
        "openmaia.tracking", "openmaia.figures.agents", "openmaia.apps.spurious.study", "openmaia.apps.spurious.page",
    ],
)  # fmt: skip
def test_importing_it_loads_nothing_heavy(module: str):
    assert loaded(module, *HEAVY) == []


@pytest.mark.parametrize("module", ["openmaia", "openmaia.config", "openmaia.services", "openmaia.cli"])
def test_importing_it_is_light(module: str):
    assert loaded(module, *LIGHT) == []
