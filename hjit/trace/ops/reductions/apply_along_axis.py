"""`np.apply_along_axis`: a loop over the lines, re-rolled where possible, so that the function is traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.arrays.views import transpose
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call
from hjit.trace.tracing.dispatch import implements


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Tracer:
    """The axes of what the function returns take the place of the axis; the first line decides on its shape and dtype.

    Raises:
        ValueError: there is no line.
    """
    a = as_tracer(arr)
    axis = np.lib.array_utils.normalize_axis_index(axis, a.ndim)
    lines = call(np.moveaxis, a, axis, -1)
    lead = lines.shape[:-1]
    if 0 in lead:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    lines = lines.reshape(-1, lines.shape[-1])

    def function(line: Any) -> Any:
        return func1d(line, *args, **kwargs)

    first = as_tracer(function(lines[0]))
    out = call(np.empty, (lines.shape[0], *first.shape), first.dtype)
    out[0] = first
    forward.clone(_each_line)(function, lines, out)
    n = len(lead)
    found: Tracer = out.reshape(*lead, *first.shape)
    return transpose(found, (*range(axis), *range(n, n + first.ndim), *range(axis, n)))


def _each_line(function: Callable[..., Any], lines: Any, out: Any) -> None:
    for k in range(1, lines.shape[0]):
        out[k] = function(lines[k])
