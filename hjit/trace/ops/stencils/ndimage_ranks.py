"""The C functions of scipy.ndimage that compare: minimum, maximum and rank filters, binary erosion."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import poly
from hjit.trace.ops.limits import MAX_RANKED
from hjit.trace.ops.reductions.networks import ranked
from hjit.trace.ops.stencils.ndimage_access import (
    BOOL,
    DOUBLE,
    MODES,
    Extended,
    add,
    converted,
    footprint_of,
    holds,
    less,
    reach,
    reduced,
    source,
    store,
)
from hjit.trace.ops.stencils.ndimage_windows import LineWindow, unrolled_window
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_known
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

# -- order statistics


def _native(image: Tracer, cval: Any) -> np.dtype[Any]:
    """The dtype in which lines are compared, in C double: the image's, where double represents all its numbers."""
    if holds(image.dtype, cval):
        return _compared(np.dtype(np.uint8) if image.dtype == BOOL else image.dtype)
    return DOUBLE


def _compared(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" or dtype.itemsize < 8 else DOUBLE


def _as_c(dtype: np.dtype[Any], cval: Any) -> tuple[np.dtype[Any], Any]:
    """The dtype that C has for elements of `dtype`, and the border's value in it."""
    dtype = np.dtype(np.uint8) if dtype == BOOL else dtype
    value = converted(Const(float(static_value(cval)), DOUBLE), dtype, safe=False)
    assert isinstance(value, Const)
    return dtype, value.value


def min_or_max_filter1d(
    image: Any, size: int, axis: int, output: Tracer, mode: int, cval: Any, origin: int, minimum: int
) -> None:
    """The extreme of a line of elements, by comparisons in double as C has them."""
    image, size, cval = source(image), operator.index(static_value(size)), float(static_value(cval))
    window = LineWindow.of(image, size, axis, mode, cval, origin)
    work, name = _native(image, cval), "minimum" if minimum else "maximum"
    found = unrolled_window(window, name, work, lambda e: e)
    if found is None:
        found = reduced(image, Const(start_value(name, work), work), (size,), lambda: window.tap(work), name, name)
    store(output, found, safe=False)


def min_or_max_filter(
    image: Any,
    footprint: Any,
    structure: Any,
    output: Tracer,
    mode: int,
    cval: Any,
    origins: Sequence[int],
    minimum: int,
) -> None:
    """The extreme of the elements under a footprint, less (or plus) the structure's."""
    image = source(image)
    known = footprint_of(footprint)
    ahead, past = reach(known.shape, origins)
    element, cval = _as_c(image.dtype, cval)
    near = Extended.of(image, MODES[static_value(mode)], cval, ahead, past)
    heights = None if structure is None else as_tracer(structure)
    work = _compared(element) if heights is None else DOUBLE
    best: Expr | None = None
    for t in map(tuple, np.argwhere(known)):
        x: Expr = cast(near.at([int(i) - a for i, a in zip(t, ahead, strict=True)]), element)
        if heights is not None:
            height: Expr
            if heights.known is not None:
                height = Const(heights.known[t], DOUBLE)
            else:
                height = heights.at(tuple(poly(int(i)) for i in t))
            height = Op("negative", (height,), DOUBLE) if minimum else height
            # C adds the first height to a double, and all others to a number of the image's type, which may wrap around
            x = add(cast(x, DOUBLE), height) if best is None else add(x, converted(height, element, safe=False))
        x = cast(x, work)
        if best is None:
            best = x
        elif work.kind == "f":  # NaN never wins a comparison
            best = select(less(x, best) if minimum else less(best, x), x, best)
        else:
            best = Op("minimum" if minimum else "maximum", (best, x), work)
    assert best is not None
    store(output, best)


def rank_filter(
    image: Any,
    rank: int,
    footprint: Any,
    output: Tracer,
    mode: int,
    cval: Any,
    origins: Sequence[int],
    exact: bool = False,
) -> None:
    """The element of a given rank under a footprint, by a network of minima and maxima; of a large one by SciPy."""
    given, image = as_tracer(image), source(image)
    known = footprint_of(footprint)
    element, cval = _as_c(image.dtype, cval)
    ahead, past = reach(known.shape, origins)
    taps = np.argwhere(known)
    if len(taps) > MAX_RANKED:
        real = importlib.import_module("scipy.ndimage._nd_image").rank_filter
        foreign(real).extern((given, rank, footprint, output, mode, cval, origins), {})
        return
    near = Extended.of(image, MODES[static_value(mode)], cval, ahead, past)
    work = element if exact else _compared(element)
    wires = [cast(near.at([int(i) - a for i, a in zip(t, ahead, strict=True)]), work) for t in taps]
    store(output, ranked(wires, operator.index(static_value(rank))))


def rank_filter_1d(image: Any, rank: int, size: int, output: Tracer, mode: int, cval: Any, origin: Any) -> None:
    """SciPy's sliding median of a 1-d signal, which compares int64 as they are."""
    if int(size) > MAX_RANKED:
        real = importlib.import_module("scipy.ndimage._filters")._rank_filter_1d.rank_filter
        foreign(real).extern((as_tracer(image), rank, size, output, mode, cval, origin), {})
        return
    origins = origin if isinstance(origin, (tuple, list)) else [origin]
    rank_filter(image, rank, from_known(np.ones(int(size), bool)), output, mode, cval, origins, exact=True)


# -- binary morphology


class _Changed:
    """SciPy asks it only to iterate until nothing changes."""

    def __bool__(self) -> bool:
        raise current().error(
            "binary erosion or dilation", "iterating until nothing changes", "give a number of iterations"
        )


@dataclass(frozen=True, slots=True)
class _Again:
    """What the second and later iterations repeat."""

    structure: Any
    border: Any
    origin: tuple[int, ...]


def binary_erosion(
    image: Any,
    structure: Any,
    mask: Any,
    output: Tracer,
    border: Any,
    origin: Any,
    invert: int,
    centre: Any,
    again: int,
) -> Any:
    """All (or, inverted, any) of the elements under the structure."""
    image = as_tracer(image)
    known = footprint_of(structure)
    ahead, past = reach(known.shape, origin)
    truth = cast(image.load(), BOOL)
    near = Extended.of(image, "constant", int(bool(static_value(border))), ahead, past)
    name = "logical_or" if invert else "logical_and"
    taps = [cast(near.at([int(i) - a for i, a in zip(t, ahead, strict=True)]), BOOL) for t in np.argwhere(known)]
    result = functools.reduce(lambda a, b: Op(name, (a, b), BOOL), taps) if taps else Const(not invert, BOOL)
    if mask is not None:
        result = select(cast(as_tracer(mask).load(), BOOL), result, truth)
    store(output, result)
    return (_Changed(), _Again(structure, border, tuple(map(int, origin)))) if again else _Changed()


def binary_erosion2(
    output: Tracer, structure: Any, mask: Any, iterations: int, origin: Any, invert: int, again: Any
) -> None:
    """Further iterations in place."""
    if iterations < 0:
        bool(_Changed())
    for _ in range(iterations):
        binary_erosion(output.copy(), again.structure, mask, output, again.border, again.origin, invert, True, 0)
