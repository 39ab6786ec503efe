"""Matrix products by BLAS: graph breaks between kernels, like extern calls.

`numpy.matmul` computes them from views of arguments or of computed arrays, into a new array or one of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.tracing.recording.results import ExternResult

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Operand:
    """A view of an array, as `numpy.matmul` takes it.

    Attributes:
        source: the input or stage that the array is.
        part: slices and whole numbers, one for each axis; empty: all of it.
        order: the axes of the result of that, as they are wanted; None: as they are.
        shape: what they are reshaped to; None: they have it.
    """

    source: str
    part: tuple[Any, ...]
    order: tuple[int, ...] | None
    shape: tuple[int, ...] | None

    def of(self, array: Array) -> Array:
        """The view; a copy where memory lies otherwise than the shape."""
        view = array[self.part] if self.part else array
        if self.order is not None:
            view = view.transpose(self.order)
        return view if self.shape is None else view.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Product:
    """One product of two operands.

    Attributes:
        shape: of the result, in C order.
        inner: the shape that `numpy.matmul` gives it.
        length: how many products are summed up for an element.
    """

    first: Operand
    second: Operand
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    inner: tuple[int, ...]
    length: int

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs and stages that it reads, each once."""
        return tuple(dict.fromkeys((self.first.source, self.second.source)))

    @property
    def form(self) -> tuple[Any, ...]:
        """What a comparison with NumPy covers: how it is computed, but for sizes."""
        parts = tuple((x.source, tuple(map(type, x.part)), x.order, x.shape is None) for x in (self.first, self.second))
        return parts, self.dtype, len(self.shape), len(self.inner)

    def as_extern_result(self, *arrays: Array) -> ExternResult:
        """The product as an extern call."""
        return ExternResult((), (self.compute(arrays),))

    def compute(self, arrays: Sequence[Array], out: Array | None = None) -> Array:
        """The product of the arrays of `needs`, into `out`, which is in C order, if given."""
        out = np.empty(self.shape, self.dtype) if out is None else out
        result = out if self.inner == self.shape else out.reshape(self.inner)
        with np.errstate(all="ignore"):  # compiled code does not warn, either
            np.matmul(self.first.of(arrays[0]), self.second.of(arrays[-1]), out=result)
        return out
