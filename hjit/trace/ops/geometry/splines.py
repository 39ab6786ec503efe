"""scipy.ndimage's spline filter: the coefficients of the splines through the elements of an image.

For each pole of the splines, two recurrences run along each line, forward and back: M. Unser, A. Aldroubi, M. Eden,
"B-spline signal processing" (1993). What they start with is a sum over a line that goes on beyond its ends. Operations
have the order of SciPy's, and so its bits.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import Dim, Indirect, Poly, poly
from hjit.trace.ops.geometry.ndimage_transforms import is_real
from hjit.trace.ops.stencils.ndimage import by_source, known_first
from hjit.trace.ops.stencils.ndimage_access import DOUBLE, add, source, store, times
from hjit.trace.tracing.arrays.tracer import Tracer, from_known, from_stage, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import size_poly

INTP = np.dtype(np.intp)
POLES = {
    2: (-0.171572875253809902396622551580603843,),
    3: (-0.267949192431122706472553658494127633,),
    4: (-0.361341225900220177092212841325675255, -0.013725429297339121360331226939128204),
    5: (-0.430575347099973791851434783493520110, -0.043096288203264653822712376822550182),
}


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of an array along an axis, while a stage is made of them.

    Attributes:
        name: of the stage.
        shape: of the array.
        axis: along which the lines are.
    """

    name: str
    shape: tuple[Poly, ...]
    axis: int

    @property
    def length(self) -> Poly:
        return self.shape[self.axis]

    @property
    def others(self) -> tuple[Poly, ...]:
        """The sizes of the other axes: how many lines there are."""
        return tuple(n for k, n in enumerate(self.shape) if k != self.axis)

    @property
    def step(self) -> Poly:
        """The iteration of a loop along the lines."""
        return poly(Dim(len(self.others)))

    def place(self, k: Poly | int) -> tuple[Poly, ...]:
        """Element `k` of each line."""
        index = [poly(Dim(d)) for d in range(len(self.others))]
        index.insert(self.axis, poly(k) if isinstance(k, int) else k)
        return tuple(index)

    def at(self, k: Poly | int) -> Expr:
        """Element `k` of each line, as it is by now."""
        return Load(self.name, self.place(k), DOUBLE)

    def set(self, k: Poly | int, value: Expr) -> Definition:
        """Assign to element `k` of each line."""
        return Definition(self.others, (), self.place(k), value)

    def loop(self, count: Poly, k: Poly, value: Expr) -> Definition:
        """Assign to elements, one after the other; `k` depends on `step`."""
        return Definition(self.others, (count,), self.place(k), value, "sequential")


@dataclass(frozen=True, slots=True)
class Boundary:
    """How lines go on beyond their ends.

    Attributes:
        sum: the sum that the recurrence forward begins with, of the element of a line at a position, the length, and
            the pole.
        first: the first element, from it and from the sum.
        last: what is done with the last element before the recurrence back.
    """

    sum: Callable[[Callable[[Poly], Expr], Poly, Poly, float], Sum]
    first: Callable[[Expr, Expr, Poly, float], Expr]
    last: Callable[[Lines, float], Iterator[Definition]]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over a line.

    Attributes:
        start: its value before anything is added.
        count: how many elements are added.
        term: each of them.
        end: what is added at the end, of the sum; None: nothing.
    """

    start: Expr
    count: Poly
    term: Expr
    end: Callable[[Expr], Expr] | None = None


def number(x: float) -> Expr:
    return Const(x, DOUBLE)


def one_minus(x: Expr) -> Expr:
    """``1 - x``."""
    return Op("subtract", (number(1.0), x), DOUBLE)


def quotient(a: Expr, b: Expr) -> Expr:
    return Op("true_divide", (a, b), DOUBLE)


# -- powers of a pole


@functools.lru_cache(maxsize=16)
def _powers(z: float, by_products: bool) -> np.ndarray[Any, Any]:
    """Its powers from 0 up to the first that is 0: products of it, or as C's `pow` has them."""
    found = [1.0]
    while found[-1] != 0:
        found.append(found[-1] * z if by_products else math.pow(z, len(found)))
    return np.array(found)


def power(z: float, k: Poly, by_products: bool = False) -> Expr:
    """``z ** k``, from a table."""
    table = _powers(z, by_products)
    last = Const(len(table) - 1, INTP)
    return from_known(table).at((poly(Indirect(Op("minimum", (Index(k), last), INTP), None)),))


def product(z: float, k: Poly) -> Expr:
    """``z ** k`` as a product."""
    return power(z, k, by_products=True)


# -- boundaries


def _mirror_sum(at: Callable[[Poly], Expr], i: Poly, n: Poly, z: float) -> Sum:
    far = power(z, n - 1)
    both = add(at(i + 1), times(far, at(n - 2 - i)))
    return Sum(add(at(poly(0)), times(far, at(n - 1))), n - 2, times(product(z, i + 1), both))


def _mirror_first(first: Expr, total: Expr, n: Poly, z: float) -> Expr:
    far = power(z, n - 1)
    return quotient(total, one_minus(times(far, far)))


def _mirror_last(c: Lines, z: float) -> Iterator[Definition]:
    n = c.length
    total = add(times(number(z), c.at(n - 2)), c.at(n - 1))
    yield c.set(n - 1, quotient(times(total, number(z)), number(z * z - 1)))


@functools.cache
def _sums_in_place() -> bool:
    """Does SciPy add up in the first element itself, which is the last one that it adds, too? Newer versions do not."""
    line = importlib.import_module("scipy.ndimage").spline_filter1d(np.ones(2), mode="reflect")
    return bool(abs(line[0] - 1) > 1e-9)


def _reflect_sum(at: Callable[[Poly], Expr], i: Poly, n: Poly, z: float) -> Sum:
    far = power(z, n)

    def term(k: Poly, mirrored: Expr) -> Expr:
        return times(product(z, k), add(at(k), times(far, mirrored)))

    def end(total: Expr) -> Expr:
        return term(n - 1, total if _sums_in_place() else at(poly(0)))

    return Sum(add(at(poly(0)), times(far, at(n - 1))), n - 2, term(i + 1, at(n - 2 - i)), end)


def _reflect_first(first: Expr, total: Expr, n: Poly, z: float) -> Expr:
    far = power(z, n)
    rest = one_minus(times(far, far))
    if _sums_in_place():
        return add(times(total, quotient(number(z), rest)), first)
    return add(first, quotient(times(total, number(z)), rest))


def _reflect_last(c: Lines, z: float) -> Iterator[Definition]:
    n = c.length
    yield c.set(n - 1, times(c.at(n - 1), number(z / (z - 1))))


def _wrap_sum(at: Callable[[Poly], Expr], i: Poly, n: Poly, z: float) -> Sum:
    return Sum(at(poly(0)), n - 1, times(product(z, i + 1), at(n - 1 - i)))


def _wrap_first(first: Expr, total: Expr, n: Poly, z: float) -> Expr:
    return quotient(total, one_minus(product(z, n)))


def _wrap_last(c: Lines, z: float) -> Iterator[Definition]:
    n, i = c.length, c.step
    yield c.loop(n - 1, n - 1, add(c.at(n - 1), times(product(z, i + 1), c.at(i))))
    scale = quotient(number(z), Op("subtract", (product(z, n), number(1.0)), DOUBLE))
    yield c.set(n - 1, times(c.at(n - 1), scale))


MIRROR = Boundary(_mirror_sum, _mirror_first, _mirror_last)
REFLECT = Boundary(_reflect_sum, _reflect_first, _reflect_last)
WRAP = Boundary(_wrap_sum, _wrap_first, _wrap_last)
BOUNDARIES = (REFLECT, MIRROR, REFLECT, MIRROR, MIRROR, WRAP, MIRROR)  # by SciPy's codes of its modes


# -- the filter


def spline_filter1d(image: Any, order: Any, axis: Any, output: Tracer, mode: Any) -> None:
    """SciPy's C function of that name, in double."""
    image, axis = source(image), operator.index(static_value(axis))
    poles = POLES[operator.index(static_value(order))]
    value: Callable[[tuple[Poly, ...]], Expr] = lambda index: cast(image.at(index), DOUBLE)  # noqa: E731
    if image.shape[axis] > 1:
        gain = number(math.prod((1.0 - z) * (1.0 - 1.0 / z) for z in poles))
        given, value = value, lambda index: times(given(index), gain)
        for z in poles:
            value = _filtered(value, tuple(map(size_poly, image.shape)), axis, BOUNDARIES[static_value(mode)], z).at
    store(output, value(tuple(poly(Dim(k)) for k in range(image.ndim))), safe=False)


def _filtered(
    value: Callable[[tuple[Poly, ...]], Expr], shape: tuple[Poly, ...], axis: int, boundary: Boundary, z: float
) -> Tracer:
    """Lines filtered with one pole."""
    rec = current()
    name, c = rec.reserve("spline_start"), Lines(rec.reserve("spline"), shape, axis)
    n, i = c.length, c.step

    def at(k: Poly) -> Expr:
        return value(c.place(k))

    here = tuple(poly(Dim(k)) for k in range(len(c.others)))
    total, found = Load(name, here, DOUBLE), boundary.sum(at, i, n, z)
    adding = [Definition(c.others, (found.count,), here, add(total, found.term), "sequential")]
    if found.end is not None:
        adding.append(Definition(c.others, (), here, add(total, found.end(total))))
    rec.stage(found.start, c.others, DOUBLE, tuple(adding), reserved=name)
    updates = (
        c.set(0, boundary.first(c.at(0), total, n, z)),
        c.loop(n - 1, i + 1, add(c.at(i + 1), times(number(z), c.at(i)))),
        *boundary.last(c, z),
        c.loop(n - 1, n - 2 - i, times(number(z), Op("subtract", (c.at(n - 1 - i), c.at(n - 2 - i)), DOUBLE))),
    )
    whole = tuple(poly(Dim(k)) for k in range(len(shape)))
    return from_stage(value(whole), tuple(map(rec.size, shape)), DOUBLE, updates, reserved=c.name)


def is_compiled(given: dict[str, Any]) -> bool:
    """Are the image, and the array that is written, of real numbers?"""
    image, output = given["input"], given["output"]
    return is_real(image) and image.ndim > 0 and (not is_tracer(output) or (is_real(output) and output.ndim > 0))


def register() -> None:
    """Take the filter over."""
    public, c = importlib.import_module("scipy.ndimage"), importlib.import_module("scipy.ndimage._nd_image")
    for name in ("spline_filter", "spline_filter1d"):
        real = getattr(public, name)
        implements(real)(by_source(f"scipy.ndimage.{name}", real, is_compiled))
    implements(c.spline_filter1d)(known_first(c.spline_filter1d, spline_filter1d))


try:
    register()
except ImportError:  # without SciPy there is nothing to take over
    pass
