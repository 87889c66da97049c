"""Ray: the only package, with ray_jobs, that imports it.

Ray reads its mode of authentication when it is imported, so it is settled here, before any module of this package
imports Ray. Whoever sets these variables decides; nobody's usage is reported. gRPC must not hook into forks: it writes a
line to stderr at each.
"""

import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
