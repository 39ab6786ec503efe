"""Which sums of products the default schedule computes in tiles of the stage that reads them, as in ``np.maximum(a @ b + bias, 0)``.

A block of sums leaves the registers once in any case. What follows point by point reads it from the nearest cache, and no whole
product is written to memory and read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.build import Step, nest, serial_loops, task_loops
from hjit.sched.tree import Loop, Node, Store
from hjit.sched.tree import walk as walk_tree
from hjit.trace.graph import Graph, Stage
from hjit.trace.poly import Dim, poly

Nests = Mapping[str, Sequence[Node]]


@dataclass(frozen=True, slots=True)
class Block:
    """What one turn of a sum of products has in registers.

    Attributes:
        rows, count: the dimension whose elements share their loads along the lanes, and how many of them.
        columns, width, lanes: the dimension of the lanes, its elements of one turn, and those of a vector.
    """

    rows: int
    count: int
    columns: int
    width: int
    lanes: int


def block_of(node: Node) -> Block | None:
    """The block of accumulators of a nest, if it has one."""
    for x in walk_tree(node):
        match x:
            case Loop(
                dim=int() as rows,
                kind="unroll",
                size=int() as count,
                children=(Loop(dim=int() as columns, kind="unroll", size=int() as width, children=(Loop(kind="vector", size=int() as lanes) as v,)),),
            ) if v.dim == columns != rows:
                return Block(rows, count, columns, width, lanes)
    return None


def products_of(graph: Graph, nests: Nests, taken: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each stage that is computed point by point from sums of products, and alone reads them, those: of one shape, in blocks alike."""
    consumers = graph.consumers()
    found: dict[str, tuple[str, ...]] = {}
    for s in graph.stages:
        if s.initial is None or s.updates or s.name in taken:
            continue
        here = tuple(poly(Dim(k)) for k in range(len(s.shape)))
        blocks = {}
        for name in (x.name for x in graph.stages if x.name in s.sources and x.name not in taken):
            p = graph.stage(name)
            block = block_of(nests[name][0]) if len(nests[name]) == 1 else None
            alone = consumers[name] == [s.name] and name not in graph.outputs and p.shape == s.shape
            if block is not None and alone and all(x.index == here for x in s.loads if x.source == name):
                blocks[name] = block
        if blocks and len(set(blocks.values())) == 1:
            found[s.name] = tuple(blocks)
    return found


def with_products(s: Stage, nests: Nests, products: Sequence[str]) -> Node:
    """The nest of a stage in tiles, in each of which its sums of products are computed before it."""
    block = block_of(nests[products[0]][0])
    assert block is not None
    others = [k for k in range(len(s.shape)) if k not in (block.rows, block.columns)]
    outer = [*others, block.columns, block.rows]
    tasks = task_loops(s.definitions[0], outer, None)
    steps: list[Step] = [(k, "parallel" if position < tasks else "serial", None) for position, k in enumerate(outer)]
    inner: list[Step] = [(block.rows, "serial", block.count), (block.columns, "serial", block.width), (block.columns, "vector", block.lanes)]
    return _computed_in(nest(s.name, (0,), [*steps, *inner]), len(outer), nests, products)


def _computed_in(node: Node, depth: int, nests: Nests, products: Sequence[str]) -> Node:
    """A nest with others at the end of so many loops."""
    assert isinstance(node, Loop)
    if depth > 1:
        return replace(node, children=(_computed_in(node.children[0], depth - 1, nests, products),))
    children: tuple[Node, ...] = (*(serial_loops(x) for name in products for x in nests[name]), *node.children)
    for name in reversed(products):
        children = (Store(name, children),)
    return replace(node, children=children)
