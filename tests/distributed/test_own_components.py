"""A generator from the user's folder draws in pools on Ray, for agents and for the test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.helpers import own_components

SCRIPT = """
import openmaia.distributed
import ray
from openmaia.config.loading import load
from openmaia.core.services import Generation, Edit
from tests.helpers.run_pools import pools

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
config = load([
    "name=x", "units=all", "target.name=t", "target.kind=closed_form", "ray.address=auto",
    "generator.kind=mymodels:Plain", "generator.size=16", "editor.kind=mymodels:Darker",
    "evaluate.generator.kind=mymodels:Plain", "evaluate.generator.colour=blue", "evaluate.generator.size=16",
    "paths.cache=cache",
])
with pools(config) as made:
    [drawn] = made.generator("x").generate([Generation(prompt="a", seed=0)])
    [edited] = made.services(None, "x").editor.edit([Edit(image=drawn.image, instruction="b", seed=0)])
    [tested] = made.test_generator("x").generate([Generation(prompt="a", seed=0, split="test")])
print([each.image.pixels[0, 0].tolist() for each in (drawn, edited, tested)])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_own_components_serve_pools(tmp_path: Path):
    own_components.write(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    variables = os.environ | {"PYTHONPATH": str(REPOSITORY), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=280
    )
    assert done.stdout.splitlines()[-1:] == ["[[200, 0, 0], [100, 0, 0], [0, 0, 200]]"], done.stderr[-3000:]
