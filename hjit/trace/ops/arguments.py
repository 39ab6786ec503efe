"""The arguments that NumPy's functions share: axes, shapes, whole numbers, known contents, and `out`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from hjit.trace.ops.limits import MAX_DECIDED
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, Tracer, as_size, as_tracer, has_tracer, is_tracer
from hjit.trace.tracing.arrays.writing import write
from hjit.trace.tracing.dispatch import Function
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import Size

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def makes(function: Function) -> Function:
    """Mark a traced function that must run even where no argument is traced."""
    function.makes_arrays = True  # type: ignore[attr-defined]
    return function


# -- sizes and axes


def whole_number(n: Any) -> int:
    """An integer argument, its polynomial kept where it has one; one that follows from sizes is a size."""
    n = static_value(as_size(n))
    return n if type(n) in (int, Size) else operator.index(n)


def shape_of(shape: Any) -> Shape:
    """A shape argument as a tuple of sizes.

    Raises:
        ValueError: a negative size.
    """
    many = shape if isinstance(shape, (tuple, list)) else tuple(shape) if is_tracer(shape) and shape.ndim else (shape,)
    found = tuple(map(whole_number, many))
    if any(n < 0 for n in found):
        raise ValueError("negative dimensions are not allowed")
    return found


def concrete_shape(shape: Shape) -> tuple[int, ...]:
    """A shape at the sizes of this call."""
    return tuple(map(int, shape))


def count(shape: Shape) -> int:
    """The number of elements at the sizes of this call."""
    return math.prod(concrete_shape(shape))


def broadcast(*shapes: Shape) -> Shape:
    """NumPy's broadcast of shapes, keeping the sizes that are run-time parameters.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    first = shapes[0]
    if all(s is first for s in shapes):
        return first
    done, key = current().memos.broadcasts, tuple(map(id, shapes))
    found = done.get(key)
    if found is None:
        found = done[key] = shapes, _broadcast(shapes)
    return found[1]


def _broadcast(shapes: tuple[Shape, ...]) -> Shape:
    """See `broadcast`; one of the shapes, where the result is that."""
    result: list[int] = [1] * max(map(len, shapes))
    for s in shapes:
        for k, n in enumerate(s, len(result) - len(s)):
            if result[k] == 1:
                result[k] = n
            elif n not in (1, result[k]):
                text = " ".join(str(concrete_shape(t)).replace(" ", "") for t in shapes)
                raise ValueError(f"operands could not be broadcast together with shapes {text} ")
            elif n != 1 and n is not result[k]:
                current().equate(result[k], n)
    return next((s for s in shapes if len(s) == len(result) and all(map(operator.is_, s, result))), tuple(result))


def open_mesh(arrays: Sequence[Tracer]) -> list[Tracer]:
    """Arrays of one dimension, each along an axis of its own, so that they broadcast."""
    n = len(arrays)
    return [a.reshape((1,) * k + (a.shape[0],) + (1,) * (n - k - 1)) for k, a in enumerate(arrays)]


def axis_of(axis: Any, ndim: int) -> int:
    """`axis` as a non-negative number.

    Raises:
        numpy.exceptions.AxisError: there is no such axis.
    """
    return np.lib.array_utils.normalize_axis_index(operator.index(static_value(axis)), ndim)


def along(a: Tracer, axis: Any) -> tuple[Tracer, int]:
    """An array and one of its axes; for None that of all elements in a row."""
    return (a.reshape(-1), 0) if axis is None else (a, axis_of(axis, a.ndim))


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """`axis` as sorted non-negative numbers; all axes for None.

    Raises:
        numpy.exceptions.AxisError: an axis that does not exist.
        ValueError: an axis named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    many = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = [axis_of(a, ndim) for a in many]
    if len(set(found)) != len(found):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(found))


def is_of_none(axis: Any, a: Any) -> bool:
    """Is it the axis 0 or -1 of an array without axes? Sums, extremes and scans take it, and it says nothing."""
    return not np.ndim(a) and isinstance(axis, (int, np.integer)) and axis in (0, -1)


# -- contents


def keeps(keepdims: Any) -> bool:
    """Is ``keepdims=`` given, and true?"""
    return keepdims is not np._NoValue and bool(keepdims)


def all_known(arrays: Sequence[Tracer]) -> bool:
    """Can NumPy compute with these while tracing?"""
    known = [a.known for a in arrays]
    return sum(MAX_KNOWN + 1 if x is None else x.size for x in known) <= MAX_KNOWN


def contents(x: Any, operation: str, name: str) -> np.ndarray[Any, Any]:
    """An argument that chooses elements: known while tracing, or decided now where there are few of them.

    Raises:
        TraceError: it is a computed array of many elements.
    """
    if not has_tracer(x):
        return np.asarray(x)
    t = as_tracer(x)
    if t.known is None and t.size > MAX_DECIDED:
        raise current().error(
            operation, f"{name} are a computed array: what is done depends on its values", f"make {name} known numbers"
        )
    return np.array(t.tolist(), t.dtype) if t.known is None else t.known


def outer(ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    """``ufunc.outer`` of two traced arrays."""
    return ufunc(a[(..., *(None,) * b.ndim)], b, **kwargs)


# -- results and errors


def check_shape(out: Any, result: Any) -> None:
    """Refuse an `out` of another shape than the result: other than ufuncs, functions do not broadcast to it, and NumPy
    has a text of its own for each."""
    if out is not None and tuple(out.shape) != tuple(result.shape):
        raise current().error("out=", "it has another shape than the result", "give an array of the result's shape")


def in_dtype_of(out: Any, result: Any) -> Any:
    """A step towards a result, as it is where NumPy has it in `out`; that does not take it where casting is unsafe."""
    has_other = is_tracer(out) and out.dtype != result.dtype and np.can_cast(result.dtype, out.dtype, "same_kind")
    return result.astype(out.dtype) if has_other else result


def finish(result: Any, out: Any) -> Any:
    """`result`, written to `out` where that is given."""
    if out is None:
        return result
    check_shape(out, result)
    write(out, result)
    return out


def refuse(function: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    """Raise what NumPy raises for arguments of these shapes and dtypes."""
    function(*placeholders(args), **placeholders(kwargs))
    raise current().error(getattr(function, "__name__", str(function)), "operands of these shapes")


def placeholders(x: Any) -> Any:
    """`x` with each traced array replaced by its contents, or by zeros without memory of their own."""
    if is_tracer(x) or type(x) is ComplexTracer:
        return x.known if x.known is not None else np.broadcast_to(np.zeros((), x.dtype), concrete_shape(x.shape))
    if type(x) in (list, tuple):
        return type(x)(map(placeholders, x))
    return {k: placeholders(v) for k, v in x.items()} if type(x) is dict else static_value(x)
