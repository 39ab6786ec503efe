"""What stands for an array in the traced code: what all kinds of it have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from hjit.trace.tracing import forward
from hjit.trace.tracing.frames import asks_class, is_users
from hjit.trace.tracing.recording.recorder import current

Shape = tuple[int, ...]
MANY_NUMBERS = 64  # a list of more of them is an array


class Traced:
    """Base of what stands for an array in the traced code."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance(x, np.ndarray) in the user's code
        return np.ndarray

    def traced_array(self) -> Any:
        """The traced array.

        Raises:
            TraceError: it is not known as one, since its length depends on values, or it is complex.
        """
        raise NotImplementedError


class TracedArray(Traced):
    """Base of traced arrays with a known shape, of real and of complex numbers.

    Attributes:
        buffer: the memory viewed.
        is_whole: does this view show the whole buffer in its own order?
        known: the contents, where they are known.
        is_scalar: a number of NumPy rather than an array without axes.
        weak: a number of Python.
    """

    __slots__ = ()
    buffer: Any
    is_scalar: bool
    weak: bool
    # methods that `hjit.trace.ops` adds
    copy: Callable[..., Self]
    reshape: Callable[..., Self]
    swapaxes: Callable[..., Self]
    transpose: Callable[..., Self]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class, for code that asks for it; `isinstance` is another function there, which knows of numbers, too."""
        frame = sys._getframe(1)
        if not (self.weak or self.is_scalar):
            return np.ndarray
        if frame.f_lasti not in asks_class(frame.f_code) and not is_users(frame):
            return np.ndarray
        return type(self.dtype.type().item()) if self.weak else self.dtype.type

    @property
    def shape(self) -> Shape:
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        raise NotImplementedError

    @property
    def is_whole(self) -> bool:
        raise NotImplementedError

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        raise NotImplementedError

    # -- attributes
    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n: int = 1
        for s in self.shape:
            n = n * s
        return n

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def T(self) -> Self:
        return self.transpose()

    @property
    def mT(self) -> Self:
        return self.swapaxes(-1, -2)

    @property
    def device(self) -> str:
        if "cupy" in sys.modules:
            raise current().error("ndarray.device", "it is another one for arrays of CuPy", "ask before the function")
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Self:
        np.empty(0).to_device(device, stream=stream)  # which refuses others
        return self

    @property
    def base(self) -> Any:
        raise current().error(
            "ndarray.base", "whose memory an array has is not known while tracing", "use numpy.shares_memory"
        )

    def item(self, *at: Any) -> Any:
        raise NotImplementedError

    def tolist(self) -> Any:
        if self.known is not None:
            return self.known.tolist()
        if self.size > MANY_NUMBERS and (found := forward.list_of(self)) is not None:
            return found
        return self.item() if self.ndim == 0 else [row.tolist() for row in self]

    # -- protocols of NumPy and Python
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return forward.ufunc_call(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return forward.numpy_call(func, args, kwargs)

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        return forward.module_proxy(np.empty(0).__array_namespace__(api_version=api_version))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        if isinstance(self, np.generic) or isinstance(array, np.generic):
            raise current().error("ndarray.__array_wrap__", "hjit does not trace it of numbers", "wrap arrays")
        return array if isinstance(array, TracedArray) else np.empty(0).__array_wrap__(array, context, return_scalar)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        found: Iterator[Any] = forward.iterated(self, sys._getframe(1))
        return found

    def rows(self) -> Iterator[Any]:
        """The elements along the first axis, one by one."""
        return (self[k] for k in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self.copy(order="K")

    def __deepcopy__(self, memo: Any) -> Self:
        return self.copy(order="K")

    __hash__ = None  # type: ignore[assignment]
