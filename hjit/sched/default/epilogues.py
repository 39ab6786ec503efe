"""GEMM epilogue fusion: sums of products that are computed in tiles of the stage that reads them, as in ``np.maximum(a
@ b + bias, 0)``.

A block of sums has to leave the registers once in any case. The point-wise stage after it then reads it from the
nearest cache, and the whole product is never written to memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hjit.sched.language.build import Step, at, nest, preceded, replaced, stored, whole_loops
from hjit.sched.language.tree import Loop, Node, with_children
from hjit.sched.language.tree import walk as walk_tree
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.poly import Dim, poly

ByStage = Mapping[str, Sequence[Node]]  # the nests of each stage


@dataclass(frozen=True, slots=True)
class Block:
    """The accumulators of one iteration of a sum of products.

    Attributes:
        rows, count: the dimension whose elements share their loads along the lanes, and how many of them.
        columns, width, lanes: the dimension of the lanes, its elements of one iteration, and those of a vector.
    """

    rows: int
    count: int
    columns: int
    width: int
    lanes: int


def block_of(node: Node) -> Block | None:
    """The block of accumulators of a nest, or None."""
    for x in walk_tree(node):
        match x:
            case Loop(
                dim=int() as rows,
                kind="unroll",
                size=int() as count,
                children=(
                    Loop(
                        dim=int() as columns,
                        kind="unroll",
                        size=int() as width,
                        children=(Loop(kind="vector", size=int() as lanes) as v,),
                    ),
                ),
            ) if v.dim == columns != rows:
                return Block(rows, count, columns, width, lanes)
    return None


def products_of(graph: Graph, nests: ByStage, taken: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each stage that is point-wise in sums of products which only it reads: those sums.

    They have its shape, and equal blocks.
    """
    free = [
        s.name for s in graph.stages if s.name not in taken and s.name not in graph.outputs and len(nests[s.name]) == 1
    ]
    blocks = {name: block for name in free if (block := block_of(nests[name][0])) is not None}
    consumers = graph.consumers() if blocks else {}
    found: dict[str, tuple[str, ...]] = {}
    for s in graph.stages:
        mine = tuple(name for name in blocks if consumers[name] == [s.name])
        if not mine or s.initial is None or s.updates or s.name in taken:
            continue
        here = tuple(poly(Dim(k)) for k in range(len(s.shape)))
        read = tuple(
            n
            for n in mine
            if graph.stage(n).shape == s.shape and all(x.index == here for x in s.loads if x.source == n)
        )
        if read and len({blocks[name] for name in read}) == 1:
            found[s.name] = read
    return found


def with_products(s: Stage, nests: ByStage, products: Sequence[str]) -> Node:
    """The nest of a stage in tiles; each tile first computes its sums of products."""
    block = block_of(nests[products[0]][0])
    assert block is not None
    others = [k for k in range(len(s.shape)) if k not in (block.rows, block.columns)]
    outer = whole_loops(s.definitions[0], [*others, block.columns, block.rows])
    inner: list[Step] = [
        (block.rows, "serial", block.count),
        (block.columns, "serial", block.width),
        (block.columns, "vector", block.lanes),
    ]
    node, path = nest(s.name, (0,), [*outer, *inner]), (0,) * (len(outer) - 1)
    loop = at(node, path)
    assert isinstance(loop, Loop)
    return replaced(node, path, with_children(loop, stored(products, preceded(nests, products, loop.children))))
