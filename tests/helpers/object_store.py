"""A server on this machine that speaks the protocol of S3."""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import free_port

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "openmaia",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class ObjectStore:
    url: str
    """An empty bucket."""
    environment: dict[str, str]
    """What a client needs in its environment."""
    log: Path

    def requests(self) -> list[str]:
        """Method and path of each request so far."""
        return re.findall(r"(?:GET|PUT|POST|HEAD|DELETE) \S+", self.log.read_text())


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    port, log = free_port(), folder / "object-store.log"
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            _create_bucket(f"{address}/runs")
            yield ObjectStore(url="s3://runs", environment=ENVIRONMENT | {"AWS_ENDPOINT_URL": address}, log=log)
        finally:
            server.terminate()


def _create_bucket(url: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
