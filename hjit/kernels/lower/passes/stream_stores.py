"""Streaming stores: large results that are written once and not read again bypass the caches.

`hjit.kernels.llvm.memory.streaming_stores` emits them.
"""

from __future__ import annotations

from dataclasses import replace

from hjit.kernels.lower.loopir import Block, For, Let, LineAlignment, Stmt, Store, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import written_once
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, every, with_bodies
from hjit.sched.language.memory import C_ORDER, rejoined
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ZERO, Poly, Var, deep_atoms


def stream_stores(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Mark stores for streaming, and choose the alignment of vector loops for them."""
    names = frozenset(written_once(graph)) & frozenset(nest.writes)
    if not names or "x86" not in machine.features:
        return nest
    return replace(nest, body=_Streaming(names, graph, machine).body(nest.body))


class _Streaming:
    def __init__(self, names: frozenset[str], graph: Graph, machine: Machine) -> None:
        self.names, self.graph, self.machine = names, graph, machine

    def body(self, body: Body) -> Body:
        return tuple(map(self.visit, body))

    def visit(self, s: Stmt) -> Stmt:
        if not isinstance(s, VectorLoop):
            return with_bodies(s, self.body)
        s = replace(s, body=tuple(map(self.marked, s.body)), remainder=tuple(map(self.marked, s.remainder)))
        return replace(s, line=self.line(s))

    def marked(self, s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return replace(
                s, stores=tuple(replace(x, stream=x.buffer in self.names and x.atomic is None) for x in s.stores)
            )
        return with_bodies(s, lambda body: tuple(map(self.marked, body)))

    def line(self, s: VectorLoop) -> LineAlignment | None:
        """The first streamed store of a loop over nothing but stores, and how far that moves with the loop."""
        if s.align > 1 or not _are_stores(s.remainder) or not all(isinstance(x, Let | Block) for x in s.body):
            return None
        inside = {x.var for x in s.body if isinstance(x, Let)}
        for store in (x for b in s.body if isinstance(b, Block) for x in b.stores if x.stream):
            size = self.graph.dtypes[store.buffer].itemsize * s.lanes
            if size < self.machine.width or size & (size - 1):
                continue
            flat = self.flat(store)
            step = flat.coefficient(s.var)
            if step is None or not step.is_const or step.const < 1 or step.const % 2 == 0:
                continue
            if inside.isdisjoint(a for a in deep_atoms(flat) if isinstance(a, Var)):
                return LineAlignment(store.buffer, store.index, step.const)
        return None

    def flat(self, store: Store) -> Poly:
        """Where a result is stored, in elements from its begin."""
        strides = C_ORDER.strides(self.graph.shapes[store.buffer])
        return rejoined(sum((p * n for p, n in zip(store.index, strides, strict=True)), ZERO))


def _are_stores(body: Body) -> bool:
    """Stores, also of rows one after the other, whose vectors hold several?"""
    return all(isinstance(s, Let | Block | For) for s in every(body))
