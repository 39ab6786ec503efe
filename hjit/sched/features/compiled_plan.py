"""`CompiledPlan`: the features of a nest by the compiled featuriser (`hjit.sched.native`); `featurise.Plan` is the
other way to compute them, from an expression tape that was recorded in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.features.load_counts import Block
from hjit.sched.features.results import NestFeatures, Sizes, finished
from hjit.sched.language.memory import Layout
from hjit.sched.language.tree import Node
from hjit.sched.native.argument_block import Featuriser, run_featuriser, work_for
from hjit.sched.native.nests import EncodedNest, Encoder
from hjit.sched.native.tables import GraphTables, tables_of

NATIVE = SCHEDULE.index("native_vector_size")


@dataclass(frozen=True, eq=False)
class CompiledPlan:
    """The features of a nest, for any sizes of its loops.

    Attributes:
        head: the stage that the nest is of.
        names: for each row of features the stage.
        start: of the features of each row those that are not worked out, [rows, len(SCHEDULE)].
        blocks: see `hjit.sched.features.featurise.Plan`.
        fallback: the recorded plan, used where the featuriser gives up.
    """

    graph: SizedGraph
    featuriser: Featuriser | None
    tables: GraphTables
    nest: EncodedNest
    names: tuple[str, ...]
    start: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    blocks: tuple[tuple[int, Block, slice], ...]
    fallback: Callable[[Sizes], NestFeatures]

    @staticmethod
    def of(
        graph: SizedGraph,
        featuriser: Featuriser | None,
        nest: Node,
        placed: Mapping[str, Layout],
        fallback: Callable[[Sizes], NestFeatures],
    ) -> CompiledPlan:
        encoded = Encoder(graph, nest, placed).encoded()
        names: list[str] = []
        blocks: list[tuple[int, Block, slice]] = []
        for x in encoded.leaves:
            for called in (None, *x.group.calls):
                block = Block(x.group, x.vector, x.unrolled, x.layouts, (), called)
                blocks.append((len(names), block, x.numbers))
                names.append(called or x.group.stage)
        start = np.zeros((len(names), len(SCHEDULE)))
        start[:, NATIVE] = [graph.native_lanes(name) for name in names]
        return CompiledPlan(graph, featuriser, tables_of(graph), encoded, tuple(names), start, tuple(blocks), fallback)

    @property
    def head(self) -> str:
        return self.nest.head

    def run(self, tiles: Sizes) -> NestFeatures:
        """For `tiles` [batch, slots]."""
        batch, nest, tables = len(tiles), self.nest, self.tables
        values = np.empty((batch, *self.start.shape))
        values[:] = self.start
        numbers = np.empty((batch, nest.numbers + 1))
        work = work_for(nest.environments, nest.nest, tables.dims, tables.axes, tables.deep)
        sizes = np.ascontiguousarray(tiles, np.float64)
        if not run_featuriser(
            self.featuriser, tables.tables, nest.nest, work, sizes, self.graph.tasks or 0, values, numbers
        ):
            return self.fallback(tiles)
        np.maximum(values, 0.0, out=values)  # a piece without elements
        return finished(self.graph, self.names, values, numbers.T[:-1], self.blocks, numbers[:, -1])
