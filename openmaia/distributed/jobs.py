"""Submits a job to an existing Ray cluster, as `ray job submit` does."""

from typing import Any

from ray.job_submission import JobSubmissionClient

from openmaia.core.errors import UsageError


def submit(address: str, entrypoint: str, runtime_env: dict[str, Any], metadata: dict[str, str]) -> str:
    """Submits a job and returns its id.

    Raises:
        UsageError: If no Ray dashboard answers at the address or if it rejects the job.
    """
    try:
        client = JobSubmissionClient(address)
        return client.submit_job(entrypoint=entrypoint, runtime_env=runtime_env, metadata=metadata)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise UsageError(
            f"--address={address}: no Ray dashboard took the job ({said[0] if said else type(error).__name__}). Give the "
            "dashboard's address, such as http://127.0.0.1:8265, through an SSH tunnel where it is elsewhere"
        ) from error
