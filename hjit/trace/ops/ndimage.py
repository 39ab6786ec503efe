"""scipy.ndimage: SciPy's own Python source is traced; here is what its C functions compute.

So argument checks, the order of the axis passes and the rounding to the output's dtype after each pass are SciPy's.
A filter is one write of its output: an expression over shifted loads, or a reduction where there are many taps.
The arithmetic is SciPy's too: double precision, in the order of its loops. Integer images with whole weights are
summed as integers, which is exact and so the same.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Const, Definition, Expr, Load, Op, cast, identity, select
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Dim, Poly, boundary, poly
from hjit.trace.ops.ordering import ranked
from hjit.trace.tracing.dispatch import functions, hook, implements
from hjit.trace.tracing.externs import opaque_call
from hjit.trace.tracing.foreign import foreign
from hjit.trace.tracing.host import unpin
from hjit.trace.tracing.recorder import current
from hjit.trace.tracing.size import Size, size_poly
from hjit.trace.tracing.tracer import Tracer, as_tracer, as_value, call, from_known, from_stage, is_tracer
from hjit.trace.tracing.writing import update

MAX_LINE_TAPS = 129  # taps of one axis that are unrolled
MAX_TAPS = 49  # taps of a filter over several axes that are unrolled
MAX_RANKED = 32  # taps that a rank filter sorts
EPSILON = float(np.finfo(np.float64).eps)
DOUBLE, BOOL = np.dtype(np.float64), np.dtype(bool)

# SciPy's codes of the boundary modes
MODES = {0: "clamp", 1: "wrap", 2: "symmetric", 3: "reflect", 4: "constant", 5: "wrap", 6: "constant"}


# -- reading beyond the edges


@dataclass(slots=True)
class Extended:
    """An image that can be read beyond its edges.

    Attributes:
        image: the image.
        mode: a mode of `poly.boundary`, or "constant".
        padded: the image with its constant border, in mode "constant".
        before: width of that border at the start of each axis.
    """

    image: Tracer
    mode: str
    padded: str = ""
    dtype: np.dtype[Any] = DOUBLE
    before: tuple[Poly, ...] = ()

    @classmethod
    def of(
        cls, image: Tracer, mode: str, cval: Any, before: Sequence[int], after: Sequence[int], dtype: Any = None
    ) -> Extended:
        """`image` readable `before` elements ahead of each axis and `after` elements past it, the border in `dtype`."""
        if mode != "constant" or (not any(before) and not any(after)):
            return cls(image, "clamp" if mode == "constant" else mode, dtype=image.dtype)
        rec = current()
        if dtype is None:
            dtype = image.dtype if holds(image.dtype, cval) else np.dtype(np.result_type(image.dtype, DOUBLE))
        sizes, ahead, past = rec.polys(image.shape), tuple(map(size_poly, before)), tuple(map(size_poly, after))
        shape = tuple(n + b + a for n, b, a in zip(sizes, ahead, past, strict=True))
        inside = tuple(p + b for p, b in zip(identity(image.ndim), ahead, strict=True))
        interior = Definition(sizes, (), inside, cast(image.load(), dtype))
        stage = rec.stage(Const(cval, dtype), shape, dtype, (interior,), name="padded")
        return cls(image, mode, stage.name, dtype, ahead)

    def at(self, offsets: Sequence[int | Poly]) -> Expr:
        """The element `offsets` away from the one at the iteration dimensions."""
        index = [poly(Dim(k)) + o for k, o in enumerate(offsets)]
        if self.padded:
            return Load(self.padded, tuple(i + b for i, b in zip(index, self.before, strict=True)), self.dtype)
        sizes = current().polys(self.image.shape)
        here = [
            p if isinstance(o, int) and o == 0 else boundary(self.mode, p, n)
            for p, o, n in zip(index, offsets, sizes, strict=True)
        ]
        return self.image.at(here)


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Is `value` exactly a number of `dtype`?"""
    with np.errstate(all="ignore"):
        return bool(
            np.array_equal(
                np.asarray(value).astype(dtype).astype(DOUBLE), np.asarray(value, DOUBLE), equal_nan=dtype.kind == "f"
            )
        )


def _line(axis: int, ndim: int, offset: int | Poly) -> list[int | Poly]:
    return [offset if k == axis else 0 for k in range(ndim)]


def store(output: Tracer, value: Expr, safe: bool = True) -> None:
    """``output[...] = value`` with C's conversion of numbers; `safe`: see `converted`.

    What C writes to a bool array is a byte, and a filter that reads it reads that byte.
    """
    if not output.writeable:
        raise ValueError("output array is read-only")
    if output.dtype != BOOL or value.dtype == BOOL:
        update(output, converted(value, output.dtype, safe))
        return
    octets = from_stage(converted(value, np.dtype(np.uint8)), output.shape, np.uint8)
    update(output, cast(octets.load(), BOOL))
    if output.is_whole:
        output.buffer.octets = output.buffer.version, octets


def source(image: Any) -> Tracer:
    """An image as C reads it: of a bool array that a filter has written, its bytes."""
    t = as_tracer(image)
    octets = t.buffer.octets
    return octets[1] if octets is not None and octets[0] == t.buffer.version and t.is_whole else t


def converted(e: Expr, dtype: np.dtype[Any], safe: bool = True) -> Expr:
    """C's conversion of a number on this machine, which for uint32 is not NumPy's: modulo 2**32.

    Filters of several axes are `safe`: they convert ``-x`` and negate it where `x` is negative, which matters beyond the range of uint64.
    """
    if e.dtype.kind == "f" and dtype == np.uint32:
        return cast(cast(e, np.int64), dtype)
    if e.dtype.kind == "f" and dtype == np.uint64 and safe:
        negated = Op("subtract", (Const(0, dtype), cast(Op("negative", (e,), e.dtype), dtype)), dtype)
        return select(_less(Const(-1, e.dtype), e), cast(e, dtype), negated)
    return cast(e, dtype)


def _add(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), a.dtype)


def _times(a: Expr, b: Expr) -> Expr:
    return Op("multiply", (a, b), a.dtype)


def _less(a: Expr, b: Expr) -> Expr:
    return Op("less", (a, b), BOOL)


# -- correlation


def _accumulator(image: Tracer, weights: np.ndarray[Any, Any] | None, output: Tracer, cval: Any) -> np.dtype[Any]:
    """int32 where sums of products are exact in it and end as integers, else double."""
    whole = image.dtype.kind in "biu" and image.dtype.itemsize <= 2 and output.dtype.kind in "biu"
    if whole and weights is not None and np.array_equal(weights, np.rint(weights)) and holds(np.dtype(np.int16), cval):
        if float(np.abs(weights).sum()) * 2.0**16 < 2.0**31:
            return np.dtype(np.int32)
    return DOUBLE


def correlate1d(image: Any, weights: Any, axis: int, output: Tracer, mode: int, cval: Any, origin: int) -> None:
    """One axis. Kernels that are symmetric or antisymmetric to the last bit but one are folded first, as in SciPy."""
    image, w = source(image), as_tracer(weights)
    n, cval, origin, boundary = int(w.shape[0]), float(unpin(cval)), operator.index(unpin(origin)), MODES[unpin(mode)]
    left = n // 2
    right = n - left - 1
    symmetry = _symmetry(w, n)
    before, after = (_padding(axis, image.ndim, p) for p in (left + origin, right - origin))
    near = Extended.of(image, boundary, cval, before, after)
    work = _accumulator(image, w.known, output, cval)

    def tap(j: int | Poly) -> Expr:
        return cast(near.at(_line(axis, image.ndim, j - origin)), work)

    def weight(j: int) -> Expr:
        if w.known is not None:
            return Const(w.known[left + j], work)
        return w.at((poly(left + j),))

    def folded(j: int | Poly) -> Expr:
        if not symmetry:
            return tap(j)
        return Op("add" if symmetry > 0 else "subtract", (tap(j), tap(-j)), work)

    first, last = (0, 0) if symmetry else (right, right)
    total = _times(tap(first), weight(first))
    if n <= MAX_LINE_TAPS:
        for j in range(-left, last):
            total = _add(total, _times(folded(j), weight(j)))
        store(output, total, safe=False)
        return
    r = poly(Dim(image.ndim))
    total = _reduced(image, total, (last + left,), lambda: _times(folded(r - left), cast(w.at((r,)), work)))
    store(output, total, safe=False)


def _padding(axis: int, ndim: int, n: int) -> list[int]:
    return [n if k == axis else 0 for k in range(ndim)]


def _symmetry(w: Tracer, n: int) -> int:
    """1 for a symmetric kernel of odd length, -1 for an antisymmetric one, else 0."""
    if not n & 1:
        return 0
    if w.known is not None:
        ahead, behind = w.known[n // 2 + 1 :], w.known[: n // 2][::-1]
        return (
            1 if np.all(np.abs(ahead - behind) <= EPSILON) else -1 if np.all(np.abs(ahead + behind) <= EPSILON) else 0
        )
    if n == 1:
        return 1
    front, back = w[n // 2 + 1 :], w[: n // 2][::-1]
    return 1 if bool((abs(front - back) <= EPSILON).all()) else -1 if bool((abs(front + back) <= EPSILON).all()) else 0


def _reduced(
    image: Tracer,
    start: Expr,
    extents: tuple[int, ...],
    term: Callable[[], Expr],
    order: str = "sequential",
    name: str = "add",
) -> Expr:
    """The sum (or another `name`) of `term` over reduction dimensions, as a load of a stage of its own."""
    rec = current()
    stage, here = rec.reserve("sum"), identity(image.ndim)
    value = Op(name, (Load(stage, here, start.dtype), term()), start.dtype)
    sizes = rec.polys(image.shape)
    rec.stage(
        start, sizes, start.dtype, (Definition(sizes, tuple(map(poly, extents)), here, value, order),), reserved=stage
    )
    return Load(stage, here, start.dtype)


def _box(shape: Sequence[int], origins: Sequence[Any]) -> tuple[list[int], list[int]]:
    """How far a window of `shape` reaches ahead and past an element."""
    ahead = [int(n) // 2 + operator.index(unpin(o)) for n, o in zip(shape, origins, strict=True)]
    return ahead, [int(n) - 1 - a for n, a in zip(shape, ahead, strict=True)]


def correlate(image: Any, weights: Any, output: Tracer, mode: int, cval: Any, origins: Sequence[int]) -> None:
    """All axes: products are added in the order of the kernel's elements; weights of zero take no part."""
    image, w = source(image), as_tracer(weights)
    cval = float(unpin(cval))
    ahead, past = _box(w.shape, origins)
    near = Extended.of(image, MODES[unpin(mode)], cval, ahead, past)
    work = _accumulator(image, w.known, output, cval)
    zero = Const(0, work)

    def product(tap: Sequence[Any]) -> Expr:
        x = cast(near.at([t - a for t, a in zip(tap, ahead, strict=True)]), work)
        if w.known is not None and all(isinstance(t, int) for t in tap):
            return _times(x, Const(w.known[tuple(tap)], work))
        weight = cast(w.at(tuple(map(poly, tap))), work)
        used = _less(Const(EPSILON, DOUBLE), Op("absolute", (cast(weight, DOUBLE),), DOUBLE))
        return select(used, _times(x, weight), zero)

    shape = tuple(map(int, w.shape))
    taps = [t for t in itertools.product(*map(range, shape)) if w.known is None or abs(w.known[t]) > EPSILON]
    if len(taps) > MAX_TAPS:
        store(
            output,
            _reduced(image, zero, shape, lambda: product([poly(Dim(image.ndim + k)) for k in range(image.ndim)])),
        )
        return
    total: Expr = zero
    for t in taps:
        total = product(t) if total is zero and work != DOUBLE else _add(total, product(t))
    store(output, total)


def uniform_filter1d(image: Any, size: int, axis: int, output: Tracer, mode: int, cval: Any, origin: int) -> None:
    """The mean of a window; SciPy keeps a running sum, which for floats rounds otherwise in the last digits."""
    image, size, cval = source(image), operator.index(unpin(size)), float(unpin(cval))
    (ahead,), (past,) = _box((size,), (origin,))
    near = Extended.of(
        image, MODES[unpin(mode)], cval, _padding(axis, image.ndim, ahead), _padding(axis, image.ndim, past)
    )
    exact = image.dtype.kind in "biu" and image.dtype.itemsize <= 4 and holds(np.dtype(np.int16), cval)
    work = DOUBLE if not exact else np.dtype(np.int32 if image.dtype.itemsize <= 2 and size < 2**15 else np.int64)

    def tap(j: Any) -> Expr:
        return cast(near.at(_line(axis, image.ndim, j - ahead)), work)

    if size <= MAX_LINE_TAPS:
        total = functools.reduce(_add, map(tap, range(size)))
    else:
        total = _reduced(image, Const(0, work), (size,), lambda: tap(poly(Dim(image.ndim))), "add")
    total = cast(total, DOUBLE)
    store(
        output,
        Op("true_divide", (total if exact else Op("reordered", (total,), DOUBLE), Const(size, DOUBLE)), DOUBLE),
        safe=False,
    )


# -- order statistics


def _native(image: Tracer, cval: Any) -> np.dtype[Any]:
    """The dtype in which lines are compared, which C does as doubles: the image's, where double holds all its numbers."""
    if holds(image.dtype, cval):
        return _compared(np.dtype(np.uint8) if image.dtype == BOOL else image.dtype)
    return DOUBLE


def _compared(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" or dtype.itemsize < 8 else DOUBLE


def _as_c(dtype: np.dtype[Any], cval: Any) -> tuple[np.dtype[Any], Any]:
    """The dtype that C has for elements of `dtype`, and the border's value in it."""
    dtype = np.dtype(np.uint8) if dtype == BOOL else dtype
    value = converted(Const(float(unpin(cval)), DOUBLE), dtype, safe=False)
    assert isinstance(value, Const)
    return dtype, value.value


def min_or_max_filter1d(
    image: Any, size: int, axis: int, output: Tracer, mode: int, cval: Any, origin: int, minimum: int
) -> None:
    image, size, cval = source(image), operator.index(unpin(size)), float(unpin(cval))
    (ahead,), (past,) = _box((size,), (origin,))
    near = Extended.of(
        image, MODES[unpin(mode)], cval, _padding(axis, image.ndim, ahead), _padding(axis, image.ndim, past)
    )
    work, name = _native(image, cval), "minimum" if minimum else "maximum"

    def tap(j: Any) -> Expr:
        return cast(near.at(_line(axis, image.ndim, j - ahead)), work)

    if size <= MAX_LINE_TAPS:
        store(output, functools.reduce(lambda a, b: Op(name, (a, b), work), map(tap, range(size))), safe=False)
        return
    start = Const(start_value(name, work), work)
    store(output, _reduced(image, start, (size,), lambda: tap(poly(Dim(image.ndim))), name, name), safe=False)


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
    known = _pattern(footprint)
    ahead, past = _box(known.shape, origins)
    element, cval = _as_c(image.dtype, cval)
    near = Extended.of(image, MODES[unpin(mode)], cval, ahead, past)
    heights = None if structure is None else as_tracer(structure)
    work = _compared(element) if heights is None else DOUBLE
    best: Expr | None = None
    for t in map(tuple, np.argwhere(known)):
        x = cast(near.at([int(i) - a for i, a in zip(t, ahead, strict=True)]), element)
        if heights is not None:
            height = (
                Const(heights.known[t], DOUBLE)
                if heights.known is not None
                else heights.at(tuple(poly(int(i)) for i in t))
            )
            height = Op("negative", (height,), DOUBLE) if minimum else height
            # C adds the first height to a double, and all others to a number of the image's type, which may wrap around
            x = _add(cast(x, DOUBLE), height) if best is None else _add(x, converted(height, element, safe=False))
        x = cast(x, work)
        if best is None:
            best = x
        elif work.kind == "f":  # NaN never wins a comparison
            best = select(_less(x, best) if minimum else _less(best, x), x, best)
        else:
            best = Op("minimum" if minimum else "maximum", (best, x), work)
    assert best is not None
    store(output, best)


def _pattern(x: Any) -> np.ndarray[Any, Any]:
    """The truth values of a footprint. Where it is an argument or captured, they are decided now and guarded, 32 at a time."""
    t = as_tracer(x)
    if t.known is not None:
        return t.known.astype(bool)
    flat, bits = t.astype(bool).astype(np.int64).reshape(-1), from_known(1 << np.arange(32))
    words = [
        int(as_value(call(np.sum, flat[k : k + 32] * bits[: min(32, int(t.size) - k)])))
        for k in range(0, int(t.size), 32)
    ]
    return np.array([w >> k & 1 for w in words for k in range(32)][: int(t.size)], bool).reshape(t.shape)


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
    """The element of a given rank under a footprint, by a network of minima and maxima."""
    image = source(image)
    known = _pattern(footprint)
    element, cval = _as_c(image.dtype, cval)
    ahead, past = _box(known.shape, origins)
    taps = np.argwhere(known)
    if len(taps) > MAX_RANKED:
        raise current().error(
            "scipy.ndimage rank or median filter",
            f"a window of {len(taps)} elements; up to {MAX_RANKED} are compiled",
            "use a smaller window",
        )
    near = Extended.of(image, MODES[unpin(mode)], cval, ahead, past)
    work = element if exact else _compared(element)
    wires = [cast(near.at([int(i) - a for i, a in zip(t, ahead, strict=True)]), work) for t in taps]
    store(output, ranked(wires, operator.index(unpin(rank))))


def rank_filter_1d(image: Any, rank: int, size: int, output: Tracer, mode: int, cval: Any, origin: Any) -> None:
    """SciPy's sliding median of a 1-d signal, which compares int64 as they are."""
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
    known = _pattern(structure)
    ahead, past = _box(known.shape, origin)
    truth = cast(image.load(), BOOL)
    near = Extended.of(image, "constant", int(bool(unpin(border))), ahead, past)
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


# -- registration


def known_first(real: Any, traced: Callable[..., Any]) -> Callable[..., Any]:
    """Let SciPy itself compute where all arrays are known; the last array among the arguments is what it writes."""

    @functools.wraps(traced)
    def method(*args: Any) -> Any:
        arrays = [x for x in args if is_tracer(x)]
        if any(x.known is None for x in arrays):
            return traced(*args)
        result = real(*(x.known if is_tracer(x) else int(x) if type(x) is Size else unpin(x) for x in args))
        for x in arrays:
            root = x.buffer.root
            current().changes.append((root, root.version, True))
            root.version = ""
        return from_known(result) if isinstance(result, np.ndarray) else result

    return method


def decided(real: types.FunctionType, argument: str) -> Callable[..., Any]:
    """SciPy's function with one of its arguments known."""
    signature = inspect.signature(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        bound_args = signature.bind(*args, **kwargs)
        x = bound_args.arguments.get(argument)
        if x is not None:
            bound_args.arguments[argument] = from_known(_pattern(x))
        return hook("clone")(real)(*bound_args.args, **bound_args.kwargs)

    return method


def gaussian_weights(real: Callable[..., Any]) -> Callable[..., Any]:
    """The weights are numbers: what they are made of is pinned."""

    def method(sigma: Any, order: Any, radius: Any) -> Tracer:
        return from_known(real(*(as_number(v) for v in (sigma, order, radius))))

    return method


def as_number(x: Any) -> Any:
    """A plain number from a host scalar or a one-element array."""
    return as_value(x).item() if is_tracer(x) else int(x) if type(x) is Size else unpin(x)


def opaque(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of SciPy that runs as it is, at every call."""

    writes = foreign(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        if any(is_tracer(kwargs.get(word)) for word in OUTPUTS):
            return writes.extern(args, kwargs)
        return opaque_call(name, real, args, kwargs)

    return method


OUTPUTS = ("output", "distances", "indices")  # arrays that SciPy is given to write to
KERNELS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        correlate1d,
        correlate,
        uniform_filter1d,
        min_or_max_filter1d,
        min_or_max_filter,
        rank_filter,
        binary_erosion,
        binary_erosion2,
    )
}
OPAQUE = """affine_transform map_coordinates rotate shift zoom spline_filter spline_filter1d geometric_transform generic_filter generic_filter1d
binary_fill_holes binary_propagation distance_transform_bf distance_transform_cdt distance_transform_edt label sum_labels mean median variance
standard_deviation minimum maximum minimum_position maximum_position extrema center_of_mass histogram watershed_ift find_objects value_indices
fourier_gaussian fourier_uniform fourier_ellipsoid fourier_shift""".split()


def _refused(name: str) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        raise current().error(f"scipy.ndimage ({name})", "this filter is not compiled")

    return method


def register() -> None:
    """Take over SciPy's C functions, and run as they are the functions that no kernel computes."""
    compiled = importlib.import_module("scipy.ndimage._nd_image")
    for name, real in vars(compiled).items():
        if callable(real):
            traced = KERNELS.get(name)
            implements(real)(known_first(real, traced) if traced else _refused(name))
    filters = importlib.import_module("scipy.ndimage._filters")
    implements(filters._gaussian_kernel1d)(gaussian_weights(filters._gaussian_kernel1d))
    lines = getattr(filters, "_rank_filter_1d", None)
    if lines is not None:
        implements(lines.rank_filter)(known_first(lines.rank_filter, rank_filter_1d))
    morphology = importlib.import_module("scipy.ndimage._morphology")
    for real in (filters._rank_filter, filters._min_or_max_filter):
        implements(real)(decided(real, "footprint"))
    implements(morphology._binary_erosion)(decided(morphology._binary_erosion, "structure"))
    public = importlib.import_module("scipy.ndimage")
    for name in OPAQUE:
        real = getattr(public, name, None)
        if real is not None and real not in functions():
            implements(real)(opaque(f"scipy.ndimage.{name}", real))


try:
    register()
except ImportError:  # without SciPy there is nothing to take over
    pass
