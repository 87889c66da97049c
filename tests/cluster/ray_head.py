"""A Ray head with a dashboard, a token and ports of its own."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import free_port


@contextmanager
def ray_head(folder: Path, ray: Sequence[str], more: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Runs `ray start --head` in a process group that is ended by its id.

    Args:
        folder: Where the token is written.
        ray: The command `ray`.
        more: Further variables of its environment.

    Yields:
        The environment of the head, with ADDRESS, DASHBOARD, RAY_FOLDER (Ray's files) and HEAD (the id of the process group).
    """
    # Sockets live below Ray's folder, and their paths may not be long.
    short = Path(f"/tmp/ray-{os.getpid()}-{free_port()}")
    token = folder / "token"
    token.write_text("0123456789abcdef" * 4)
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        **more,
    }
    port, dashboard, agent = free_port(), free_port(), free_port()
    ports = [f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    process = subprocess.Popen(
        [*ray, "start", "--head", "--block", *ports, "--num-cpus=2", f"--temp-dir={short}", "--include-dashboard=true"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 90
        while not (_answers(port) and _answers(dashboard)):
            assert process.poll() is None, "ray start ended"
            assert time.monotonic() < until, "ray start did not come up"
            time.sleep(0.3)
        yield environment | {
            "ADDRESS": f"{_host(short)}:{port}",
            "DASHBOARD": f"http://127.0.0.1:{dashboard}",
            "RAY_FOLDER": str(short),
            "HEAD": str(process.pid),
        }
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    except ProcessLookupError:
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _host(folder: Path) -> str:
    """Returns the address under which the head knows itself."""
    text = (folder / "ray_current_cluster").read_text() if (folder / "ray_current_cluster").exists() else ""
    found = re.match(r"([^:]+):\d+", text.strip())
    return found[1] if found else socket.gethostbyname(socket.gethostname())
