"""Forward error analysis of reductions, and of stages with several updates; see `hjit.verify.forward_error`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.tracing.recording.products import Operand, Product
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx, Array, Columns, as_columns, decided, reshaped, ulp, wider
from hjit.verify.forward_error import SUM_ROUNDINGS, truth

_MONOTONE = frozenset(("maximum", "minimum", "fmax", "fmin"))


class Total:
    """A reduction along the last axis, part by part.

    Attributes:
        parts: of how many numbers each element is a sum itself, which NumPy adds up in this reduction's dtype.
    """

    parts = 1

    def __init__(self, order: str, dtype: np.dtype[Any], fast: bool) -> None:
        self.order, self.dtype, self.fast = order, dtype, fast
        self.ufunc = getattr(np, order)
        self.count = 0
        self.errors: list[Any] = [np.float64(0)] * 3
        self.nonfinite: Array | None = None

    def add(self, x: Approx) -> None:
        raise NotImplementedError

    def add_like(self, value: Array, some: Approx) -> None:
        """Add elements whose errors are assumed to be about those of some others."""
        errors = None
        if some.errors is not None:
            usual: Any = np.mean if isinstance(self, _Sum) else np.max
            all_of_them = (np.broadcast_to(e, some.value.shape) for e in some.errors)
            errors = as_columns(
                [np.broadcast_to(2.0 * usual(e, axis=-1, keepdims=True), value.shape) for e in all_of_them]
            )
        nonfinite = None if some.nonfinite is None or not some.nonfinite.any() else np.ones(value.shape, bool)
        self.add(Approx(value, errors, nonfinite))

    def result(self) -> Approx:
        raise NotImplementedError

    def broken(self, x: Approx) -> None:
        if x.nonfinite is not None:
            here: Any = x.nonfinite.any(-1, keepdims=True)
            self.nonfinite = here if self.nonfinite is None else self.nonfinite | here


class _Sum(Total):
    total: Any = 0
    largest: Any = 0.0  # the sum of absolute values of finite elements

    def add(self, x: Approx) -> None:
        whole = self.dtype.kind != "f"
        with np.errstate(all="ignore"):
            wide = x.value if whole else x.value.astype(wider(self.dtype))
            self.total = self.total + wide.sum(-1, keepdims=True, dtype=self.dtype if whole else None)
            if not whole:
                self.largest = self.largest + _finite(wide).sum(-1, keepdims=True)
            self.count += x.value.shape[-1]
            if x.errors is not None:
                self.errors = [old + e.sum(-1, keepdims=True) for old, e in zip(self.errors, x.errors, strict=True)]
        self.broken(x)

    def result(self) -> Approx:
        value = np.asarray(self.total).astype(self.dtype)
        shape = value.shape
        if self.dtype.kind != "f":
            if not any(np.any(e) for e in self.errors):
                return Approx(value, None, self.nonfinite)
            return Approx(value, as_columns([np.broadcast_to(e, shape) for e in self.errors]), self.nonfinite)
        errors = _roundings(self.errors, self.largest, self.count, value, self.dtype, self.fast, self.parts)
        return _with_overflow(value, self.largest, errors, self.nonfinite)


def _finite(a: Array) -> Array:
    """Absolute values, 0 for those that are not finite."""
    return np.where(np.isfinite(a), np.abs(a), 0)


def _with_overflow(value: Array, largest: Any, errors: Columns, nonfinite: Array | None) -> Approx:
    """A sum in an order that is open: a partial sum may overflow in hjit or in NumPy alone.

    That makes it infinite, or NaN together with an infinity of the other sign.
    """
    broken = np.asarray(largest.astype(wider(value.dtype)) + errors[NUMPYS] > np.finfo(value.dtype).max)
    if nonfinite is not None:
        broken = broken | nonfinite
    of_finite = (np.where(np.isnan(e), np.inf, e) for e in errors)
    errors = as_columns([np.where(np.isfinite(value), e, np.where(broken, np.inf, 0.0)) for e in of_finite])
    return Approx(value, errors, broken if broken.any() else None)


def _roundings(
    errors: Sequence[Any], largest: Any, count: Any, value: Array, dtype: np.dtype[Any], fast: bool, parts: int = 1
) -> Columns:
    """The errors of a sum; `largest`: the sum of absolute values; `parts`: see `Total`."""
    u = float(np.finfo(dtype).eps) / 2
    ours = np.asarray(count, np.float64)
    numpys = ours * parts
    if not fast:
        ours = np.minimum(ours, SUM_ROUNDINGS + np.log2(np.maximum(ours, 1)))
    size = np.asarray(largest, np.float64)
    with np.errstate(all="ignore"):
        found = [
            e + n * u * (size + e) + ulp(value, e, dtype)
            for e, n in zip(errors, (ours, numpys, ours + numpys), strict=True)
        ]
    return as_columns(found)


class _Product(Total):
    value: Any = 1.0

    def __init__(self, order: str, dtype: np.dtype[Any], fast: bool) -> None:
        super().__init__(order, dtype, fast)
        self.most: list[Any] = [np.longdouble(1)] * 3

    def add(self, x: Approx) -> None:
        with np.errstate(all="ignore"):
            wide = x.value.astype(np.longdouble)
            self.value = self.value * wide.prod(-1, keepdims=True)
            for k in range(3):
                error = 0.0 if x.errors is None else x.errors[k]
                self.most[k] = self.most[k] * (np.abs(wide) + error).prod(-1, keepdims=True)
        self.count += x.value.shape[-1]
        self.broken(x)

    def result(self) -> Approx:
        with np.errstate(all="ignore"):
            value = np.asarray(self.value).astype(self.dtype)
            grown = self.count * float(np.finfo(self.dtype).eps)
            errors = []
            for k, most in enumerate(self.most):
                error = np.asarray(
                    most - np.abs(self.value) + most * grown * (2.0 if k == SAME_WAY else 1.0), np.float64
                )
                error = error + 2 * ulp(value, np.float64(0), self.dtype)
                errors.append(np.where(np.isfinite(value), np.where(np.isnan(error), np.inf, error), np.inf))
            broken = ~np.isfinite(np.asarray(self.most[NUMPYS], np.float64)) | (
                np.abs(np.asarray(self.most[NUMPYS])) > np.finfo(self.dtype).max
            )
            broken = broken | (False if self.nonfinite is None else self.nonfinite)
        return Approx(value, as_columns(errors), broken if broken.any() else None)


class _Extreme(Total):
    """A reduction that is monotone in each element: extremes, and `any` or `all`; kept between its two bounds."""

    value: Any = None
    low: Any = None
    high: Any = None
    own: Any = 0.0
    rounded = False

    def add(self, x: Approx) -> None:
        def reduced(a: Any) -> Any:
            return self.ufunc.reduce(a, axis=-1, keepdims=True)

        with np.errstate(all="ignore"):
            found = reduced(x.value)
            low = high = found
            self.broken(x)
            if x.errors is not None or x.nonfinite is not None:
                self.rounded = True
                if self.dtype.kind == "b":
                    high, low = map(reduced, truth(x))
                elif self.order in _MONOTONE and x.errors is not None:
                    wide, error = x.value.astype(wider(self.dtype)), np.maximum(x.errors[OURS], x.errors[NUMPYS])
                    high, low = reduced(wide + error), reduced(wide - error)
                    self.own = np.maximum(
                        self.own, np.broadcast_to(x.errors[SAME_WAY], wide.shape).max(-1, keepdims=True)
                    )
            first = self.value is None
            self.value = found if first else self.ufunc(self.value, found)
            self.low, self.high = (low, high) if first else (self.ufunc(self.low, low), self.ufunc(self.high, high))

    def result(self) -> Approx:
        if not self.rounded:
            return Approx(self.value)
        if self.dtype.kind == "b":
            return decided(self.value, self.high != self.low)
        with np.errstate(all="ignore"):
            wide = self.value.astype(wider(self.dtype))
            error = np.fmax(np.abs(self.high - wide), np.abs(self.low - wide)).astype(np.float64)
            if self.order not in _MONOTONE:
                error = np.full(wide.shape, np.inf)
            error = np.where(np.isfinite(wide), error, 0.0 if self.nonfinite is None else np.inf)
            return Approx(
                self.value, (error, error, np.minimum(np.broadcast_to(self.own, error.shape), error)), self.nonfinite
            )


def sums_of(start: Approx, x: Approx, reorders: bool = False) -> Approx:
    """Cumulative sums along the last axis; each may be rounded differently from the one before.

    Args:
        reorders: may hjit add in another order, as blocks of threads do? What they add up on the way is up to the sum
            of absolute values.
    """
    dtype, shape = x.value.dtype, x.value.shape
    whole = dtype.kind != "f"
    wide = dtype if whole else np.dtype(wider(dtype))
    with np.errstate(all="ignore"):
        total = start.value[..., None].astype(wide) + np.cumsum(x.value, axis=-1, dtype=wide)
        value = total.astype(dtype)
        old, errors = start.errors or (np.zeros(shape[:-1]),) * 3, x.errors or (np.zeros(shape),) * 3
        found = []
        for k in range(3):
            most = np.asarray(old[k])[..., None] + np.cumsum(np.broadcast_to(errors[k], shape), axis=-1)
            if not whole:
                numpys = np.cumsum(ulp(value, most, dtype), axis=-1)
                ours = np.maximum(numpys, _by_blocks(start, x, most)) if reorders else numpys
                most = most + {OURS: ours, NUMPYS: numpys, SAME_WAY: ours + numpys}[k]
            found.append(np.where(np.isnan(most), np.inf, most))
    nonfinite = None
    for b in (start.nonfinite[..., None] if start.nonfinite is not None else None, x.nonfinite):
        if b is not None:
            nonfinite = np.broadcast_to(b, shape) if nonfinite is None else nonfinite | b
    if nonfinite is not None:
        nonfinite = np.logical_or.accumulate(nonfinite, axis=-1)
    if not whole:
        with np.errstate(all="ignore"):
            over = np.isfinite(value) & (np.abs(total) + np.asarray(found[NUMPYS]) > np.finfo(dtype).max)
        nonfinite = over if nonfinite is None else nonfinite | over
        found = [np.where(np.isfinite(value), e, np.where(nonfinite, np.inf, 0.0)) for e in found]
    if not any(e.any() for e in found):
        return Approx(value, None, nonfinite if nonfinite is not None and nonfinite.any() else None)
    return Approx(value, as_columns(found), nonfinite if nonfinite is not None and nonfinite.any() else None)


def _by_blocks(start: Approx, x: Approx, errors: Array) -> Array:
    """The roundings of cumulative sums along the last axis that are added up in any order, as trees are."""
    size = _finite(start.value)[..., None].astype(np.float64) + np.cumsum(_finite(x.value), axis=-1, dtype=np.float64)
    count = np.arange(1, x.value.shape[-1] + 1)
    roundings = np.minimum(count, SUM_ROUNDINGS + np.log2(count))
    return np.asarray(roundings * (float(np.finfo(x.value.dtype).eps) / 2) * (size + errors))


class PartialStage:
    """A stage while its definitions are run."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.approx = Approx(np.zeros(shape, dtype))

    def put(self, where: tuple[tuple[Array, ...], Array | None], x: Approx) -> None:
        """Assign to elements; where their places are doubtful, anything may be anywhere."""
        target, doubtful = where
        now = self.approx
        shape = now.value.shape
        at = target if target else ()
        if doubtful is not None:
            now.value[at] = x.value
            self._anything()
            return
        if x.errors is not None or now.errors is not None:
            old = now.errors or tuple(np.zeros(shape) for _ in range(3))
            for k in range(3):
                old[k][at] = 0.0 if x.errors is None else x.errors[k]
            now.errors = old  # type: ignore[assignment]
        if x.nonfinite is not None or now.nonfinite is not None:
            nonfinite = np.zeros(shape, bool) if now.nonfinite is None else now.nonfinite
            nonfinite[at] = False if x.nonfinite is None else x.nonfinite
            now.nonfinite = nonfinite
        now.value[at] = x.value

    def _anything(self) -> None:
        shape = self.approx.value.shape
        self.approx.errors = np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape)
        self.approx.nonfinite = np.ones(shape, bool)

    def join(self, order: str, target: tuple[Array, ...], x: Approx, doubtful: Array | None, fast: bool) -> None:
        """``ufunc.at``."""
        now = self.approx
        dtype, shape = now.value.dtype, now.value.shape
        old = now.errors or tuple(np.zeros(shape) for _ in range(3))
        at: Any = target if target else ()
        doubts = None if doubtful is None else np.broadcast_to(doubtful, x.value.shape)
        if order != "add" or dtype.kind == "b":
            getattr(np, order).at(now.value, at, x.value)
            if x.errors is not None or doubts is not None:
                self._anything()
            return
        errors = [e.copy() for e in old]
        for k in range(3):
            if x.errors is not None:
                np.add.at(errors[k], at, x.errors[k])
        if doubts is not None:
            moved = float(np.abs(np.where(doubts, x.value, 0).astype(np.float64)).sum())
            errors = [e + moved if k != SAME_WAY else e for k, e in enumerate(errors)]
        if dtype.kind != "f":
            np.add.at(now.value, at, x.value)
            now.errors = None if x.errors is None and doubts is None and now.errors is None else as_columns(errors)
            return
        wide = now.value.astype(wider(dtype))
        largest, count = _finite(wide), np.ones(shape)
        with np.errstate(all="ignore"):
            np.add.at(wide, at, x.value)
            np.add.at(largest, at, _finite(x.value))
            np.add.at(count, at, 1.0)
            value = wide.astype(dtype)
            nonfinite = now.nonfinite
            if x.nonfinite is not None:
                nonfinite = np.zeros(shape, bool) if nonfinite is None else nonfinite
                np.logical_or.at(nonfinite, at, x.nonfinite)
            rounded = _roundings(errors, largest, np.where(count > 1, count, 0), value, dtype, True)
            found = _with_overflow(value, largest, rounded, nonfinite)
        now.value, now.nonfinite = found.value, found.nonfinite
        now.errors = (
            None if found.errors is None else as_columns([np.array(np.broadcast_to(e, shape)) for e in found.errors])
        )


def total_of(order: str, dtype: np.dtype[Any], fast: bool) -> Total:
    """A reduction by a ufunc, in a dtype."""
    kind = (
        _Sum
        if order == "add" and dtype.kind != "b"
        else _Product
        if order == "multiply" and dtype.kind == "f"
        else _Extreme
    )
    return kind(order, dtype, fast)


def product(p: Product, needs: Sequence[Approx]) -> Approx:
    """A product of matrices, its sums in any order, as BLAS has them."""
    # Products of long doubles take too long; without them the error is counted twice
    wide = wider(p.dtype) if p.dtype.itemsize < 8 else p.dtype
    operands = [(needs[0], p.first), (needs[-1], p.second)]

    def of(a: Any, x: Approx, operand: Operand) -> Array:
        return operand.of(np.broadcast_to(a, x.value.shape)).astype(wide)

    with np.errstate(all="ignore"):
        a, b = (of(x.value, x, o) for x, o in operands)
        exact = np.matmul(a, b)
        largest = np.matmul(_finite(a), _finite(b))
        errors: list[Any] = []
        for k in range(3):
            first, second = (of(0.0 if x.errors is None else x.errors[k], x, o) for x, o in operands)
            errors.append(np.matmul(first, _finite(b) + second) + np.matmul(_finite(a), second))
        value = exact.astype(p.dtype)
        count = p.length * (2 if wide == p.dtype else 1)
        found = _roundings(errors, largest, count, value, p.dtype, True)
        one = [of(False if x.nonfinite is None else x.nonfinite, x, o) for x, o in operands]
        broken = np.matmul(one[0], np.ones_like(b)) + np.matmul(np.ones_like(a), one[1]) > 0
        return reshaped(_with_overflow(value, largest, found, broken), p.shape)
