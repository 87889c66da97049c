"""torch and torchvision, asked in a process of their own: to import them takes seconds, and may fail or hang."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from openmaia.doctor.finding import Finding, missing, note, ok
from openmaia.doctor.gpus import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """What became known within the time. `late`: it did not suffice. `broken`: why torch cannot be imported."""

    torch: str = ""
    gpu_build: bool = False
    cards: list[Card] = field(default_factory=list[Card])
    torchvision: str = ""
    unusable: str = ""
    checkpoint: dict[str, Any] = field(default_factory=dict[str, Any])
    late: bool = False
    broken: str = ""


def ask(network: str, seconds: float) -> Libraries:
    """network: a name for torchvision or timm whose checkpoint is to be looked up, or empty."""
    command = [sys.executable, "-m", "openmaia.doctor.probe", network]
    late, code, errors = False, 0, ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said, errors = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            said, errors = process.communicate()
    known: dict[str, Any] = {"late": late}
    for line in said.splitlines():
        if line.startswith("{"):  # other libraries print too
            known |= json.loads(line)
    known["cards"] = [Card(name=name, total=total, free=None) for name, total in known.get("cards", [])]
    if code and "torch" not in known:
        known["broken"] = (errors.strip().splitlines() or ["no message"])[-1]
    return Libraries(**known)


def findings(known: Libraries) -> list[Finding]:
    """Whether torchvision can be imported beside this torch; transformers and vLLM import it wherever it is installed."""
    if known.broken:
        return [missing(f"torch cannot be imported: {known.broken}", "make setup")]
    if known.unusable:
        torch = known.torch.partition("+")[0]
        index = "" if known.gpu_build else " --index-url https://download.pytorch.org/whl/cpu"
        return [
            missing(
                f"torchvision cannot be imported beside torch {known.torch}: {known.unusable}",
                f"make setup, or pip install --force-reinstall torch=={torch} torchvision{index}",
            )
        ]
    if not known.torchvision:
        return [note("torch and torchvision were not imported within the time: whether they fit is not known")]
    return [ok(f"torchvision {known.torchvision} can be imported beside torch {known.torch}")]
