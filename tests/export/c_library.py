"""Exported libraries, called from Python as a C program calls them."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import hjit

COMPILER = shutil.which("cc")


class CArray(ctypes.Structure):
    """``hjit_array``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
    )


class Context(ctypes.Structure):
    """``hjit_context``."""

    _fields_ = (
        ("threads", ctypes.c_int),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("parallel", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    )


STATUS = dict(re.findall(r"(HJIT_\w+) = (\d+)", (Path(hjit.__file__).parent / "export" / "hjit.h").read_text()))
BY_NUMBER = {int(n): name for name, n in STATUS.items() if name != "HJIT_MAX_DIMS"}


NUMBERS: dict[type, Any] = {int: ctypes.c_int64, float: ctypes.c_double, np.float32: ctypes.c_float}


def as_c(a: np.ndarray[Any, Any]) -> CArray:
    return CArray(a.ctypes.data, a.ndim, (*a.shape,), (*a.strides,))


class Library:
    """A function of a shared library; see `call`."""

    def __init__(self, path: Path, types: tuple[Any, ...], name: str = "") -> None:
        """`types`: dtypes of the results."""
        library = ctypes.CDLL(str(path))
        self._call, self._shape = library[name or path.stem], library[f"{name or path.stem}_shape"]
        self.types = types

    def shapes(self, *args: Any) -> tuple[str, list[CArray]]:
        """The status, and the results' shapes and strides."""
        found = [CArray() for _ in self.types]
        arrays = [ctypes.byref(as_c(a)) for a in args if isinstance(a, np.ndarray)]
        return BY_NUMBER[self._shape(*arrays, *map(ctypes.byref, found))], found

    def run(self, args: Any, outputs: Any, context: Context | None = None) -> str:
        """The status of a call with these results."""
        given: list[Any] = []
        for x in args:
            c = as_c(x) if isinstance(x, np.ndarray) else None
            given.append(ctypes.byref(c) if c else NUMBERS[type(x)](x))
        given += [ctypes.byref(as_c(o)) for o in outputs]
        return BY_NUMBER[self._call(*given, None if context is None else ctypes.byref(context))]

    def __call__(self, *args: Any, context: Context | None = None) -> list[np.ndarray[Any, Any]]:
        """The results."""
        status, shapes = self.shapes(*args)
        assert status == "HJIT_OK"
        outputs = []
        for c, dtype in zip(shapes, self.types, strict=True):
            shape, strides = c.shape[: c.ndim], c.strides[: c.ndim]
            memory = np.empty(int(np.prod(shape)), dtype)
            outputs.append(np.lib.stride_tricks.as_strided(memory, shape, strides))
        assert self.run(args, outputs, context) == "HJIT_OK"
        return outputs
