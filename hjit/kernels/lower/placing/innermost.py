"""The innermost statements of a computation: the stores of its definitions, and prefetches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hjit.kernels.lower.loopir import Block, Store
from hjit.kernels.lower.placing.context import NestContext
from hjit.sched.language.tree import Compute
from hjit.trace.ir.expressions import Load, Op, renumber, substitute
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import Poly

Point = tuple[Poly, ...]


def block_of(n: NestContext, node: Compute, dims: Mapping[int, Interval]) -> Block:
    """A computation where one index is left of each dimension."""
    s = n.reads.stages[node.stage]
    stores = [_store(n, s, number, point(dims, len(s.definitions[number].extents))) for number in node.definitions]
    ahead = dict.fromkeys(x for number in node.definitions for x in _ahead(node, s.definitions[number], dims))
    return Block(tuple(stores), tuple(ahead))


def point(dims: Mapping[int, Interval], n: int) -> Point:
    """The index of each dimension of a definition."""
    return tuple(dims[k].low for k in range(n))


def _store(n: NestContext, s: Stage, number: int, at: Point) -> Store:
    """What a definition writes at a point of its loops."""
    found = n.stores.get((s.name, number, at))
    if found is None:
        d, change = s.definitions[number], renumber(at)
        value, how = d.value, None
        if (s.name, number) in n.atomics and isinstance(value, Op):
            value, how = value.args[1], d.order
        found = Store(s.name, tuple(p.substitute(change) for p in d.target), substitute(value, change), how)
        n.stores[s.name, number, at] = found
    return found


def _ahead(node: Compute, d: Definition, dims: Mapping[int, Interval]) -> Iterator[Load]:
    """What a definition will read where its stage says so: the last of neighbours, as iterations before have fetched
    the others."""
    at = point(dims, len(d.extents))
    for source, dim, iterations in node.prefetches:
        change = renumber([p + iterations if k == dim else p for k, p in enumerate(at)])
        later = [substitute(x, change) for x in d.loads if x.source == source]
        last = sorted((x for x in later if isinstance(x, Load)), key=lambda x: [p.const for p in x.index])
        yield from {tuple(p if p.is_const else p - p.const for p in x.index): x for x in last}.values()
