"""Running the kernel of a subgraph on the windows of a chunk. It is pickled to be sent to other processes.

There the kernel comes from that process's cache, or is compiled once. Chunks whose windows have lengths that are not
run-time sizes (`hjit.chunks.windows`) have kernels of their own. Decisions made for one are kept for later calls, since
each call makes new `SubgraphKernel`s, as does each process that they are sent to.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.chunks.limits import KEPT_KERNELS
from hjit.chunks.serialisation import deserialise_graph, serialise_graph
from hjit.chunks.windows import Windows, with_constants
from hjit.kernels.lower.params import SMALL_ARRAY
from hjit.kernels.runtime import features
from hjit.kernels.runtime.bind import bind
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.options import Options
from hjit.process import forks
from hjit.process.deep_stack import with_deep_stack
from hjit.process.garbage_collection import few_collections
from hjit.trace.ir.graph import Graph, element_strides
from hjit.trace.ir.poly import SMALL
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.rewrites import Rewrites
from hjit.tuning.choice import Arguments, Candidate, Choice, Scheduler, Segment, Segments
from hjit.tuning.decide import decided

Array = np.ndarray[Any, Any]
Constants = tuple[tuple[str, int], ...]
KernelKey = tuple[Graph, Constants, tuple[tuple[str, int], ...], Options, Scheduler | None]

_scheduled: dict[KernelKey, Scheduled] = {}  # the latest used at the end
_order = threading.RLock()  # guards it


def after_fork() -> None:
    """A child has one thread only, and it holds no lock."""
    global _order
    _order = threading.RLock()


def _known(key: KernelKey) -> Scheduled | None:
    with _order:
        found = _scheduled.pop(key, None)
        if found is not None:
            _scheduled[key] = found
        return found


def _keep(key: KernelKey, scheduled: Scheduled) -> None:
    with _order:
        _scheduled[key] = scheduled
        while len(_scheduled) > KEPT_KERNELS:
            del _scheduled[next(iter(_scheduled))]


class SubgraphKernel:
    """The kernel of a subgraph.

    Attributes:
        name: of the function, for errors.
        graph: of any of its chunks.
        names, is_length: of the numbers of a chunk.
        sizes: those of the whole image.
    """

    def __init__(
        self,
        name: str,
        windows: Windows,
        sizes: Mapping[str, int],
        options: Options,
        scheduler: Scheduler | None,
        scalars: Mapping[str, Any],
        elements: float,
    ) -> None:
        """`elements`: of the largest array of the whole image, whose indices the kernel computes."""
        self.is_small = elements <= SMALL_ARRAY
        self.name, self.graph = name, windows.graph
        self.names, self.is_length = windows.names, windows.is_length
        self.sizes, self.options, self.scheduler = dict(sizes), options, scheduler
        self.scalars = {s.name: scalars[s.name] for s in windows.graph.scalars}
        self._forget()

    def _forget(self) -> None:
        self._made: dict[Constants, Scheduled] = {}
        self._lock = threading.RLock()

    def _key(self, constants: Constants) -> KernelKey:
        return self.graph, constants, tuple(sorted(self.sizes.items())), self.options, self.scheduler

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if not k.startswith("_")}
        return {**state, "graph": serialise_graph(self.graph)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, graph=deserialise_graph(state["graph"]))
        self._forget()

    def run(self, numbers: Sequence[int], arrays: Mapping[str, Array]) -> list[Array]:
        """The outputs for one chunk.

        Raises:
            IndexError: an index is out of bounds.
        """
        own = dict(zip(self.names, numbers, strict=True))
        constants = tuple(
            (name, n) for (name, n), length in zip(own.items(), self.is_length, strict=True) if length and n <= SMALL
        )
        sizes = {**self.sizes, **own}
        arrays = {n: _in_order(a) for n, a in arrays.items()}
        scheduled = self._made.get(constants)
        if scheduled is None:
            scheduled = self._make(constants, sizes, arrays)
        strides = {i.name: element_strides(arrays[i.name]) for i in scheduled.graph.inputs if i.data is None}
        bound = bind(scheduled, self.options, sizes, strides, self.is_small)
        outputs = bound.new_outputs()
        scalars = [self.scalars[name] for name, _ in bound.scalars]
        if not bound.run([arrays[n] for n in bound.inputs], outputs, scalars):
            raise IndexError(f"{self.name}: an index is out of bounds")
        return outputs

    def _make(self, constants: Constants, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> Scheduled:
        with forks.builds.inside(), self._lock:
            found = self._made.get(constants) or _known(self._key(constants))
            if found is None:
                with few_collections():
                    found = with_deep_stack(lambda: self._built(constants, sizes, arrays))
                _keep(self._key(constants), found)
            self._made[constants] = found
            return found

    def _built(self, constants: Constants, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> Scheduled:
        """The kernel's schedule as that of a function is decided on: given, on disk, searched and measured."""
        graph = with_constants(self.graph, dict(constants))
        target = features.schedule_target(self.options.target)

        def segments_of(rewrites: Rewrites) -> Segments:
            return (Segment(canonicalise(graph, rewrites), target),)

        strides = {i.name: element_strides(arrays[i.name]) for i in graph.inputs if i.data is None}

        def make(choice: Choice) -> Candidate:
            (segment,) = segments = segments_of(choice.rewrites)
            bound = bind(choice.of(segment), self.options, sizes, strides, self.is_small)
            return Candidate(choice, segments, (bound,))

        decision = decided(segments_of, self.scheduler, False, sizes, self.options)
        if decision.is_final:
            candidate = make(decision.best)
        else:
            from hjit.tuning.candidates import chosen  # not loaded where nothing is compared

            candidate = chosen(decision, make, segments_of, lambda _: Arguments(arrays, self.scalars), self.options)
        (segment,) = candidate.segments
        return candidate.choice.of(segment)


def for_workers(options: Options) -> Options:
    """One thread for each task, of which Dask runs as many as there are cores; unless a number of threads is given."""
    return replace(options, num_threads=options.num_threads or 1)


def _in_order(a: Array) -> Array:
    """The array, or a copy in C order where the kernel, which is made for that, cannot read it as it is."""
    step, item = 1, a.itemsize
    for n, s in zip(reversed(a.shape), reversed(a.strides), strict=True):
        if n > 1 and (s % item or (step <= SMALL and s != step * item)):
            return np.ascontiguousarray(a)
        step *= n
    return a
