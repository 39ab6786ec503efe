"""Approximate values: numbers with bounds of their errors, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Columns = tuple[Array, Array, Array]

OURS, NUMPYS, SAME_WAY = range(3)  # the columns of `Approx.errors`


@dataclass(slots=True)
class Approx:
    """Values with error bounds.

    Attributes:
        errors: bounds by column; None: no error at all. Their shapes broadcast to that of `value`.
        nonfinite: where a value may also be not a number or infinite; None: nowhere.
    """

    value: Array
    errors: Columns | None = None
    nonfinite: Array | None = None

    def __getitem__(self, key: Any) -> Approx:
        """Some of the elements; errors and `nonfinite` must have the shape of the values."""
        errors = None
        if self.errors is not None:
            ours, numpys, same_way = self.errors
            errors = ours[key], numpys[key], same_way[key]
        return Approx(self.value[key], errors, None if self.nonfinite is None else self.nonfinite[key])

    @property
    def doubtful(self) -> Array | None:
        """Where the value may differ in hjit or in NumPy; None: nowhere."""
        if self.errors is None:
            return self.nonfinite
        found = (self.errors[OURS] > 0) | (self.errors[NUMPYS] > 0)
        return found if self.nonfinite is None else found | self.nonfinite


def wider(dtype: np.dtype[Any]) -> Any:
    """A float type with more digits than the given one."""
    return np.longdouble if dtype.itemsize == 8 else np.float64


def ulp(value: Array, error: Any, dtype: np.dtype[Any]) -> Array:
    """The distance between neighbouring numbers of a dtype, at a value with an error."""
    with np.errstate(all="ignore"):
        gap = np.asarray(np.spacing((np.abs(value) + error).astype(dtype)), np.float64)
    return np.where(np.isfinite(gap), gap, 0.0)


def decided(value: Array, doubtful: Array, step: Any = 1.0) -> Approx:
    """The result of a decision: where that is doubtful, the value may be another one, at a distance of `step`."""
    if not doubtful.any():
        return Approx(value)
    error = np.where(doubtful, step, 0.0)
    shape = np.broadcast_shapes(value.shape, error.shape)
    return Approx(np.broadcast_to(value, shape), (error, error, np.zeros(error.shape)))


def as_columns(errors: Sequence[Any]) -> Columns:
    """Three arrays as the columns of errors."""
    return errors[0], errors[1], errors[2]


def broadcast_to(x: Approx, shape: tuple[int, ...]) -> Approx:
    """The same values, with all arrays broadcast to one shape."""
    errors = None if x.errors is None else as_columns([np.broadcast_to(e, shape) for e in x.errors])
    return Approx(
        np.broadcast_to(x.value, shape), errors, None if x.nonfinite is None else np.broadcast_to(x.nonfinite, shape)
    )


def rounded_again(x: Approx, dtype: np.dtype[Any]) -> Approx:
    """A value that hjit and NumPy may have rounded differently once more."""
    old = x.errors or (np.float64(0),) * 3
    gap = ulp(x.value, old[NUMPYS], dtype)
    return Approx(x.value, (old[OURS] + gap, old[NUMPYS] + gap, old[SAME_WAY] + 2 * gap), x.nonfinite)


def reshaped(x: Approx, shape: tuple[int, ...]) -> Approx:
    """The same values in another shape."""
    x = broadcast_to(x, x.value.shape)
    errors = None if x.errors is None else as_columns([e.reshape(shape) for e in x.errors])
    return Approx(x.value.reshape(shape), errors, None if x.nonfinite is None else x.nonfinite.reshape(shape))


def take(x: Approx, index: tuple[Any, ...]) -> Approx:
    """Elements by indices, which are out of range only where nothing is read; all elements without indices."""
    if not index:
        return x
    at = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(index, x.value.shape, strict=True))
    return broadcast_to(x, x.value.shape)[at]


@dataclass(frozen=True, slots=True)
class SparseApprox:
    """Some elements of an array, by position.

    Attributes:
        places: their positions, each once, in order.
    """

    places: Array
    values: Approx

    def has(self, places: Array) -> Array:
        """Which of some positions are among them?"""
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return np.asarray(self.places[at] == places)

    def at(self, places: Array) -> Approx:
        """The elements at some positions, which it has."""
        if len(places) == len(self.places):
            return self.values
        return self.values[np.searchsorted(self.places, places)]

    def with_others(self, other: SparseApprox, dtype: np.dtype[Any]) -> SparseApprox:
        """These elements and those at other positions."""
        places = np.concatenate([self.places, other.places])
        order = np.argsort(places, kind="stable")
        return SparseApprox(places[order], joined([self.values, other.values], dtype)[order])


def joined(parts: Sequence[Approx], dtype: np.dtype[Any]) -> Approx:
    """The concatenation of parts along their axis."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Approx(np.zeros(0, dtype))
    parts = [broadcast_to(p, p.value.shape) for p in parts]
    value = np.concatenate([p.value for p in parts])
    errors = nonfinite = None
    if any(p.errors is not None for p in parts):
        errors = as_columns(
            [
                np.concatenate([np.zeros(p.value.shape) if p.errors is None else p.errors[k] for p in parts])
                for k in range(3)
            ]
        )
    if any(p.nonfinite is not None for p in parts):
        nonfinite = np.concatenate(
            [np.zeros(p.value.shape, bool) if p.nonfinite is None else p.nonfinite for p in parts]
        )
    return Approx(value, errors, nonfinite)
