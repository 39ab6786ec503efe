"""What converts and stores element by element: `ndarray.astype`, copyto, putmask."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Op, cast
from hjit.trace.ops.arguments import Casting
from hjit.trace.ops.layout import copy_order, in_order, ordered_stage
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import (
    MAX_KNOWN,
    Tracer,
    as_tracer,
    from_known,
    from_stage,
    stored,
)
from hjit.trace.tracing.arrays.writing import trim, write
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import Conversion, as_fill, as_item, is_host


@provides
def astype(x: Tracer, dtype: Any, casting: Casting = "unsafe", copy: bool = True, order: str = "K") -> Tracer:
    """`ndarray.astype`.

    Raises:
        TypeError: `casting` forbids it.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        as_complex: Tracer = forward.real_as_complex(x, dtype, casting, copy, order)
        return as_complex
    if not supported_dtype(dtype):
        raise current().error(f"astype({dtype})", "hjit handles bool, integers and floats up to 64 bits")
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to {dtype!r} according to the rule '{casting}'")
    if not copy and x.dtype == dtype and in_order(x, order):
        return x
    if x.known is not None and x.known.size <= MAX_KNOWN:
        with np.errstate(all="ignore"):
            return from_known(x.known.astype(dtype), x.is_scalar, of=x)
    return ordered_stage(cast(x.load(), dtype), x.shape, dtype, copy_order(x, order), is_scalar=x.is_scalar)


@provides
def check_item(x: Tracer, dtype: np.dtype[Any]) -> None:
    """NumPy refuses to store a scalar of its own that a signed integer cannot hold; into an unsigned one it casts it.

    Raises:
        OverflowError, ValueError: it is known that it does.
    """
    if dtype.kind != "i" or x.dtype.kind == "b":
        return
    if x.known is not None:
        as_item(x.known.reshape(())[()], dtype)
        return
    info, e, truth = np.iinfo(dtype), x.load(), np.dtype(bool)
    if x.dtype.kind == "f":  # also a NaN is not within
        whole = Op("trunc", (cast(e, np.float64),), np.dtype(np.float64))
        ends = (("greater_equal", float(info.min)), ("less", float(info.max) + 1))
        within = [Op(name, (whole, Const(end, np.float64)), truth) for name, end in ends]
        bad = Op("logical_not", (Op("logical_and", tuple(within), truth),), truth)
    else:
        found, own = current().range_of(e), np.iinfo(x.dtype)
        if found is not None and info.min <= found[0] and found[1] <= info.max:
            return
        ends = (("less", max(info.min, own.min)), ("greater", min(info.max, own.max)))
        bad = Op("logical_or", tuple(Op(name, (e, Const(end, x.dtype)), truth) for name, end in ends), truth)
    current().check(from_stage(bad, (), bool, name="unstorable"))


def _copied(casting: Casting) -> Conversion:
    def how(value: Any, dtype: np.dtype[Any]) -> Any:
        one = np.empty((), dtype)
        np.copyto(one, value, casting=casting)
        return one[()]

    return how


COPIES: dict[str, Conversion] = {rule: _copied(rule) for rule in ("no", "equiv", "safe", "same_kind")} | {
    "unsafe": as_fill
}


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Casting = "same_kind", where: Any = True) -> None:
    condition = None if where is True else as_tracer(where).load(dst.shape)
    if is_host(src) or isinstance(src, (bool, int, float, np.generic)):
        write(dst, src, condition, COPIES[casting])
        return
    src = as_tracer(src)
    if not np.can_cast(src.dtype, dst.dtype, casting):
        # raises what NumPy raises
        np.copyto(np.empty((1,) * dst.ndim, dst.dtype), np.empty((1,) * src.ndim, src.dtype), casting)
    write(dst, src, condition)


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    values = stored(values, a.dtype)
    if values.ndim and values.shape != a.shape:
        raise current().error("numpy.putmask", "values of another shape than the array are repeated")
    write(a, trim(values, a.shape), as_tracer(mask).load(a.shape))
