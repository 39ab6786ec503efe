"""Asynchronous copies to shared memory, `cp.async` on GPUs that have it.

A stage that is a plain copy (of an argument, as made by `cache_read`, or of a stage in memory) and is kept in shared
memory is copied asynchronously: from sm_80 on, a thread neither waits for the load nor needs a register for it. Along a
sliding window, the copies of the next iteration start before the current one is computed (double buffering); the
circular buffer has room for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import (
    Block,
    Choose,
    CommitCopies,
    CopyAsync,
    For,
    If,
    Let,
    ResetWindow,
    SlidingProduce,
    Stmt,
    Threads,
    WaitForCopies,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.unused_lets import drop_unused_lets
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import Body, at, bound_vars, every, stmt_polys, with_bodies
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, Var, deep_atoms, poly

BYTES = (4, 8)  # of an element that is copied alone


def prefetch_windows(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Run copies that slide along a loop one iteration ahead."""
    if not nest.blocks:
        return nest
    copies = {b.stage for b in nest.buffers.values() if b.shared and _is_copy(graph, nest, b)}
    ahead = _Ahead(copies, dict(nest.buffers))
    nest = replace(nest, body=ahead.body(nest.body))
    return drop_unused_lets(replace(nest, buffers=ahead.buffers), graph, machine)


def copy_async(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Make copies to shared memory asynchronous, with a wait before their use."""
    copies = {b.stage for b in nest.buffers.values() if b.shared and _is_copy(graph, nest, b)}
    return replace(nest, body=tuple(_waiting(nest.body, copies))) if nest.blocks and copies else nest


def _is_copy(graph: Graph, nest: Nest, b: Buffer) -> bool:
    """Does a stage have the same elements as another array, which is not written meanwhile?"""
    s = graph.by_name.get(b.stage)
    if s is None or len(s.definitions) > 1 or s.dtype.itemsize not in BYTES:
        return False
    value = s.definitions[0].value
    if not isinstance(value, Load) or value.dtype != s.dtype:
        return False
    return value.source not in nest.writes and value.source not in nest.buffers


# -- an iteration ahead


class _Ahead:
    """Moves copies that slide along a loop to the previous iteration.

    Attributes:
        buffers: of the nest, with room for what is ahead.
        count: of the iterations whose copies have been written.
    """

    def __init__(self, copies: set[str], buffers: dict[str, Buffer]) -> None:
        self.copies, self.buffers = copies, buffers
        self.count = 0

    def body(self, body: Body) -> Body:
        return tuple(x for s in body for x in self.visit(s))

    def visit(self, s: Stmt) -> Body:
        if isinstance(s, Threads) or (isinstance(s, For) and s.kind != "serial"):
            return (s,)
        s = with_bodies(s, self.body)
        if not isinstance(s, For) or s.limit is not None or s.first is not None:
            return (s,)
        moved = [x for x in s.body if isinstance(x, SlidingProduce) and self.may_be_ahead(x, s.body)]
        if not moved:
            return (s,)
        self.buffers |= {x.stage: _longer(self.buffers[x.stage], x) for x in moved}
        first = self.produced(s, moved, s.begin)
        later = self.produced(s, [self.apart(x) for x in moved], poly(s.var) + s.step)
        rest = (x for x in s.body if x not in moved)
        names = [x for x in rest if isinstance(x, Let | Choose)]
        others = tuple(x for x in s.body if x not in moved and x not in names)
        steady = (*later, CommitCopies(), WaitForCopies(1), *names, *others)
        return (If(s.end - s.begin - 1, (*first, CommitCopies(), replace(s, body=steady), WaitForCopies(0))),)

    def may_be_ahead(self, x: SlidingProduce, body: Body) -> bool:
        """Is it the only one of its stage, a copy of which iterations add a known number of elements?"""
        is_alone = sum(isinstance(y, SlidingProduce) and y.stage == x.stage for y in every(body)) == 1
        return x.stage in self.copies and x.new > 0 and x.window > 0 and is_alone

    def apart(self, x: SlidingProduce) -> SlidingProduce:
        """It writes what is two iterations further on than what threads may still read."""
        b = self.buffers[x.stage]
        return replace(x, is_apart=b.fold is None or b.lengths[b.fold].const >= x.window + 2 * x.new)

    def produced(self, s: For, moved: list[SlidingProduce], iteration: Poly) -> Body:
        """The copies of an iteration, with the names that they need."""
        self.count += 1
        needed = {a for x in moved for p in stmt_polys(x) for a in deep_atoms(p)}
        kept: list[Stmt] = []
        for x in reversed(s.body):
            if isinstance(x, Let | Choose) and x.var in needed:
                kept.insert(0, x)
                needed |= {a for p in stmt_polys(x) for a in deep_atoms(p)}
        renamed = {x.var: Var(f"{x.var.name}.ahead{self.count}") for x in kept if isinstance(x, Let | Choose)}
        renamed |= {v: Var(f"{v.name}.ahead{self.count}") for x in moved for y in every((x,)) for v in bound_vars(y)}
        values = {s.var: iteration, **{old: poly(new) for old, new in renamed.items()}}
        return tuple(_with_names(x, renamed) for x in at((*kept, *moved), values))


def _with_names(s: Stmt, renamed: dict[Var, Var]) -> Stmt:
    """A statement that makes other names."""
    if isinstance(s, Let | Choose | For | SlidingProduce):
        s = replace(s, var=renamed.get(s.var, s.var))
    return with_bodies(s, lambda body: tuple(_with_names(x, renamed) for x in body))


def _longer(b: Buffer, x: SlidingProduce) -> Buffer:
    """A circular buffer with room for a window and the elements that the next iteration adds."""
    if b.fold is None:
        return b
    length = poly(1 << (x.window + x.new - 1).bit_length())
    return replace(b, lengths=(*b.lengths[: b.fold], length, *b.lengths[b.fold + 1 :]))


# -- asynchronous copies


def _waiting(body: Body, copies: set[str]) -> Iterator[Stmt]:
    """The statements with copies that are begun, all of them before any is waited for."""
    is_begun = False
    for k, s in enumerate(body):
        is_ahead = any(isinstance(x, CommitCopies) for x in body[k:]) and isinstance(s, SlidingProduce)
        if isinstance(s, Threads):
            begun = with_bodies(s, lambda b: tuple(_begun(x, copies) for x in b))
            is_copy = begun != s
            s = begun
        else:
            is_copy = False
            s = with_bodies(s, (lambda b: _begin(b, copies)) if is_ahead else (lambda b: tuple(_waiting(b, copies))))
        if is_begun and not is_copy and not isinstance(s, Let | Choose | ResetWindow):
            yield from (CommitCopies(), WaitForCopies(0))
            is_begun = False
        is_begun |= is_copy
        yield s
    if is_begun:
        yield from (CommitCopies(), WaitForCopies(0))


def _begin(body: Body, copies: set[str]) -> Body:
    """Start copies, without waiting for them."""
    return tuple(_begun(s, copies) for s in body)


def _begun(s: Stmt, copies: set[str]) -> Stmt:
    """A statement whose copies to shared memory are only begun."""
    if isinstance(s, Block) and len(s.stores) == 1 and not s.sets:
        (put,) = s.stores
        if put.buffer in copies and isinstance(put.value, Load) and put.atomic is None:
            return CopyAsync(put.buffer, put.index, put.value)
    return with_bodies(s, lambda body: _begin(body, copies))
