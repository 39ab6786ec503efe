"""Shared-memory allocation by live ranges: buffers of a block that are not live at the same time share memory.

A buffer is live from the first statement that writes it to the last one that reads it, and two buffers that are live at
the same time do not share memory. Only buffers of the same dtype share, so that no element is read with another type
than it was written with. Buffers that slide along a loop, or are copied asynchronously, have memory of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import Block, CopyAsync, For, If, ResetWindow, SlidingProduce, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import Body, every, inner, sources, stmt_polys
from hjit.trace.ir.expressions import loads
from hjit.trace.ir.graph import Graph

Pairs = set[frozenset[str]]


def share_memory(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Let buffers that are not live at the same time share memory."""
    elements = {name: n for name, b in nest.buffers.items() if (n := _elements(b)) > 0}
    moving = {s.stage for s in every(nest.body) if isinstance(s, ResetWindow | SlidingProduce)}
    moving |= {s.buffer for s in every(nest.body) if isinstance(s, CopyAsync)}
    names = elements.keys() - moving
    if not nest.blocks or len(names) < 2:
        return nest
    pairs: Pairs = set()
    names -= _needed_together(nest.body, frozenset(names), pairs)
    first_of: dict[str, list[str]] = {}  # a buffer with memory of its own, and those that it shares it with
    memory: dict[str, str] = {}
    for name in (x for x in nest.buffers if x in names):
        size, dtype = elements[name], graph.dtypes[name]
        free = [
            owner
            for owner, others in first_of.items()
            if graph.dtypes[owner] == dtype and not any(frozenset((x, name)) in pairs for x in (owner, *others))
        ]
        owner = min(free, key=lambda x: abs(elements[x] - size), default=None)
        if owner is None:
            first_of[name] = []
        else:
            first_of[owner].append(name)
            memory[name] = owner
            elements[owner] = max(elements[owner], size)
    buffers = {k: replace(b, memory=memory[k]) if k in memory else b for k, b in nest.buffers.items()}
    return replace(nest, buffers=buffers) if memory else nest


def _elements(b: Buffer) -> int:
    """Of a stage in shared memory; 0: it is none, or how many is not known."""
    lengths = b.layout.lengths(b.lengths)
    if not b.shared or b.dtype is not None or b.fold is not None or not all(p.is_const for p in lengths):
        return 0
    return math.prod(p.const for p in lengths)


def _needed_together(body: Body, names: frozenset[str], pairs: Pairs) -> set[str]:
    """Add the pairs of buffers that are live at the same time.

    Returns:
        those that are read before they are written, so that they are needed before and after, too.
    """
    found: set[str] = set()
    touched = [_touched(s) & names for s in body]
    ranges = {name: _range(touched, name) for name in names if any(name in t for t in touched)}
    inside: dict[int, set[str]] = {}
    for name, (first, last) in ranges.items():
        if first == last and isinstance(body[first], For | If):
            inside.setdefault(first, set()).add(name)
        elif name in _read(body[first]):
            found.add(name)
    for a, (first, last) in ranges.items():
        for b, (other_first, other_last) in ranges.items():
            is_inside = first == last == other_first == other_last and a in inside.get(first, ())
            if a < b and first <= other_last and other_first <= last and not is_inside:
                pairs.add(frozenset((a, b)))
    for k, those in inside.items():
        for part in inner(body[k]):
            found |= _needed_together(part, frozenset(those), pairs)
    return found


def _range(touched: list[set[str]], name: str) -> tuple[int, int]:
    """The live range of a buffer: the first and the last statement that accesses it."""
    found = [k for k, t in enumerate(touched) if name in t]
    return found[0], found[-1]


def _touched(s: Stmt) -> set[str]:
    return _read(s) | set(_written(s))


def _read(s: Stmt) -> set[str]:
    return {*sources((s,)), *(x.source for p in stmt_polys(s) for x in loads(*p.exprs))}


def _written(s: Stmt) -> Iterator[str]:
    for t in every((s,)):
        if isinstance(t, Block):
            yield from (x.buffer for x in t.stores)
