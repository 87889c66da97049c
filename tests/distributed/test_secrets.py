"""Keys never reach what a run writes: a real run against a server that repeats them, and then a search of everything."""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.runs.run import Run
from tests.helpers.misbehaving import Act, Asked, Body, Server, answer, misbehaving
from tests.helpers.sweeping import ANSWER, EXPERIMENTS, sources

KEYS = {
    "OPENAI_API_KEY": "sk-proj/open+0123456789abcdef",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef",
    "WANDB_API_KEY": "0f" * 20,
    "HF_TOKEN": "hf_0123456789abcdefghij",
    "AWS_SECRET_ACCESS_KEY": "aws/0123456789+abcdefghij",
}
PRIVATE = "private-0123456789abcdef"
"""A part of the address of the server, which comes from the environment."""
LOOKS = "[CODE]:\n```python\nimport os, sys\nprint(dict(os.environ), sys.argv, sys.orig_argv)\n```"


def repeats_the_key(asked: Asked) -> Body:
    return {"error": {"message": f"no such thing for {asked.headers['authorization']}; headers were {asked.headers}"}}


class Conversation:
    """The first investigation goes well, except that the server fails once; the second is refused, with the key."""

    replies = (LOOKS, *EXPERIMENTS[:2], ANSWER)

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, asked: Asked) -> Act:
        self.requests += 1
        if self.requests == 2:
            return Act(status=500, body=repeats_the_key(asked))
        turn = self.requests - 1 - (self.requests > 2)
        if turn < len(self.replies):
            return Act(body=answer(asked, self.replies[turn]))
        return Act(status=400, body=repeats_the_key(asked))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, because Ray makes sockets in it."""
    made = Path(tempfile.mkdtemp(prefix="om-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as started:
        started.otherwise = Conversation()
        yield started


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Everything in a folder, with Parquet files in clear."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        yield str(path.relative_to(folder)), path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path, use_threads=False)
            yield f"{path.name}, decoded", repr([table.schema.metadata, table.to_pylist()]).encode()


def forms(key: str) -> set[bytes]:
    """A key as it is, and as it would be in a URL, a header with a user, or a Python literal."""
    return {key.encode(), quote(key, safe="").encode(), base64.b64encode(key.encode()), key[:16].encode()}


@pytest.mark.slow
def test_keys_reach_nothing_that_a_run_writes(folder: Path, server: Server):
    overrides = [
        *sources(folder / "data"),
        *("name=secret", "units=mono=0-1", "backbone.kind=openai", "backbone.model=some", "backbone.tries=3"),
        *("backbone.base_url=${oc.env:MODEL_URL}", "tracking.kind=wandb", "tracking.mode=offline"),
        *("ray.num_cpus=2", "ray.investigations=1", "backbone.outage_minutes=0.1"),
    ]
    home = folder / "home"
    home.mkdir()
    places = {"HOME": home, "TMPDIR": folder, "RAY_TMPDIR": folder}
    environment = {
        **os.environ,
        **KEYS,
        "MODEL_URL": f"{server.base}/{PRIVATE}/v1",
        **{name: str(path) for name, path in places.items()},
    }
    command = [sys.executable, "-m", "openmaia.cli.main"]
    done = subprocess.run([*command, "run", *overrides], env=environment, capture_output=True, timeout=400)
    run = Run.open(str(folder / "data/runs/secret"))
    assert (done.returncode, len(run.done()), len(run.failures())) == (1, 1, 1), done.stderr.decode()[-3000:]
    assert KEYS["OPENAI_API_KEY"] in server.asked[-1].headers["authorization"], "the key is used"
    shown = [
        subprocess.run([*command, verb, str(folder / "data/runs/secret")], env=environment, capture_output=True)
        for verb in ("show", "report")
    ]
    assert [each.returncode for each in shown] == [0, 0], shown
    kinds = {name.rsplit(".", 1)[-1] for name, _ in written(folder)}
    assert {"yaml", "parquet", "html", "wandb", "log"} <= kinds, "records, report, W&B and Ray's logs were searched"
    printed = [(str(each.args), each.stdout + each.stderr) for each in (done, *shown)]
    everything = [*written(folder), *printed]
    leaks = [
        (name, key)
        for name, data in everything
        for key, value in [*KEYS.items(), ("MODEL_URL", PRIVATE)]
        if any(f in data for f in forms(value))
    ]
    assert leaks == []


@pytest.mark.parametrize(
    ("override", "secret"),
    [
        ("backbone.base_url=http://user:hunter22@127.0.0.1/v1", "hunter22"),
        ("backbone.base_url=https://hunter22@host/v1", "hunter22"),
        ("backbone.base_url=https://host/v1?api_key=hunter22", "hunter22"),
        ("viewer.base_url=http://user:hunter22@host", "hunter22"),
        ("backbone.api_key=hunter22", "hunter22"),
        ("tracking.api_key=hunter22", "hunter22"),
        ("paths.runs=s3://user:hunter22@bucket/runs", "hunter22"),
        ("pictures.data=https://user:hunter22@host/a.tar", "hunter22"),
        ("backbone.arguments={hf_token: hunter22}", "hunter22"),
        ("backbone.arguments={api_key: hunter22}", "hunter22"),
        ("backbone.arguments={loader: {options: [{password: hunter22}]}}", "hunter22"),
        ("job.runtime_env.pip=[openmaia, 'https://user:hunter22@host/a.whl']", "hunter22"),
        ("target.directions={layer4: 's3://user:hunter22@bucket/a'}", "hunter22"),
    ],
)
def test_secret_in_a_config_is_refused_without_repeating_it(tmp_path: Path, override: str, secret: str):
    with pytest.raises(UsageError) as caught:
        load([*sources(tmp_path), override])
    assert secret not in str(caught.value) and override.partition("=")[0] in caught.value.message


@pytest.mark.parametrize(
    "override",
    ["paths.runs=s3://bucket/a@b", "backbone.base_url=http://[::1]:8000/v1", "pictures.folder=/data/me@home"],
)
def test_address_without_a_secret_is_accepted(tmp_path: Path, override: str):
    load([*sources(tmp_path), "backbone.kind=openai", "backbone.model=m", override])
