"""The whole program on a GPU, with models of random weights: doctor, estimate, run, SIGINT, resume, evaluate, report.

    python -m measure.gpu.whole out=FOLDER [vllm=1|0] [small=1] [KEY=VALUE ...]

Target, generator, editor and exemplar workers share one GPU. The agent is the scripted one; where vLLM is installed and there
is a GPU, or with `vllm=1`, a second run has a tiny language model as its agent. All images are drawn, nothing is downloaded;
images of the generator are noise, so that descriptions mean nothing. What costs time, and whether every step ends as it should,
is what is seen. Keys of the config follow those of the script, such as `generator.model=FOLDER`.

While the steps run, the GPU is sampled each second: the share of seconds in which it worked at all, and the mean use by the
processes of each pool. Output of the steps and whole.json are in FOLDER. The exit code is 1 if a step ended otherwise than it
should. Without a GPU all steps run on the CPU, as a rehearsal.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 300
"""Longest duration of a step. All together are meant to take less than ten minutes on a GPU."""

INTERRUPTED_S = 120
"""The first run is interrupted as soon as it has ended an investigation, at the latest after so many seconds."""

SETTINGS = [
    "target.name=scenes_resnet",
    "target.network=openmaia.offline.networks:scenes_resnet",
    "target.layers=[stage3,stage4]",
    "pictures.kind=scenes",
    "backbone.kind=scripted",
    "generator.kind=diffusers",
    "generator.size=64",
    "generator.steps=4",
    "generator.dtype=float32",
    "editor.kind=diffusers",
    "editor.steps=4",
    "editor.dtype=float32",
]

SIZES = {
    False: [
        "units=stage3=random:4:stage4=random:4",
        "pictures.count=2000",
        "ray.investigations=8",
        "evaluate.detect=10",
    ],
    True: [
        *("units=stage4=random:2", "pictures.count=200", "ray.investigations=2", "evaluate.n=2", "evaluate.detect=4"),
        *("evaluate.pictures=8", "evaluate.random_words=1", "limits.turns=3", "limits.soft_turns=2", "exemplars.k=5"),
    ],
}
"""By whether the run is small."""

ON_GPU = [
    *("pools.target.num_gpus=0.2", "pools.target.min_replicas=2", "pools.target.max_batch=64"),
    *(
        "pools.generator.num_gpus=0.3",
        "pools.editor.num_gpus=0.3",
        "pools.generator.max_batch=8",
        "pools.editor.max_batch=8",
    ),
]

WITH_VLLM = [
    *("backbone.kind=vllm", "backbone.context_tokens=8192", "backbone.eager=true", "limits.reply_tokens=64"),
    *("limits.turns=2", "limits.soft_turns=1", "viewer.kind=none"),
]


class Sampler(threading.Thread):
    """Asks nvidia-smi each second how much the GPU worked, and for which processes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._samples: list[tuple[float, Mapping[str, float]]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(1.0):
            self._samples.append((gpu_use(), use_by_pool()))

    def end(self) -> dict[str, Any]:
        """Ends the thread and returns what was seen."""
        self._ended.set()
        self.join()
        busy, seconds = [use for use, _ in self._samples], len(self._samples)
        pools = sorted({pool for _, by_pool in self._samples for pool in by_pool})
        return {
            "samples": seconds,
            "share of samples in which the GPU worked": sum(use > 0 for use in busy) / max(seconds, 1),
            "mean use of the GPU, %": sum(busy) / max(seconds, 1),
            "mean use by pool, %": {
                pool: sum(by_pool.get(pool, 0.0) for _, by_pool in self._samples) / seconds for pool in pools
            },
        }


def gpu_use() -> float:
    """Percent of the last second in which the first GPU worked."""
    asked = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return float(said[0]) if said and said[0].isdigit() else 0.0


def use_by_pool() -> dict[str, float]:
    """The same by the pool whose replicas are the processes, as far as nvidia-smi knows the processes."""
    said = subprocess.run(
        ["nvidia-smi", "pmon", "-c", "1", "-s", "u"], capture_output=True, text=True, check=False
    ).stdout
    return pool_shares(said, process_title)


def pool_shares(said: str, title: Any) -> dict[str, float]:
    """Reads a table of `nvidia-smi pmon`: GPU, process id, type, use in percent, and columns that are not needed.

    Args:
        title: Returns the title of a process by its id. Ray's begin with `ray::`, and those of replicas name their pool.
    """
    shares: dict[str, float] = {}
    for line in said.splitlines():
        cells = line.split()
        if len(cells) > 3 and cells[0].isdigit() and cells[1].isdigit() and cells[3].isdigit():
            pool = title(int(cells[1])).removeprefix("ray::").split(" ")[0].split("-")[0] or "others"
            shares[pool] = shares.get(pool, 0.0) + float(cells[3])
    return shares


def process_title(process: int) -> str:
    """The title of a process of this machine; empty if there is none (any more), as in a container with ids of its own."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


class Steps:
    """Runs commands of the program, notes how they end, and writes it at once: a machine may be lent for minutes only."""

    def __init__(self, out: Path, found: dict[str, Any]):
        self._out, self.found = out, found
        self.unexpected: list[str] = []

    def run(self, name: str, arguments: Sequence[str], expected: Sequence[int], interrupt: Path | None = None) -> None:
        """Runs `openmaia` and checks its exit code. If `interrupt` is given, a SIGINT follows as soon as this folder holds a
        file, or after INTERRUPTED_S."""
        began = time.monotonic()
        with (self._out / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "openmaia.cli.main", *arguments],
                cwd=self._out, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            sent = _send(process, interrupt) if interrupt else None
            try:
                code: Any = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(60)
                code = f"none within {LIMIT_S} s"
        figures = {"s": round(time.monotonic() - began, 1), "exit code": code}
        if sent is not None:
            figures["from SIGINT to the end, s"] = round(time.monotonic() - sent, 1)
        self.note(name, figures)
        if code not in expected:
            self.unexpected.append(f"{name}: exit code {code}, expected {' or '.join(map(str, expected))}")
            print("".join((self._out / f"{name}.log").read_text(errors="replace").splitlines(True)[-25:]), flush=True)

    def note(self, name: str, value: Any) -> None:
        """Notes a figure."""
        self.found[name] = value
        (self._out / "whole.json").write_text(json.dumps(self.found, indent=1) + "\n")
        print(name, json.dumps(value), flush=True)


def _send(process: "subprocess.Popen[bytes]", folder: Path) -> float | None:
    """Sends SIGINT, and returns when. None if the process ends before."""
    until = time.monotonic() + INTERRUPTED_S
    while process.poll() is None:
        if time.monotonic() > until or any(each.is_file() for each in folder.rglob("*.parquet")):
            process.send_signal(signal.SIGINT)
            return time.monotonic()
        time.sleep(0.2)
    return None


@contextmanager
def sampled(steps: Steps, has_gpu: bool) -> Iterator[None]:
    """Samples the GPU, if there is one."""
    if not has_gpu:
        yield
        return
    sampler = Sampler()
    sampler.start()
    try:
        yield
    finally:
        steps.note("the GPU while the runs were executed", sampler.end())


def models(folder: Path) -> list[str]:
    """Writes tiny pipelines of diffusers with random weights, and returns their settings."""
    from tests.helpers.tiny.stable import save_pix2pix, save_stable

    generator, editor = save_stable(folder / "generator", safe=True), save_pix2pix(folder / "editor", safe=True)
    return [f"generator.model={generator}", f"editor.model={editor}"]


def language_model(folder: Path) -> list[str]:
    """The same for a tiny language model that sees images."""
    from tests.helpers.tiny import gemma

    return [*WITH_VLLM, f"backbone.model={gemma.build(folder / 'language_model')}"]


def main(arguments: Sequence[str]) -> int:
    """Runs all steps. Returns the exit code."""
    given = dict(each.partition("=")[::2] for each in arguments)
    out = Path(given.pop("out", "build/gpu")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    small, has_gpu = bool(given.pop("small", "")), shutil.which("nvidia-smi") is not None
    vllm = given.pop("vllm", "1" if has_gpu and importlib.util.find_spec("vllm") else "0") == "1"
    os.environ |= {"HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    settings = [
        "name=whole", *SETTINGS, *SIZES[small], *(ON_GPU if has_gpu else []), *models(out / "models"),
        *(f"paths.{name}={out / name}" for name in ("runs", "exemplars", "cache")),
        *(f"{key}={value}" for key, value in given.items()),
    ]  # fmt: skip
    steps, run = Steps(out, {"gpu": _gpu_name() if has_gpu else "none"}), out / "runs" / "whole"
    shutil.rmtree(out / "runs", ignore_errors=True)
    steps.run("doctor", ["doctor", *settings], [0])
    steps.run("estimate", ["run", *settings, "--estimate"], [0])
    with sampled(steps, has_gpu):
        # It may end before the signal comes.
        steps.run("run, interrupted", ["run", *settings], [3, 0], interrupt=run / "records")
        steps.run("run, resumed", ["run", *settings], [0])
        if vllm:
            extra = [*language_model(out / "models"), "name=vllm", "units=stage4=random:2"]
            extra += ["pools.backbone.num_gpus=0.2"] if has_gpu else []
            steps.run("run with vLLM", ["run", *settings, *extra], [0])
    steps.run("show", ["show", str(run)], [0])
    steps.run("evaluate", ["evaluate", str(run)], [0])
    steps.run("report", ["report", str(run)], [0])
    for line in steps.unexpected:
        print(line, flush=True)
    print("seen on a GPU" if has_gpu else "rehearsed without a GPU", flush=True)
    return 1 if steps.unexpected else 0


def _gpu_name() -> str:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
