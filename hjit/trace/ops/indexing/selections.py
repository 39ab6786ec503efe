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
from hjit.trace.ops.indexing.gathers import depends_on_values, lookup
from hjit.trace.ops.indexing.histograms import tally, values_of
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, from_stage
from hjit.trace.tracing.dispatch import implements
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
    places = (from_stage(Index(poly(Dim(k))), a.shape, np.intp) for k in range(a.ndim))
    return tuple(MaskedRead(x, mask, "nonzero") for x in places)


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
    places = [x.full for x in nonzero(a)]
    return MaskedRead(call(np.stack, places, axis=-1), _truth(a), "argwhere")


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
    """Of integers that have few values: those that occur, by counting all of them."""
    a = as_tracer(ar)
    wanted = [bool(static_value(x)) for x in (return_index, return_inverse, return_counts)]
    if a.known is not None:
        return _known(np.unique, a, *wanted, axis=static_value(axis), equal_nan=static_value(equal_nan))
    if not values_of(a.dtype) or wanted[0] or axis is not None or not a.size:
        raise depends_on_values("numpy.unique", "pass the values in, or compute them outside the function")
    found = _Counted(a)
    parts = [found.values, *([found.inverse()] if wanted[1] else []), *([found.counts] if wanted[2] else [])]
    return parts[0] if len(parts) == 1 else tuple(parts)


class _Counted:
    """The values that occur in an array.

    Attributes:
        values: in order.
        counts: how often they occur.
    """

    def __init__(self, a: Tracer) -> None:
        n = values_of(a.dtype)
        lowest = int(np.iinfo(a.dtype).min) if a.dtype.kind == "i" else 0
        index: Any = a.astype(np.intp)
        self.index: Tracer = index - lowest if lowest else index
        counts = tally(self.index, n)
        occurs: Any = np.greater(counts, 0)
        self.values = MaskedRead(from_known((np.arange(n) + lowest).astype(a.dtype)), occurs, "unique")
        self.counts = MaskedRead(counts, occurs, "unique")

    def inverse(self) -> Tracer:
        """For each element the position of its value."""
        before: Any = call(np.cumsum, self.values.mask, dtype=np.intp)
        return lookup(before - 1, self.index)


def _known(function: Callable[..., Any], ar: Tracer, *args: Any, **kwargs: Any) -> Any:
    result = function(ar.known, *args, **kwargs)
    return tuple(map(from_known, result)) if isinstance(result, tuple) else from_known(result)


def _known_only(function: Callable[..., Any]) -> None:
    def method(ar: Any) -> Any:
        ar = as_tracer(ar)
        if ar.known is None:
            raise depends_on_values(
                f"numpy.{function.__name__}", "pass the values in, or compute them outside the function"
            )
        return _known(function, ar)

    implements(function)(method)


for _function in (np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all):
    _known_only(_function)
