"""Python's builtins and the functions of `math` as traced functions see them, for tracers and host scalars."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.capture.captured import ObjectProxy, as_it_is, watched_class
from hjit.trace.capture.constructors import as_scalar
from hjit.trace.capture.loops.iterators import enumerate_, ndenumerate_, ndindex_, product_, range_, zip_
from hjit.trace.capture.loops.rewriting.choices import choose
from hjit.trace.capture.made_classes import class_of, traced_class
from hjit.trace.capture.side_effects.guarded_blocks import NUMPYS_COPYTO
from hjit.trace.ops.arrays.strides import interface
from hjit.trace.ops.complex_numbers.operands import joined
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, is_complex
from hjit.trace.tracing.arrays.grown import GrownList
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.number_dicts import NumberDict
from hjit.trace.tracing.arrays.number_lists import NumberList, number_list
from hjit.trace.tracing.arrays.stacks import NumberStack
from hjit.trace.tracing.arrays.traced import Traced
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_size,
    as_tracer,
    call,
    computes_ints,
    has_tracer,
    int_of_sizes,
    is_tracer,
    python_float,
    python_int,
    python_type,
)
from hjit.trace.tracing.externs.opaque import Opaque
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import HostScalar, is_host, record
from hjit.trace.tracing.scalars.induction import InductionVariable, as_traced, is_below
from hjit.trace.tracing.scalars.moving import MovingLength
from hjit.trace.tracing.scalars.size import Size, as_number, whole_size

_TOO_LARGE = 2.0**63
MAX_SORTED = 25  # numbers: a window of 5 x 5 (chosen)
_WHOLE = (int, Size, InductionVariable)


def _float(x: Any = 0.0) -> Any:
    x = as_traced(x)
    if is_tracer(x) and x.size == 1:
        return python_float(x)
    x = as_number(x)
    if is_host(x):
        return record(float, x)
    return float(x)


def _int(x: Any = 0, *base: Any) -> Any:
    x = int_of_sizes(x) if is_tracer(x) and not base else as_size(x)
    if type(x) in (Size, InductionVariable, MovingLength):
        return x
    if is_host(x) and isinstance(x.value, int) and not isinstance(x.value, bool):
        return x
    if is_host(x) and x.of_sizes:
        return whole_size(record(int, x))
    if is_tracer(x) and x.size == 1 and x.known is None and not base and computes_ints():
        whole = call(np.trunc, x) if x.dtype.kind == "f" else x
        if x.dtype.kind == "f":
            current().check(~(abs(whole) < _TOO_LARGE))  # an int of Python may be larger, and a NaN is none
        return python_int(whole)
    return int(x, *base) if base else int(x)


def _complex(*args: Any) -> Any:
    """``complex(re, im)``, and of a complex number that as one of Python's."""
    args = tuple(as_number(as_traced(x)) for x in args)
    if len(args) == 1 and type(args[0]) is ComplexTracer and not args[0].ndim:
        found = args[0].astype(np.complex128)
    elif not has_tracer(args, sizes=False) or any(type(x) is ComplexTracer or is_complex(x) for x in args):
        return record(complex, *args) if any(map(is_host, args)) else complex(*args)
    else:
        re, im = (as_tracer(_float(x)).astype(np.float64) for x in (*args, *([0.0] * (2 - len(args)))))
        found = joined(re, im)
    found = ComplexTracer(found.parts.copy(), is_scalar=True)
    found.weak = True
    return found


def _len(x: Any) -> Any:
    if type(x) in (GrownList, NumberStack, NumberDict):
        return x.length
    has_rows = type(x) is MaskedRead or ((is_tracer(x) or type(x) is ComplexTracer) and x.shape)
    return x.shape[0] if has_rows else len(x)


def _isinstance(x: Any, cls: Any) -> bool:
    if type(x) is InductionVariable:
        raise x.refusal("isinstance")
    if is_tracer(x) and x.is_scalar:
        return issubclass(python_type(x) if x.weak and x.dtype.kind != "f" else x.dtype.type, cls)
    if type(x) is ComplexTracer and x.is_scalar:
        return issubclass(complex if x.weak else x.dtype.type, cls)
    if type(x) is NumberDict:
        return issubclass(x.made_as.cls, cls)
    return issubclass(list, cls) if type(x) in (GrownList, NumberList) else isinstance(x, cls)


def _type(*args: Any) -> Any:
    if len(args) != 1:
        return type(*args)
    x = args[0]
    if type(x) is InductionVariable:
        raise x.refusal("type")
    if type(x) is ObjectProxy:
        return watched_class(x.__class__)
    if type(x) in (Tracer, ComplexTracer, HostScalar, MaskedRead, Opaque):
        return x.__class__
    if type(x) is NumberDict:
        return x.made_as.cls
    if type(x) in (GrownList, NumberList):
        return list
    return int if type(x) is Size else class_of(type(x))


_STAND_INS = (Tracer, ComplexTracer, HostScalar, MaskedRead)  # which have more attributes than what they stand for


def _hasattr(x: Any, name: str) -> bool:
    return hasattr(_type(x) if type(x) in _STAND_INS else x, name)


def _getattr(x: Any, name: str, *default: Any) -> Any:
    if default and type(x) in _STAND_INS and not _hasattr(x, name):
        return default[0]
    if name == "__class__" and type(x) in (Tracer, ComplexTracer):
        return _type(x)
    return interface(x) if is_tracer(x) and name == "__array_interface__" else getattr(x, name, *default)


def _callable(x: Any) -> bool:
    return callable(as_it_is(x) if type(x) in (ObjectProxy, Opaque) else x)


def _math(function: Callable[..., Any], ufunc: np.ufunc | None) -> Callable[..., Any]:
    """A function of `math`: for a computed number it is `ufunc`; if that has no value, Python raises."""

    def method(*args: Any) -> Any:
        args = tuple(as_number(as_traced(x)) for x in args)
        if not any(map(is_tracer, args)):
            return record(function, *args) if any(map(is_host, args)) else function(*args)
        if ufunc is None or len(args) != ufunc.nin or not all(map(_is_real_number, args)):
            return function(*args)
        floats = [x if is_host(x) else _float(x) for x in args]
        if not any(map(is_tracer, floats)):
            return record(function, *floats) if any(map(is_host, floats)) else function(*floats)
        found = call(ufunc, *floats)
        if found.dtype == bool:
            found.weak = True
            return found
        found = python_float(found)
        of_nan = functools.reduce(operator.or_, [call(np.isnan, x) for x in floats])
        of_finite = functools.reduce(operator.and_, [call(np.isfinite, x) for x in floats])
        current().check((call(np.isnan, found) & ~of_nan) | (call(np.isinf, found) & of_finite))
        return found

    return method


def _is_real_number(x: Any) -> bool:
    """Does `math` convert it to a float directly? That is, a real number."""
    return x.is_scalar if is_tracer(x) else isinstance(x.value if is_host(x) else x, (int, float, np.floating))


def _whole(function: Callable[..., Any], ufunc: np.ufunc) -> Callable[..., Any]:
    """`round`, `math.floor` and relatives: of a computed number in a loop, an int that is computed as well."""

    def method(x: Any, *digits: Any, **kwargs: Any) -> Any:
        if digits or kwargs:
            return function(x, *digits, **kwargs)
        if type(x) is InductionVariable:
            return x
        if is_tracer(x) and x.is_scalar and x.known is None and x.dtype.kind in "iuf" and current().loops:
            return _int(call(ufunc, x) if x.dtype.kind == "f" else x)
        return function(x)

    return method


def _trunc(x: Any, /) -> Any:
    """`math.trunc`, which of NumPy's scalars takes those that are floats of Python."""
    if is_tracer(x) and not x.weak and x.dtype != np.float64:
        return math.trunc(x)
    return _whole(math.trunc, np.trunc)(x)


def _extreme(function: Callable[..., Any], ufunc: np.ufunc, beats: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`max` or `min`, if all arguments have the same type, which then is the result's."""

    def later(first: Any, x: Any) -> Any:
        if not has_tracer((first, x)):
            return function(first, x)
        if _number_type(x) is int:
            return python_int(call(ufunc, first, x))
        if is_tracer(x) and x.dtype.kind != "f":
            return call(ufunc, first, x)
        found = as_scalar(call(np.where, beats(x, first), x, first))  # the first of equal ones, and a NaN at the start
        found.weak = _number_type(x) is float
        return found

    def of_indices(first: Any, x: Any) -> Any:
        """If one of the two is larger in all iterations, the result stays an index."""
        replaces = is_below(x, first) if function is min else is_below(first, x)
        if replaces is not None:
            return x if replaces else first
        indices = (forward.index_value(n.poly) if type(n) is Size else as_traced(n) for n in (first, x))
        return python_int(call(ufunc, *indices))

    def method(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_number_list, args))
        if len(args) == 1 and type(args[0]) is NumberList and not kwargs:
            return args[0].extreme(function)
        items = args[0] if len(args) == 1 and type(args[0]) in (list, tuple) else args
        if not kwargs and InductionVariable in map(type, items) and all(type(x) in _WHOLE for x in items):
            return functools.reduce(of_indices, items)
        if not kwargs and len(items) > 1 and {InductionVariable, MovingLength} & set(map(type, items)):
            items = args = tuple(map(as_traced, items))
        kinds = {_number_type(x) for x in items}
        if function is max and not kwargs and len(items) == 2 and (kept := _kept_from_zero(*items)) is not None:
            return kept
        if kwargs or len(items) < 2 or len(kinds) > 1 or None in kinds or not any(map(is_tracer, items)):
            return function(*args, **kwargs)
        return functools.reduce(later, items)

    return method


# by kinds of dtypes: what a number is compared with to keep it from zero; it may be below larger ones
LARGEST_GUARD = {"i": 1, "u": 1, "f": 1e-3}


def _kept_from_zero(a: Any, b: Any) -> Any:
    """The computed number of ``max(total, 1e-12)`` or ``max(1, count)``, which is as large in all but special cases, in
    which a decision is needed: there the result has another type, and so may all that is computed of it. None: it is
    not one, or it is to be decided."""
    guarded, bound = (a, b) if is_tracer(a) else (b, a)
    if type(bound) not in (int, float) or not is_tracer(guarded) or current().loops or not current().options.speculate:
        return None
    if not guarded.is_scalar or guarded.weak or guarded.known is not None:
        return None
    if not 0 < bound <= LARGEST_GUARD.get(guarded.dtype.kind, 0):
        return None
    current().speculate(bound > guarded if guarded is a else call(np.logical_not, guarded > bound))
    return guarded


def _sorted(items: Any, /, *, key: Any = None, reverse: Any = False) -> list[Any]:
    """`sorted`: of few computed numbers of one type in a loop a network of exchanges, which keeps equal ones in order.

    Where one is a NaN, Python runs: what that comes to depends on what its algorithm compares.
    """
    items = list(items)
    kinds = {_number_type(x) for x in items}
    is_network = key is None and type(reverse) is bool and len(kinds) == 1 and None not in kinds
    if not is_network or not has_tracer(items) or not current().loops or len(items) > MAX_SORTED:
        plain: list[Any] = sorted(items, key=key, reverse=reverse)
        return plain
    for x in items:
        if is_tracer(x) and x.dtype.kind == "f":
            current().check(call(np.isnan, x))
    for k in range(1, len(items)):
        for j in range(k, 0, -1):
            a, b = items[j - 1], items[j]
            swaps = b > a if reverse else b < a
            if has_tracer((swaps,)):
                items[j - 1], items[j] = choose(swaps, b, a), choose(swaps, a, b)
            elif swaps:
                items[j - 1], items[j] = b, a
    found: list[Any] = items
    return found


def _sum(items: Any, /, *start: Any, **options: Any) -> Any:
    """`sum`, of a list that is an array."""
    items = _number_list(items)
    if type(items) is NumberList and not start and not options:
        return items.total()
    return sum(items, *start, **options)


def _number_list(x: Any) -> Any:
    """A list that a loop has filled as one of numbers, where it is one."""
    return (number_list(x, True) or x) if type(x) is GrownList else x


def _divmod(a: Any, b: Any, /) -> Any:
    """`divmod`, whose parts are those of two operations."""
    return (a // b, a % b) if has_tracer((a, b)) else divmod(a, b)


def _number_type(x: Any) -> Any:
    """The type of a scalar; None if it is not a scalar, or of a type that kernels do not have."""
    if is_tracer(x):
        return None if not x.is_scalar else python_type(x) if x.weak else x.dtype.type
    value = x.value if is_host(x) else x
    if type(value) is Size:
        return int
    is_scalar = type(value) in (int, float) or (isinstance(value, np.generic) and supported_dtype(value.dtype))
    return type(value) if is_scalar else None


def _isscalar(x: Any) -> bool:
    return bool(x.is_scalar) if is_tracer(x) or type(x) is ComplexTracer else True if is_host(x) else np.isscalar(x)


def _copy(x: Any) -> Any:
    """As `copy.copy`, which calls a method of the class that an array says it has."""
    return x.__copy__() if issubclass(type(x), Traced) else forward.clone(copy.copy)(x)


def _map(function: Any, *items: Any, **options: Any) -> Any:
    """``map(type, x)``, and of other classes that are functions where they are called."""
    is_class = isinstance(function, type) and getattr(builtins, function.__name__, None) is function
    return map(CALLED.get(function.__name__, function) if is_class else function, *items, **options)


def _copyto(a: Any, val: Any, mask: Any) -> Any:
    """`copyto` of NumPy's functions that ignore NaN, which takes a mask to hold for a number."""
    if is_tracer(a) and a.is_scalar:
        return as_scalar(call(np.where, mask, a.dtype.type(val), a))
    return forward.clone(NUMPYS_COPYTO)(a, val, mask)


def _is_dataclass(x: Any) -> bool:
    return dataclasses.is_dataclass(x if isinstance(x, type) else _type(x))


def _is_of_dataclass(x: Any) -> bool:
    return not isinstance(x, type) and _is_dataclass(x)


def _replace(obj: Any, /, **changes: Any) -> Any:
    """`dataclasses.replace`, whose new object has what the trace sees of the old one."""
    if not _is_of_dataclass(obj):
        return dataclasses.replace(obj, **changes)
    cls = as_it_is(_type(obj))
    own = {f.name: f for f in dataclasses.fields(cls)}
    other = [f for name, f in cls.__dataclass_fields__.items() if name not in own]
    inits = [f.name for f in other if f._field_type is dataclasses._FIELD_INITVAR]  # type: ignore[attr-defined]
    if any(name not in changes for name in inits) or any(not own[n].init for n in changes if n in own):
        return dataclasses.replace(as_it_is(obj), **changes)  # which says what is missing, or not to be given
    kept = {name: getattr(obj, name) for name, f in own.items() if f.init and name not in changes}
    return traced_class(cls)(**kept, **changes)


def _as_plain(function: Callable[..., Any], gather: Callable[..., Any]) -> Callable[..., Any]:
    """`dataclasses.asdict` or `astuple`: `gather` puts the fields together, and those of what they hold."""

    def inner(x: Any, factory: Any) -> Any:
        if _is_of_dataclass(x):
            return gather(((f.name, inner(getattr(x, f.name), factory)) for f in dataclasses.fields(_type(x))), factory)
        t = type(x)
        if t in (list, tuple):
            return t([inner(y, factory) for y in x])
        if isinstance(x, tuple) and hasattr(t, "_fields"):
            return t(*(inner(y, factory) for y in x))
        if isinstance(x, dict):
            return {k: inner(y, factory) for k, y in x.items()}
        return x if is_host(x) or t is Size else copy.deepcopy(x)

    def method(obj: Any, **options: Any) -> Any:
        factory = next(iter(options.values()), None)
        return inner(obj, factory) if _is_of_dataclass(obj) else function(obj, **options)

    return method


def _dict_of(items: Any, factory: Any) -> Any:
    return (factory or dict)(list(items))


def _tuple_of(items: Any, factory: Any) -> Any:
    return (factory or tuple)([x for _, x in items])


REPLACED: dict[Any, Any] = {
    NUMPYS_COPYTO: _copyto,
    dataclasses.is_dataclass: _is_dataclass,
    dataclasses.replace: _replace,
    dataclasses.asdict: _as_plain(dataclasses.asdict, _dict_of),
    dataclasses.astuple: _as_plain(dataclasses.astuple, _tuple_of),
    range: range_,
    enumerate: enumerate_,
    zip: zip_,
    np.ndindex: ndindex_,
    np.ndenumerate: ndenumerate_,
    itertools.product: product_,
    len: _len,
    isinstance: _isinstance,
    hasattr: _hasattr,
    getattr: _getattr,
    callable: _callable,
    np.isscalar: _isscalar,
    copy.copy: _copy,
    max: _extreme(max, np.maximum, operator.gt),
    min: _extreme(min, np.minimum, operator.lt),
    sorted: _sorted,
    sum: _sum,
    divmod: _divmod,
    round: _whole(round, np.rint),
    math.trunc: _trunc,
    math.floor: _whole(math.floor, np.floor),
    math.ceil: _whole(math.ceil, np.ceil),
}
_UFUNCS: dict[str, np.ufunc | None] = {
    "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "atan2": np.arctan2, "pow": np.power, "erf": None,
    "acosh": np.arccosh, "asinh": np.arcsinh, "atanh": np.arctanh,
}  # fmt: skip
_SAME = (
    "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh hypot radians degrees fabs isnan isinf"
)
_UFUNCS |= {name: getattr(np, name) for name in [*_SAME.split(), "isfinite"]}
for _name, _ufunc in _UFUNCS.items():
    REPLACED[getattr(math, _name)] = _math(getattr(math, _name), _ufunc)
CALLED: dict[str, Any] = {"float": _float, "int": _int, "complex": _complex, "type": _type, "map": _map}
