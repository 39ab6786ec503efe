"""Privatised scatters of integers: each block of threads updates a copy in shared memory, and adds it to the result
once.

Atomic updates of shared memory are 32 bits wide; 64-bit ones are loops of compare-and-swap. A 64-bit sum has 32-bit
copies if the number of updates cannot overflow them, as in every histogram.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.lower.loopir import BEGIN, Block, For, If, Let, ResetWindow, Stmt, Store, ThreadLoop, Threads
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import Body, every, own_polys, sources, with_bodies
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.analysis.ranges import Range, Ranges
from hjit.trace.ir.expressions import Const, Load, cast, loads
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ONE, ZERO, Indirect, Poly, Var, deep_atoms, poly

# of a block: as many blocks of 256 threads as a multiprocessor holds have their copies at once, on every GPU since 7.5
MAX_BYTES = 16 << 10
WORD = 4  # bytes
ELEMENT = Var("element")


def privatise_scatters(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Let blocks update private copies, if these fit into shared memory and have no more elements than there are
    updates."""
    first = next((k for k, s in enumerate(nest.body) if not isinstance(s, Let | ResetWindow)), len(nest.body))
    names, body = nest.body[:first], nest.body[first:]
    stores = [x for x in _stores(body) if x.buffer == nest.stage]
    is_alone = nest.blocks and len({x.atomic for x in stores}) == 1 and nest.stage not in _read(body)
    if not is_alone or stores[0].atomic is None:
        return nest
    found = _copy(graph.stage(nest.stage), stores, body, {BEGIN, *(s.var for s in names if isinstance(s, Let))})
    if found is None:
        return nest
    updates = _most(body, nest.stage)
    most = MAX_BYTES // WORD if updates is None else min(MAX_BYTES // WORD, updates)
    capacity = found.total.const if found.total.is_const else most
    if capacity > most:
        return nest
    private = found.body(body)
    if not found.total.is_const:
        private = (If(capacity - found.total, private, body),)
    buffer = Buffer(found.name, (ZERO,), (poly(capacity),), C_ORDER, shared=True, dtype=found.dtype)
    return replace(nest, body=(*names, *private), buffers={**nest.buffers, found.name: buffer})


@dataclass(frozen=True, slots=True)
class _Copy:
    """The part of a stage that the threads of a block update in a private copy.

    Attributes:
        op: the ufunc that joins values.
        dtype: of its elements.
        index: of the stage, where the block says it; None: along these axes the copy has all elements.
    """

    stage: Stage
    op: str
    dtype: np.dtype[Any]
    index: tuple[Poly | None, ...]

    @property
    def name(self) -> str:
        return f"{self.stage.name}.private"

    @property
    def sizes(self) -> list[Poly]:
        """The lengths of its axes."""
        return [n for p, n in zip(self.index, self.stage.shape, strict=True) if p is None]

    @property
    def total(self) -> Poly:
        """How many elements it has."""
        return math.prod(self.sizes, start=ONE)

    def body(self, body: Body) -> Body:
        """The statements of a block, on the copy."""
        loop = ThreadLoop(ELEMENT, ZERO, self.total)
        here = (poly(ELEMENT),)
        neutral = Const(start_value(self.op, self.dtype), self.dtype)
        result = cast(Load(self.name, here, self.dtype), self.stage.dtype)
        cleared = Threads((loop,), (Block((Store(self.name, here, neutral),)),))
        joined = Threads((loop,), (Block((Store(self.stage.name, self.place(), result, self.op),)),))
        return (cleared, *map(self.redirected, body), joined)

    def redirected(self, s: Stmt) -> Stmt:
        """A statement that updates the copy instead of the stage."""
        if isinstance(s, Block):
            return replace(s, stores=tuple(self.store(x) if x.buffer == self.stage.name else x for x in s.stores))
        return with_bodies(s, lambda body: tuple(map(self.redirected, body)))

    def store(self, x: Store) -> Store:
        at = ZERO
        for own, p, n in zip(self.index, x.index, self.stage.shape, strict=True):
            at = at * n + p if own is None else at
        return replace(x, buffer=self.name, index=(at,), value=cast(x.value, self.dtype))

    def place(self) -> tuple[Poly, ...]:
        """Where the stage has the copy's element `ELEMENT`."""
        found: list[Poly] = []
        left, sizes = poly(ELEMENT), self.sizes
        for p in reversed(self.index):
            if p is None:
                n = sizes.pop()
                found.append(left % n if sizes else left)
                left = left // n if sizes else left
            else:
                found.append(p)
        return tuple(reversed(found))


def _copy(s: Stage, stores: Sequence[Store], body: Body, names: set[Var]) -> _Copy | None:
    """The part of a stage that the threads of a block update; None if a block cannot have a copy of it."""
    op = stores[0].atomic
    assert op is not None
    dtype = s.dtype if s.dtype.itemsize == WORD else _narrow(stores, _most(body, s.name)) if op == "add" else None
    index = tuple(_common(ps, names) for ps in zip(*(x.index for x in stores), strict=True))
    return None if dtype is None or None not in index else _Copy(s, op, dtype, index)


def _common(ps: Sequence[Poly], names: set[Var]) -> Poly | None:
    """The index along one axis, where it is the same for all updates of a block."""
    atoms = list(deep_atoms(ps[0]))
    varies = any(isinstance(a, Indirect) or (isinstance(a, Var) and a not in names) for a in atoms)
    return None if varies or any(p != ps[0] for p in ps) else ps[0]


def _narrow(stores: Sequence[Store], updates: int | None) -> np.dtype[Any] | None:
    """The integers of a word that hold sums of so many values, if they do."""
    ranges = Ranges()
    found = [ranges.of(x.value) for x in stores]
    if updates is None or None in found:
        return None
    known: list[Range] = [r for r in found if r is not None]
    low, high = (updates * x for x in (min(0, *(r[0] for r in known)), max(0, *(r[1] for r in known))))
    return next(
        (t for t in (np.dtype("u4"), np.dtype("i4")) if np.iinfo(t).min <= low and high <= np.iinfo(t).max), None
    )


def _most(body: Body, stage: str) -> int | None:
    """An upper bound of the updates of a stage in the statements; None if it is only known at run time."""
    total = 0
    for s in body:
        if not any(x.buffer == stage for x in _stores((s,))):
            continue
        match s:
            case Block():
                n: int | None = sum(x.buffer == stage for x in s.stores)
            case For():
                n = _times(_most(s.body, stage), s.most)
            case Threads():
                n = _times(_most(s.body, stage), *(t.most for t in s.loops))
            case If():
                n = _times(1, _most((*s.body, *s.otherwise), stage))
            case _:
                n = None
        if n is None:
            return None
        total += n
    return total


def _times(*counts: int | None) -> int | None:
    known = [n for n in counts if n is not None]
    return math.prod(known) if len(known) == len(counts) else None


def _stores(body: Body) -> Iterator[Store]:
    return (x for s in every(body) if isinstance(s, Block) for x in s.stores)


def _read(body: Body) -> set[str]:
    """The arrays that are read, also by indices."""
    return {*sources(body), *(x.source for s in every(body) for p in own_polys(s) for x in loads(*p.exprs))}
