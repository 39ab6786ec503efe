"""Cooperative loops: the iterations of loops over threads are distributed over the threads of a block.

Thread loops that are directly nested count as one loop, so that all threads have work even if the extents are not
multiples of the block's. Statements outside of such loops run in the first thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hjit.kernels.lower.loopir import Block, For, Reduce, SlidingProduce, Stmt, ThreadLoop, Threads
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, every, has_threads, stored, with_bodies
from hjit.sched.language.limits import MAX_THREADS, WARP
from hjit.trace.ir.graph import Graph

# of a block where nothing else says how many: enough to hide latency, few enough for several blocks at once
THREADS = 256


def distribute_threads(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Distribute the iterations of loops over threads."""
    if not nest.blocks:
        return nest
    body = _shared_out(nest.body)
    return replace(nest, body=body, threads=_threads(nest.stage, body))


def _shared_out(body: Body) -> Body:
    """The statements of a block."""
    found: list[Stmt] = []
    alone: list[Stmt] = []  # of the first thread, one after the other

    def flush() -> None:
        if alone:
            found.append(Threads((), tuple(alone)))
            alone.clear()

    for s in body:
        if has_threads(s):
            flush()
            found.append(_distributed(s))
        elif any(isinstance(t, Block | Reduce | SlidingProduce) for t in every((s,))):
            alone.append(s)
        else:  # names and windows are those of all threads
            flush()
            found.append(s)
    flush()
    return tuple(found)


def _distributed(s: Stmt) -> Stmt:
    if not isinstance(s, For) or s.kind != "gpu_thread":
        return with_bodies(s, _shared_out)
    loops: list[ThreadLoop] = []
    while True:
        loops.append(ThreadLoop(s.var, s.begin, s.end, s.step, s.most))
        body = s.body
        (s, *more) = body
        if more or not isinstance(s, For) or s.kind != "gpu_thread" or _depends(s, loops):
            return Threads(tuple(loops), tuple(map(_serial, body)))


def _depends(s: For, loops: Sequence[ThreadLoop]) -> bool:
    """Do its bounds depend on enclosing loops?"""
    return any(p.mentions(t.var) for t in loops for p in (s.begin, s.end))


def _serial(s: Stmt) -> Stmt:
    """Make all loops inside a thread serial."""
    s = with_bodies(s, lambda body: tuple(map(_serial, body)))
    return replace(s, kind="serial") if isinstance(s, For) and s.kind == "gpu_thread" else s


def _threads(stage: str, body: Body) -> int:
    """The number of threads of a block: the iterations of the nest's stage, if that number is known."""
    known = ([n for n in most if n is not None] for most in _iterations(stage, body) if None not in most)
    wanted = next(map(math.prod, known), THREADS)
    return min(max(-(-wanted // WARP), 1) * WARP, MAX_THREADS)


def _iterations(stage: str, body: Body) -> Iterator[list[int | None]]:
    for s in every(body):
        if isinstance(s, Threads) and s.loops and any(stage in stored(t) for t in every(s.body)):
            yield [*(t.most for t in s.loops), *_warp_lanes(s.body)]
        elif isinstance(s, Reduce) and s.buffer == stage and _warp_lanes((s,)):
            yield [*_warp_lanes((s,))]


def _warp_lanes(body: Body) -> list[int]:
    """How many lanes of a warp share a reduction, if they do."""
    found = [t.warp_lanes for s in every(body) if isinstance(s, Reduce) for t in s.loops if t.warp_lanes]
    return found[:1]
