"""NumPy's ufuncs, and `divmod` and `modf`, which are pairs of them.

A ufunc's dtypes come from NumPy itself (`ufunc.resolve_dtypes`, NEP 50), so one row serves every dtype: the traced
operation is `Op(ufunc name)` on arguments already cast to the dtypes of NumPy's loop. Adding a ufunc is a row in
`UFUNCS` here, a row in a table of `hjit.kernels.llvm.vecmath` and one in the tests' table; see CONTRIBUTING.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ops.arguments import Casting, broadcast, concrete_shape
from hjit.trace.ops.elementwise.promotion import load, loop_of, operand, resolve_dtypes
from hjit.trace.ops.layout import operands_order, order_of, ordered_stage, tracers
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.traced import Shape, Traced
from hjit.trace.tracing.arrays.tracer import (
    MAX_KNOWN,
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    is_tracer,
)
from hjit.trace.tracing.arrays.writing import write
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current, tracing
from hjit.trace.tracing.scalars.host import HostScalar, beyond, is_captured, is_host, record, static_value
from hjit.trace.tracing.scalars.size import Size, as_number

# The ufuncs of one result that the back ends know. `divmod` and `modf` are pairs of these.
UFUNCS = frozenset(
    """add subtract multiply true_divide floor_divide remainder fmod negative positive absolute fabs sign
    power float_power square sqrt cbrt reciprocal rint floor ceil trunc
    exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh degrees radians deg2rad rad2deg
    copysign nextafter spacing ldexp heaviside signbit
    maximum minimum fmax fmin greater greater_equal less less_equal equal not_equal
    logical_and logical_or logical_xor logical_not isnan isfinite isinf
    bitwise_and bitwise_or bitwise_xor invert left_shift right_shift gcd lcm bitwise_count""".split()
)
_WHERE_WITHOUT_OUT = (  # NumPy's words
    "'where' used without 'out', expect unitialized memory in output. If this is intentional, use out=None."
)
_COMPARISONS = frozenset("greater greater_equal less less_equal equal not_equal".split())
ALIASES = {
    "divide": "true_divide",
    "mod": "remainder",
    "abs": "absolute",
    "conjugate": "positive",
    "bitwise_not": "invert",
    "deg2rad": "radians",
    "rad2deg": "degrees",
}


_REAL = frozenset((Tracer, int, float, bool))  # of what most operations are
_WITH_HOSTS = _REAL | {HostScalar}
_REAL_NUMBERS = frozenset((int, float, bool, *(np.dtype(c).type for c in "?bBhHiIlLqQefd")))


def _plain_operands(ufunc: np.ufunc, name: str, operands: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The operands, where they are traced arrays and real numbers; those from closures as `_with_constants` has them.

    None: there are others.
    """
    if _REAL.issuperset(map(type, operands)):
        return operands
    if not _WITH_HOSTS.issuperset(map(type, operands)) or Tracer not in map(type, operands):
        return None
    if any(type(x) is HostScalar and type(x.value) not in _REAL_NUMBERS for x in operands):
        return None
    if not any(map(is_captured, operands)):
        return operands
    return _with_constants(name, operands, _operation_of(ufunc, name, operands).loop)


@lru_cache(maxsize=1024)
def compiled_name(ufunc: np.ufunc) -> str:
    """The operation that a ufunc is; empty where back ends do not know it."""
    name = ALIASES.get(ufunc.__name__, ufunc.__name__)
    return name if name in UFUNCS and ufunc.nout == 1 else ""


@provides
def ufunc_call(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` of a tracer or a host scalar does."""
    name = compiled_name(ufunc)
    if name and method == "__call__" and (plain := _plain_operands(ufunc, name, inputs)) is not None:
        if not kwargs:
            return without_options(ufunc, name, plain)
        if len(kwargs) == 1 and type(out := _single(kwargs.get("out"))) is Tracer:
            value, found = _plain_value(ufunc, name, plain)
            return _written(ufunc, value, found.shape, found.loop[-1], out)
    if method == "__call__":
        inputs = tuple(map(as_number, inputs))
    is_complex = forward.complex_operands(inputs, kwargs)
    if method != "__call__":
        return (forward.complex_method if is_complex else forward.ufunc_method)(ufunc, method, inputs, kwargs)
    if any(type(x) is MaskedRead for x in inputs) or type(kwargs.get("out")) is MaskedRead:
        first = next(x for x in inputs if type(x) is MaskedRead)
        return first.__array_ufunc__(ufunc, method, *inputs, **kwargs)
    if is_complex:
        return _complex(ufunc, inputs, kwargs)
    if (
        not any(is_tracer(x) for x in inputs)
        and kwargs.get("out") is None
        and all(is_host(x) or np.isscalar(x) for x in inputs)
    ):
        return (
            _of_hosts(ufunc, inputs)
            if not kwargs
            else ufunc(*(x.make_static() if is_host(x) else x for x in inputs), **kwargs)
        )
    if ufunc.signature is not None:
        return call(ufunc, *inputs, **kwargs)
    pair = _PAIRS.get(ufunc)
    if pair is not None:
        return _of_pair(ufunc, pair(*inputs), **kwargs)
    if not name:
        if kwargs.get("out") is not None:
            raise current().error(f"{ufunc.__name__}(out=)", "this ufunc is not compiled", "assign its result")
        return extern_call(ufunc.__name__, ufunc, inputs, kwargs)
    if "out" not in kwargs and kwargs.get("where", True) is not True:
        forward.warn(_WHERE_WITHOUT_OUT, UserWarning)
    return _elementwise(ufunc, name, inputs, **kwargs)


@provides
def ufunc_of_sizes(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` of a size does: arrays with known contents stay known."""
    is_traced = any(is_host(x) or issubclass(type(x), Traced) for x in inputs)
    if tracing() and (is_traced or all(map(np.isscalar, inputs))):
        return ufunc_call(ufunc, method, inputs, kwargs)
    return getattr(ufunc, method)(*(int(x) if type(x) is Size else x for x in inputs), **kwargs)


def _complex(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc of complex numbers."""
    if all(is_host(x) or np.isscalar(x) for x in inputs) and not kwargs:
        return _of_hosts(ufunc, inputs)
    if ufunc.signature is not None:
        return call(ufunc, *inputs, **kwargs)
    return forward.complex_ufunc(ufunc, inputs, kwargs)


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
    casting: Casting = "same_kind",
    signature: Any = None,
    sig: Any = None,
    order: str = "K",
    subok: bool = True,
) -> Any:
    operands = tuple(map(operand, inputs))
    out = out[0] if isinstance(out, tuple) else out
    mask = None if where is True or where is np._NoValue else as_tracer(where)
    signature = signature or sig
    if signature is None and dtype is not None:
        signature = (None,) * ufunc.nin + (np.dtype(dtype),)
    if any(map(is_captured, operands)):
        operands = _with_constants(name, operands, loop_of(ufunc, operands, signature, casting))
    if out is None and mask is None:
        known = _known(ufunc, operands, dtype, casting)
        if known is not None:
            return known
    loop = loop_of(ufunc, operands, signature, casting)
    arrays = tracers(*operands, mask)
    shape = broadcast(*[x.shape for x in arrays])
    value = _value(ufunc, name, operands, loop, shape, mask)
    if out is not None:
        return _written(ufunc, value, shape, loop[-1], out, casting, mask)
    if mask is not None:
        value = select(mask.load(shape), value, _uninitialised(shape, loop[-1]))
    scalar = not shape and all(not is_tracer(x) or x.is_scalar or not x.shape for x in operands)
    return ordered_stage(value, shape, loop[-1], order_of(order, arrays, shape), is_scalar=scalar)


def _single(out: Any) -> Any:
    """What NumPy gives in a tuple."""
    return out[0] if type(out) is tuple and len(out) == 1 else out


def _written(
    ufunc: np.ufunc,
    value: Expr,
    shape: Shape,
    dtype: np.dtype[Any],
    out: Any,
    casting: Casting = "same_kind",
    mask: Tracer | None = None,
) -> Any:
    """``out=``, with a new array written to it."""
    if not is_tracer(out):
        raise current().error(
            f"numpy.{ufunc.__name__}(out=)", "the output array is not an argument of the function, nor made in it"
        )
    target = out.buffer.dtype
    if dtype != target and not np.can_cast(dtype, target, casting):
        raise np._core._exceptions._UFuncOutputCastingError(ufunc, casting, dtype, target, 0)  # type: ignore[attr-defined]
    if shape is not out._shape and (wide := broadcast(shape, out.shape)) != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {concrete_shape(out.shape)} "
            f"doesn't match the broadcast shape {concrete_shape(wide)}"
        )
    result = from_stage(value, shape, dtype)
    write(out, result, None if mask is None else mask.load(out.shape))
    return out


@dataclass(frozen=True, slots=True)
class Operation:
    """What is the same for a ufunc on all operands of these dtypes and shapes.

    Attributes:
        loop: the dtypes of NumPy's loop.
        shapes: of the operands, so that they stay what they are known by.
        shape: of the result.
        is_direct: are elements taken as they are, without a look at values?
    """

    loop: tuple[np.dtype[Any], ...]
    shapes: tuple[Shape, ...]
    shape: Shape
    is_direct: bool


def without_options(ufunc: np.ufunc, name: str, operands: tuple[Any, ...]) -> Tracer:
    """As `_elementwise`, of traced arrays and numbers: most operations are of these."""
    is_ordered = True
    for x in operands:
        if type(x) is Tracer:
            if x.buffer.contents is not None and (known := _known(ufunc, operands, None, "same_kind")) is not None:
                return known
            is_ordered &= x.is_ordered
    value, found = _plain_value(ufunc, name, operands)
    shape, dtype = found.shape, found.loop[-1]
    if is_ordered:
        return from_stage(value, shape, dtype, is_scalar=not shape)
    arrays = [x for x in operands if type(x) is Tracer]
    return ordered_stage(value, shape, dtype, operands_order(arrays, shape), is_scalar=not shape)


def kind_of(function: Any, operands: Iterable[Any]) -> tuple[Any, ...]:
    """What tells operations apart that differ in more than the contents of arrays, and in numbers."""
    kind: list[Any] = [function]
    for x in operands:
        if type(x) is Tracer:
            kind += (x.buffer.dtype, id(x._shape), x.weak)
        else:
            kind.append((HostScalar, type(x.value)) if type(x) is HostScalar else type(x))
    return tuple(kind)


def _operation_of(ufunc: np.ufunc, name: str, operands: tuple[Any, ...]) -> Operation:
    """What is known of a ufunc of traced arrays and numbers."""
    operations, kind = current().memos.operations, kind_of(ufunc, operands)
    found: Operation | None = operations.get(kind)
    if found is not None:
        return found
    loop = loop_of(ufunc, operands, None, "same_kind")
    shapes = tuple(x._shape for x in operands if type(x) is Tracer)
    looks = (name == "power" and loop[-1].kind == "i") or any(type(x) is Tracer and x.weak for x in operands)
    of_ints = any(type(x) in (int, HostScalar) and t.kind in "iu" for x, t in zip(operands, loop, strict=False))
    found = operations[kind] = Operation(loop, shapes, broadcast(*shapes), not (looks or of_ints))
    return found


def _plain_value(ufunc: np.ufunc, name: str, operands: tuple[Any, ...]) -> tuple[Expr, Operation]:
    """As `_value`, of traced arrays and numbers; and what is known of the operation."""
    found = _operation_of(ufunc, name, operands)
    shape, loop = found.shape, found.loop
    if not found.is_direct:
        return _value(ufunc, name, operands, loop, shape), found
    args = [
        x.element(shape, t)
        if type(x) is Tracer
        else cast(load(x, shape, t), t)
        if type(x) is HostScalar
        else Const(x, t)
        for x, t in zip(operands, loop, strict=False)
    ]
    return _simplify(name, tuple(args), loop[-1]), found


def _value(
    ufunc: np.ufunc,
    name: str,
    operands: tuple[Any, ...],
    loop: tuple[np.dtype[Any], ...],
    shape: Shape,
    mask: Tracer | None = None,
) -> Expr:
    """An element of the result, of `shape`.

    Raises:
        ValueError, OverflowError: NumPy refuses a number.
    """
    if name == "power" and loop[-1].kind == "i":
        _check_exponent(operands[1], mask)
    if name in _COMPARISONS and _out_of_range(operands, loop):
        return _constant_comparison(ufunc, operands, loop)
    args = [cast(load(x, shape, t), t) for x, t in zip(operands, loop, strict=False)]
    return _simplify(name, tuple(args), loop[-1])


def _uninitialised(shape: Shape, dtype: np.dtype[Any]) -> Expr:
    """What is where nothing is written."""
    if not current().options.fill:
        return Const(current().uninitialised(dtype), dtype)
    array: Tracer = call(np.empty, shape, dtype)
    return array.load(shape)


def _check_exponent(x: Any, mask: Tracer | None) -> None:
    """NumPy refuses negative powers of integers.

    Raises:
        ValueError: it is known that one is negative.
    """
    if is_host(x):
        bad = record(operator.lt, x, 0).make_static()
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


# what gains nothing by the value of a number: of integers, what leaves their ranges as they are
_FLOAT_BY_NUMBER = UFUNCS - frozenset("power float_power floor_divide remainder fmod".split())
_INT_BY_NUMBER = _COMPARISONS | frozenset("add subtract multiply".split())


def _with_constants(name: str, operands: tuple[Any, ...], loop: tuple[np.dtype[Any], ...]) -> tuple[Any, ...]:
    """Numbers from closures, as constants where that gains a known result, an integer range or a cheaper operation."""
    arrays = [x for x in operands if is_tracer(x)]
    if all(x.known is not None for x in arrays) or _is_narrow(arrays, loop[0]):
        return tuple(x.make_static() if is_captured(x) else x for x in operands)
    return tuple(
        x.make_static() if is_captured(x) and not _by_number(name, x.value, t) else x
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
    """Are integers known to have a smaller range than their dtype? They may then be computed in a narrower one."""
    if dtype.kind not in "iu":
        return False
    ranges = (current().range_of(cast(x.load(), dtype)) for x in arrays if x.known is None)
    return any(r is not None and r != (np.iinfo(dtype).min, np.iinfo(dtype).max) for r in ranges)


def _known(ufunc: np.ufunc, operands: tuple[Any, ...], dtype: Any, casting: Casting) -> Tracer | None:
    """The result, where NumPy can compute it from known contents."""
    values = []
    for x in operands:
        if type(x) is Tracer:
            known = x.known
            if known is None:
                return None
            values.append(known)
        elif is_host(x) and not x.of_sizes:
            return None
        else:
            values.append(x)
    if max((v.size for v in values if isinstance(v, np.ndarray)), default=1) > MAX_KNOWN:
        return None
    result = ufunc(*map(static_value, values), dtype=dtype, casting=casting)
    return from_known(result, is_scalar=not isinstance(result, np.ndarray), of=operands)


def _out_of_range(operands: tuple[Any, ...], loop: tuple[np.dtype[Any], ...]) -> bool:
    # bools are compared as ints, which a Python int must be
    whole = any(is_tracer(x) and x.dtype.kind in "iu" for x in operands)
    return whole and any(_side(x, t) for x, t in zip(operands, loop, strict=False))


def _side(x: Any, dtype: np.dtype[Any]) -> int:
    """-1 or 1 where a Python int is below or above the range of an integer dtype, else 0; guarded of a run-time one."""
    if dtype.kind not in "iu" or type(x.value if is_host(x) else x) is not int:
        return 0
    return int(record(beyond, x, dtype).make_static() if is_host(x) else beyond(x, dtype))


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


def _of_pair(ufunc: np.ufunc, results: tuple[Any, Any], out: Any = None, where: Any = True, **options: Any) -> Any:
    """Two results as a ufunc gives them, each written to where `out` says."""
    outs = (None, None) if out is None else out
    if options or (where is not True and any(o is None for o in outs)):
        given = ", ".join(f"{k}=" for k in (*options, *(("where",) if where is not True else ())))
        raise current().error(f"numpy.{ufunc.__name__}({given})", "it is compiled without these options")
    # both are computed before one is written, and where an array is written to, it is what is returned
    return tuple(r if o is None else np.positive(r, out=o, where=where) for r, o in zip(results, outs, strict=True))


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return np.floor_divide(a, b), np.remainder(a, b)


def _modf(x: Any) -> tuple[Any, Any]:
    x = as_tracer(x)
    x = x.astype(resolve_dtypes(np.modf, (x.dtype,), None, "same_kind")[0], copy=False)
    whole = np.trunc(x)
    fraction = call(np.where, np.isinf(x), 0.0, x - whole)
    return np.copysign(fraction, x), whole


_PAIRS: dict[np.ufunc, Callable[..., Any]] = {np.divmod: _divmod, np.modf: _modf}
