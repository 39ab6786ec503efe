"""``python -m benchmarks products``: matrix products, fused and by BLAS, compared with NumPy.

The rule of `hjit.trace.ops.reductions.blas` is based on it. There is a process for each number of threads, which
NumPy's BLAS uses, too. Each product runs by NumPy, by hjit's own loops and by BLAS from within hjit, interleaved; a row
has medians of the ratios of each round, and their quartiles. BLAS threads spin while they wait for each other: one that
is preempted costs milliseconds. Rounds in which that happened to any thread of the process are discarded, so that other
work on the machine costs rounds, not accuracy.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import hjit
from benchmarks.pairs import Ratio, ratio, seconds
from benchmarks.suite import ROOT, environment
from hjit.kernels.runtime.launch import cores
from hjit.trace.ops.reductions.blas import is_faster

Array = np.ndarray[Any, Any]


def product(a: Array, b: Array) -> Any:
    return a @ b


def transposed(a: Array, b: Array) -> Any:
    return a.T @ b


def relu(a: Array, b: Array) -> Any:
    return np.maximum(a @ b - 0.5, 0)


def computed(a: Array, b: Array) -> Any:
    return (a * 2 + 1) @ b


REPEAT_SECONDS = 1e-4  # for which short calls are repeated
TRIES = 5  # of a round, until no thread is preempted
MOST_ROUNDS = 25

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
SQUARES = [((n, n), (n, n)) for n in (16, 32, 64, 96, 128, 192, 256, 512, 1024)]
VECTORS = [((n, n), (n,)) for n in (64, 128, 256, 512, 1024, 2048)]
TALL = [
    ((1_000_000, 3), (3, 3)),
    ((1 << 17, 8), (8, 8)),
    ((1 << 16, 16), (16, 16)),
    ((1 << 15, 32), (32, 32)),
    ((1 << 14, 64), (64, 64)),
]
LONG = [
    *[((4096, 256), (256, 4)), ((4096, 4), (4, 256)), ((256, 4096), (4096, 16))],
    *[((8192, 128), (128, 8)), ((1 << 15, 16), (16, 64)), ((1 << 14, 32), (32, 128)), ((1 << 14, 128), (128, 16))],
    *[((64, 1 << 14), (1 << 14, 64)), ((1024, 16), (16, 1024)), ((1024, 64), (64, 1024))],
]
CASES: tuple[tuple[Callable[..., Any], Sequence[Shapes]], ...] = (
    (product, [*SQUARES, *VECTORS, *TALL, *LONG]),
    (transposed, [*SQUARES[5:8], *VECTORS]),
    (relu, SQUARES[2:8]),
    (computed, [*SQUARES[3:8], *VECTORS[3:]]),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Ratios of times, with their quartiles.

    Attributes:
        by_blas: what the rule says, of strict results.
        numpy_of_fused: NumPy's time, of that of hjit's own loops: how many times as fast these are; `fast_math`: where
            they may round as they like.
        fused_of_blas: how many times as fast as them is BLAS within hjit.
        numpy_of_blas: how many times as fast as NumPy is that. All are None where the machine was never quiet enough.
    """

    function: str
    dtype: str
    shapes: Shapes
    threads: int
    by_blas: bool
    numpy_us: float | None
    numpy_of_fused: Ratio | None
    numpy_of_fast_math: Ratio | None
    fused_of_blas: Ratio | None
    numpy_of_blas: Ratio | None


def _measured(threads: int, budget: float, most: int) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    for f, shapes in CASES:
        for given in shapes:
            for dtype in (np.float32, np.float64):
                if max(int(np.prod(s)) for s in given) <= most:
                    yield _row(f, given, [rng.random(s).astype(dtype) for s in given], threads, budget)


def _row(f: Callable[..., Any], shapes: Shapes, arrays: Sequence[Array], threads: int, budget: float) -> Row:
    def run(**options: Any) -> Callable[[], Any]:
        compiled = hjit.pipeline(f, cache="off", verify="off", tune=False, num_threads=threads, **options)
        compiled(*arrays)
        return lambda: compiled(*arrays)

    ways = [lambda: f(*arrays), run(blas=False), run(blas=False, fast_math=True), run(blas=True)]
    numpy_s, fused, fast, blas = quiet_rounds(ways, budget)
    (rows, length), columns = shapes[0], 1 if len(shapes[1]) == 1 else shapes[1][1]
    if f is transposed:
        rows, length = length, rows
    chosen = is_faster(1, rows, columns, length, arrays[0].itemsize, f is not computed)
    ratios = [
        ratio(a, b) if a else None for a, b in ((numpy_s, fused), (numpy_s, fast), (fused, blas), (numpy_s, blas))
    ]
    return Row(
        f.__name__,
        str(arrays[0].dtype),
        shapes,
        threads,
        chosen,
        1e6 * statistics.median(numpy_s) if numpy_s else None,
        *ratios,
    )


def quiet_rounds(ways: Sequence[Callable[[], Any]], budget: float) -> list[list[float]]:
    """Seconds of a call of each, one for each round in which no thread was preempted."""
    found: list[list[float]] = [[] for _ in ways]
    end = time.perf_counter() + budget * len(ways)
    while len(found[0]) < MOST_ROUNDS and time.perf_counter() < end:
        times = [_round(way) for way in ways]
        for way, t in zip(found, times, strict=True):
            if None not in times and t is not None:
                way.append(t)
    return found


def _round(way: Callable[[], Any]) -> float | None:
    """Seconds of a call, a mean of several if it is short; None if threads were preempted in every try."""
    way()
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        times = [seconds(way)]
        while sum(times) < REPEAT_SECONDS:
            times.append(seconds(way))
        if resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw == before:
            return statistics.mean(times)
    return None


def run(threads: int | None = None, *, small: bool = False, budget: float = 0.5) -> list[dict[str, Any]]:
    """A row for each product and dtype.

    Args:
        threads: of hjit and of BLAS; all cores if not given.
        small: none larger than the tests are to have.
        budget: seconds for each way to compute one.
    """
    threads = threads or cores()
    command = [
        sys.executable,
        "-m",
        "benchmarks.products",
        str(threads),
        str(budget),
        str(1 << 10 if small else 1 << 24),
    ]
    done = subprocess.run(command, env=environment(threads), cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    columns = ("numpy_of_fused", "numpy_of_fast_math", "fused_of_blas", "numpy_of_blas")
    t = Table(box=box.SIMPLE_HEAD, title="products", title_justify="left", padding=(0, 1, 0, 0))
    for name in (
        "",
        "dtype",
        "threads",
        "NumPy us",
        "fused/NumPy",
        "fast-math/NumPy",
        "BLAS/fused",
        "BLAS/NumPy",
        "rule",
    ):
        t.add_column(name, justify="right" if name else "left")
    for r in rows:
        what = f"{r['function']} {' @ '.join('x'.join(map(str, s)) for s in r['shapes'])}"
        ratios = ["-" if r[name] is None else Ratio(**r[name]).text() for name in columns]
        time = "-" if r["numpy_us"] is None else f"{r['numpy_us']:.1f}"
        t.add_row(what, r["dtype"], str(r["threads"]), time, *ratios, "BLAS" if r["by_blas"] else "fused")
    Console().print(t)


if __name__ == "__main__":
    for row in _measured(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(asdict(row)), flush=True)
