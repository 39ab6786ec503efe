"""Benchmarks: ``python -m benchmarks [apps|overhead] [--json FILE]``."""
