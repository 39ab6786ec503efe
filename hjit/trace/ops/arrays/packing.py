"""np.packbits and np.unpackbits: eight pixels of a binary image in one byte."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import along, whole_number
from hjit.trace.ops.layout import in_order, is_c_ordered
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known
from hjit.trace.tracing.dispatch import implements

SHIFTS = {"big": range(7, -1, -1), "little": range(8)}
"""By bit order: how far to the left each of eight elements is in its byte."""


def _shifts(bitorder: str) -> range:
    if bitorder not in SHIFTS:
        raise ValueError("'order' must be either 'little' or 'big'")
    return SHIFTS[bitorder]


def _with_axis_last(a: Tracer, axis: Any) -> tuple[Tracer, int]:
    """The array with `axis` moved to the end, and its number; None is the axis of the flattened array."""
    x, k = along(a if a.ndim else a.reshape(1), axis)
    return call(np.moveaxis, x, k, -1), k


def _result(x: Tracer, axis: int, like: Tracer) -> Any:
    """An array with its last axis moved to `axis`, in Fortran order where `like` is."""
    order = "F" if in_order(like, "F") and not is_c_ordered(like) else "C"
    return call(np.copy, call(np.moveaxis, x, -1, axis), order=order)


@implements(np.packbits)
def packbits(a: Any, /, axis: Any = None, bitorder: str = "big") -> Any:
    """The bits of elements that are not zero are set; the last byte is padded with zeros."""
    a = as_tracer(a)
    if a.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    x, axis = _with_axis_last(a, axis)
    n = x.shape[-1]
    size = (n + 7) // 8
    bits = call(np.pad, np.not_equal(x, 0), [(0, 0)] * (x.ndim - 1) + [(0, 8 * size - n)])
    groups = bits.astype(np.uint8).reshape(*x.shape[:-1], size, 8)
    parts = (np.left_shift(groups[..., k], np.uint8(shift)) for k, shift in enumerate(_shifts(bitorder)))
    return _result(functools.reduce(np.bitwise_or, parts), axis, a)


@implements(np.unpackbits)
def unpackbits(a: Any, /, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """The first `count` bits, padded with zeros; all but the last ``-count`` where it is negative."""
    a = as_tracer(a)
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x, axis = _with_axis_last(a, axis)
    n = 8 * x.shape[-1]
    shifts = from_known(np.array(_shifts(bitorder), np.uint8))
    bits = np.bitwise_and(np.right_shift(x[..., None], shifts), np.uint8(1)).reshape(*x.shape[:-1], n)
    if count is not None:
        count = whole_number(count)
        if count < -n:
            raise ValueError("-count larger than number of elements")
        bits = bits[..., :count] if count < n else call(np.pad, bits, [(0, 0)] * (x.ndim - 1) + [(0, count - n)])
    return _result(bits, axis, a)
