"""The applications as CUDA kernels of Halide, compiled ahead of time.

``python -m benchmarks.peers.halide_cuda --build FOLDER`` builds them.

Building needs the package halide and a C compiler, and no GPU. What is built needs neither: one shared library for each
application and schedule, and `INDEX`, which says how each is called. They run in CuPy's context, on its stream.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

INDEX = "halide_cuda.json"
SCHEDULES = ("manual", "anderson2021")
DEVICE_DIRTY = 2  # halide_buffer_flag_device_dirty
ROOM = 1 << 20  # bytes beside each input: schedules may read ahead of it
CODES = {"int": 0, "uint": 1, "float": 2}  # halide_type_code_t
SCALARS: dict[tuple[str, int], Any] = {
    ("float", 32): ctypes.c_float,
    ("float", 64): ctypes.c_double,
    ("int", 32): ctypes.c_int32,
}


class Dimension(ctypes.Structure):
    """halide_dimension_t."""

    _fields_ = (
        ("min", ctypes.c_int32),
        ("extent", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class Buffer(ctypes.Structure):
    """halide_buffer_t."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(Dimension)),
        ("padding", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Library:
    """What was built of an application under a schedule.

    Attributes:
        arguments: of the function, in order: of an array, `array`, its number among the application's arrays (None:
            the result); of a number its `type` and `value`.
        error: why there is no library.
        seconds: that scheduling and compiling took.
    """

    app: str
    schedule: str
    file: str = ""
    arguments: Sequence[dict[str, Any]] = ()
    seconds: float = 0.0
    bytes: int = 0
    error: str | None = None


def libraries(folder: Path) -> list[Library]:
    """What is in a folder of the build; nothing where there was none."""
    file = folder / INDEX
    return [Library(**x) for x in json.loads(file.read_text())["libraries"]] if file.exists() else []


def loaded(cupy: Any, folder: Path, library: Library, arrays: Sequence[Any], out: Any) -> Callable[[], None]:
    """A function that runs a library on arrays of CuPy, and writes the result into one.

    Args:
        arrays: NumPy arrays, of which there are copies on the device as long as the function lives.
        out: an array of the device in C order.

    Raises:
        OSError: it cannot be loaded: no driver, say.
        RuntimeError: Halide says that something is wrong.
    """
    code = ctypes.CDLL(str((folder / library.file).resolve()), mode=ctypes.RTLD_LOCAL)
    context, stream = _context(), cupy.cuda.get_current_stream().ptr
    code.hjit_use.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    code.hjit_use(context, stream)
    code.halide_cuda_wrap_device_ptr.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    kept: list[Any] = []

    def buffer(a: Any) -> Any:
        shape = tuple(reversed(a.shape))
        dims = (Dimension * len(shape))(*(Dimension(0, n, math.prod(shape[:k]), 0) for k, n in enumerate(shape)))
        kind = {"i": "int", "u": "uint", "f": "float"}[a.dtype.kind]
        made = Buffer(0, None, None, 0, CODES[kind], 8 * a.dtype.itemsize, 1, len(shape), dims, None)
        _checked(library, code.halide_cuda_wrap_device_ptr(None, ctypes.byref(made), a.data.ptr))
        made.flags = DEVICE_DIRTY
        kept.extend((a, dims, made))
        return ctypes.byref(made)

    args = []
    for x in library.arguments:
        if "value" in x:
            args.append(SCALARS[x["type"], x["bits"]](x["value"]))
        else:
            args.append(buffer(out if x["array"] is None else _with_room(cupy, arrays[x["array"]], kept)))
    function = code[f"hjit_{library.app}"]

    def run() -> None:
        _checked(library, function(*args))

    return run


def _with_room(cupy: Any, a: np.ndarray[Any, Any], kept: list[Any]) -> Any:
    """A copy on the device, in the middle of other memory."""
    whole = cupy.zeros((a.nbytes + 2 * ROOM,), np.uint8)
    kept.append(whole)
    inside = whole[ROOM : ROOM + a.nbytes].view(a.dtype).reshape(a.shape)
    inside[...] = cupy.asarray(np.ascontiguousarray(a))
    return inside


def _context() -> int:
    """The driver's current context: that of CuPy."""
    driver = ctypes.CDLL("libcuda.so.1")
    found = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(found)) or not found.value:
        raise RuntimeError("there is no CUDA context")
    return found.value


def _checked(library: Library, status: int) -> None:
    if status:
        raise RuntimeError(f"Halide's {library.app} ({library.schedule}) failed with status {status}")
