"""`np.fft`: transforms are extern calls, whose results are complex arrays; what only moves elements is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.complex_numbers.table import for_complex
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, is_complex
from hjit.trace.tracing.arrays.tracer import as_tracer, call
from hjit.trace.tracing.dispatch import implements


def _shifted(direction: int) -> Callable[..., Any]:
    def method(x: Any, axes: Any = None) -> Any:
        x = x if type(x) is ComplexTracer or is_complex(x) else as_tracer(x)
        many = tuple(range(x.ndim)) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
        halves = [x.shape[k] // 2 for k in many]
        return call(np.roll, x, [direction * n for n in halves], tuple(many))

    return method


for _function, _direction in ((np.fft.fftshift, 1), (np.fft.ifftshift, -1)):
    _method = _shifted(_direction)
    implements(_function)(_method)
    for_complex(_function)(_method)
