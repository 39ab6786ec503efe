"""The launches of several kernels as one CUDA graph, if that is faster.

For small images, the host takes longer to launch kernels one by one than a GPU to run them. Launches that repeat with
the same addresses and numbers are captured; some runs with and without the graph are timed by events, without waiting
for them, and the faster way is kept. A graph contains addresses, so its key is everything that its kernels get, and it
never runs with the arguments of another call.
"""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

log = logging.getLogger("hjit")

LEAST = 2  # launches that are worth a graph
MOST_BYTES = 16 << 20  # of arguments, results and scratch memory: of more, a GPU takes longer than the host launches
KEPT = 8  # graphs of the same kernels: results lie at another address while the caller holds those of the last call
NOTED = 32  # calls, of which one that comes again is captured
RUNS = 8  # of either kind that are timed
BETTER = 0.95  # of the time of plain launches: a graph that takes more is not used
MOST_MISSES = 64  # calls one after another for which there is no graph, after which none is looked for


class Capturing(Protocol):
    """What a device does for graphs; see `hjit.kernels.cuda.runtime.device.Device`."""

    def is_capturing(self) -> bool:
        """Is the caller capturing a graph of their own, on the current stream?"""
        ...

    def captured(self, launch: Callable[[], None]) -> Any:
        """What a function launches, as a graph; nothing runs."""
        ...

    def replay(self, graph: Any) -> None:
        """Run a graph on the current stream."""
        ...

    def event(self) -> Any:
        """An event on the current stream, after what was launched before."""
        ...

    def elapsed(self, start: Any, end: Any) -> float | None:
        """Seconds between two events; None where the second one is still to come."""
        ...


@dataclass(frozen=True, slots=True)
class _Timed:
    """A run: of a graph, or plain launches; its events, and the seconds that the host took."""

    by_graph: bool
    start: Any
    end: Any
    host: float


class Graphs:
    """The graphs of some kernels, launched in order; one thread at a time, others launch kernels meanwhile.

    Attributes:
        device: on which they run.
        is_faster: are graphs? None: that is not known yet.
    """

    def __init__(self, device: Capturing) -> None:
        self.device = device
        self.is_faster: bool | None = None
        self._known: dict[Hashable, Any] = {}  # graphs, the latest used at the end
        self._noted: dict[Hashable, None] = {}  # what was launched once
        self._running: list[_Timed] = []
        self._times: tuple[list[float], list[float]] = [], []  # of plain launches, of graphs
        self._begun = [0, 0]
        self._misses = 0
        self._lock = threading.Lock()

    def run(self, key: Hashable, launch: Callable[[], None]) -> None:
        """Launch the kernels.

        Args:
            key: all that the kernels are given: addresses, and the bits of numbers.
            launch: launches them one by one.
        """
        if self.is_faster is False or not self._lock.acquire(blocking=False):
            launch()
            return
        try:
            graph = None if self.device.is_capturing() else self._graph(key, launch)
            if graph is None:
                launch()
            elif self.is_faster:
                self.device.replay(graph)
            else:
                self._run_timed(graph, launch)
        finally:
            self._lock.release()

    def _graph(self, key: Hashable, launch: Callable[[], None]) -> Any:
        """The graph; None where these launches are new."""
        graph = self._known.pop(key, None)
        if graph is None:
            self._misses += 1
            if self._misses > MOST_MISSES:
                self._end(False, "what kernels are given is new at each call")
                return None
            if key not in self._noted:
                _limit(self._noted, NOTED - 1)
                self._noted[key] = None
                return None
            del self._noted[key]
            try:
                graph = self.device.captured(launch)
            except Exception as error:  # CuPy's own exceptions have no common class
                self._end(False, f"launches could not be captured: {error}")
                return None
            _limit(self._known, KEPT - 1)
        else:
            self._misses = 0
        self._known[key] = graph
        return graph

    # -- which is faster
    def _run_timed(self, graph: Any, launch: Callable[[], None]) -> None:
        self._read()
        if self.is_faster is not None or min(self._begun) == RUNS:
            launch()
            return
        by_graph = self._begun[1] < self._begun[0]
        self._begun[by_graph] += 1
        start, clock = self.device.event(), time.perf_counter()
        if by_graph:
            self.device.replay(graph)
        else:
            launch()
        host = time.perf_counter() - clock
        self._running.append(_Timed(by_graph, start, self.device.event(), host))

    def _read(self) -> None:
        """Take the times of runs that have ended; decide when all have."""
        while self._running:
            first = self._running[0]
            try:
                seconds = self.device.elapsed(first.start, first.end)
            except Exception as error:  # while somebody captures a graph, events may not be asked
                self._end(False, f"times could not be read: {error}")
                return
            if seconds is None:
                return
            del self._running[0]
            self._times[first.by_graph].append(max(seconds, first.host))
        if min(map(len, self._times)) == RUNS:
            plain, graph = map(statistics.median, self._times)
            said = f"{1e6 * graph:.1f} us as a graph, {1e6 * plain:.1f} us as launches"
            self._end(graph < BETTER * plain, said)

    def _end(self, is_faster: bool, why: str) -> None:
        self.is_faster = is_faster
        self._running.clear()
        if not is_faster:
            self._known.clear()
            self._noted.clear()
        log.debug("kernels run %s: %s", "as a CUDA graph" if is_faster else "one by one", why)


def _limit(table: dict[Hashable, Any], count: int) -> None:
    while len(table) > count:
        del table[next(iter(table))]
