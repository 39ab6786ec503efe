"""Benchmarks: ``python -m benchmarks overhead [--json FILE]``."""
