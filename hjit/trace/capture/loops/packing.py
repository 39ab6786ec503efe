"""A `RerolledNest` as stages: one array of all that its iterations change, and its parts as they are in the end.

An iteration evaluates all values before it stores any: they are updates of one stage that are joined. So its arrays lie
one behind the other in one, of a dtype that holds the numbers of all exactly. What is not to be written goes to an
element of its own at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.nests import RerolledNest, Write
from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast, rewrite, select
from hjit.trace.ir.graph import Definition, Stage, identity
from hjit.trace.ir.poly import ONE, ZERO, Indirect, Poly, poly
from hjit.trace.tracing.recording.recorder import Recorder

DType = np.dtype[Any]
_INT64, _FLOAT64, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(bool)


def pack_nests(rec: Recorder) -> None:
    """Record stages in place of the nests."""
    if not rec.rerolled.nests:
        return
    stages = dict(rec.stages)
    rec.stages.clear()
    for name, s in stages.items():
        nest = rec.rerolled.nests.get(name)
        if nest is None:
            rec.stages[name] = s
        elif name not in rec.stages:
            rec.stages.update((x.name, replace(x, origin=s.origin)) for x in _stages(rec, nest))
    rec.rerolled.nests.clear()


def _stages(rec: Recorder, nest: RerolledNest) -> list[Stage]:
    if len(nest.arrays) == 1 and all(w.where is None for w in nest.writes):
        return [
            _joined(next(iter(nest.arrays.values())), nest.dims, nest.rdims, [(w.target, w.value) for w in nest.writes])
        ]
    packed = Packed(nest, rec.unique("packed"), packed_dtype(nest, set(rec.rerolled.carried_ints)))
    return [packed.stage(), *packed.parts()]


def _joined(
    s: Stage, dims: tuple[Poly, ...], rdims: tuple[Poly, ...], writes: Iterable[tuple[tuple[Poly, ...], Expr]]
) -> Stage:
    """A stage with more updates, which run together."""
    new = [
        Definition(dims, rdims, target, value, "sequential", joined=k > 0) for k, (target, value) in enumerate(writes)
    ]
    return replace(s, updates=(*s.updates, *new))


def packed_dtype(nest: RerolledNest, ints: set[str]) -> DType:
    """A dtype that holds the numbers of all arrays, those of `ints` being within ``-2**53 .. 2**53``."""
    dtypes = {s.dtype for s in nest.arrays.values()}
    if len(dtypes) == 1:
        return dtypes.pop()
    if all(d.kind in "iub" for d in dtypes):
        return _INT64
    long = [s for s in nest.arrays.values() if s.dtype.kind in "iu" and s.dtype.itemsize == 8 and s.name not in ints]
    return _INT64 if long else _FLOAT64


@dataclass(frozen=True, slots=True)
class Packed:
    """The arrays of a nest in one, of a dtype."""

    nest: RerolledNest
    name: str
    dtype: DType

    @property
    def lead(self) -> int:
        """How many axes all arrays have in common."""
        return len(self.nest.dims)

    def begins(self) -> dict[str, Poly]:
        """Where each array begins, and where what is not written goes."""
        found: dict[str, Poly] = {}
        at = ZERO
        for name, s in self.nest.arrays.items():
            found[name] = at
            n = ONE
            for length in s.shape[self.lead :]:
                n = n * length
            at = at + n
        found[""] = at
        return found

    def place(self, name: str, index: Sequence[Poly]) -> tuple[Poly, ...]:
        """Where an element lies."""
        flat = ZERO
        for n, p in zip(self.nest.arrays[name].shape[self.lead :], index[self.lead :], strict=True):
            flat = flat * n + p
        return (*index[: self.lead], self.begins()[name] + flat)

    def packed(self, e: Expr) -> Expr:
        """A number as the packed array holds it."""
        if e.dtype == self.dtype:
            return e
        if e.dtype.kind == "f" and self.dtype == _INT64:
            return Op("bitcast", (cast(e, _FLOAT64),), _INT64)
        return cast(e, self.dtype)

    def unpacked(self, name: str, index: Sequence[Poly]) -> Expr:
        """An element of an array."""
        load, dtype = Load(self.name, self.place(name, index), self.dtype), self.nest.arrays[name].dtype
        if dtype.kind == "f" and self.dtype == _INT64:
            return cast(Op("bitcast", (load,), _FLOAT64), dtype)
        if dtype == _BOOL != self.dtype:
            return Op("not_equal", (load, Const(0, self.dtype)), _BOOL)
        return cast(load, dtype)

    def stage(self) -> Stage:
        """The packed array: what the arrays hold before, and the nest."""
        nest, lead = self.nest, identity(self.lead)
        begin = tuple(
            Definition(s.shape, (), self.place(name, identity(len(s.shape))), self.packed(s.initial))
            for name, s in nest.arrays.items()
            if s.initial is not None
        )
        shape = (*nest.dims, self.begins()[""] + 1)
        s = Stage(self.name, self.dtype, shape, Const(0, self.dtype), begin)
        assert all(w.target[: self.lead] == lead for w in nest.writes)
        return _joined(s, nest.dims, nest.rdims, map(self._write, nest.writes))

    def _write(self, w: Write) -> tuple[tuple[Poly, ...], Expr]:
        target = self.place(w.array, w.target)
        if w.where is not None:
            at = select(self._own(w.where), Index(target[-1]), Index(self.begins()[""]))
            target = (*target[:-1], poly(Indirect(at, None)))
        return target, self.packed(self._own(w.value))

    def _own(self, e: Expr) -> Expr:
        """An expression that reads the packed array."""

        def change(e: Expr) -> Expr | None:
            return self.unpacked(e.source, e.index) if isinstance(e, Load) and e.source in self.nest.arrays else None

        return rewrite(e, change)

    def parts(self) -> list[Stage]:
        """The arrays after the nest."""
        return [replace(s, initial=self.unpacked(name, identity(len(s.shape)))) for name, s in self.nest.arrays.items()]
