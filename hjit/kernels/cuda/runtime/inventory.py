"""What this machine has for GPU kernels: driver, compiler, devices, and their copy bandwidth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from hjit.errors import HjitError
from hjit.kernels.cuda.compilers import nvrtc, opencl
from hjit.kernels.cuda.runtime import on_cupy
from hjit.kernels.cuda.runtime.on_cupy import CuPy, cuda_version

COPY_BYTES = 256 << 20  # of a measured copy on the device: larger than its caches
TRANSFER_BYTES = 64 << 20  # of a measured transfer
REPEATS = 5  # of which the fastest counts


def lines() -> Iterator[tuple[str, str]]:
    """Names and values, of what there is."""
    compiler = _compiler(_driver_cuda())
    if compiler is not None:
        yield "NVRTC", compiler
    if opencl.is_available():
        yield "OpenCL", opencl.device().name
    try:
        cupy = on_cupy.package()
        driver = cupy.cuda.runtime.driverGetVersion()
        if driver:
            yield "CUDA driver", f"for CUDA {cuda_version(driver)}"
        count = on_cupy.devices(cupy)
    except HjitError as error:
        yield "GPU", str(error)
        return
    for number in range(count):
        yield f"GPU {number}", _about(on_cupy.device(cupy, number))


def _driver_cuda() -> int | None:
    """The CUDA that the driver is for; None: there is no driver, or nothing that could ask it."""
    try:
        return on_cupy.driver_cuda()
    except HjitError:
        return None


def _compiler(cuda: int | None) -> str | None:
    """The NVRTC that compiles for the driver, or why none does; None: there is neither."""
    if nvrtc.is_available(cuda):
        known = nvrtc.capabilities(cuda)
        version = ".".join(map(str, nvrtc.version(cuda)))
        return f"{version}, for compute capabilities {min(known) / 10} to {max(known) / 10}"
    if cuda is None:
        return None
    try:
        return f"{on_cupy.compiler_version()}, which CuPy finds"
    except HjitError as error:
        return str(error)


def _about(device: CuPy) -> str:
    properties = device.cupy.cuda.runtime.getDeviceProperties(device.number)
    name = properties["name"].decode() if isinstance(properties["name"], bytes) else properties["name"]
    about = f"{name}, compute capability {device.capability / 10}, {properties['totalGlobalMem'] / 2**30:.0f} GiB"
    try:
        with device.cupy.cuda.Device(device.number):
            copy, up, down = bandwidths(device)
    except Exception as error:  # no memory, say: CuPy's own exceptions have no common class
        return f"{about}; copies could not be measured: {error}"
    return f"{about}; copies {copy:.0f} GB/s, from the host {up:.1f} GB/s, to it {down:.1f} GB/s"


def bandwidths(device: CuPy) -> tuple[float, float, float]:
    """Measured, in GB/s: bytes read and written by a copy on the device; uploads, and downloads, from and to NumPy."""
    cupy = device.cupy
    source, to = (cupy.zeros((COPY_BYTES,), np.uint8) for _ in range(2))
    stream = cupy.cuda.get_current_stream()

    def copied() -> float:
        start = stream.record()
        cupy.copyto(to, source)
        end = stream.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3

    image: np.ndarray[Any, Any] = np.zeros(TRANSFER_BYTES, np.uint8)
    there = device.transfers.upload(image)

    def uploaded() -> float:
        start = time.perf_counter()
        device.transfers.upload(image)  # which waits
        return time.perf_counter() - start

    def downloaded() -> float:
        start = time.perf_counter()
        device.transfers.download(there)
        return time.perf_counter() - start

    amounts = ((copied, 2 * COPY_BYTES), (uploaded, TRANSFER_BYTES), (downloaded, TRANSFER_BYTES))
    copy, up, down = (n / min(f() for _ in range(REPEATS)) / 1e9 for f, n in amounts)
    return copy, up, down
