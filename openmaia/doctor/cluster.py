"""The GPUs of a Ray cluster, asked in a process of its own: Ray itself may take minutes to say that nobody is there."""

import json
import subprocess
import sys
from dataclasses import dataclass

from openmaia.doctor.finding import Finding, missing, note, ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """gpus: of each node; None where the cluster did not tell."""

    finding: Finding
    gpus: list[int] | None = None


def ask(address: str, seconds: float) -> Cluster:
    command = [sys.executable, "-m", "openmaia.doctor.nodes", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Cluster(finding=note(f"ray.address={address}: no answer within {seconds:g} s; its GPUs are not known"))
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return _told(address, json.loads(line))
    reason = (done.stderr.strip().splitlines() or ["it could not be asked"])[-1]
    return Cluster(finding=note(f"ray.address={address}: {reason}; its GPUs are not known"))


def _told(address: str, said: dict[str, list[int] | str]) -> Cluster:
    if isinstance(refused := said.get("refused"), str):
        return Cluster(finding=missing(refused, "ray start --head, or ray.address=…"))
    gpus = said["gpus"]
    assert isinstance(gpus, list)
    listed = " + ".join(map(str, gpus)) or "no"
    text = (
        f"ray.address={address}: {len(gpus)} nodes with {listed} GPUs; packages and weights were looked for on this one"
    )
    return Cluster(finding=ok(text), gpus=gpus)
