"""What selects by values: nonzero, flatnonzero, argwhere, and the unique functions.

The length of such a result depends on the image's values. It is an array read under a mask: the places of all elements
where they are not zero, all values of a small integer dtype where they occur.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Index
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.arguments import count
from hjit.trace.ops.indexing.gathers import depends_on_values, lookup
from hjit.trace.ops.indexing.histograms import tally, values_of
from hjit.trace.ops.limits import FEW_VALUES, MANY_VALUES, MIN_DIGITS_COUNTED
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, from_stage, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.scalars.host import static_value


def _truth(a: Tracer) -> Tracer:
    mask: Tracer = a.copy() if a.dtype == bool else call(np.not_equal, a, 0)
    return mask


@implements(np.nonzero)
def nonzero(a: Any) -> tuple[Any, ...]:
    a = as_tracer(a)
    if a.known is not None:
        return tuple(map(from_known, np.nonzero(a.known)))
    if not a.ndim:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead. "
            "If the context of this error is of the form `arr[nonzero(cond)]`, just use `arr[cond]`."
        )
    mask = _truth(a)
    places = [from_stage(Index(poly(Dim(k))), a.shape, np.intp) for k in range(a.ndim)]
    found = tuple(MaskedRead(x, mask, "nonzero") for x in places)
    if a.ndim > 1:
        whole = MaskedRead(call(np.stack, places, axis=-1), mask, "nonzero")
        for k, x in enumerate(found):
            x.column_of = whole, k
    return found


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    return nonzero(as_tracer(a).reshape(-1))[0]


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    a = as_tracer(a)
    if a.known is not None:
        return from_known(np.argwhere(a.known))
    if not a.ndim:
        raise depends_on_values("numpy.argwhere")
    found = MaskedRead(call(np.stack, [x.full for x in nonzero(a)], axis=-1), _truth(a), "argwhere")
    found.is_fortran = True  # the transposed array of the places along each axis
    return found


# -- unique


@implements(np.unique)
def unique(
    ar: Any,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
    *,
    equal_nan: Any = True,
    sorted: Any = True,
) -> Any:
    """Of integers whose values are few, or near each other: those that occur, by counting them."""
    a = as_tracer(ar)
    wanted = [bool(static_value(x)) for x in (return_index, return_inverse, return_counts)]
    if a.known is not None:
        return _known(np.unique, a, *wanted, axis=static_value(axis), equal_nan=static_value(equal_nan))
    found = None if axis is not None else counted(a)
    if found is None:
        raise depends_on_values("numpy.unique", "pass the values in, or compute them outside the function")
    return found.wanted(*wanted)


@provides
def unique_of_read(a: MaskedRead, *wanted: bool) -> Any:
    """`unique` of what is read under a mask; None where it is not counted."""
    found = counted(a.full, a.mask) if is_tracer(a.full) and a.ndim == 1 and not wanted[0] else None
    return None if found is None else found.wanted(*wanted)


def counted(a: Tracer, kept: Tracer | None = None) -> Counted | None:
    """The values that occur; None where they may be too many to be counted.

    Those of wide integers, such as the numbers of regions, are counted from the least on: a decision tells whether they
    lie near each other.
    """
    if a.dtype.kind not in "iub" or not a.size:
        return None
    if values_of(a.dtype):
        return Counted(a, int(np.iinfo(a.dtype).min) if a.dtype.kind == "i" else 0, values_of(a.dtype), kept)
    info, number = np.iinfo(a.dtype), a.dtype.type
    low: Any = call(np.min, a if kept is None else call(np.where, kept, a, number(info.max)))
    high: Any = call(np.max, a if kept is None else call(np.where, kept, a, number(info.min)))
    values = MANY_VALUES if count(a.shape) >= MIN_DIGITS_COUNTED else FEW_VALUES
    is_near: Any = high.astype(np.uint64) - low.astype(np.uint64) < values  # no difference is too large for this dtype
    return Counted(a, low, values, kept) if is_near else None


class Counted:
    """The values that occur in an array.

    Attributes:
        index: for each element that of its value.
        occurs: does a value occur?
        counts: how often.
    """

    def __init__(self, a: Tracer, lowest: Any, number: int, kept: Tracer | None) -> None:
        """
        Args:
            lowest: the least value that may occur; there are so many of them, one after another.
            kept: of which elements; None: of all.
        """
        self.dtype, self.lowest, self.number, self.kept = a.dtype, lowest, number, kept
        near = a if is_tracer(lowest) else a.astype(np.intp)
        index: Any = near - lowest if is_tracer(lowest) or lowest else near
        self.index: Tracer = index.astype(np.intp, copy=False)
        if kept is not None:
            self.index = call(np.where, kept, self.index, 0)
        self.counts = tally(self.index, number, keep=kept)
        self.occurs: Tracer = np.greater(self.counts, 0)  # type: ignore[assignment]

    def wanted(self, index: bool, inverse: bool, counts: bool) -> Any:
        """What `numpy.unique` returns."""
        parts = [
            self._read(self._values()),
            *([self._read(self._first())] if index else []),
            *([self._inverse()] if inverse else []),
            *([self._read(self.counts)] if counts else []),
        ]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _read(self, full: Any) -> MaskedRead:
        return MaskedRead(full, self.occurs, "unique")

    def _values(self) -> Any:
        if is_tracer(self.lowest):
            return from_known(np.arange(self.number).astype(self.dtype)) + self.lowest
        return from_known((np.arange(self.number) + self.lowest).astype(self.dtype))

    def _first(self) -> Any:
        """For each value the place of its first element."""
        places = self.index.reshape(-1)
        found = call(np.full, self.number, places.size, np.intp)
        forward.ufunc_at(np.minimum, found, places, call(np.arange, places.size))
        return found

    def _inverse(self) -> Any:
        """For each element the position of its value."""
        before: Any = call(np.cumsum, self.occurs, dtype=np.intp)
        found = lookup(before - 1, self.index)
        return found if self.kept is None else MaskedRead(found, self.kept, "unique")


def _known(function: Callable[..., Any], ar: Tracer, *args: Any, **kwargs: Any) -> Any:
    result = function(ar.known, *args, **kwargs)
    if isinstance(result, tuple):
        parts = map(from_known, result)
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return from_known(result)


def _unique_parts(function: Callable[..., Any], *wanted: bool) -> None:
    """The functions of the array API: `wanted` of `numpy.unique`."""
    kind = type(function(np.zeros(1, np.intp)))

    def method(x: Any, /) -> Any:
        a = as_tracer(x)
        if a.known is not None:
            return _known(function, a)
        found = counted(a)
        if found is None:
            raise depends_on_values(
                f"numpy.{function.__name__}", "pass the values in, or compute them outside the function"
            )
        return kind(*found.wanted(*wanted))

    implements(function)(method)


_unique_parts(np.unique_counts, False, False, True)
_unique_parts(np.unique_inverse, False, True, False)
_unique_parts(np.unique_all, True, True, True)


@implements(np.unique_values)
def unique_values(x: Any, /) -> Any:
    """In NumPy's order, which is that of a hash table."""
    a = as_tracer(x)
    if a.known is None:
        raise depends_on_values("numpy.unique_values", "use np.unique")
    return _known(np.unique_values, a)
