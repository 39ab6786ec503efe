"""Sorting: sort, argsort, partition, argpartition, lexsort; up to some elements by a network, more by NumPy itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ops.arguments import along
from hjit.trace.ops.by_numpy import by_numpy
from hjit.trace.ops.layout import as_it_lies
from hjit.trace.ops.limits import MAX_ARGSORTED
from hjit.trace.ops.reductions.networks import are_few, arg_ordered, elements, network, ordered
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_known, from_stage
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value


def _sorted(a: Tracer, axis: int, order: Callable[[list[Expr]], list[Expr]], dtype: Any) -> Tracer:
    """One update for each position along `axis`."""
    if a.size == 0:
        return from_known(np.zeros(tuple(map(int, a.shape)), dtype))
    found = order(elements(a, (axis,)))
    rec = current()
    sizes = rec.polys(a.shape)
    dims = tuple(n for k, n in enumerate(sizes) if k != axis)
    updates = []
    for position, e in enumerate(found):
        target: list[Poly] = [poly(Dim(k)) for k in range(len(dims))]
        target.insert(axis, poly(position))
        updates.append(Definition(dims, (), tuple(target), e))
    return from_stage(None, a.shape, dtype, tuple(updates))


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    a = as_tracer(a)
    if a.known is not None:
        return from_known(np.sort(a.known, static_value(axis), kind), of=a)
    a, axis = along(a, axis)
    if not are_few(a, (axis,)):
        return by_numpy(np.sort, a, axis=axis, kind=kind, order=order, stable=stable, rule="monotone")
    return as_it_lies(
        a,
        lambda x, order: _sorted(x, order.index(axis), lambda items: ordered(items, network(len(items))), x.dtype),
    )


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Equal elements of short axes keep their order, as NumPy's ``kind="stable"`` has it."""
    a = as_tracer(a)
    if a.known is not None:
        return from_known(np.argsort(a.known, static_value(axis), "stable"), of=a)
    a, axis = along(a, axis)
    if not are_few(a, (axis,), MAX_ARGSORTED):
        return by_numpy(np.argsort, a, axis=axis, kind=kind, order=order, stable=stable, rule="arrangement")
    return _sorted(a, axis, arg_ordered, np.intp)


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """NumPy's order within the parts is unspecified; short axes are sorted."""
    a, axis = along(as_tracer(a), axis)
    if a.known is None and not are_few(a, (axis,)):
        return by_numpy(np.partition, a, kth, axis=axis, kind=kind, order=order, rule="arrangement")
    _check_kth(kth, a.shape[axis])
    return sort(a, axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    a, axis = along(as_tracer(a), axis)
    if a.known is None and not are_few(a, (axis,), MAX_ARGSORTED):
        return by_numpy(np.argpartition, a, kth, axis=axis, kind=kind, order=order, rule="arrangement")
    _check_kth(kth, a.shape[axis])
    return argsort(a, axis)


def _check_kth(kth: Any, n: int) -> None:
    for k in np.asarray(static_value(kth)).ravel():
        if not -n <= k < n:
            raise ValueError(f"kth(={int(k) if k >= 0 else int(k + n)}) out of bounds ({int(n)})")


@implements(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Any:
    return by_numpy(np.lexsort, keys, axis=axis, rule="arrangement")
