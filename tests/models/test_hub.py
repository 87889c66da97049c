"""Files of models on a hub that refuses them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.http import QuietHandler, serving


@contextmanager
def hub(status: int, code: str) -> Iterator[str]:
    """A model hub that answers everything with this status and error code."""

    class Answer(QuietHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.end_headers()

        do_GET = do_HEAD

    with serving(Answer) as address:
        yield address


READ = """
from openmaia.core.errors import UsageError
from openmaia.models.hub import read_json
try:
    print(read_json("generator.model", "someone/model", "model_index.json"))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "GatedRepo", "generator.model='someone/model' is gated"),
        (404, "RepoNotFound", "generator.model='someone/model' is neither a folder nor a model of the hub"),
        (403, "", "generator.model='someone/model' is no folder, and the model hub did not answer"),
        (404, "EntryNotFound", "None"),
        (0, "", "generator.model='someone/model' is no folder, and the model hub did not answer"),
    ],
)
def test_refusal_of_the_hub_is_explained(tmp_path: Path, status: int, code: str, expected: str) -> None:
    """In a process of its own: the hub's client reads its address when it is imported."""
    with hub(status or 500, code) as address:
        environment = {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": str(int(not status))}
        command = [sys.executable, "-c", READ]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(expected), done.stderr
