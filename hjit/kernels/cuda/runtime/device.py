"""The device that runs kernels: a GPU through CuPy, or PoCL on machines without one; and why neither is available.

``HJIT_CUDA_DEVICE`` selects it: "cupy" (the default) or "opencl".
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np

from hjit.errors import DeviceError, OptionError
from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.runtime.graphs import Capturing
from hjit.kernels.cuda.runtime.transfers import HostMemory, RowCopies, bytes_of

VARIABLE = "HJIT_CUDA_DEVICE"
NOTHING = nullcontext()  # has no state
DType = np.dtype[Any]
Array = np.ndarray[Any, Any]


class Device(Protocol):
    """One device: arrays in its memory, kernels, launches in order.

    Attributes:
        key: what loaded kernels are known by in this process.
        code_key: what compiled code depends on besides its text: compute capability and compiler.
        shares_memory: are its arrays NumPy's own?
        capturing: what captures launches, see `hjit.kernels.cuda.runtime.graphs`; None: nothing does.
    """

    @property
    def key(self) -> Hashable: ...

    @property
    def code_key(self) -> str: ...

    @property
    def shares_memory(self) -> bool: ...

    @property
    def capturing(self) -> Capturing | None: ...

    def active(self) -> AbstractContextManager[Any]:
        """Inside, this is the current device."""
        ...

    def where(self, array: Any) -> AbstractContextManager[Any]:
        """Inside, the device that an array is on is the current one."""
        ...

    def compile(self, text: str) -> tuple[bytes, str]:
        """Machine code of kernels, and what the compiler reports of them. Empty where it is not kept on disk."""
        ...

    def load(self, text: str, code: bytes) -> Mapping[str, Any]:
        """The kernels of a text by name, to be launched.

        Raises:
            CompileError: the code is not usable.
        """
        ...

    def launcher(self, kernel: Any, blocks: int, threads: int) -> Callable[[Sequence[Any]], object]:
        """What runs a kernel with arguments, after what was launched before.

        Arguments are arrays or, where memory is shared, what `argument` gives; of `part`; and NumPy scalars.
        """
        ...

    def address(self, memory: Any) -> Hashable:
        """Where memory is that a kernel is given."""
        ...

    def argument(self, array: Any) -> tuple[Any, int]:
        """An array as kernels take it: its memory, and where in that its first element is."""
        ...

    def empty(self, shape: Sequence[int], dtype: DType) -> Any:
        """A new array in C order."""
        ...

    def zeros(self, shape: Sequence[int], dtype: DType) -> Any:
        """A new array of zeros in C order."""
        ...

    def arranged(self, shape: Sequence[int], dtype: DType, strides: Sequence[int]) -> Any:
        """A new array with these strides in bytes, none of them negative."""
        ...

    def part(self, block: Any, offset: int, count: int, dtype: DType) -> Any:
        """Elements from a byte of a block on, as an argument of kernels; a block is an array of bytes."""
        ...

    def moves(self) -> AbstractContextManager[RowCopies]:
        """Copies of rows between this device and the host, inside; afterwards all of them are done."""
        ...

    def is_array(self, x: Any) -> bool:
        """Is it an array of this device?"""
        ...

    def own(self, x: Any) -> Any:
        """An array in the memory of this device with the same strides: itself, or an upload."""
        ...

    def host(self, x: Any) -> Array:
        """The array in the host's memory, when all is done that was launched before; axes are in the same order."""
        ...

    def copy(self, source: Any, to: Any) -> None:
        """Elements of an array into another one, either of this device or of NumPy."""
        ...

    def strided(self, base: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
        """A view that begins where `base` does; strides in bytes."""
        ...

    def view(self, base: Any, offset: int, like: Array) -> Any:
        """A view that begins some bytes from where `base` does, of shape, dtype and strides as another array."""
        ...


class OpenCL:
    """PoCL: its arrays are NumPy's."""

    key = "opencl"
    code_key = "opencl"
    shares_memory = True
    capturing = None

    def active(self) -> AbstractContextManager[Any]:
        return NOTHING

    def where(self, array: Any) -> AbstractContextManager[Any]:
        return NOTHING

    def compile(self, text: str) -> tuple[bytes, str]:
        return b"", ""

    def load(self, text: str, code: bytes) -> Mapping[str, Any]:
        return _Kernels(opencl.compiled(text))

    def launcher(self, kernel: Any, blocks: int, threads: int) -> Callable[[Sequence[Any]], object]:
        program, name = kernel
        return functools.partial(program.launch, name, (blocks, 1, 1), (threads, 1, 1))

    def address(self, memory: Array) -> Hashable:
        return memory.ctypes.data

    def argument(self, array: Array) -> tuple[Array, int]:
        """All memory that the array is in, as one row."""
        if array.flags.c_contiguous and array.size:
            return array, 0
        if not array.size:
            return np.empty(1, array.dtype), 0
        low, high = np.lib.array_utils.byte_bounds(array)
        first = array[tuple(slice(None, None, -1 if step < 0 else 1) for step in array.strides)]
        row = np.lib.stride_tricks.as_strided(first, ((high - low) // array.itemsize,), (array.itemsize,))
        return row, (array.__array_interface__["data"][0] - low) // array.itemsize

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        return np.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: DType) -> Array:
        return np.zeros(shape, dtype)

    def arranged(self, shape: Sequence[int], dtype: DType, strides: Sequence[int]) -> Array:
        memory = np.empty(bytes_of(shape, dtype, strides), np.uint8)
        return np.ndarray(shape, dtype, memory.data, 0, strides)

    def part(self, block: Array, offset: int, count: int, dtype: DType) -> Array:
        return block[offset : offset + count * dtype.itemsize].view(dtype)

    def moves(self) -> AbstractContextManager[HostMemory]:
        return nullcontext(HostMemory())

    def is_array(self, x: Any) -> bool:
        return isinstance(x, np.ndarray)

    def own(self, x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            raise DeviceError(f"{VARIABLE}=opencl computes on NumPy arrays only, not on {type(x).__name__}")
        return x

    def host(self, x: Array) -> Array:
        return x

    def copy(self, source: Array, to: Array) -> None:
        np.copyto(to, source)

    def strided(self, base: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
        return np.lib.stride_tricks.as_strided(base, shape, strides, writeable=base.flags.writeable)

    def view(self, base: Array, offset: int, like: Array) -> Array:
        return like


class _Kernels(dict[str, Any]):
    """The kernels of a program, made by name when they are asked for."""

    def __init__(self, program: opencl.Program) -> None:
        super().__init__()
        self.program = program

    def __missing__(self, name: str) -> Any:
        return self.program, name


@functools.cache
def _opencl() -> OpenCL:
    return OpenCL()


def current() -> Device:
    """The device that calls run on now.

    Raises:
        DeviceError: there is none; it says in one sentence what is missing.
        OptionError: `VARIABLE` has another value.
    """
    wanted = os.environ.get(VARIABLE) or "cupy"
    if wanted == "opencl":
        opencl.device()
        return _opencl()
    if wanted != "cupy":
        raise OptionError(f"{VARIABLE}={wanted!r}: choose one of 'cupy', 'opencl'")
    from hjit.kernels.cuda.runtime.on_cupy import current_device  # where there is CuPy

    return current_device()


def found() -> Device | None:
    """The device that calls run on now, if there is one."""
    try:
        return current()
    except DeviceError:
        return None
