"""Stages of an unfinished trace by plain NumPy: it takes milliseconds where a kernel that runs once takes LLVM seconds.

Later calls compare decisions with what their own kernels compute. So only what has NumPy's bits is computed here, and
conditions, which seldom depend on the last bits: where one does, the function is traced again with kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.trace.ir.costs import instruction_count
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.interpret import interpret
from hjit.trace.ir.poly import sizes_value
from hjit.verify.tolerances import tolerances

MAX_WORK = 1 << 20  # operations on elements, some 20 ms of NumPy's time: a kernel that is on disk is loaded in 5 ms
MAX_ITERATIONS = 256  # of reductions whose order matters: each is a pass over the other dimensions


def interpreted(
    graph: Graph, arrays: Mapping[str, Any], sizes: Mapping[str, int], scalars: Mapping[str, Any], fast_math: bool
) -> list[np.ndarray[Any, Any]] | None:
    """The outputs, of a Graph as it was recorded; None where they are to be computed by a kernel.

    Raises:
        IndexError: an index is out of bounds.
    """
    graph = _needed(graph)
    if not _is_little(graph, sizes):
        return None
    found = tolerances([graph], [None], fast_math)
    stages = graph.by_name
    if any(n not in stages or (found[n].eps and not _is_condition(stages[n])) for n in graph.outputs):
        return None
    try:
        return interpret(graph, arrays, sizes, scalars)
    except OverflowError:  # of a Python int in the dtype of an array: a comparison with it is no error
        return None


def _needed(graph: Graph) -> Graph:
    """Without the stages that no output is computed from."""
    stages, names, kept = graph.by_name, list(graph.outputs), set[str]()
    while names:
        n = names.pop()
        if n in stages and n not in kept:
            kept.add(n)
            names += stages[n].sources
    return replace(graph, stages=tuple(s for s in graph.stages if s.name in kept))


def _is_condition(s: Stage) -> bool:
    return s.dtype.kind == "b" and not s.shape


def _is_little(graph: Graph, sizes: Mapping[str, int]) -> bool:
    work = 0
    for s in graph.stages:
        for d in s.definitions:
            if _iterations(d, sizes) > MAX_ITERATIONS:
                return False
            work += math.prod(sizes_value(n, sizes) for n in (*d.dims, *d.rdims)) * max(instruction_count(d.value), 1)
    return work <= MAX_WORK


def _iterations(d: Definition, sizes: Mapping[str, int]) -> int:
    """Of a loop in Python that the interpreter makes of a definition."""
    return math.prod(sizes_value(n, sizes) for n in d.rdims) if d.order in ("pure", "sequential") else 1
