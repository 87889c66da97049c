"""Benchmarks. Each module has `measure(smoke) -> figures`; `smoke` runs it at a scale that proves nothing about speed."""

import openmaia.distributed  # noqa: F401  settles how Ray starts, before anything here imports Ray
