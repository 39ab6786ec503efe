"""Formulas of ufuncs: where, clip, round, nan_to_num, select, isposinf, isneginf, isclose, interp."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ops.arguments import broadcast, check_shape, in_dtype_of
from hjit.trace.ops.elementwise.promotion import common_dtype, element, load, loop_of, operand
from hjit.trace.ops.elementwise.ufuncs import Operation, kind_of
from hjit.trace.ops.layout import copy_order, operands_order, ordered_stage, tracers
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    from_stage,
    is_tracer,
)
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, record, static_value


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return call(np.nonzero, condition)
    condition = as_tracer(condition)
    x, y = operand(x), operand(y)
    arrays = tracers(condition, x, y)

    def made() -> Operation:
        shapes = tuple(v._shape for v in arrays)
        return Operation((common_dtype((x, y)),), shapes, broadcast(*shapes), is_direct=True)

    found = current().memos.once(kind_of(where, (condition, x, y)), None, made)
    shape, (dtype,) = found.shape, found.loop
    value = select(condition.element(shape, _BOOL), element(x, shape, dtype), element(y, shape, dtype))
    return ordered_stage(value, shape, dtype, operands_order(arrays, shape))


_BOOL = np.dtype(bool)


@implements(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None, **kwargs: Any
) -> Any:
    low = a_min if a_min is not None else min
    high = a_max if a_max is not None else max
    a = as_tracer(a)
    # as NumPy does: a bound that no value passes is none, also where it is no value of the dtype
    if a.dtype.kind in "iu":
        low = None if _is_int(low) and low <= np.iinfo(a.dtype).min else low
        high = None if _is_int(high) and high >= np.iinfo(a.dtype).max else high
    if low is None and high is None:
        return np.positive(a, out=out)
    if out is not None:
        kwargs["out"] = out
    if low is None:
        return np.minimum(a, high, **kwargs)
    if high is None:
        return np.maximum(a, low, **kwargs)
    # np.clip has one loop for three operands: all are promoted together
    operands = tuple(map(operand, (a, low, high)))
    arrays = tracers(*operands)
    dtype = loop_of(np._core.umath.clip, operands, None, "same_kind")[-1]  # type: ignore[attr-defined]
    shape = broadcast(*[x._shape for x in arrays])
    x, lo, hi = (cast(load(v, shape, dtype), dtype) for v in operands)
    order = operands_order(arrays, shape)
    if dtype.char in "fd" and all(_is_fixed(v, shape) for v in operands[1:]):
        # NumPy's loop for fixed bounds keeps the element where it equals a bound, and so the sign of its zero
        value = Op("minimum", (hi, Op("maximum", (lo, x), dtype)), dtype)
    else:
        value = Op("minimum", (Op("maximum", (x, lo), dtype), hi), dtype)
    result = ordered_stage(value, shape, dtype, order, is_scalar=not shape)
    if out is None:
        return result
    # bools have no sign
    return np.bitwise_or(result, False, **kwargs) if dtype.kind == "b" else np.positive(result, **kwargs)


def _is_fixed(x: Any, shape: Shape) -> bool:
    """Is a bound of `np.clip` one number to NumPy? Not the only element of an array beside only one."""
    if not is_tracer(x) or not x.ndim:
        return True
    return all(n == 1 for n in x.shape) and (x.ndim < len(shape) or any(n != 1 for n in shape))


def _is_int(x: Any) -> bool:
    return type(x.value if is_host(x) else x) is int


@implements(np.round, np.around)
def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    a = as_tracer(a)
    decimals = static_value(decimals)
    with np.errstate(all="ignore"):
        np.round(0.5, decimals)  # raises what NumPy does of other numbers than ints
    decimals = operator.index(decimals)
    check_shape(out, a)
    if a.dtype.kind == "b":
        return np.positive(a.astype(np.float16), out=out)
    if a.dtype.kind in "iu":
        if decimals >= 0:
            return np.positive(a, out=out)
        raise current().error("numpy.round", "negative decimals of integers")
    if decimals == 0:
        return np.rint(a, out=out)
    # NumPy multiplies or divides by a power of ten in the array's dtype, into `out`, and goes on in that
    scale = _power_of_ten(abs(decimals))
    if decimals > 0:
        return np.true_divide(np.rint(in_dtype_of(out, np.multiply(a, scale, order="A"))), scale, out=out)
    return np.multiply(np.rint(in_dtype_of(out, np.true_divide(a, scale, order="A"))), scale, out=out)


def _power_of_ten(n: int) -> float:
    """10 to the power `n`, rounded as NumPy does: from 10 to the 9 on factor by factor."""
    found = 10.0 ** min(n, 9)
    for _ in range(min(n, 400) - 9):  # it is infinite by then
        found *= 10.0
    return found


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = as_tracer(x)
    if x.dtype.kind != "f":
        return x[()] if not x.shape else x.copy() if copy else x
    info = np.finfo(x.dtype)
    low, high = (info.min if neginf is None else neginf), (info.max if posinf is None else posinf)
    e = x.load()
    zero = Const(0, x.dtype)
    e = select(Op("isnan", (e,), np.dtype(bool)), _as_expr(nan, x), e)
    infinite = Op("isinf", (e,), np.dtype(bool))
    negative = Op("less", (e, zero), np.dtype(bool))
    e = select(infinite, select(negative, _as_expr(low, x), _as_expr(high, x)), e)
    result = ordered_stage(e, x.shape, x.dtype, copy_order(x), is_scalar=not x.shape)
    if copy or x.is_scalar:
        return result
    x[...] = result
    return x if x.shape else result


def _as_expr(value: Any, like: Tracer) -> Expr:
    return cast(load(operand(value), like.shape, like.dtype), like.dtype)


@implements(np.select)
def select_(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    conditions = [as_tracer(c) for c in condlist]
    choices = [operand(c) for c in choicelist]
    default = operand(default)
    dtype = common_dtype((*choices, default))
    for k, c in enumerate(conditions):
        if c.dtype != bool:
            raise TypeError(f"invalid entry {k} in condlist: should be boolean ndarray")
    shape = broadcast(*(x.shape for x in (*conditions, *choices, default) if is_tracer(x)))
    value = element(default, shape, dtype)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        given = (
            choice.dtype
            if is_tracer(choice)
            else static_value(record(np.result_type, choice) if is_host(choice) else np.result_type(choice))
        )
        if not np.can_cast(given, dtype, "same_kind"):  # NumPy makes arrays of the choices before it casts them
            raise TypeError(f"Cannot cast array data from {given!r} to {dtype!r} according to the rule 'same_kind'")
        value = select(condition.load(shape), element(choice, shape, dtype), value)
    return from_stage(value, shape, dtype)


@implements(np.isposinf)
def isposinf(x: Any, out: Any = None) -> Any:
    return np.logical_and(np.isinf(x), np.logical_not(np.signbit(x)), out=out)


@implements(np.isneginf)
def isneginf(x: Any, out: Any = None) -> Any:
    return np.logical_and(np.isinf(x), np.signbit(x), out=out)


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    a, b = as_tracer(a), as_tracer(b)
    b = b.astype(np.result_type(b.dtype, 1.0))
    close = (abs(a - b) <= atol + rtol * abs(b)) & np.isfinite(b) | (a == b)
    return close | (np.isnan(a) & np.isnan(b)) if equal_nan else close


def _periodic(x: Tracer, xp: Tracer, fp: Tracer, period: Any) -> tuple[Tracer, Tracer, Tracer]:
    """What `np.interp` interpolates if it has a period: all within one, and a point before and one after it."""
    if period == 0:
        raise ValueError("period must be a non-zero value")
    period = abs(period)
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("Data points must be 1-D sequences")
    if xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length")
    x, xp = x % period, xp % period
    order = call(np.argsort, xp)
    xp, fp = xp[order], fp[order]
    return x, call(np.concatenate, (xp[-1:] - period, xp, xp[:1] + period)), call(np.concatenate, (fp[-1:], fp, fp[:1]))


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """NumPy's formula on each interval: ``slope * (x - xp[j]) + fp[j]``."""
    x, xp, fp = (as_tracer(v).astype(np.float64) for v in (x, xp, fp))
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period)
        left = right = None
    if xp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    n = xp.shape[0]
    if xp.known is not None and not (xp.known[1:] >= xp.known[:-1]).all():
        reason = "xp does not increase: what NumPy finds depends on how it searches"
        raise current().error("numpy.interp", reason, "sort xp, and fp by it")
    if xp.known is None and n > 1:
        current().check(call(np.any, ~(xp[1:] >= xp[:-1])))  # likewise
    j = call(np.searchsorted, xp, x, side="right") - 1
    j = call(np.clip, j, 0, n - 2 if n > 1 else 0)
    k = np.minimum(j + 1, n - 1)
    x0, x1, f0, f1 = xp[j], xp[k], fp[j], fp[k]
    slope = (f1 - f0) / call(np.where, x1 == x0, 1.0, x1 - x0)
    value = slope * (x - x0) + f0 if n > 1 else f0
    value = call(np.where, np.isnan(value) & ~np.isnan(x), slope * (x - x1) + f1, value)
    value = call(np.where, x == x0, f0, value)
    value = call(
        np.where,
        x >= xp[n - 1],
        call(np.where, x == xp[n - 1], fp[n - 1], fp[n - 1] if right is None else right),
        value,
    )
    value = call(np.where, x < xp[0], fp[0] if left is None else left, value)
    if n > 1:
        value = call(np.where, np.isnan(x), x, value)
    found = value.astype(np.float64, order="C", copy=False)
    return found if found.shape else found[()]
