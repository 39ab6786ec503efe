"""``python -m benchmarks NAME [--json FILE]``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import overhead

BENCHMARKS = {"overhead": overhead}


def main() -> None:
    """Run a benchmark, print its table, write its numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="hjit's benchmarks.")
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers here, too")
    given = parser.parse_args()
    benchmark = BENCHMARKS[given.name]
    numbers = benchmark.run()
    benchmark.show(numbers)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(numbers, indent=2) + "\n")


main()
