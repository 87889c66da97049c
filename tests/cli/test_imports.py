"""What an import costs: the loop and the light modules load nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "transformers", "diffusers", "vllm", "wandb", "torchvision")
LIGHT = ("scipy", "pyarrow", "sandlock")


MODULES = (
    "openmaia", "openmaia.agent", "openmaia.agent.loop", "openmaia.config.loading", "openmaia.core.services", "openmaia.core.units",
    "openmaia.runs.run", "openmaia.exemplars.store", "openmaia.agent.tools.toolbox", "openmaia.agent.tools.api_text",
    "openmaia.agent.tasks.task", "openmaia.agent.tasks.grammar", "openmaia.evaluation.run", "openmaia.datasets.library",
    "openmaia.agent.sandbox", "openmaia.offline.collage", "openmaia.offline.closed_form", "openmaia.assembly.hosts", "openmaia.assembly.investigations",
    "openmaia.cli.main", "openmaia.interop.importing", "openmaia.interop.export", "openmaia.reporting.tracking",
    "openmaia.analysis.agents", "openmaia.recipes.spurious.study", "openmaia.recipes.spurious.page", "openmaia.serving.mcp_server",
)  # fmt: skip
LIGHT_MODULES = ("openmaia", "openmaia.config.loading", "openmaia.core.services", "openmaia.cli.main")
STATISTICS = ("scipy", "sklearn", "pandas", "matplotlib", "torch", "wandb")
PROCESSES = (
    "openmaia.cli.terminal.output", "openmaia.cli.commands.run", "openmaia.cli.commands.results", "openmaia.distributed.sweep",
    "openmaia.distributed.worker", "openmaia.distributed.examiner", "openmaia.distributed.pools.replica",
    "openmaia.distributed.pools.dispatch.dispatcher",
)  # fmt: skip
"""What each command, and each process of a run, imports before it computes anything."""

IMPORT = """
import importlib, sys
modules, names = sys.argv[1].split(), sys.argv[2].split()
for module in modules:
    importlib.import_module(module)
    if found := [name for name in names if name in sys.modules]:
        sys.exit(f"{module} loads {found}")
"""
"""Imports modules one after another and ends with an error at the first one that loads one of the names."""


@pytest.mark.parametrize(("modules", "names"), [(MODULES, HEAVY), (LIGHT_MODULES, LIGHT), (PROCESSES, STATISTICS)])
def test_imports_load_nothing_heavy(modules: tuple[str, ...], names: tuple[str, ...]):
    command = [sys.executable, "-c", IMPORT, " ".join(modules), " ".join(names)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
