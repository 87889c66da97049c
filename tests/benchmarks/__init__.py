"""Benchmarks. Each module has `measure(smoke) -> figures`; `smoke` runs it at a scale that proves nothing about speed."""

import os

# Ray reads it when it is imported.
os.environ.setdefault("RAY_AUTH_MODE", "token")
