"""Opaque calls: functions that are not traced, but called with real arrays whenever a kernel is at that point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.errors import TraceError
from hjit.trace.host import is_host
from hjit.trace.recorder import current, site, supported_dtype
from hjit.trace.size import Size
from hjit.trace.tracer import Tracer, from_known, is_tracer, python_float


def concrete(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a real function with real arguments; an array that it returns is one of the trace's own."""
    return owned(function(*args, **kwargs))


def owned(result: Any) -> Any:
    """The arrays of a result as known arrays of the trace, where kernels have their dtype."""
    if type(result) is np.ndarray and supported_dtype(result.dtype):
        return from_known(result)
    if type(result) in (list, tuple):
        return type(result)(map(owned, result))
    if isinstance(result, tuple) and hasattr(type(result), "_fields"):
        return type(result)(*map(owned, result))
    return result


def opaque_call(name: str, function: Any, args: Any, kwargs: Any, impure: bool = False, foreign: bool = False) -> Any:
    """An extern stage: at every call the inputs are realised and the original function is called; now, where all is known.

    A `foreign` function may write to its arguments, which is looked after.
    """
    rec = current()
    tracers: list[Tracer] = []

    def lower(x: Any) -> Any:
        if is_tracer(x):
            whole = x if x.is_whole else x.copy()
            tracers.append(whole)
            return _Hole(len(tracers) - 1, tuple(map(int, x.shape)), x.is_scalar)
        if is_host(x):
            return x.pin()
        if type(x) in (list, tuple):
            return type(x)(map(lower, x))
        return {k: lower(v) for k, v in x.items()} if type(x) is dict else int(x) if type(x) is Size else x

    frozen_args, frozen_kwargs = lower(tuple(args)), lower(dict(kwargs))
    single: list[bool] = []
    kind: type = object
    origin = site()[0]

    def run(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
        given = [a.copy() for a in arrays] if foreign else arrays
        result = function(*_fill(frozen_args, given), **_fill(frozen_kwargs, given))
        if foreign and any(a.tobytes() != b.tobytes() for a, b in zip(arrays, given, strict=True)):
            raise TraceError(name, "it writes to an array that it is given", "call it outside the function", origin)
        return result

    contents = [t.known for t in tracers]
    if not impure and all(k is not None for k in contents):
        return owned(run([k.copy() for k in contents if k is not None]))

    def call(*arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        result = run(arrays)
        nonlocal kind
        kind = type(result)
        single[:] = [not isinstance(result, tuple)]
        return () if result is None else result if isinstance(result, tuple) else (result,)

    needs = tuple(t.buffer.source() for t in tracers)
    sources = rec.extern(name, call, needs, impure)
    results = tuple(_extern_result(s.input.name) for s in sources)
    if single[0] and kind is float:
        return python_float(results[0])
    if not results:
        return None
    return results[0] if single[0] else results


def _extern_result(name: str) -> Tracer:
    from hjit.trace.tracer import Buffer, _shown, identity

    rec = current()
    source = rec.inputs[name]
    shape = tuple(_shown(rec, p) for p in source.input.shape)
    t = Tracer(Buffer(shape, source.input.dtype, name), shape, identity(len(shape)))
    return t.copy() if shape else t


class _Hole:
    """The place of an array in the arguments of an opaque call."""

    __slots__ = ("number", "scalar", "shape")

    def __init__(self, number: int, shape: tuple[int, ...], scalar: bool) -> None:
        self.number, self.shape, self.scalar = number, shape, scalar


def _fill(x: Any, arrays: Sequence[Any]) -> Any:
    if type(x) is _Hole:
        a = arrays[x.number].reshape(x.shape)
        return a[()] if x.scalar else a
    if type(x) in (list, tuple):
        return type(x)(_fill(y, arrays) for y in x)
    return {k: _fill(v, arrays) for k, v in x.items()} if type(x) is dict else x
