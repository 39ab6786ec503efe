"""Extern calls of NumPy and SciPy functions on Dask arrays: lazy if the shape of the result is known.

Along some axes such a function needs the whole array: a sort along the axis that it sorts, a Fourier transform along
those that it transforms, labelling along all of them. These axes are in one chunk; along the others each chunk is a
task.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from hjit.chunks.native import task

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder for an array among the arguments.

    Attributes:
        number: of the array.
        shape: that it has there, of a complex one without its parts.
        is_complex: is its last axis the parts of complex numbers?
    """

    number: int
    shape: Shape
    is_complex: bool


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A call with placeholders for its arrays."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def on(self, arrays: Sequence[Array]) -> Any:
        """Its result for real arrays, which may be a chunk where the whole is cut."""

        def filled(x: Any) -> Any:
            match x:
                case Slot():
                    a = arrays[x.number]
                    return as_complex(a) if x.is_complex else a
                case list() | tuple():
                    return type(x)(map(filled, x))
                case dict():
                    return {k: filled(v) for k, v in x.items()}
                case _:
                    return x

        return self.function(*filled(self.args), **filled(dict(self.kwargs)))


@dataclass(frozen=True, slots=True)
class Known:
    """What is known about a call's results in advance.

    Attributes:
        first: the array that is cut.
        whole: its axes of which a task needs all.
        shape, dtype: of the first result, which may be complex.
        counts: is there a second one, an ``int``?
    """

    first: Slot
    whole: frozenset[int]
    shape: Shape
    dtype: np.dtype[Any]
    counts: bool

    @property
    def axes(self) -> list[int | None]:
        """Of each axis of the result, the axis of the array that it is in chunks as; None where it is one chunk."""
        rank = len(self.first.shape)
        cut = [k for k in range(rank) if k not in self.whole]
        if not cut:
            return [None] * len(self.shape)
        return [k if k in cut else None for k in range(rank)] if len(self.shape) == rank else [*cut]


def as_complex(parts: Array) -> Array:
    """The complex array whose last axis is its parts."""
    found: Array = np.ascontiguousarray(parts).view(np.result_type(parts.dtype, np.complex64))
    return found[..., 0]


def as_parts(a: Array) -> Array:
    """The parts of a complex array along a last axis; other arrays are unchanged."""
    return np.stack([a.real, a.imag], -1) if a.dtype.kind == "c" else a


MAX_EXAMPLE = 1 << 12  # elements of an array beside the first, such as a structuring element
SMALL_CHUNK = 1 << 20  # bytes up to which it does not matter how large chunks are

# -- what is known of the results

Bound = Mapping[str, Any]  # arguments by name, and the defaults of the others
# the shape of the result, and the axes of the array of which a task needs all; None where they are not known
Rule = Callable[[Bound, Shape], tuple[Shape, frozenset[int]] | None]


def _all(shape: Shape) -> frozenset[int]:
    return frozenset(range(len(shape)))


def _along_axis(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]] | None:
    """Of the array's shape, axis by axis; ``n``, if there is one, is not given."""
    if given["axis"] is None or given.get("n") is not None:
        return None
    return shape, frozenset({normalize_axis_index(given["axis"], len(shape))})


def _along_axes(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]] | None:
    """A Fourier transform along several axes."""
    if given["s"] is not None:
        return None
    axes = given["axes"]
    return shape, _all(shape) if axes is None else frozenset(normalize_axis_tuple(axes, len(shape)))


def _matrices(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]]:
    """The matrices of the last two axes."""
    return shape, frozenset({len(shape) - 2, len(shape) - 1})


def _image(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]] | None:
    """An image of the same shape; not into arrays that are given, nor several results."""
    is_one = given.get("return_distances", True) and not given.get("return_indices", False)
    written = any(isinstance(given.get(n), (Slot, np.ndarray)) for n in ("output", "distances", "indices"))
    return (shape, _all(shape)) if is_one and not written and not given.get("reshape", False) else None


def _zoomed(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]] | None:
    """As SciPy's `zoom` has it: each length times its factor, rounded."""
    factors = given["zoom"]
    if isinstance(factors, Slot) or isinstance(given["output"], (Slot, np.ndarray)):
        return None
    along = [factors] * len(shape) if np.ndim(factors) == 0 else list(factors)
    if len(along) != len(shape):
        return None
    return tuple(round(n * float(z)) for n, z in zip(shape, along, strict=True)), _all(shape)


def _reduced(given: Bound, shape: Shape) -> tuple[Shape, frozenset[int]] | None:
    """Quantiles along some axes."""
    q = given.get("q", 0)
    if isinstance(q, Slot) or given.get("weights") is not None:
        return None
    axis = given["axis"]
    axes = _all(shape) if axis is None else frozenset(normalize_axis_tuple(axis, len(shape)))
    keeps = given["keepdims"] is True
    rest = tuple(1 if k in axes else n for k, n in enumerate(shape) if keeps or k not in axes)
    return (*np.shape(q), *rest), _all(shape) if keeps or np.ndim(q) else axes


SAME, WHOLE_NUMBERS = "the dtype of the array", "positions"
Dtype = str | None  # None: that of a small example's result

RULES: dict[str, tuple[Rule, Dtype]] = {
    "numpy.sort": (_along_axis, SAME),
    "numpy.partition": (_along_axis, SAME),
    "numpy.argsort": (_along_axis, WHOLE_NUMBERS),
    "numpy.argpartition": (_along_axis, WHOLE_NUMBERS),
    **{f"numpy.{name}": (_reduced, None) for name in "median nanmedian percentile quantile".split()},
    "numpy.linalg.inv": (_matrices, None),
    "numpy.linalg.cholesky": (_matrices, None),
    **{
        f"scipy.ndimage.{name}": (_image, None)
        for name in """label rotate spline_filter distance_transform_edt distance_transform_cdt
            distance_transform_bf""".split()
    },
    "scipy.ndimage.zoom": (_zoomed, None),
    **{f"{room}.fft.{name}": (_along_axis, None) for room in ("numpy", "scipy") for name in ("fft", "ifft")},
    **{
        f"{room}.fft.{name}": (_along_axes, None)
        for room in ("numpy", "scipy")
        for name in ("fft2", "ifft2", "fftn", "ifftn")
    },
}


def known_result(call: ExternCall, arrays: Sequence[tuple[Slot, np.dtype[Any]]]) -> Known | None:
    """What is known about a call's result; None if that is not enough to make the call later.

    Args:
        arrays: their places, by number, and dtypes.
    """
    if call.name not in RULES:
        return None
    rule, kind = RULES[call.name]
    function = getattr(call.function, "function", call.function)
    options = getattr(call.function, "options", {})
    try:
        bound = inspect.signature(function).bind(*call.args, **call.kwargs, **options)
        bound.apply_defaults()
        given = bound.arguments
        first = next(iter(given.values()))
        if not isinstance(first, Slot) or 0 in first.shape or given.get("out") is not None or given.get("overwrite_x"):
            return None
        found = rule(given, first.shape)
    except (TypeError, ValueError, KeyError):  # the call itself will say what is wrong
        return None
    if found is None:
        return None
    shape, whole = found
    dtype = np.dtype(np.intp) if kind == WHOLE_NUMBERS else arrays[first.number][1]
    if kind is None or first.is_complex:
        example = _example(call, first, arrays)
        if example is None:
            return None
        dtype = example
    return Known(first, whole, shape, dtype, call.name == "scipy.ndimage.label")


def _example(call: ExternCall, first: Slot, arrays: Sequence[tuple[Slot, np.dtype[Any]]]) -> np.dtype[Any] | None:
    """The dtype of a small result: that of an array of ones, or of a unit matrix; other arrays have their shapes."""
    if any(math.prod(slot.shape) > MAX_EXAMPLE for slot, _ in arrays if slot != first):
        return None
    shapes = [(2,) * len(slot.shape) if slot == first else slot.shape for slot, _ in arrays]
    made = [np.ones((*n, 2) if slot.is_complex else n, d) for n, (slot, d) in zip(shapes, arrays, strict=True)]
    if call.name.startswith("numpy.linalg") and not first.is_complex:
        made[first.number][...] = np.eye(2)
    try:
        with np.errstate(all="ignore"):
            found = call.on(made)
    except Exception:  # whatever it is, the function itself raises it
        return None
    return np.asarray(found[0] if isinstance(found, tuple) else found).dtype


# -- tasks


def run_extern(call: ExternCall, counts: bool, *arrays: Array) -> Any:
    """The result for one chunk: an array, or an array and a number; of complex numbers the parts."""
    found = call.on([np.asarray(a) for a in arrays])
    if counts:
        labels, number = found
        return labels, np.asarray(number, np.int64)
    return as_parts(np.asarray(found))


def item(k: int, results: tuple[Array, ...]) -> Array:
    """One of several results."""
    return results[k]


def extern_arrays(call: ExternCall, known: Known, arrays: Sequence[Any]) -> list[Any]:
    """The results, as arrays of Dask; complex ones as their parts.

    Args:
        arrays: Dask's, in the order of the slots' numbers, complex ones as their parts.
    """
    rank = len(known.first.shape)
    given = [a.rechunk(-1) for a in arrays]
    first = given[known.first.number] = _in_chunks(arrays[known.first.number], known.whole, rank)
    parts = ((2,),) if known.dtype.kind == "c" else ()
    chunks = tuple((n,) if k is None else first.chunks[k] for k, n in zip(known.axes, known.shape, strict=True))
    name = f"{call.name.rpartition('.')[2]}-{tokenize(call.function, call.args, call.kwargs, [a.name for a in given])}"
    layer: dict[Any, Any] = {}
    for at in itertools.product(*(range(len(x)) for x in (*chunks, *parts))):
        block = [0] * first.ndim
        for k, number in zip(known.axes, at, strict=False):
            if k is not None:
                block[k] = number
        others = [(a.name, *(0,) * a.ndim) for a in given]
        others[known.first.number] = (first.name, *block)
        layer[(name, *at)] = task((name, *at), run_extern, (call, known.counts), others)
    graph = HighLevelGraph.from_collections(name, layer, given)
    dtype = np.empty(0, known.dtype).real.dtype
    if not known.counts:
        return [da.Array(graph, name, (*chunks, *parts), dtype=dtype)]
    return [_item(graph, name, 0, chunks, dtype), _item(graph, name, 1, (), np.dtype(np.int64))]


def _item(graph: HighLevelGraph, results: str, k: int, chunks: tuple[Shape, ...], dtype: np.dtype[Any]) -> Any:
    """One of two results of a single task."""
    name = f"{results}-{k}"
    key = (name, *(0,) * len(chunks))
    (made_by,) = graph.layers[results]
    layers: dict[str, Any] = {**graph.layers, name: {key: task(key, item, (k,), (made_by,))}}
    return da.Array(HighLevelGraph(layers, {**graph.dependencies, name: {results}}), name, chunks, dtype=dtype)


def _in_chunks(array: Any, whole: frozenset[int], rank: int) -> Any:
    """The array in one chunk along some axes, and not larger ones than before, if it can be cut along others."""
    if all(len(c) == 1 for k, c in enumerate(array.chunks) if k in whole or k >= rank):
        return array
    size = max(math.prod(map(max, array.chunks)) * array.dtype.itemsize, SMALL_CHUNK)
    wanted = {k: -1 if k in whole or k >= rank else "auto" for k in range(array.ndim)}
    return array.rechunk(wanted, block_size_limit=size)


def described(call: ExternCall, known: Known, array: Any) -> str:
    """How a call runs, as text."""
    axes = sorted(known.whole)
    count = math.prod(map(len, array.chunks))
    if len(axes) == len(known.first.shape):
        return f"{call.name}: as it is, in one task, as it needs all of its array"
    along = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"
    return f"{call.name}: as it is, in {count} tasks, each with all of its array along {along}"
