"""Runs OpenMAIA on Ray. Only this package and ray_jobs import Ray."""

import os
import sys

# Ray reads these variables when it is imported, so that they are set before any other module of the package imports it.
if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
    # A process that Ray has started keeps the mode of its node, which the processes that it starts inherit.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable. If it is 0 when Ray is imported, Ray listens on the loopback address only."""


def prepare(address: str) -> None:
    """Makes a cluster that the run starts itself listen on the loopback address only.

    It has to be called before Ray is imported for the first time.

    Args:
        address: The `ray.address` of the config.
    """
    if address == "local":
        os.environ.setdefault(LOOPBACK_VARIABLE, "0")
