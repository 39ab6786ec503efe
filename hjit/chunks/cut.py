"""A Graph, cut for given chunks: everything in a call that does not depend on the contents of the arrays.

The latest few are kept, since the same function is usually called with image after image: such a call only traces the
function and makes tasks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from dask.base import tokenize

from hjit.chunks.kept_stages import subgraphs_with_kept
from hjit.chunks.limits import MAX_CUTS, SMALL_WORK
from hjit.chunks.serialisation import serialise_graph
from hjit.chunks.subgraphs import Cutter, Grid, Subgraph
from hjit.chunks.windows import Windows, windows
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.delinearisation import delinearise
from hjit.trace.passes.elimination.stage_elimination import drop_dead_stages, merge_equal_stages
from hjit.trace.passes.fusion import fuse
from hjit.trace.passes.row_updates import rows_as_dims
from hjit.trace.passes.shared_operands import separate_operands

Passes = tuple[Callable[[Graph], Graph], ...]
PASSES: Passes = (  # before a Graph is cut
    drop_dead_stages,
    merge_equal_stages,
    fuse,
    drop_dead_stages,
    delinearise,
    rows_as_dims,
)


@dataclass(frozen=True)
class CutGraph:
    """A Graph, cut.

    Attributes:
        room: bytes that arrays which are read in several passes may take.
        digest: of the Graph, sizes and scalars.
    """

    graph: Graph
    cutter: Cutter
    subgraphs: list[Subgraph]
    room: int
    digest: str

    @cached_property
    def windows(self) -> list[list[Windows]]:
        """The Graphs of the chunks of each subgraph."""
        return [windows(self.graph, self.cutter.bounds_with(subgraph.carries), subgraph) for subgraph in self.subgraphs]


@functools.lru_cache(maxsize=MAX_CUTS)
def cut_graph(
    graph: Graph,
    sizes: tuple[tuple[str, int], ...],
    chunks: tuple[tuple[str, Grid], ...],
    scalars: tuple[tuple[str, np.dtype[Any], bytes], ...],
    room: int,
) -> CutGraph:
    """The subgraphs of a Graph.

    Args:
        graph: as it was traced.
        sizes: numbers of the run-time sizes.
        chunks: of the inputs.
        scalars: their dtypes and bytes.
        room: bytes of what may be kept.
    """
    given = graph.inputs
    for run in PASSES:
        graph = run(graph)
    numbers = dict(sizes)
    large = {n for n, x in graph.arrays.items() if math.prod(sizes_value(p, numbers) for p in x.shape) > SMALL_WORK}
    graph, aliases = separate_operands(graph, large)
    values = {n: np.frombuffer(text, dtype)[0] for n, dtype, text in scalars}
    known = dict(chunks)
    guides = [i for i in graph.inputs if i.name in known] or [i for i in given if i.name in known]
    cutter = Cutter(graph, {i.name: i.shape for i in guides}, numbers, known, values, aliases)
    subgraphs, left = subgraphs_with_kept(cutter, room)
    return CutGraph(graph, cutter, subgraphs, left, tokenize(serialise_graph(graph), sizes, scalars))
