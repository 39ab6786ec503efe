"""Stages of an unfinished trace by plain NumPy: it takes milliseconds where a kernel that runs once takes LLVM seconds.

Later calls compare decisions with what their own kernels compute. So only what has NumPy's bits is computed here, and
conditions, which seldom depend on the last bits: where one does, the function is traced again with kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.trace.ir.analysis.costs import instruction_count
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.interpret import interpret_stages
from hjit.trace.ir.poly import sizes_value
from hjit.verify.tolerances import tolerances

Array = np.ndarray[Any, Any]
MAX_WORK = 1 << 20  # operations on elements, some 2 ms of NumPy's time: a kernel that is on disk is loaded in 5 ms
# Of conditions, which a later process takes from the earlier one: what is computed in the time that compiling takes.
# Measured for the decisions of ten functions of scikit-image: NumPy does an operation on an element in 1 to 4 ns, and a
# kernel takes 10 to 50 ms, and 0.3 to 1 ms for each operation in its code.
WORK_OF_A_KERNEL, WORK_OF_AN_OPERATION = 10_000_000, 250_000
MAX_ITERATIONS = 256  # of reductions whose order matters: each is a pass over the other dimensions
MAX_SHARED = 16  # stages that a kernel returns for later decisions
MAX_KEPT = 1 << 28  # bytes of stages that are kept for later decisions of the same trace


@dataclass(slots=True)
class InterpretedStages:
    """The stages that NumPy has computed for decisions of a trace, so that later decisions need not compute them again.

    Attributes:
        stages: the arrays by name, with the stages that they are.
        realised: likewise, of the arguments of extern calls, which kernels may have computed: kernels for later calls
            begin with these.
        inside: further stages that kernels have computed, but not returned.
    """

    stages: dict[str, tuple[Stage, Array]] = field(default_factory=dict)
    realised: dict[str, tuple[Stage, Array]] = field(default_factory=dict)
    inside: dict[str, Stage] = field(default_factory=dict)

    def estimate(self, graph: Graph, sizes: Mapping[str, int], fast_math: bool) -> Interpretation | None:
        """The work of computing the outputs of a recorded Graph in NumPy; None if one of them is not a stage."""
        graph = _needed(graph, {})
        stages = graph.by_name
        if any(n not in stages for n in graph.outputs):
            return None
        known = {n: a for n, (stage, a) in (self.stages | self.realised).items() if stages.get(n) is stage}
        left = _needed(graph, known)
        return Interpretation(self, graph, left, known, sizes, fast_math, _work(left, sizes))

    def realised_of(self, graph: Graph) -> dict[str, Array]:
        """The realised arrays that the outputs of a recorded Graph can be computed from, by name."""
        stages = graph.by_name
        known = {n: a for n, (stage, a) in self.realised.items() if stages.get(n) is stage}
        read = {n for s in _needed(graph, known).stages for n in s.sources}
        return {n: a for n, a in known.items() if n in read}

    def shared(self, graph: Graph) -> tuple[str, ...]:
        """The stages to compute together with the outputs of a recorded Graph, for decisions to come.

        Those are stages that an earlier kernel had to compute, too, and that new ones read: else the kernel of each
        decision would compute, and its code have, all that those before it had. Kernels of conditions do not count: a
        later process assumes their outcomes, and is to find the same kernels for the others.
        """
        stages = graph.by_name
        if all(_is_condition(stages[n]) for n in graph.outputs):
            return ()
        known = {n for n, (stage, _) in self.realised.items() if stages.get(n) is stage}
        needed = _needed(graph, dict.fromkeys(known)).stages
        again = {s.name for s in needed if self.inside.get(s.name) is s}
        self.inside.update((s.name, s) for s in needed)
        read = {n for s in needed if s.name not in again for n in s.sources}
        found = (s for s in needed if s.name in again & read and s.name not in graph.outputs and not _is_condition(s))
        return tuple(s.name for s in found)[:MAX_SHARED]

    def realise(self, found: Mapping[str, tuple[Stage, Array]]) -> None:
        """Keep the arguments of an extern call."""
        self.realised.update((n, (s, np.asarray(a, order="C"))) for n, (s, a) in found.items() if not _is_condition(s))
        if sum(a.nbytes for _, a in self.realised.values()) > MAX_KEPT:
            self.realised.clear()

    def keep(self, found: Mapping[str, tuple[Stage, Array]]) -> None:
        """Keep stages for later decisions."""
        self.stages.update(found)
        if sum(a.nbytes for _, a in self.stages.values()) > MAX_KEPT:
            self.stages.clear()


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The outputs of a Graph, to be computed by NumPy.

    Attributes:
        left: the stages that are to be computed, as the others are known.
        work: operations on elements; infinity: there is a long loop in Python among them.
    """

    memo: InterpretedStages
    graph: Graph
    left: Graph
    known: Mapping[str, Array]
    sizes: Mapping[str, int]
    fast_math: bool
    work: float

    @property
    def is_little(self) -> bool:
        """Is NumPy quicker than loading a kernel, or, for conditions, quicker than compiling one?"""
        return self.is_quicker_than_compiling if self._is_condition else self.work <= MAX_WORK

    @property
    def is_quicker_than_compiling(self) -> bool:
        """Is NumPy quicker than compiling a kernel?"""
        return self.work <= _work_of_kernel(self.graph)

    @property
    def _is_condition(self) -> bool:
        return all(_is_condition(self.graph.by_name[n]) for n in self.graph.outputs)

    def outputs(self, arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> list[Array] | None:
        """The outputs; None if results of NumPy and of a kernel may differ, so that a kernel must compute them.

        Raises:
            IndexError: an index is out of bounds.
        """
        if not self._is_condition:
            found = tolerances([self.graph], [None], self.fast_math)
            if any(found[n].eps and not _is_condition(self.graph.by_name[n]) for n in self.graph.outputs):
                return None
        try:
            state = interpret_stages(self.left, {**arrays, **self.known}, self.sizes, scalars)
        except OverflowError:  # of a Python int in the dtype of an array: a comparison with it is no error
            return None
        self.memo.keep({s.name: (s, state[s.name]) for s in self.left.stages})
        return [state[n] for n in self.graph.outputs]


def _needed(graph: Graph, known: Mapping[str, object]) -> Graph:
    """The Graph with only the stages that its outputs need, given that some are known."""
    stages, names, kept = graph.by_name, list(graph.outputs), set[str]()
    while names:
        n = names.pop()
        if n in stages and n not in kept and n not in known:
            kept.add(n)
            names += stages[n].sources
    return replace(graph, stages=tuple(s for s in graph.stages if s.name in kept))


def _is_condition(s: Stage) -> bool:
    return s.dtype.kind == "b" and not s.shape


def _work_of_kernel(graph: Graph) -> int:
    """The work that NumPy does in the time that compiling a Graph takes."""
    code = sum(instruction_count(d.value) for s in graph.stages for d in s.definitions)
    return WORK_OF_A_KERNEL + WORK_OF_AN_OPERATION * code


def _work(graph: Graph, sizes: Mapping[str, int]) -> float:
    work = 0
    for s in graph.stages:
        for d in s.definitions:
            if _iterations(d, sizes) > MAX_ITERATIONS:
                return math.inf
            work += math.prod(sizes_value(n, sizes) for n in (*d.dims, *d.rdims)) * max(instruction_count(d.value), 1)
    return work


def _iterations(d: Definition, sizes: Mapping[str, int]) -> int:
    """Iterations of the Python loop in which the interpreter runs a definition."""
    return math.prod(sizes_value(n, sizes) for n in d.rdims) if d.order in ("pure", "sequential") else 1
