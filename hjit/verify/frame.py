"""Evaluating expressions of a Graph at some indices, with error bounds."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef
from hjit.trace.ir.interpret import IndexEvaluator
from hjit.trace.ir.poly import Indirect, Poly
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx, Array, as_columns, broadcast_to, decided, ulp, wider
from hjit.verify.forward_error import COMPARISONS, apply, cast, evaluate_op
from hjit.verify.work import LOADED, WIDEST, WITH_ERRORS, Work

OF_THE_SAME = COMPARISONS | {"subtract", "divide"}  # whose result is known where both arguments are one finite number


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a call: arrays by input, run-time sizes, and scalars by name."""

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]
    scalars: Mapping[str, Any]


class Arrays(Protocol):
    """What frames read from: `hjit.verify.reference.Reference`.

    Attributes:
        inexact: names of the operations whose last bits may differ.
        fast: are they computed with fast_math?
    """

    inputs: Inputs
    inexact: frozenset[str]
    fast: bool
    work: Work

    @property
    def longest(self) -> int:
        """The longest axis of all arrays."""

    def load(self, k: int, name: str, index: tuple[Any, ...]) -> Approx:
        """Elements of what segment `k` reads."""

    def array(self, k: int, name: str) -> Approx:
        """All of what segment `k` reads."""


class Frame(IndexEvaluator):
    """Evaluates expressions at some indices of their dimensions."""

    def __init__(self, run: Arrays, segment: int, dims: Sequence[Any]) -> None:
        self.run, self.segment, self.dims, self.sizes = run, segment, dims, run.inputs.sizes
        self.memo: dict[Expr, Approx] = {}
        self._places: dict[Load, tuple[Array, ...]] = {}

    def places(self, e: Load) -> tuple[Array, ...]:
        """Where a load reads, on each axis."""
        found = self._places.get(e)
        if found is None:
            found = self._places[e] = tuple(np.asarray(self.index(p)) for p in e.index)
        return found

    def gather(self, a: Indirect) -> Any:
        i = np.asarray(self.value(a.expr).value).astype(np.int64)
        return i if a.extent is None else np.where(i < 0, i + self.index(a.extent), i)

    def doubtful(self, polys: Sequence[Poly]) -> Array | None:
        """Where an index may be another one in hjit or in NumPy; None: nowhere."""
        found: Array | None = None
        for e in dict.fromkeys(e for p in polys for e in p.exprs):
            here = self.value(e).doubtful
            if here is not None and here.any():
                found = here if found is None else found | here
        return found

    def target(self, target: tuple[Poly, ...]) -> tuple[tuple[Array, ...], Array | None]:
        """Where a definition writes, and where that is doubtful."""
        return tuple(np.asarray(self.index(p)) for p in target), self.doubtful(target)

    def value(self, e: Expr) -> Approx:
        done = self.memo.get(e)
        if done is None:
            done = self.memo[e] = self._value(e)
        return done

    def _value(self, e: Expr) -> Approx:
        match e:
            case Const():
                return Approx(np.asarray(e.value))
            case ScalarRef():
                return Approx(np.asarray(e.dtype.type(self.run.inputs.scalars[e.name])))
            case Index():
                return decided_index(np.asarray(self.index(e.poly), np.int64), self.doubtful((e.poly,)))
            case Load():
                return self.load(e)
            case Cast():
                arg = self.value(e.arg)
                self.count(arg)
                return cast(arg, e.dtype)
            case Op():
                args = [self.value(x) for x in e.args]
                if e.name == "reordered":
                    return self.reordered(e, args[0])
                if e.name == "unordered":
                    return self.unordered(e, args[0])
                for a in args:
                    self.count(a)
                found = apply(e, args, e.name in self.run.inexact, self.run.fast)
                return found if found.errors is None else self.of_the_same(e, args, found)
        raise AssertionError(e)

    def of_the_same(self, e: Op, args: Sequence[Approx], found: Approx) -> Approx:
        """The result of an operation; without errors where its two arguments are one element of an array.

        So the diagonal of ``x[:, None] - x`` is zero, however far from exact its elements are.
        """
        match e.args:
            case (Load() as a, Load() as b) if a.source == b.source and e.name in OF_THE_SAME:
                pairs = zip(self.places(a), self.places(b), strict=True)
            case _:
                return found
        same = functools.reduce(np.logical_and, (i == j for i, j in pairs), np.bool_(True))
        if found.nonfinite is not None or not np.any(same):
            return found
        found = broadcast_to(found, np.broadcast_shapes(found.value.shape, np.shape(same)))
        assert found.errors is not None
        value = np.where(same, evaluate_op(e, [x.value for x in args]), found.value)
        return Approx(value, as_columns([np.where(same, 0.0, x) for x in found.errors]))

    def count(self, a: Approx) -> None:
        times = WIDEST if a.value.dtype.kind == "f" and a.value.dtype.itemsize == 8 else 1
        self.run.work.count(a.value.size, 1 if a.errors is None else WITH_ERRORS * times)

    def load(self, e: Load) -> Approx:
        found = self.run.load(self.segment, e.source, self.places(e))
        self.run.work.count(found.value.size, LOADED if found.errors is None else WITH_ERRORS)
        doubtful = self.doubtful(e.index)
        if doubtful is None:
            return found
        spread, nonfinite = self.spread(e.source)
        found = broadcast_to(found, np.broadcast_shapes(found.value.shape, doubtful.shape))
        errors: list[Any] = [np.float64(0)] * 3 if found.errors is None else list(found.errors)
        for k in (OURS, NUMPYS):
            errors[k] = np.where(doubtful, spread, errors[k])
        errors[SAME_WAY] = np.broadcast_to(errors[SAME_WAY], doubtful.shape)
        broken = doubtful & nonfinite if found.nonfinite is None else found.nonfinite | (doubtful & nonfinite)
        return Approx(found.value, (errors[0], errors[1], errors[2]), broken if broken.any() else None)

    def spread(self, name: str) -> tuple[float, bool]:
        """How far two elements of an array may be from each other, and whether some may be infinite or no numbers."""
        whole = self.run.array(self.segment, name)
        v = np.asarray(whole.value, wider(whole.value.dtype))
        finite = v[np.isfinite(v)]
        error = 0.0 if whole.errors is None else float(max(np.max(x, initial=0.0) for x in whole.errors))
        spread = float(finite.max() - finite.min()) if finite.size else 0.0
        return spread + 2 * error, finite.size < v.size or whole.nonfinite is not None

    def reordered(self, e: Op, total: Approx) -> Approx:
        """A sum that moves along a line in NumPy: what it has lost to the largest numbers of the line stays in it."""
        largest = 0.0
        for load in e.loads:
            whole = self.run.array(self.segment, load.source)
            v = np.abs(np.asarray(whole.value, wider(whole.value.dtype)))
            self.run.work.count(v.size)
            largest += float(np.max(v[np.isfinite(v)], initial=0.0))
        lost = np.full(total.value.shape, 2 * self.run.longest * float(np.finfo(e.dtype).eps) * largest)
        before = total.errors or (np.float64(0),) * 3
        own = ulp(total.value, np.float64(0), e.dtype) * len(e.loads)
        return Approx(
            total.value, (before[OURS] + own, before[NUMPYS] + lost, before[SAME_WAY] + own + lost), total.nonfinite
        )

    def unordered(self, e: Op, total: Approx) -> Approx:
        """A sum of a few terms that NumPy adds in another order, or without rounding each product."""
        terms = list(_terms(e.args[0]))
        most = functools.reduce(np.add, (np.abs(np.asarray(self.value(t).value, np.float64)) for t in terms))
        gap = np.broadcast_to(len(terms) * float(np.finfo(e.dtype).eps) * most, total.value.shape)
        before = total.errors or (np.float64(0),) * 3
        return Approx(
            total.value, (before[OURS] + gap, before[NUMPYS] + gap, before[SAME_WAY] + 2 * gap), total.nonfinite
        )


def _terms(e: Expr) -> Iterator[Expr]:
    """What a sum adds up."""
    if isinstance(e, Op) and e.name == "add":
        for a in e.args:
            yield from _terms(a)
    else:
        yield e


def decided_index(value: Array, doubtful: Array | None) -> Approx:
    """A computed index: a doubtful one may be any other."""
    return Approx(value) if doubtful is None else decided(value, np.asarray(doubtful), np.inf)
