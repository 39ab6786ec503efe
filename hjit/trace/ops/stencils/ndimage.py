"""scipy.ndimage: SciPy's Python source is traced, its C functions are replaced; all others are extern calls.

So argument checks, the order of the axis passes and the rounding to the output's dtype after each pass are SciPy's.
A filter is one write of its output: an expression over shifted loads, or a reduction where there are many taps.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ops.stencils import ndimage_labels
from hjit.trace.ops.stencils.ndimage_access import footprint_of
from hjit.trace.ops.stencils.ndimage_correlation import correlate, correlate1d, uniform_filter1d
from hjit.trace.ops.stencils.ndimage_ranks import (
    binary_erosion,
    binary_erosion2,
    min_or_max_filter,
    min_or_max_filter1d,
    rank_filter,
    rank_filter_1d,
)
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import Tracer, as_value, from_known, is_tracer
from hjit.trace.tracing.dispatch import functions, implements
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import Size

# -- registration


def known_first(real: Any, traced: Callable[..., Any]) -> Callable[..., Any]:
    """Let SciPy itself compute where all arrays are known; the last array among the arguments is what it writes."""

    @functools.wraps(traced)
    def method(*args: Any) -> Any:
        arrays = [x for x in args if is_tracer(x)]
        if any(x.known is None for x in arrays):
            return traced(*args)
        result = real(*(x.known if is_tracer(x) else int(x) if type(x) is Size else static_value(x) for x in args))
        for x in arrays:
            root = x.buffer.root
            current().changes.append((root, root.version, root.contents))
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
            bound_args.arguments[argument] = from_known(footprint_of(x))
        return forward.clone(real)(*bound_args.args, **bound_args.kwargs)

    return method


def until_it_stays(real: types.FunctionType) -> Callable[..., Any]:
    """Binary erosion: a number of times; where it is repeated until nothing changes, by SciPy."""
    signature = inspect.signature(real)
    traced = decided(real, "structure")

    def method(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if isinstance(given["iterations"], (int, np.integer)) and static_value(given["iterations"]) < 1:
            return extern("scipy.ndimage.binary_erosion", real)(**given)
        return traced(*args, **kwargs)

    return method


def gaussian_weights(real: Callable[..., Any]) -> Callable[..., Any]:
    """The weights are numbers: what they are made of is static."""

    def method(sigma: Any, order: Any, radius: Any) -> Tracer:
        is_numpys = is_tracer(sigma) and not sigma.weak  # a float32 one squares in single precision
        return from_known(real(as_value(sigma) if is_numpys else as_number(sigma), as_number(order), as_number(radius)))

    return method


def as_number(x: Any) -> Any:
    """A plain number from a host scalar or a one-element array."""
    return as_value(x).item() if is_tracer(x) else int(x) if type(x) is Size else static_value(x)


def extern(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of SciPy that runs as it is, at every call."""

    writes = foreign(real)

    def method(*args: Any, **kwargs: Any) -> Any:
        if any(is_tracer(kwargs.get(word)) for word in OUTPUTS):
            return writes.extern(args, kwargs)
        return extern_call(name, real, args, kwargs)

    return method


def by_source(
    name: str,
    real: Callable[..., Any],
    fits: Callable[[dict[str, Any]], bool],
    traced: Callable[[], Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """A function of SciPy through its source, where its arguments fit; else as it is.

    Args:
        fits: of the arguments by name, with the defaults; it may change them.
        traced: makes what is called in place of the source.
    """
    signature, as_it_is = inspect.signature(real), extern(name, real)

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return as_it_is(*args, **kwargs)
        bound.apply_defaults()
        if not fits(bound.arguments):
            return as_it_is(*args, **kwargs)
        return (forward.clone(real) if traced is None else traced())(*bound.args, **bound.kwargs)

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
EXTERNS = """affine_transform map_coordinates rotate shift zoom geometric_transform
    generic_filter generic_filter1d binary_fill_holes binary_propagation distance_transform_bf distance_transform_cdt
    distance_transform_edt label median minimum_position
    maximum_position extrema center_of_mass histogram watershed_ift find_objects value_indices fourier_gaussian
    fourier_uniform fourier_ellipsoid fourier_shift""".split()


def refused(name: str) -> Callable[..., Any]:
    """A C function of SciPy, or a form of one, that no kernel computes."""

    def method(*args: Any, **kwargs: Any) -> Any:
        raise current().error(f"scipy.ndimage ({name})", "this filter is not compiled")

    return method


def register() -> None:
    """Take over SciPy's C functions, and run as they are the functions that no kernel computes."""
    compiled = importlib.import_module("scipy.ndimage._nd_image")
    for name, real in vars(compiled).items():
        if callable(real):
            traced = KERNELS.get(name)
            implements(real)(known_first(real, traced) if traced else refused(name))
    filters = importlib.import_module("scipy.ndimage._filters")
    implements(filters._gaussian_kernel1d)(gaussian_weights(filters._gaussian_kernel1d))
    lines = getattr(filters, "_rank_filter_1d", None)
    if lines is not None:
        implements(lines.rank_filter)(known_first(lines.rank_filter, rank_filter_1d))
    morphology = importlib.import_module("scipy.ndimage._morphology")
    for real in (filters._rank_filter, filters._min_or_max_filter):
        implements(real)(decided(real, "footprint"))
    implements(morphology._binary_erosion)(until_it_stays(morphology._binary_erosion))
    public = importlib.import_module("scipy.ndimage")
    for name in ndimage_labels.STATISTICS:
        real, traced = getattr(public, name), functools.partial(ndimage_labels.STATISTICS.__getitem__, name)
        implements(real)(by_source(f"scipy.ndimage.{name}", real, ndimage_labels.fits, traced))
    run_as_they_are("scipy.ndimage", EXTERNS)


def run_as_they_are(module: str, names: Sequence[str]) -> None:
    """Functions of a module of SciPy that no kernel computes; not every version has all of them."""
    public = importlib.import_module(module)
    for name in names:
        real = getattr(public, name, None)
        if real is not None and real not in functions():
            implements(real)(extern(f"{module}.{name}", real))


try:
    register()
except ImportError:  # without SciPy there is nothing to take over
    pass
