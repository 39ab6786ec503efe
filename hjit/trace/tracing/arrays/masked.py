"""Boolean-mask reads: ``a[mask]``, whose length depends on the image's values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.errors import InherentError, TraceError
from hjit.trace.ir.expressions import Expr, Load
from hjit.trace.ir.graph import identity
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.traced import Shape, Traced
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, python_int
from hjit.trace.tracing.recording.recorder import current

# -- comparing


def same_values(a: Tracer, b: Tracer) -> bool:
    """Are two arrays the same by the way they are computed?"""
    stages = current().stages

    def chain(e: Expr) -> list[Expr]:
        found = [e]
        while isinstance(e, Load) and e.source in stages:
            stage = stages[e.source]
            if stage.initial is None or stage.updates or e.index != identity(len(stage.shape)):
                break
            e = stage.initial
            found.append(e)
        return found

    def same(a: Expr, b: Expr, depth: int) -> bool:
        ours, theirs = chain(a), chain(b)
        if any(e in theirs for e in ours):
            return True
        x, y = ours[-1], theirs[-1]
        if not depth or not x.args or type(x) is not type(y) or x.dtype != y.dtype or x.with_args(y.args) != y:
            return False
        return all(same(p, q, depth - 1) for p, q in zip(x.args, y.args, strict=True))

    return tuple(a.shape) == tuple(b.shape) and same(a.at(identity(a.ndim)), b.at(identity(b.ndim)), 4)


# -- arrays read under a boolean mask


class MaskedRead(Traced):
    """``a[mask]`` for a traced mask: its length is not known, so it lives over the whole of `a`.

    It can be computed with element by element, be written back under the same mask, and be reduced.

    Attributes:
        full: the values at every element of the mask, perhaps complex ones.
        mask: the mask.
        read: what it is, for errors.
        column_of: the read of which it is a column, and its number: NumPy's `nonzero` returns columns of one array.
        is_fortran: are its axes in Fortran order in memory?
        is_view: does it share memory with another read, in NumPy? Then it is not written.
        stages: those that compute it without what the mask leaves out, once they are recorded.
    """

    __slots__ = ("column_of", "full", "is_fortran", "is_view", "mask", "read", "stages")
    __array_priority__ = 1001.0

    def __init__(self, full: Any, mask: Tracer, read: str = "boolean-mask read") -> None:
        self.full, self.mask, self.read = full, mask, read
        self.column_of: tuple[MaskedRead, int] | None = None
        self.is_fortran = self.is_view = False
        self.stages: Any = None

    def traced_array(self) -> Tracer:
        raise current().error(
            self.read, "its length depends on the image's values", "write it back under the same mask, or reduce it"
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.full.dtype
        return dtype

    @property
    def ndim(self) -> int:
        rest: int = self.full.ndim - self.mask.ndim
        return 1 + rest

    @property
    def length(self) -> Any:
        """The length, as an int that is computed."""
        return python_int(call(np.count_nonzero, self.mask))

    @property
    def size(self) -> Any:
        rest = 1
        for n in self.full.shape[self.mask.ndim :]:
            rest = rest * n
        return self.length * rest if self.ndim > 1 else self.length

    @property
    def shape(self) -> Shape:
        return (self.length, *self.full.shape[self.mask.ndim :])

    def __len__(self) -> int:
        return int(self.length)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if method != "__call__" or type(out) not in (MaskedRead, type(None)):
            raise self.error(f"numpy.{ufunc.__name__}.{method}")
        values = [*map(self.whole, inputs)]
        if out is None:
            return MaskedRead(ufunc(*values, **kwargs), self.mask)
        if out.is_view:
            raise self.error("assignment to a view")
        out.column_of = None  # which is as it was
        ufunc(*values, out=self.whole(out), **kwargs)
        return out

    def __getitem__(self, key: Any) -> Any:
        found = forward.masked_item(self, key)
        if found is None:
            raise self.error("index")
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self.error("assignment to a part")

    def __iter__(self) -> Any:
        raise self.error("loop")

    def __bool__(self) -> bool:
        raise self.error("decision")

    def __float__(self) -> float:
        raise self.error("conversion to a number")

    def __int__(self) -> int:
        raise self.error("conversion to a number")

    __index__ = __int__

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        raise self.error("conversion to a real array")

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        return array

    def whole(self, x: Any) -> Any:
        """An operand at every element of the mask."""
        if type(x) is MaskedRead:
            if not same_values(x.mask, self.mask):
                raise self.error("operation on arrays read under different masks")
            return x.full
        if not isinstance(x, (Traced, np.ndarray, list, tuple)):
            return x
        x = as_tracer(x)
        if not x.ndim:
            return x
        if x.ndim == self.ndim and x.shape[0] == 1:
            x = x[0]
        if x.ndim >= self.ndim:
            raise self.error("operation on an array read under a mask and another array")
        return x  # the same for all that is read

    def error(self, operation: str) -> TraceError:
        """What it raises where its length would have to be known."""
        reason = f"the length of a {self.read} depends on the image's values"
        rec = current()
        kind = InherentError if rec.is_given(self.mask.buffer.version) else TraceError
        return rec.error(operation, reason, "use np.where, or write back under the same mask", kind)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return forward.masked_call(func, args, kwargs)

    def astype(self, dtype: Any, **kwargs: Any) -> MaskedRead:
        return MaskedRead(self.full.astype(dtype), self.mask, self.read)

    def copy(self) -> MaskedRead:
        return MaskedRead(self.full.copy(), self.mask, self.read)

    @property
    def T(self) -> MaskedRead:
        if self.ndim > 1:
            raise self.error("ndarray.T")
        return self

    @property
    def flat(self) -> MaskedRead:
        return self.ravel()

    @flat.setter
    def flat(self, value: Any) -> None:
        raise self.error("assignment to flat")

    def flatten(self, order: str = "C") -> MaskedRead:
        return self.ravel(order).copy()

    def ravel(self, order: str = "C") -> MaskedRead:
        if self.ndim > 1:
            raise self.error("ndarray.ravel")
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        func = getattr(np, name, None)
        if name in _METHODS:
            return lambda *args, **kwargs: forward.masked_call(func, (self, *args), kwargs)
        raise self.error(f"ndarray.{name}")


_METHODS = frozenset("sum mean min max any all var std prod argmin argmax cumsum dot clip round searchsorted".split())


def has_masked_read(args: Any, kwargs: Any) -> bool:
    """Is one of a call's arguments, or of the items of a list or tuple among them, read under a mask?"""
    return first_masked_read(args, kwargs) is not None


def first_masked_read(args: Any, kwargs: Any) -> MaskedRead | None:
    """The first such argument."""
    for x in (*args, *kwargs.values()):
        if type(x) is MaskedRead:
            return x
        if type(x) in (list, tuple):
            found = next((y for y in x if type(y) is MaskedRead), None)
            if found is not None:
                return found
    return None
