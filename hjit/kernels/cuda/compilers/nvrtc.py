"""Compiling CUDA C to machine code with NVRTC, which needs neither a driver nor a GPU.

The library is that of the package ``nvidia-cuda-nvrtc`` or ``nvidia-cuda-nvrtc-cu12``, or of an installed CUDA; its C
interface is called through ctypes. If there are several, a driver accepts the code of some only: `cuda` is the CUDA
version that the driver supports, such as 12, and later NVRTCs are skipped; None: there is no driver.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda.compilers.machine_code import Compiled, Resources, without_spills
from hjit.kernels.cuda.compilers.opencl import numbered
from hjit.kernels.cuda.prelude import program

EXACT = ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Every operation is rounded alone and as IEEE 754 says; denormals are kept."""
REPORT = ("--ptxas-options=-v", "--diag-suppress=177")  # what a kernel needs; not what generated code does not use
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")


def _libraries() -> Iterator[str]:
    """Where NVRTC may be: the packages of NVIDIA, then what the system's loader finds."""
    spec = importlib.util.find_spec("nvidia")
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for pattern in ("*/lib/libnvrtc.so.*", "*/bin/nvrtc64_*.dll", "*/bin/*/nvrtc64_*.dll"):
            found = sorted(folder.glob(pattern), reverse=True)
            yield from (str(p) for p in found if "builtins" not in p.name and ".alt" not in p.name)
    yield from _NAMES


@functools.lru_cache(maxsize=8)
def _library(cuda: int | None = None) -> ctypes.CDLL:
    found = None
    for library in filter(None, map(_opened, _libraries())):
        found = _version(library)
        if cuda is None or found[0] <= cuda:
            return library
    raise DeviceError(missing(cuda, found))


@functools.lru_cache(maxsize=32)
def _opened(path: str) -> ctypes.CDLL | None:
    try:
        for other in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")) if os.sep in path else ():
            ctypes.CDLL(str(other))  # some versions look for it by name, not beside themselves
        return _declared(ctypes.CDLL(path))
    except OSError:
        return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def missing(cuda: int | None, found: tuple[int, int] | None = None) -> str:
    """That there is no NVRTC for a driver, but one that it does not take the code of; and what has one."""
    name = "nvidia-cuda-nvrtc" + ("-cu12" if cuda == 12 else "")
    if found is None:
        return f"NVRTC is not installed; the package {name} has it"
    version = ".".join(map(str, found))
    return f"NVRTC {version} is there, whose code a driver for CUDA {cuda} does not run; the package {name} has another"


def is_available(cuda: int | None = None) -> bool:
    """Is there an NVRTC?"""
    try:
        _library(cuda)
    except DeviceError:
        return False
    return True


def version(cuda: int | None = None) -> tuple[int, int]:
    """Of NVRTC; part of what machine code depends on.

    Raises:
        DeviceError: there is none.
    """
    return _version(_library(cuda))


def _version(library: ctypes.CDLL) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def capabilities(cuda: int | None = None) -> tuple[int, ...]:
    """The compute capabilities that this NVRTC compiles for: 75, 80, ...

    Raises:
        DeviceError: there is no NVRTC.
    """
    library, n = _library(cuda), ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(n)))
    found = (ctypes.c_int * n.value)()
    _check(library, library.nvrtcGetSupportedArchs(found))
    return tuple(found)


def compiled(body: str, capability: int, options: Sequence[str] = (), cuda: int | None = None) -> Compiled:
    """The kernels of a text, with the prelude before it, for a compute capability (90 for 9.0).

    Raises:
        CompileError: the compiler refused it.
        DeviceError: there is no NVRTC.
    """
    return without_spills(lambda text: _compiled(text, capability, options, cuda), body)


def _compiled(body: str, capability: int, options: Sequence[str], cuda: int | None = None) -> Compiled:
    library, source = _library(cuda), program(body, "cuda")
    handle = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(handle), source.encode(), b"hjit.cu", 0, None, None))
    try:
        words = [f"--gpu-architecture=sm_{capability}", *EXACT, *REPORT, *options]
        status = library.nvrtcCompileProgram(
            handle, len(words), (ctypes.c_char_p * len(words))(*map(str.encode, words))
        )
        log = _read(library, "ProgramLog", handle).decode(errors="replace").strip("\0\n ")
        if status:
            raise CompileError(f"NVRTC refused a kernel for sm_{capability}: {log}\n{numbered(source)}")
        ptx = _read(library, "PTX", handle).decode().rstrip("\0")
        return Compiled(source, ptx, _read(library, "CUBIN", handle), log, resources(log))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(handle))


def _read(library: ctypes.CDLL, what: str, handle: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(handle, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(handle, buffer))
    return buffer.raw


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise CompileError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


def resources(log: str) -> dict[str, Resources]:
    """From the lines of ``ptxas -v``."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:

        def number(pattern: str, part: str = part) -> int:
            m = re.search(pattern, part)
            return int(m[1]) if m else 0

        found[part.partition("'")[0]] = Resources(
            number(r"Used (\d+) registers"),
            number(r"(\d+) bytes spill stores"),
            number(r"(\d+) bytes spill loads"),
            number(r"(\d+) bytes stack frame"),
            number(r"(\d+) bytes smem"),
        )
    return found
