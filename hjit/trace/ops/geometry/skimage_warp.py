"""skimage.transform's compiled `_warp_fast`, bilinear: an image seen through a homography, as gathers.

The arithmetic is that of its Cython code for the image's dtype, in the order of its operations: coordinates in that
dtype, sums in double precision. All other orders are extern calls.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ir.poly import Indirect, poly
from hjit.trace.ops.arguments import shape_of
from hjit.trace.ops.geometry.coordinates import inside
from hjit.trace.ops.geometry.interpolation import along
from hjit.trace.ops.geometry.ndimage_transforms import given_by, is_number, is_real
from hjit.trace.ops.stencils.ndimage_access import DOUBLE, add, times
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_stage, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.scalars.host import static_value


def _reflect(k: Any, n: Any) -> Any:
    if int(n) == 1:
        return k * 0.0
    k = k - np.floor(k / (2 * n - 2)) * (2 * n - 2)
    return np.where(k > n - 1, 2 * n - 2 - k, k)


def _symmetric(k: Any, n: Any) -> Any:
    k = k - np.floor(k / (2 * n)) * (2 * n)
    return np.where(k > n - 1, 2 * n - 1 - k, k)


# from whole coordinates in double precision, and the length of the axis
MODES: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda k, n: k,
    "edge": lambda k, n: k,
    "wrap": lambda k, n: k - np.floor(k / n) * n,
    "reflect": _reflect,
    "symmetric": _symmetric,
}


def is_compiled(given: dict[str, Any], dtype: np.dtype[Any]) -> bool:
    """Is a call of `_warp_fast` a gather? It is asked before anything is recorded."""
    image, matrix, shape = given["image"], given["H"], given["output_shape"]
    if not (is_real(image) and image.known is None and image.ndim == 2 and image.dtype == dtype):
        return False
    is_matrix = (is_real(matrix) or type(matrix) is np.ndarray) and matrix.dtype == dtype
    if not (is_matrix and tuple(matrix.shape) == (3, 3) and (shape is None or is_shape(shape))):
        return False
    if any(n <= 0 for n in (*image.shape, *sizes_of(image, shape))) or static_value(given["order"]) != 1:
        return False
    return static_value(given["mode"]) in MODES and is_number(given["cval"])


def is_shape(x: Any) -> bool:
    """Whole numbers that are known, the first two of which count?"""
    if is_tracer(x):
        return x.known is not None and x.known.ndim == 1 and x.known.size > 1 and x.known.dtype.kind in "iu"
    return type(x) in (list, tuple) and len(x) > 1 and all(isinstance(n, (int, np.integer)) for n in x)


def sizes_of(image: Tracer, shape: Any) -> Shape:
    """The shape of the result."""
    return image.shape if shape is None else shape_of(shape)[:2]


def coordinates(matrix: Tracer, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Row and column of the image for each element of the result, in `dtype`."""
    y, x = (along(k, 2, n).astype(dtype) for k, n in enumerate(shape))

    def row(k: int) -> Any:
        return matrix[k, 0] * x + matrix[k, 1] * y + matrix[k, 2]

    if matrix.known is not None and np.array_equal(matrix.known[2], [0, 0, 1]):
        return row(1), row(0)
    z = row(2)
    return row(1) / z, row(0) / z


def bilinear(image: Tracer, where: tuple[Any, Any], shape: Shape, mode: str, cval: float) -> Tracer:
    """The image between its elements; a border of `cval` around it in mode "constant"."""
    dtype = image.dtype
    ends = []
    for x, n in zip(where, image.shape, strict=True):
        ends.append([(_index(k, n, mode), inside(k, n)) for k in (np.floor(x), np.ceil(x))])
    rows, columns = ends

    def element(row: tuple[Tracer, Tracer], column: tuple[Tracer, Tracer]) -> Expr:
        value: Expr = image.at([poly(Indirect(index.load(shape), None)) for index, _ in (row, column)])
        if mode == "constant":
            for _, is_inside in (row, column):
                value = select(is_inside.load(shape), value, Const(cval, dtype))
        return value

    after_row, after_column = ((x - np.floor(x)).load(shape) for x in where)
    top, bottom = (between(after_column, element(r, columns[0]), element(r, columns[1])) for r in rows)
    return from_stage(cast(between(after_row, top, bottom), dtype), shape, dtype)


def _index(k: Any, n: Any, mode: str) -> Any:
    """Of a whole coordinate; always one of the axis."""
    return np.maximum(np.minimum(MODES[mode](k.astype(np.float64), n).astype(np.int64), n - 1), 0)


def between(t: Expr, a: Expr, b: Expr) -> Expr:
    """``(1 - t) * a + t * b`` as C has it: 1 is a double, the second product has the wider dtype of its factors."""
    wide = np.result_type(t.dtype, b.dtype)
    rest = Op("subtract", (Const(1.0, DOUBLE), cast(t, DOUBLE)), DOUBLE)
    return add(times(rest, cast(a, DOUBLE)), cast(times(cast(t, wide), cast(b, wide)), DOUBLE))


def compiled(real: Any, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """`_warp_fast` of one dtype."""
    signature = inspect.signature(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return foreign(real).extern(args, kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if not is_compiled(given, dtype):
            return foreign(real).extern(args, kwargs)
        image = given["image"]
        matrix, shape = as_tracer(given["H"]), sizes_of(image, given["output_shape"])
        where = coordinates(matrix if matrix.known is None else given_by(matrix.known), shape, dtype)
        return bilinear(image, where, shape, static_value(given["mode"]), float(static_value(given["cval"])))

    return method


def register() -> None:
    """Take `_warp_fast` over."""
    warp = importlib.import_module("skimage.transform._warps_cy")._warp_fast
    for name, dtype in (("float32_t", np.dtype(np.float32)), ("float64_t", DOUBLE)):
        implements(warp[name])(compiled(warp[name], dtype))


try:
    register()
except (ImportError, AttributeError, KeyError, TypeError, ValueError):  # another version of scikit-image
    pass
