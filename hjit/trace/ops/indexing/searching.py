"""np.searchsorted, and np.digitize by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Op, cast, select
from hjit.trace.ir.poly import Indirect, poly
from hjit.trace.ops.indexing.gathers import take
from hjit.trace.ops.limits import MAX_LINEAR_SEARCH
from hjit.trace.tracing.arrays.tracer import as_tracer, call, from_known, from_stage
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current

# -- searching


def _before(a: Expr, b: Expr, strict: bool) -> Expr:
    """Does `a` sort before `b` (or with it, unless `strict`)? NaN sorts last."""
    truth = np.dtype(bool)
    if not strict:
        return Op("logical_not", (_before(b, a, True),), truth)
    less = Op("less", (a, b), truth)
    if a.dtype.kind != "f":
        return less
    last = Op("logical_and", (Op("isnan", (b,), truth), Op("logical_not", (Op("isnan", (a,), truth),), truth)), truth)
    return Op("logical_or", (less, last), truth)


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """A small table is compared with element by element; a larger one searched by halves, one stage a step."""
    a, values = as_tracer(a), as_tracer(v)
    if sorter is not None:
        a = take(a, sorter)
    if a.ndim != 1:
        raise ValueError(
            "object too deep for desired array" if a.ndim else "object of too small depth for desired array"
        )
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got '{side}')")
    scalar = not values.shape
    if a.known is not None and values.known is not None:
        return from_known(np.searchsorted(a.known, values.known, side), is_scalar=scalar)  # type: ignore[call-overload]
    dtype, n, intp = np.result_type(a.dtype, values.dtype), int(a.shape[0]), np.dtype(np.intp)
    x = cast(values.load(), dtype)
    if n <= MAX_LINEAR_SEARCH:
        total: Expr = Const(0, intp)
        for k in range(n):
            total = Op("add", (total, cast(_before(cast(a.at((poly(k),)), dtype), x, side == "left"), intp)), intp)
        return from_stage(total, values.shape, intp, is_scalar=scalar)
    position: Expr = Const(0, intp)
    last = Index(current().poly(a.shape[0]) - 1)
    step = 1 << (n.bit_length() - 1)
    while step:
        ahead = Op("add", (position, Const(step - 1, intp)), intp)
        inside = Op("less_equal", (ahead, last), np.dtype(bool))
        element = a.at((poly(Indirect(Op("minimum", (ahead, last), intp), None)),))
        go = Op("logical_and", (inside, _before(cast(element, dtype), x, side == "left")), np.dtype(bool))
        found = from_stage(
            select(go, Op("add", (position, Const(step, intp)), intp), position), values.shape, intp, is_scalar=scalar
        )
        position = found.load()
        step >>= 1
    return found


@implements(np._core.multiarray._monotonicity)  # type: ignore[attr-defined]
def _monotonicity(x: Any) -> int:
    """Of np.digitize: 1 rising, -1 falling, 0 neither; decided now and guarded."""
    x = as_tracer(x)
    if x.known is not None:
        return int(np._core.multiarray._monotonicity(x.known))  # type: ignore[attr-defined]
    if bool(call(np.all, x[1:] >= x[:-1])):
        return 1
    return -1 if bool(call(np.all, x[1:] <= x[:-1])) else 0
