"""Runs OpenMAIA on Ray. Only this package and ray_jobs import Ray.

Ray reads environment variables when it is imported, so this module sets them before any other module of the package
imports Ray. Variables that are already set keep their values. By default, token authentication is on and usage
statistics are off.
"""

import os
import sys

if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
    # A process that Ray has started keeps the mode of its node, which processes that it starts inherit.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable. If it is 0 when Ray is imported, Ray listens on the loopback address only."""


def prepare(address: str) -> None:
    """Makes a Ray cluster that the run starts itself listen on the loopback address only.

    It has to be called before Ray is imported for the first time. It does nothing if the run joins an existing cluster.

    Args:
        address: The `ray.address` of the config; "local" means that the run starts its own cluster.
    """
    if address == "local":
        os.environ.setdefault(LOOPBACK_VARIABLE, "0")
