"""Benchmarks. Each module has `measure(smoke) -> figures`; `smoke` runs it at a scale that proves nothing about speed."""
