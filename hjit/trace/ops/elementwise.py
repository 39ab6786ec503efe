"""Element-wise operations: every NumPy ufunc, `astype`, and the functions that are a formula of them.

A ufunc's dtypes come from NumPy itself (`ufunc.resolve_dtypes`, NEP 50), so one row serves every dtype: the traced
operation is `Op(ufunc name)` on arguments already cast to the dtypes of NumPy's loop. Adding a ufunc is a row in
`UFUNCS` here, a row in `hjit.kernels.llvm.vecmath.apply` and one in the tests' table.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Const, Expr, Op, cast, select
from hjit.trace.ops.layout import copy_order, in_order, operands_order, order_of, ordered_stage, tracers
from hjit.trace.tracing.dispatch import implements, provides
from hjit.trace.tracing.host import Conversion, as_cast, as_fill, as_item, is_captured, is_host, number, record, unpin
from hjit.trace.tracing.masked import Selected
from hjit.trace.tracing.recorder import current, supported_dtype
from hjit.trace.tracing.size import Size
from hjit.trace.tracing.tracer import (
    MAX_KNOWN,
    Shape,
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    is_tracer,
    stored,
)
from hjit.trace.tracing.writing import trim, write

# The ufuncs of one result that the back ends know. `divmod` and `modf` are pairs of these.
UFUNCS = frozenset(
    """add subtract multiply true_divide floor_divide remainder fmod negative positive absolute fabs sign
    power float_power square sqrt cbrt reciprocal rint floor ceil trunc
    exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh degrees radians deg2rad rad2deg copysign nextafter spacing heaviside signbit
    maximum minimum fmax fmin greater greater_equal less less_equal equal not_equal
    logical_and logical_or logical_xor logical_not isnan isfinite isinf
    bitwise_and bitwise_or bitwise_xor invert left_shift right_shift gcd lcm bitwise_count""".split()
)
_COMPARISONS = frozenset("greater greater_equal less less_equal equal not_equal".split())
_ALIASES = {
    "divide": "true_divide",
    "mod": "remainder",
    "abs": "absolute",
    "conjugate": "positive",
    "bitwise_not": "invert",
    "deg2rad": "radians",
    "rad2deg": "degrees",
}


@lru_cache(maxsize=4096)
def _resolve(
    ufunc: np.ufunc, dtypes: tuple[Any, ...], signature: tuple[Any, ...] | None, casting: str
) -> tuple[np.dtype[Any], ...]:
    given = {} if signature is None else {"signature": signature}
    return ufunc.resolve_dtypes(dtypes + (None,) * ufunc.nout, casting=casting, **given)


@provides
def ufunc_call(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` of a tracer or a host scalar does."""
    if method != "__call__":
        from hjit.trace.ops.reductions import ufunc_method

        return ufunc_method(ufunc, method, inputs, kwargs)
    if any(type(x) is Selected for x in inputs) or type(kwargs.get("out")) is Selected:
        first = next(x for x in inputs if type(x) is Selected)
        return first.__array_ufunc__(ufunc, method, *inputs, **kwargs)
    if (
        not any(is_tracer(x) for x in inputs)
        and kwargs.get("out") is None
        and all(is_host(x) or np.isscalar(x) for x in inputs)
    ):
        return (
            _of_hosts(ufunc, inputs) if not kwargs else ufunc(*(x.pin() if is_host(x) else x for x in inputs), **kwargs)
        )
    if ufunc.signature is not None:
        return call(ufunc, *inputs, **kwargs)
    pair = _PAIRS.get(ufunc)
    if pair is not None:
        return pair(*inputs, **kwargs)
    name = _ALIASES.get(ufunc.__name__, ufunc.__name__)
    if name not in UFUNCS or ufunc.nout != 1:
        from hjit.trace.tracing.externs import opaque_call

        if kwargs.get("out") is not None:
            raise current().error(f"{ufunc.__name__}(out=)", "this ufunc is not compiled", "assign its result")
        return opaque_call(ufunc.__name__, ufunc, inputs, kwargs)
    return _elementwise(ufunc, name, inputs, **kwargs)


def _of_hosts(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """A ufunc of numbers only: a number, or a tuple of them."""
    result = record(ufunc, *inputs)
    return result if ufunc.nout == 1 else tuple(record(operator.itemgetter(k), result) for k in range(ufunc.nout))


def _elementwise(
    ufunc: np.ufunc,
    name: str,
    inputs: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: str = "same_kind",
    signature: Any = None,
    sig: Any = None,
    order: str = "K",
    subok: bool = True,
) -> Any:
    operands = tuple(_operand(x) for x in inputs)
    out = out[0] if isinstance(out, tuple) else out
    mask = None if where is True or where is np._NoValue else as_tracer(where)
    signature = signature or sig
    if signature is None and dtype is not None:
        signature = (None,) * ufunc.nin + (np.dtype(dtype),)
    if any(map(is_captured, operands)):
        operands = _with_constants(name, operands, _loop(ufunc, operands, signature, casting))
    if out is None and mask is None:
        known = _known(ufunc, operands, dtype, casting)
        if known is not None:
            return known
    loop = _loop(ufunc, operands, signature, casting)
    shape = broadcast(*(x.shape for x in (*operands, mask) if is_tracer(x)))
    if name == "power" and loop[-1].kind == "i":
        _check_exponent(operands[1], mask)
    if name in _COMPARISONS and _out_of_range(operands, loop):
        value: Expr = _constant_comparison(ufunc, operands, loop)
    else:
        value = _simplify(
            name, tuple(cast(_load(x, shape, t), t) for x, t in zip(operands, loop, strict=False)), loop[-1]
        )
    if out is not None:
        if not is_tracer(out):
            raise current().error(
                f"numpy.{ufunc.__name__}(out=)", "the output array is not an argument of the function, nor made in it"
            )
        if not np.can_cast(loop[-1], out.dtype, casting):
            raise np._core._exceptions._UFuncOutputCastingError(ufunc, casting, loop[-1], out.dtype, 0)
        if broadcast(shape, out.shape) != out.shape:
            wide = _plain(broadcast(shape, out.shape))
            raise ValueError(
                f"non-broadcastable output operand with shape {_plain(out.shape)} doesn't match the broadcast shape {wide}"
            )
        result = from_stage(value, shape, loop[-1])
        write(out, result, None if mask is None else mask.load(out.shape))
        return out
    if mask is not None:
        value = select(mask.load(shape), value, Const(0, loop[-1]))
    scalar = not shape and all(not is_tracer(x) or x.is_scalar or not x.shape for x in operands)
    return ordered_stage(value, shape, loop[-1], order_of(order, tracers(*operands, mask), shape), is_scalar=scalar)


def _check_exponent(x: Any, mask: Tracer | None) -> None:
    """NumPy refuses negative powers of integers.

    Raises:
        ValueError: it is known that one is negative.
    """
    if is_host(x):
        bad = record(operator.lt, x, 0).pin()
    elif is_tracer(x) and x.known is None:
        found = current().range_of(x.load())
        bad = np.less(x, 0) if found is None or found[0] < 0 else False
    else:
        bad = np.any(np.less(x.known if is_tracer(x) else x, 0))
    if is_tracer(bad):
        current().check(call(np.any, bad if mask is None else bad & mask))
    elif bad and mask is not None:
        current().check(call(np.any, mask))
    elif bad:
        raise ValueError("Integers to negative integer powers are not allowed.")


def _operand(x: Any) -> Any:
    """A tracer, a host scalar, or a Python number that takes the other operand's dtype (NEP 50)."""
    if is_tracer(x) or is_host(x) or type(x) in (int, float, bool):
        return x
    if isinstance(x, Size):
        return int(x)
    if isinstance(x, complex) or (isinstance(x, np.generic) and not supported_dtype(x.dtype)):
        raise current().error(f"{type(x).__name__} operand", "hjit handles bool, integers and floats up to 64 bits")
    return as_tracer(x)


# what gains nothing by the value of a number: of integers, what leaves their ranges as they are
_FLOAT_BY_NUMBER = UFUNCS - frozenset("power float_power floor_divide remainder fmod".split())
_INT_BY_NUMBER = _COMPARISONS | frozenset("add subtract multiply".split())


def _with_constants(name: str, operands: tuple[Any, ...], loop: tuple[np.dtype[Any], ...]) -> tuple[Any, ...]:
    """Numbers from closures as constants where something is gained by that: a known result, a range of integers, a cheaper operation."""
    arrays = [x for x in operands if is_tracer(x)]
    if all(x.known is not None for x in arrays) or _is_narrow(arrays, loop[0]):
        return tuple(x.pin() if is_captured(x) else x for x in operands)
    return tuple(
        x.pin() if is_captured(x) and not _by_number(name, x.value, t) else x
        for x, t in zip(operands, loop, strict=False)
    )


def _by_number(name: str, value: Any, dtype: np.dtype[Any]) -> bool:
    """May a kernel take this number as a parameter?"""
    if dtype.kind == "f":
        return name in _FLOAT_BY_NUMBER and not (name == "true_divide" and _is_power_of_two(value))
    return dtype.kind in "iu" and name in _INT_BY_NUMBER and bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def _is_power_of_two(value: Any) -> bool:
    """Division by these is a multiplication."""
    try:
        return abs(math.frexp(value)[0]) == 0.5
    except OverflowError:  # an int that is no float
        return False


def _is_narrow(arrays: list[Tracer], dtype: np.dtype[Any]) -> bool:
    """Is it known of integers that they are fewer than their dtype holds? They may then be computed in a narrower one."""
    if dtype.kind not in "iu":
        return False
    ranges = (current().range_of(cast(x.load(), dtype)) for x in arrays if x.known is None)
    return any(r is not None and r != (np.iinfo(dtype).min, np.iinfo(dtype).max) for r in ranges)


def _known(ufunc: np.ufunc, operands: tuple[Any, ...], dtype: Any, casting: str) -> Tracer | None:
    """The result, where NumPy can compute it from known contents."""
    values = []
    for x in operands:
        if is_tracer(x):
            if x.known is None:
                return None
            values.append(x.known)
        elif is_host(x):
            return None
        else:
            values.append(x)
    if max((v.size for v in values if isinstance(v, np.ndarray)), default=1) > MAX_KNOWN:
        return None
    result = ufunc(*values, dtype=dtype, casting=casting)
    return from_known(result, is_scalar=not isinstance(result, np.ndarray))


def _loop(ufunc: np.ufunc, operands: tuple[Any, ...], signature: Any, casting: str) -> tuple[np.dtype[Any], ...]:
    kinds = tuple(
        (float if x.weak else x.dtype) if is_tracer(x) else _weak(x.value if is_host(x) else x) for x in operands
    )
    try:
        if all(isinstance(k, type) for k in kinds):
            kinds = tuple(np.dtype(k) for k in kinds)
        loop = _resolve(ufunc, kinds, None if signature is None else tuple(signature), casting)
    except TypeError as error:
        if "resolve_dtypes" in str(error):
            raise current().error(f"numpy.{ufunc.__name__}", str(error)) from None
        raise
    for t in loop:
        if not supported_dtype(t):
            raise current().error(f"numpy.{ufunc.__name__}", f"NumPy computes this as {t}, which hjit does not compile")
    return loop


def _weak(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else int if isinstance(value, int) else float


def _load(x: Any, shape: Shape, dtype: np.dtype[Any]) -> Expr:
    if is_tracer(x):
        return x.load(shape)
    if is_host(x):
        return current().scalar(x, x.value.dtype if isinstance(x.value, np.generic) else dtype)
    return Const(_checked(x, dtype), dtype)


def _checked(x: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as `dtype`, or NumPy's OverflowError."""
    if type(x) is int and dtype.kind in "iu":
        return dtype.type(x)
    return x


def _out_of_range(operands: tuple[Any, ...], loop: tuple[np.dtype[Any], ...]) -> bool:
    whole = any(
        is_tracer(x) and x.dtype.kind in "iu" for x in operands
    )  # bools are compared as ints, which a Python int must be
    return whole and any(_side(x, t) for x, t in zip(operands, loop, strict=False))


def _side(x: Any, dtype: np.dtype[Any]) -> int:
    """On which side of the numbers of an integer dtype is a Python int? Of a run-time one that is a condition of the trace."""
    if dtype.kind not in "iu" or type(x.value if is_host(x) else x) is not int:
        return 0
    return int(record(_beyond, x, dtype).pin() if is_host(x) else _beyond(x, dtype))


def _beyond(x: int, dtype: np.dtype[Any]) -> int:
    info = np.iinfo(dtype)
    return (x > info.max) - (x < info.min)


def _constant_comparison(ufunc: np.ufunc, operands: tuple[Any, ...], loop: tuple[np.dtype[Any], ...]) -> Const:
    """A Python int outside an integer dtype compares the same with all its values."""
    values = [2.0**70 * _side(x, t) for x, t in zip(operands, loop, strict=False)]
    return Const(ufunc(*values), bool)


def _simplify(name: str, args: tuple[Expr, ...], dtype: np.dtype[Any]) -> Expr:
    if name == "positive":
        return args[0]
    if name == "float_power":
        name = "power"
    if name == "square":
        return Op("multiply", (args[0], args[0]), dtype)
    if dtype.kind in "iub":
        if name in ("rint", "floor", "ceil", "trunc") and args[0].dtype == dtype:
            return args[0]
        if name == "absolute" and dtype.kind in "ub":
            return args[0]
    return Op(name, args, dtype)


def broadcast(*shapes: Shape) -> Shape:
    """NumPy's broadcast of shapes, keeping the sizes that are run-time parameters.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    if len(shapes) == 1:
        return shapes[0]
    if len(set(shapes)) == 1:
        return shapes[0]
    result: list[int] = [1] * max(map(len, shapes))
    for s in shapes:
        for k, n in enumerate(s, len(result) - len(s)):
            if result[k] == 1:
                result[k] = n
            elif n not in (1, result[k]):
                text = " ".join(str(_plain(t)).replace(" ", "") for t in shapes)
                raise ValueError(f"operands could not be broadcast together with shapes {text} ")
    return tuple(result)


def _plain(shape: Shape) -> Shape:
    return tuple(map(int, shape))


# -- astype, and functions that are formulas


@provides
def astype(x: Tracer, dtype: Any, casting: str = "unsafe", copy: bool = True, order: str = "K") -> Tracer:
    """`ndarray.astype`.

    Raises:
        TypeError: `casting` forbids it.
    """
    dtype = np.dtype(dtype)
    if not supported_dtype(dtype):
        raise current().error(f"astype({dtype})", "hjit handles bool, integers and floats up to 64 bits")
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to {dtype!r} according to the rule '{casting}'")
    if not copy and x.dtype == dtype and in_order(x, order):
        return x
    if x.known is not None and x.known.size <= MAX_KNOWN:
        with np.errstate(all="ignore"):
            return from_known(x.known.astype(dtype), x.is_scalar)
    return ordered_stage(cast(x.load(), dtype), x.shape, dtype, copy_order(x, order), is_scalar=x.is_scalar)


def _divmod(a: Any, b: Any, **kwargs: Any) -> tuple[Any, Any]:
    return np.floor_divide(a, b, **kwargs), np.remainder(a, b, **kwargs)


def _modf(x: Any, **kwargs: Any) -> tuple[Any, Any]:
    x = as_tracer(x)
    x = x.astype(_resolve(np.modf, (x.dtype,), None, "same_kind")[0], copy=False)
    whole = np.trunc(x)
    fraction = call(np.where, np.isinf(x), 0.0, x - whole)
    return np.copysign(fraction, x), whole


_PAIRS: dict[np.ufunc, Callable[..., Any]] = {np.divmod: _divmod, np.modf: _modf}


def common_dtype(operands: Iterable[Any]) -> np.dtype[Any]:
    """`np.result_type` of arrays and numbers, to which Python's numbers adapt."""
    return np.result_type(*((1.0 if x.weak else x.dtype) if is_tracer(x) else _kind(x) for x in operands))


def _kind(x: Any) -> Any:
    """A Python number of the type of `x`, which takes part in a promotion by its type alone, or a dtype."""
    value = x.value if is_host(x) else x
    if type(value) in (int, float, complex):
        return type(value)(0)
    return np.asarray(value).dtype


def element(x: Any, shape: Shape, dtype: np.dtype[Any]) -> Expr:
    """`x` broadcast to `shape` and cast to `dtype`, as where functions make an array of it first: ints out of range wrap around."""
    if is_tracer(x):
        return cast(x.load(shape), dtype)
    if is_captured(x) and dtype.kind != "f":
        x = x.pin()
    value = number(x, dtype, as_cast)
    return current().scalar(value, dtype) if is_host(value) else Const(value, dtype)


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return call(np.nonzero, condition)
    condition = as_tracer(condition)
    x, y = _operand(x), _operand(y)
    dtype = common_dtype((x, y))
    shape = broadcast(*(v.shape for v in (condition, x, y) if is_tracer(v)))
    a, b = (element(v, shape, dtype) for v in (x, y))
    return ordered_stage(
        select(cast_bool(condition.load(shape)), a, b), shape, dtype, operands_order(tracers(condition, x, y), shape)
    )


def cast_bool(e: Expr) -> Expr:
    """Truth of a number: nonzero, NaN included."""
    return cast(e, bool)


@implements(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None, **kwargs: Any
) -> Any:
    low = a_min if a_min is not None else min
    high = a_max if a_max is not None else max
    a = as_tracer(a)
    if (
        a.dtype.kind in "iu"
    ):  # as NumPy does: a bound that no value passes is none, also where it is no value of the dtype
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
    operands = tuple(map(_operand, (a, low, high)))
    dtype = _loop(np._core.umath.clip, operands, None, "same_kind")[-1]
    shape = broadcast(*(x.shape for x in operands if is_tracer(x)))
    x, lo, hi = (cast(_load(v, shape, dtype), dtype) for v in operands)
    value = Op("minimum", (Op("maximum", (x, lo), dtype), hi), dtype)
    result = ordered_stage(value, shape, dtype, operands_order(tracers(*operands), shape), is_scalar=not shape)
    if out is None:
        return result
    return (
        np.bitwise_or(result, False, **kwargs) if dtype.kind == "b" else np.positive(result, **kwargs)
    )  # bools have no sign


def _is_int(x: Any) -> bool:
    return type(x.value if is_host(x) else x) is int


@implements(np.round, np.around)
def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    a = as_tracer(a)
    if a.dtype.kind == "b":
        return np.positive(a.astype(np.float16), out=out)
    if a.dtype.kind in "iu":
        if decimals >= 0:
            return np.positive(a, out=out)
        raise current().error("numpy.round", "negative decimals of integers")
    if decimals == 0:
        return np.rint(a, out=out)
    # NumPy multiplies or divides by a power of ten in the array's dtype
    scale = a.dtype.type(10.0 ** abs(decimals))
    if decimals > 0:
        return np.true_divide(np.rint(np.multiply(a, scale, order="A")), scale, out=out)
    return np.multiply(np.rint(np.true_divide(a, scale, order="A")), scale, out=out)


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = as_tracer(x)
    if x.dtype.kind != "f":
        return x.copy() if copy else x
    info = np.finfo(x.dtype)
    low, high = (info.min if neginf is None else neginf), (info.max if posinf is None else posinf)
    e = x.load()
    zero = Const(0, x.dtype)
    e = select(Op("isnan", (e,), np.dtype(bool)), _as_expr(nan, x), e)
    infinite = Op("isinf", (e,), np.dtype(bool))
    negative = Op("less", (e, zero), np.dtype(bool))
    e = select(infinite, select(negative, _as_expr(low, x), _as_expr(high, x)), e)
    result = ordered_stage(e, x.shape, x.dtype, copy_order(x), is_scalar=x.is_scalar)
    if copy:
        return result
    x[...] = result
    return x


def _as_expr(value: Any, like: Tracer) -> Expr:
    return cast(_load(_operand(value), like.shape, like.dtype), like.dtype)


@implements(np.select)
def select_(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    conditions = [as_tracer(c) for c in condlist]
    choices = [_operand(c) for c in choicelist]
    default = _operand(default)
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
            else unpin(record(np.result_type, choice) if is_host(choice) else np.result_type(choice))
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


def _copied(casting: Any) -> Conversion:
    def how(value: Any, dtype: np.dtype[Any]) -> Any:
        one = np.empty((), dtype)
        np.copyto(one, value, casting=casting)
        return one[()]

    return how


COPIES: dict[str, Conversion] = {rule: _copied(rule) for rule in ("no", "equiv", "safe", "same_kind")} | {
    "unsafe": as_fill
}


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    condition = None if where is True else as_tracer(where).load(dst.shape)
    if is_host(src) or isinstance(src, (bool, int, float, np.generic)):
        write(dst, src, condition, COPIES[casting])
        return
    src = as_tracer(src)
    if not np.can_cast(src.dtype, dst.dtype, casting):
        np.copyto(
            np.empty((1,) * dst.ndim, dst.dtype), np.empty((1,) * src.ndim, src.dtype), casting
        )  # raises what NumPy raises
    write(dst, src, condition)


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    values = stored(values, a.dtype)
    if values.ndim and values.shape != a.shape:
        raise current().error("numpy.putmask", "values of another shape than the array are repeated")
    write(a, trim(values, a.shape), as_tracer(mask).load(a.shape))


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """NumPy's formula on its piece: ``slope * (x - xp[j]) + fp[j]``."""
    if period is not None:
        raise current().error("numpy.interp", "period is not compiled")
    x, xp, fp = (as_tracer(v).astype(np.float64) for v in (x, xp, fp))
    if xp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    n = xp.shape[0]
    j = call(np.searchsorted, xp, x, side="right") - 1
    j = call(np.clip, j, 0, n - 2 if n > 1 else 0)
    k = np.minimum(j + 1, n - 1)
    x0, x1, f0, f1 = xp[j], xp[k], fp[j], fp[k]
    slope = (f1 - f0) / call(np.where, x1 == x0, 1.0, x1 - x0)
    value = slope * (x - x0) + f0
    value = call(np.where, np.isnan(value) & ~np.isnan(x), slope * (x - x1) + f1, value)
    value = call(np.where, x == x0, f0, value)
    value = call(
        np.where,
        x >= xp[n - 1],
        call(np.where, x == xp[n - 1], fp[n - 1], fp[n - 1] if right is None else right),
        value,
    )
    value = call(np.where, x < xp[0], fp[0] if left is None else left, value)
    return call(np.where, np.isnan(x), x, value).astype(np.float64, order="C", copy=False)
