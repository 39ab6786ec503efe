"""`np.vectorize`: a loop over the elements, re-rolled where possible, so that the function is traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import broadcast
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    has_tracer,
    is_tracer,
    python_float,
    python_int,
)
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import is_host

_MISSING: Any = np._NoValue


class Vectorized:
    """`np.vectorize` for traced functions.

    Attributes:
        made: the object itself, which says what NumPy does, and runs as it is where it takes more than the function.
    """

    def __init__(self, pyfunc: Any = _MISSING, *args: Any, **kwargs: Any) -> None:
        self.made: Any = np.vectorize(pyfunc, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.made
        if made.pyfunc is _MISSING:
            made(*args, **kwargs)
            return self
        if kwargs or not args or made.excluded or made.signature is not None or not _are_real(args):
            return made(*args, **kwargs)
        return _computed(made, [as_tracer(x) for x in args])


@provides
def vectorized(value: Any) -> Any:
    """What stands for an object of `np.vectorize` that the traced function captures."""
    found = Vectorized(forward.wrap_callable(value.pyfunc), value.otypes, None, value.excluded, False, value.signature)
    found.made.cache = value.cache
    return found


def _are_real(args: tuple[Any, ...]) -> bool:
    """Are these real arrays and numbers, one of them traced?"""
    numbers = (bool, int, float, list, tuple)
    return has_tracer(args) and all(is_tracer(x) or type(x.value if is_host(x) else x) in numbers for x in args)


def _computed(made: Any, arrays: list[Tracer]) -> Any:
    """The results for all elements, which are given as numbers of Python.

    The first element decides on the dtypes where none are given: it is given as a number of NumPy.
    """
    function, otypes = made.pyfunc, made.otypes
    if otypes is None:
        if any(not a.size for a in arrays):
            raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
        first = function(*(a.reshape(-1)[0] for a in arrays))
        is_tuple = type(first) is tuple
        dtypes = [as_tracer(x).dtype for x in (first if is_tuple else (first,))]
    else:
        dtypes = [np.dtype(t) for t in otypes]
        is_tuple = len(dtypes) > 1
    if not all(map(supported_dtype, dtypes)):
        return made(*arrays)
    shape = broadcast(*(a.shape for a in arrays))
    flat = [call(np.broadcast_to, a, shape).reshape(-1) for a in arrays]

    def results(k: Any) -> Any:
        found = function(*[_number(a[k]) for a in flat])
        return tuple(map(_checked, found if is_tuple else (found,), dtypes))

    out = [call(np.empty, flat[0].shape, _WIDE.get(t.kind, t)) for t in dtypes]
    forward.clone(_each_element if len(out) == 1 else _each_tuple)(results, out)
    whole = tuple(_narrowed(x, t).reshape(shape) for x, t in zip(out, dtypes, strict=True))
    return whole if is_tuple else whole[0]


def _each_element(results: Callable[[Any], Any], out: list[Any]) -> None:
    for k in range(out[0].shape[0]):
        out[0][k] = results(k)[0]


def _each_tuple(results: Callable[[Any], Any], out: list[Any]) -> None:
    for k in range(out[0].shape[0]):
        found = results(k)
        for n in range(len(out)):
            out[n][k] = found[n]


def _number(x: Any) -> Any:
    """An element as a number of Python."""
    if x.dtype.kind == "f":
        return python_float(x)
    if x.dtype.kind == "b":
        return x  # which is computed with as a bool of NumPy is
    return python_int(x)


_WIDE = {"i": np.dtype(np.int64), "u": np.dtype(np.int64)}  # of numbers that may be out of bounds


def _checked(x: Any, dtype: np.dtype[Any]) -> Any:
    """A result, which is converted to a dtype as an object of Python is."""
    kind = "c" if type(x) is ComplexTracer else as_tracer(x).dtype.kind
    if kind == "c" or (kind == "f" and dtype.kind in "iu"):
        raise current().error("numpy.vectorize", f"a result is no number of the dtype {dtype}", "give otypes=[float]")
    return x


def _narrowed(x: Tracer, dtype: np.dtype[Any]) -> Tracer:
    """Results in their dtype; where one is out of bounds NumPy raises."""
    if x.dtype == dtype:
        return x
    info = np.iinfo(dtype)
    if info.max < np.iinfo(np.int64).max or info.min == 0:
        current().check(call(np.any, np.less(x, info.min) | np.greater(x, min(info.max, np.iinfo(np.int64).max))))
    return x.astype(dtype)
