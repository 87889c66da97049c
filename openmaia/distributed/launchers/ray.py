"""Submits a run as a job to an existing Ray cluster. Ray uploads the working directory, with code and configs."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openmaia.config.machine import RuntimeEnvConfig
from openmaia.config.named import find_config
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError

_EXCLUDES = ("/runs/", "/exemplars/*/", "*.sqsh", "*.sif")
"""Patterns of files that are not uploaded. Ray itself also excludes .git, .venv, caches and entries of .gitignore."""


_INSTALLERS = ("pip", "uv", "image_uri", "py_executable")
"""Keys of `job.runtime_env` that choose the Python environment of the job. Ray accepts only one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayClusterJob:
    """A job for `ray job submit`."""

    address: str
    """The address of the Ray dashboard."""
    entrypoint: str
    """The shell command of the job."""
    runtime_env: dict[str, Any]
    """Ray's runtime environment without environment variables. Their values are read only when the job is submitted."""
    env_vars: tuple[str, ...]
    """Names of the environment variables that are passed on to the job."""
    metadata: dict[str, str]

    def __str__(self) -> str:
        runtime_env = self.runtime_env | ({"env_vars": list(self.env_vars)} if self.env_vars else {})
        said = {"address": self.address, "entrypoint": self.entrypoint, "runtime_env": runtime_env}
        return yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=120)


def prepare(configs: Sequence[Config], sources: Sequence[str], address: str | None) -> RayClusterJob:
    """Returns the job that runs the given configs.

    Args:
        configs: The configs of the sweeps.
        sources: The config files and overrides from which they were loaded. The job loads them again.
        address: The address of the Ray dashboard; None for that in RAY_API_SERVER_ADDRESS or, if that is not set, one on
            this machine.

    Raises:
        UsageError: If a config file is outside of the working directory, or `job.runtime_env` is invalid.
    """
    folder = Path.cwd().resolve()
    words: list[str] = []
    for source in sources:
        path = Path(source)
        if find_config(source) != path:  # an override, or the name of a config that comes with the program
            words.append(source)
        elif path.resolve().is_relative_to(folder):
            words.append(str(path.resolve().relative_to(folder)))
        else:
            raise UsageError(
                f"config {source!r} lies outside of {folder}, which is what the job gets; submit from a folder that holds it"
            )
    wanted = configs[0].job.runtime_env
    return RayClusterJob(
        address=address or os.environ.get("RAY_API_SERVER_ADDRESS") or "http://127.0.0.1:8265",
        entrypoint=shlex.join([wanted.py_executable or "python", "-m", "ray_jobs", "run", *words]),
        runtime_env=_runtime_env(wanted, folder),
        env_vars=_variables(wanted, os.environ),
        metadata={"name": configs[0].name},
    )


def _runtime_env(wanted: RuntimeEnvConfig, folder: Path) -> dict[str, Any]:
    given: dict[str, Any] = {key: value for key in _INSTALLERS if (value := getattr(wanted, key))}
    if len(given) > 1:
        raise UsageError(f"job.runtime_env has {' and '.join(given)}; give one of {', '.join(_INSTALLERS)}")
    if "image_uri" in given:
        return given  # With an image, Ray allows only variables, so that the image must hold the code and the configs.
    for installer in given.keys() & {"pip", "uv"}:
        given[installer] = [_on_the_cluster(requirement) for requirement in given[installer]]
    return {"working_dir": str(folder), "excludes": list(_EXCLUDES), **given}


def _on_the_cluster(requirement: str) -> str:
    """Replaces the leading dot of a local requirement by the variable that Ray sets to the uploaded directory."""
    is_local = requirement == "." or requirement.startswith(("./", ".["))
    return f"${{RAY_RUNTIME_ENV_CREATE_WORKING_DIR}}{requirement[1:]}" if is_local else requirement


def _variables(wanted: RuntimeEnvConfig, environment: Mapping[str, str]) -> tuple[str, ...]:
    if any("=" in name for name in wanted.env_vars):
        raise UsageError(
            "job.runtime_env.env_vars: expected names such as HF_TOKEN; the values are read from the environment"
        )
    if missing := [name for name in wanted.env_vars if name not in environment]:
        raise UsageError(
            f"job.runtime_env.env_vars: {', '.join(missing)} not set in this environment; export the variables first"
        )
    return tuple(wanted.env_vars)


def submit(job: RayClusterJob) -> str:
    """Submits a job and returns its id. Raises UsageError if the cluster cannot be reached or rejects the job."""
    from ray.job_submission import JobSubmissionClient  # whoever only prints the job does without Ray

    values = {name: os.environ[name] for name in job.env_vars}
    runtime_env = job.runtime_env | {"env_vars": values}
    try:
        client = JobSubmissionClient(job.address)
        return client.submit_job(entrypoint=job.entrypoint, runtime_env=runtime_env, metadata=job.metadata)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise UsageError(
            f"--address={job.address}: no Ray dashboard took the job ({said[0] if said else type(error).__name__}). Give the "
            "dashboard's address, such as http://127.0.0.1:8265, through an SSH tunnel where it is elsewhere"
        ) from error


def follow(job: RayClusterJob, number: str) -> list[str]:
    """Returns three shell commands: they follow the log of the job, show its state and end it."""
    at = f"--address={shlex.quote(job.address)}"
    return [f"ray job logs {at} --follow {number}", f"ray job status {at} {number}", f"ray job stop {at} {number}"]
