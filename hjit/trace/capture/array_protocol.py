"""Objects that are arrays by an `__array__` in Python, as `numpy.poly1d` is, and hold traced arrays.

NumPy would ask them for their numbers. Their method is traced instead.
"""

from __future__ import annotations

import types
from typing import Any

from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import has_tracer
from hjit.trace.tracing.scalars.host import with_items

_OWN_WAYS = ("__array_ufunc__", "__array_function__")  # which NumPy asks before it converts anything


def arrays_of(x: Any) -> Any:
    """`x`, with objects replaced by the result of their `__array__`, also in lists, tuples and dicts."""
    t = type(x)
    if t in (list, tuple, dict):
        return with_items(arrays_of, x)
    method = getattr(t, "__array__", None)
    if type(method) is not types.FunctionType or any(hasattr(t, n) for n in _OWN_WAYS):
        return x
    return forward.clone(method)(x) if has_tracer(getattr(x, "__dict__", None)) else x
