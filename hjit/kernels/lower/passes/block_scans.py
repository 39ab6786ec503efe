"""Scans by the threads of a block: so many elements at a time, one of each thread and of each of a few tiles.

Threads read and write what lies side by side. What all elements so far come to goes from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import (
    Block,
    Declare,
    For,
    Nest,
    Register,
    Scan,
    ScanThreads,
    Set,
    Stmt,
    Store,
    ThreadLoop,
    Threads,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.distribute_threads import WARP
from hjit.kernels.lower.traverse import Body, with_bodies
from hjit.kernels.lower.two_sum import two_sum
from hjit.trace.ir.graph import Const, Expr, Graph, Op, cast, select
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Var, extremum, poly


def block_scans(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest without `Scan`."""
    if not nest.blocks:
        return nest
    return replace(nest, body=_body(nest.body, nest.threads))


def _body(body: Body, threads: int) -> Body:
    found: list[Stmt] = []
    for s in body:
        found += _scanned(s, threads) if isinstance(s, Scan) else (with_bodies(s, lambda b: _body(b, threads)),)
    return tuple(found)


def _scanned(s: Scan, threads: int) -> Iterator[Stmt]:
    """The steps of a scan."""
    names = [f"{s.buffer}.{s.op}{k}" for k in range(max(WARP // max(threads // WARP, 1), 1))]
    elements = tuple(Register(name, s.dtype) for name in names)
    before, error, all_ = (Register(f"{s.buffer}.{word}", s.dtype) for word in ("before", "error", "all"))
    neutral = Const(start_value(s.op, s.dtype), s.dtype)

    def apply(name: str, a: Expr, b: Expr) -> Expr:
        return Op(name, (a, b), s.dtype)

    yield Declare(before, cast(s.initial, s.dtype))
    if s.compensated:
        yield Declare(error, Const(0, s.dtype))
    step = Var(f"{s.var.name}.step")

    def tile(k: int, block: Block) -> Threads:
        end = extremum("min", poly(step) + (k + 1) * threads, s.end)
        return Threads((ThreadLoop(s.var, poly(step) + k * threads, end, 1, threads),), (block,))

    value: list[Expr] = [apply(s.op, before, x) for x in elements]
    sets = [Set(before, apply(s.op, before, all_))]
    if s.compensated:  # what is lost where the elements of a step join those before it is carried along
        total, lost = two_sum(before, all_, apply)
        value = [apply("add", before, apply("add", x, error)) for x in elements]
        kept = apply("add", error, lost)  # not where an infinity is met: the total alone is right
        sets = [
            Set(before, total),
            Set(error, select(Op("isfinite", (kept,), "?"), kept, Const(0, s.dtype))),
        ]
    yield For(
        step,
        s.begin,
        s.end,
        threads * len(elements),
        (
            *(Declare(x, neutral) for x in elements),
            Declare(all_, neutral),
            *(tile(k, Block((), (), (Set(x, cast(s.element, s.dtype)),))) for k, x in enumerate(elements)),
            ScanThreads(s.op, elements, all_),
            *(tile(k, Block((Store(s.buffer, s.index, cast(v, s.dtype_out)),))) for k, v in enumerate(value)),
            Block((), (), tuple(sets)),
        ),
    )
