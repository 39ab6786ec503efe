"""scipy.ndimage's geometric transforms: shift, zoom, affine_transform, rotate and map_coordinates.

SciPy's Python source is traced, and its C functions are gathers, for real images of up to three axes in the orders 0,
1 and 3; `splines` filters the images. All other forms are extern calls.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.geometry.interpolation import geometric_transform, zoom_shift
from hjit.trace.ops.limits import MAX_PLANES
from hjit.trace.ops.stencils.ndimage import as_number, by_source, known_first, refused
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_known, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import is_host, static_value

Given = dict[str, Any]  # arguments by name, with the defaults
MODES = ("nearest", "wrap", "reflect", "grid-mirror", "mirror", "constant", "grid-wrap", "grid-constant")


def is_real(x: Any) -> bool:
    """A traced array of real numbers that SciPy interpolates?"""
    return is_tracer(x) and type(x) is not ComplexTracer and x.dtype.kind in "biuf" and x.dtype != np.float16


def is_number(x: Any) -> bool:
    """A real number, of the caller or of the code?"""
    return isinstance(x.value if is_host(x) else x, (bool, int, float, np.integer, np.floating))


def are_numbers(x: Any) -> bool:
    """A number, a list of numbers or an array of them along one axis?"""
    if is_tracer(x):
        return is_real(x) and x.ndim <= 1
    if type(x) in (list, tuple):
        return all(is_number(y) or (is_real(y) and not y.shape) for y in x)
    return is_number(x)


def is_compiled(given: Given) -> bool:
    """Is this form of a transform a gather? It is asked before anything is recorded."""
    image, mode = given["input"], static_value(given["mode"])
    if not (_is_interpolated(image, given["order"]) and image.known is None):
        return False
    return type(mode) is str and mode in MODES and is_number(given["cval"]) and _is_output(given["output"], image)


def _is_interpolated(image: Any, order: Any) -> bool:
    """Is an image read as gathers read it?"""
    if not (is_real(image) and 1 <= image.ndim <= 3 and _all_filled(image)):
        return False
    order = static_value(order)
    return type(order) is int and order in (0, 1, 3)


def _all_filled(x: Tracer) -> bool:
    return all(n > 0 for n in x.shape)


def _is_output(output: Any, image: Tracer) -> bool:
    """Does SciPy write an array of its own, or another one than it reads?"""
    if is_tracer(output):
        return is_real(output) and output.buffer.root is not image.buffer.root and _all_filled(output)
    if output is None:
        return True
    try:
        dtype = np.dtype(output)
    except TypeError:
        return False
    return dtype.kind in "biuf" and dtype.isnative and dtype != np.float16 and supported_dtype(dtype)


def _shift(given: Given) -> bool:
    return are_numbers(given["shift"])


def _factor(x: Any) -> float:
    """A number, which may be computed of sizes or of the caller's numbers; NaN for what is none."""
    if is_tracer(x):
        return float(as_number(x)) if is_real(x) and not x.shape else np.nan
    return float(static_value(x)) if is_number(x) else np.nan


def _zoom(given: Given) -> bool:
    """Its factors give the output's shape, so that they are decided; a zoom by 1 copies."""
    factors, shape = given["zoom"], given["input"].shape
    if is_tracer(factors) and factors.ndim == 1:
        factors = list(factors)
    many = list(map(_factor, factors)) if type(factors) in (list, tuple) else [_factor(factors)] * len(shape)
    if len(many) != len(shape) or not all(np.isfinite(z) and z > 0 for z in many) or all(z == 1 for z in many):
        return False
    given["zoom"] = many
    surprising = given["grid_mode"] and static_value(given["mode"]) in ("constant", "wrap")  # SciPy warns
    return not surprising and all(round(int(n) * z) > 0 for n, z in zip(shape, many, strict=True))


def _affine(given: Given) -> bool:
    matrix, shape = given["matrix"], given["output_shape"]
    if type(matrix) in (list, tuple):
        matrix = as_tracer(matrix)
    is_shape = shape is None or (type(shape) in (list, tuple) and all(isinstance(n, (int, np.integer)) for n in shape))
    is_filled = shape is None or all(n > 0 for n in shape) if is_shape else False
    return is_filled and is_real(matrix) and matrix.ndim in (1, 2) and are_numbers(given["offset"])


def _coordinates(given: Given) -> bool:
    where = given["coordinates"]
    if type(where) in (list, tuple):
        where = given["coordinates"] = as_tracer(where)
    return is_real(where) and where.ndim > 1 and _all_filled(where)


def _rotate(given: Given) -> bool:
    """Planes of an image of three axes are rotated one by one."""
    axes, shape = given["axes"], given["input"].shape
    if not is_number(given["angle"]) or type(axes) not in (list, tuple) or not all(map(is_number, axes)):
        return False
    if len(shape) < 2 or len(axes) != 2 or any(not -len(shape) <= static_value(a) < len(shape) for a in axes):
        return False
    plane = {int(static_value(a)) % len(shape) for a in axes}
    return len(plane) == 2 and all(k in plane or n <= MAX_PLANES for k, n in enumerate(shape))


def as_gathers(fits: Callable[[Given], bool]) -> Callable[[Given], bool]:
    """Is a form of a transform compiled, which `fits` says, too? What its source decides on is then static."""

    def method(given: Given) -> bool:
        if not (is_compiled(given) and fits(given)):
            return False
        for word in ("order", "mode", "cval", "prefilter", "zoom", "angle", "axes", "reshape", "grid_mode"):
            if word in given:
                given[word] = _static(given[word])
        return True

    return method


def c_function(real: Any, traced: Callable[..., Any]) -> Callable[..., Any]:
    """A C function of SciPy, which its Python source calls in all forms; those that are no gathers are refused."""
    names = tuple(inspect.signature(traced).parameters)
    refuse = refused(real.__name__)

    def method(*args: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        image, output = given["image"], given["output"]
        knows_places = given.get("function") is None  # else Python gives them, one by one
        is_gather = knows_places and _is_interpolated(image, given["order"]) and is_number(given["cval"])
        return (traced if is_gather and is_tracer(output) and _is_output(output, image) else refuse)(*args)

    return known_first(real, method)


def rotation() -> Callable[..., Any]:
    """SciPy's `rotate`: an affine transform of each plane, its numbers computed as SciPy's source does.

    Neither the angle nor the sizes are part of the kernel.
    """
    affine = importlib.import_module("scipy.ndimage").affine_transform
    special = importlib.import_module("scipy.special")
    support = importlib.import_module("scipy.ndimage._ni_support")

    def method(
        image: Any, angle: Any, axes: Any, reshape: Any, output: Any, order: Any, mode: Any, cval: Any, prefilter: Any
    ) -> Any:
        rec, plane = current(), sorted(int(a) % image.ndim for a in axes)
        c, s = special.cosdg(angle), special.sindg(angle)
        matrix = np.array([[c, s], [-s, c]])
        size = np.array([int(image.shape[k]) for k in plane])
        shape = list(image.shape)
        rotated = size
        if reshape:
            corners = matrix @ [[0, 0, size[0], size[0]], [0, size[1], 0, size[1]]]
            rotated = (np.ptp(corners, axis=1) + 0.5).astype(int)
            for k, n in zip(plane, rotated, strict=True):
                shape[k] = rec.size(rec.poly(int(n)))
        offset = (size - 1) / 2 - matrix @ ((rotated - 1) / 2)
        output = forward.clone(support._get_output)(output, image, shape=tuple(shape))
        rest = (order, mode, cval, prefilter)
        others = [range(int(n)) if k not in plane else [slice(None)] for k, n in enumerate(image.shape)]
        for place in itertools.product(*others):
            part = output[place]
            forward.clone(affine)(image[place], given_by(matrix), given_by(offset), tuple(part.shape), part, *rest)
        return output

    return method


def given_by(numbers: np.ndarray[Any, Any]) -> Tracer:
    """Numbers that are known while tracing, but that a kernel reads."""
    found = from_known(numbers)
    found.buffer.of_sizes = True
    return found


def _static(x: Any) -> Any:
    return type(x)(map(_static, x)) if type(x) in (list, tuple) else static_value(x)


FITS = {
    "shift": _shift,
    "zoom": _zoom,
    "affine_transform": _affine,
    "map_coordinates": _coordinates,
    "rotate": _rotate,
}


def register() -> None:
    """Take the transforms over."""
    public, c = importlib.import_module("scipy.ndimage"), importlib.import_module("scipy.ndimage._nd_image")
    for name, fits in FITS.items():
        real = getattr(public, name)
        traced = rotation if name == "rotate" else None
        implements(real)(by_source(f"scipy.ndimage.{name}", real, as_gathers(fits), traced))
    implements(c.zoom_shift)(c_function(c.zoom_shift, zoom_shift))
    implements(c.geometric_transform)(c_function(c.geometric_transform, geometric_transform))


try:
    register()
except ImportError:  # without SciPy there is nothing to take over
    pass
