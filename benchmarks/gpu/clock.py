"""Times of calls on a GPU, the rate of its copies, and what calls cost the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.candidates import Candidate, Run
from benchmarks.pairs import seconds

MIN_ROUNDS, MAX_ROUNDS = 7, 60
ROUND_SECONDS = 4e-3  # of calls between two events
MAX_CALLS = 50  # between two events
COPY_BYTES = 512 << 20  # of the copy that the device's rate is measured by: larger than its caches
RESOLUTION = 5e-7  # seconds: of the time between two events, as CUDA documents it


class Clock:
    """Times of calls on the current stream of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.stream = cupy, cupy.cuda.get_current_stream()

    def seconds(self, c: Candidate, calls: int) -> float:
        """Of a call, the mean of so many."""
        if c.wait is not None:
            c.wait()
            start = time.perf_counter()
            for _ in range(calls):
                c.run()
            c.wait()
            return (time.perf_counter() - start) / calls
        first = self.stream.record()
        for _ in range(calls):
            c.run()
        last = self.stream.record()
        last.synchronize()
        return max(1e-3 * float(self.cupy.cuda.get_elapsed_time(first, last)), RESOLUTION) / calls

    def interleaved(self, candidates: Sequence[Candidate], budget: float) -> list[list[float]]:
        """Seconds of a call of each, a number for each round, as `pairs.interleaved` has it."""
        calls, times = [], list[list[float]]()
        for c in candidates:
            c.run()
            each = max(self.seconds(c, 2), 1e-7)
            calls.append(min(max(int(ROUND_SECONDS / each), 1), MAX_CALLS))
            times.append([])
        spent = [0.0] * len(candidates)
        going = list(range(len(candidates)))
        while going:
            for k in going:
                start = time.perf_counter()
                self.seconds(candidates[k], 1)  # others' data is in the caches
                times[k].append(self.seconds(candidates[k], calls[k]))
                spent[k] += time.perf_counter() - start
            going = [
                k for k in going if len(times[k]) < MIN_ROUNDS or (spent[k] < budget and len(times[k]) < MAX_ROUNDS)
            ]
        return times


def copy_rate(cupy: Any, size: int = COPY_BYTES) -> float:
    """Bytes a second that a copy of so many on the device reads and writes."""
    source, to = (cupy.zeros((size,), np.uint8) for _ in range(2))
    clock, c = Clock(cupy), Candidate("copy", lambda: cupy.copyto(to, source))
    clock.seconds(c, 3)
    return 2 * size / statistics.median(clock.seconds(c, 3) for _ in range(5))


def call_us(cupy: Any, calls: int, groups: int) -> dict[str, float]:
    """Microseconds of the host for warm calls: of one kernel, of several, by a CUDA graph where that is faster, and of
    CuPy's own addition."""
    import hjit
    from benchmarks.overhead import simple

    def normalised(a: Any) -> Any:
        b = a - a.max()
        return b / b.min()

    a, b = (cupy.zeros((4, 4), np.float32) for _ in range(2))
    f, g = (hjit.pipeline(x, verify="off", cache="off") for x in (simple, normalised))
    runs: dict[str, Run] = {"hjit": lambda: f(a, b), "hjit, several kernels": lambda: g(a), "cupy": lambda: a + b}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(groups):
        for name, run in runs.items():
            run()
            cupy.cuda.get_current_stream().synchronize()

            def several(run: Run = run) -> None:
                for _ in range(calls):
                    run()

            found[name].append(1e6 * seconds(several) / calls)
    cupy.cuda.get_current_stream().synchronize()
    return {name: round(statistics.median(x), 2) for name, x in found.items()}


def must_move(f: Any, args: Sequence[Any]) -> tuple[int, int]:
    """Kernels of a call, and the bytes that they must move between memory and the chip, each its own once."""
    from hjit.kernels.cuda import roofline
    from hjit.kernels.cuda.runtime import inspection

    kernels = size = 0
    for bound in f._device_kernels(tuple(args), {}):
        low = inspection.of(bound)
        for number, _, _ in inspection.launched(bound, low.module.launches):
            size += roofline.nest_must_move(low.graph, low.program, number, bound.sizes)
            kernels += 1
    return kernels, size
