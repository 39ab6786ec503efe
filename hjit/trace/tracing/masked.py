"""Boolean-mask reads: ``a[mask]``, whose length depends on the image's values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.errors import TraceError
from hjit.trace.ir.graph import Expr, Load, identity
from hjit.trace.tracing.recorder import current
from hjit.trace.tracing.tracer import Shape, Traced, Tracer, call

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


class Selected(Traced):
    """``a[mask]`` for a traced mask: its length is not known, so it lives over the whole of `a`.

    It can be computed with element by element, be written back under the same mask, and be reduced.

    Attributes:
        full: the values at every element of the mask, perhaps complex ones.
        mask: the mask.
    """

    __slots__ = ("full", "mask")
    __array_priority__ = 1001.0

    def __init__(self, full: Any, mask: Tracer) -> None:
        self.full, self.mask = full, mask

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    def traced_array(self) -> Tracer:
        raise current().error(
            "boolean-mask read",
            "its length depends on the image's values",
            "write it back under the same mask, or reduce it",
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
    def size(self) -> int:
        return int(call(np.count_nonzero, self.mask)) * int(self.full.size // self.mask.size)

    @property
    def shape(self) -> Shape:
        return (int(call(np.count_nonzero, self.mask)), *self.full.shape[self.mask.ndim :])

    def __len__(self) -> int:
        return self.shape[0]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if method != "__call__" or type(out) not in (Selected, type(None)):
            raise self._error(f"numpy.{ufunc.__name__}.{method}")
        values = [*map(self._full, inputs)]
        if out is None:
            return Selected(ufunc(*values, **kwargs), self.mask)
        ufunc(*values, out=self._full(out), **kwargs)
        return out

    def __getitem__(self, key: Any) -> Any:
        raise self._error("index")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self._error("assignment to a part")

    def __iter__(self) -> Any:
        raise self._error("loop")

    def __bool__(self) -> bool:
        raise self._error("decision")

    def __float__(self) -> float:
        raise self._error("conversion to a number")

    def __int__(self) -> int:
        raise self._error("conversion to a number")

    __index__ = __int__

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        raise self._error("conversion to a real array")

    def _full(self, x: Any) -> Any:
        if type(x) is Selected:
            if not same_values(x.mask, self.mask):
                raise self._error("operation on arrays read under different masks")
            return x.full
        if issubclass(type(x), Traced) and x.ndim and x.size != 1:
            raise self._error("operation on an array read under a mask and another array")
        return x

    def _error(self, operation: str) -> TraceError:
        reason = "the length of a boolean-mask read depends on the image's values"
        return current().error(operation, reason, "use np.where, or write back under the same mask")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _MASKED_REDUCTIONS and args[0] is self and len(args) == 1 and not kwargs and self.ndim == 1:
            return self._reduce(func)
        raise self._error(f"numpy.{getattr(func, '__name__', func)}")

    def _reduce(self, func: Any) -> Any:
        if func in (np.min, np.max, np.amin, np.amax):
            if not call(np.any, self.mask):  # a decision: what NumPy refuses is refused at every call
                name = "maximum" if func in (np.max, np.amax) else "minimum"
                raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
            worst = _worst(self.dtype, func in (np.max, np.amax))
            return call(func, call(np.where, self.mask, self.full, worst))
        return call(func, self.full, where=self.mask)

    def astype(self, dtype: Any, **kwargs: Any) -> Selected:
        return Selected(self.full.astype(dtype), self.mask)

    def copy(self) -> Selected:
        return Selected(self.full.copy(), self.mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        func = getattr(np, name, None)
        if func in _MASKED_REDUCTIONS:
            return lambda: self._reduce(func)
        raise self._error(f"ndarray.{name}")


def _worst(dtype: np.dtype[Any], for_max: bool) -> Any:
    if dtype.kind == "f":
        return dtype.type(-np.inf if for_max else np.inf)
    if dtype.kind == "b":
        return np.bool_(not for_max)
    info = np.iinfo(dtype)
    return dtype.type(info.min if for_max else info.max)


_MASKED_REDUCTIONS = frozenset(
    {np.sum, np.mean, np.min, np.max, np.amin, np.amax, np.any, np.all, np.var, np.std, np.prod}
)
