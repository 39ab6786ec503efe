"""Kernels on an OpenCL device of the host (PoCL): runs GPU kernels where there is no GPU.

Arrays are used in place, without a copy, so that a kernel accesses the memory that its caller sees.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda.compilers.pocl import name_processor
from hjit.kernels.cuda.prelude import program

# Not optimised: for images of few pixels, PoCL's optimiser takes longer than all else.
OPTIONS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable")
Array = np.ndarray[Any, Any]
_building = threading.Lock()


def after_fork() -> None:
    """The lock of another thread of the parent is open in a child."""
    global _building
    _building = threading.Lock()


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the available OpenCL platform, with an in-order queue."""

    context: Any
    queue: Any

    @property
    def name(self) -> str:
        return str(self.context.devices[0].name)


@functools.cache
def device() -> Device:
    """PoCL's device, or the first one that has doubles and 64-bit atomics.

    Raises:
        DeviceError: there is no OpenCL, no such device, or none that compiles kernels.
    """
    try:
        import pyopencl as cl
    except ImportError as e:
        raise DeviceError(f"kernels on OpenCL need the packages pyopencl and pocl-binary-distribution: {e}") from e
    try:
        found = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error as e:
        raise DeviceError(f"OpenCL has no platform; the package pocl-binary-distribution brings one: {e}") from e
    able = [d for d in found if {"cl_khr_fp64", "cl_khr_int64_base_atomics"} <= set(d.extensions.split())]
    if not able:
        raise DeviceError(
            "no OpenCL device has doubles and 64-bit atomics; the package pocl-binary-distribution has one"
        )
    best = min(able, key=lambda d: "portable" not in d.platform.name.lower())
    name_processor(best)
    context = cl.Context([best])
    try:
        cl.Program(context, _TRIAL).build(list(OPTIONS), cache_dir=_NO_FILES)
    except cl.Error as e:
        reason = next((line for line in str(e).splitlines() if "error:" in line), str(e)).strip()
        raise DeviceError(f"{context.devices[0].name} compiles no kernels: {reason}") from e
    return Device(context, cl.CommandQueue(context))


_TRIAL = "__kernel void trial(__global int *a) { a[0] = 1; }"
_NO_FILES: Any = False


def is_available() -> bool:
    """Is there a device?"""
    try:
        device()
    except DeviceError:
        return False
    return True


class Program:
    """Compiled kernels."""

    def __init__(self, source: str) -> None:
        import pyopencl as cl

        self.source = source
        try:
            with _building:
                self._program = cl.Program(device().context, source).build(list(OPTIONS), cache_dir=_NO_FILES)
        except cl.Error as e:
            raise CompileError(f"OpenCL refused a kernel: {e}\n{numbered(source)}") from e

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_bytes: int = 0
    ) -> None:
        """Run a kernel on `grid` blocks of `block` threads, and wait for it.

        Args:
            name: of the kernel.
            grid: blocks along x, y, z; none is 0.
            block: threads, as the kernel was written for.
            args: contiguous arrays, read and written where they are, and NumPy scalars of the parameters' types.
            shared_bytes: of dynamic shared memory, where the kernel has the parameter for it.
        """
        import pyopencl as cl

        here = device()
        buffers = [_argument(here, a) for a in args]
        if shared_bytes:
            buffers.append(cl.LocalMemory(shared_bytes))
        kernel = cl.Kernel(self._program, name)
        kernel.set_args(*buffers)
        sizes = tuple(g * b for g, b in zip(grid, block, strict=True))
        cl.enqueue_nd_range_kernel(here.queue, kernel, sizes, tuple(block))
        # mapping is what makes the device's writes visible to the host
        for a, buffer in zip(args, buffers, strict=False):
            if isinstance(a, np.ndarray) and a.size:
                bytes_ = np.dtype(np.uint8)
                mapped, _ = cl.enqueue_map_buffer(here.queue, buffer, cl.map_flags.READ, 0, (a.nbytes,), bytes_)
                mapped.base.release(here.queue)
        here.queue.finish()


def _argument(here: Device, a: Any) -> Any:
    import pyopencl as cl

    if not isinstance(a, np.ndarray):
        return a
    if not a.size:
        return cl.Buffer(here.context, cl.mem_flags.READ_WRITE, 16)
    if not a.flags.c_contiguous:
        raise ValueError("an array that a kernel is given is contiguous")
    access = cl.mem_flags.READ_WRITE if a.flags.writeable else cl.mem_flags.READ_ONLY
    return cl.Buffer(here.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=a)


@functools.lru_cache(maxsize=256)
def compiled(body: str) -> Program:
    """The kernels of a text, with the prelude before it; a text is compiled once.

    Raises:
        CompileError: the compiler refused it.
        DeviceError: there is no device.
    """
    device()
    return Program(program(body, "opencl"))


def numbered(source: str) -> str:
    """The lines with the numbers that compilers give."""
    return "\n".join(f"{k:4} {line}" for k, line in enumerate(source.splitlines(), 1))
