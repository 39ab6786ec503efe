"""Kernels on a GPU through CuPy: its current device and stream, memory of its pools.

All names of CuPy that hjit uses are in this module and in `transfers`; `tests/kernels/cuda/test_on_cupy.py` compares
them with the installed package.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.compilers.machine_code import Compiled, kernel_names, without_spills
from hjit.kernels.cuda.compilers.opencl import numbered
from hjit.kernels.cuda.prelude import program
from hjit.kernels.cuda.runtime.transfers import StagedCopies, Transfers, bytes_of

log = logging.getLogger("hjit")

NOTHING = nullcontext()  # has no state
DType = np.dtype[Any]
Array = np.ndarray[Any, Any]


def package() -> Any:
    """CuPy.

    Raises:
        DeviceError: it is not installed, or cannot be imported.
    """
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceError(f"CUDA needs CuPy, which cannot be imported: {error}") from error
        raise DeviceError(
            "CUDA needs CuPy, which is not installed: the package cupy-cuda12x, or cupy-cuda13x, has it"
        ) from None
    except Exception as error:  # a CuPy for another CUDA, or a broken one
        raise DeviceError(f"CUDA needs CuPy, which cannot be imported: {error}") from error
    if not hasattr(cupy, "cuda"):
        raise DeviceError(f"CUDA needs CuPy, but what is imported as cupy is not: {cupy}")  # a folder of that name
    return cupy


def cuda_version(number: int) -> str:
    """``12040`` as the runtime counts versions: 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


@functools.lru_cache(maxsize=1)
def devices(cupy: Any) -> int:
    """How many devices there are.

    Raises:
        DeviceError: there is none that can be used.
    """
    runtime = cupy.cuda.runtime
    driver = runtime.driverGetVersion()
    if not driver:
        raise DeviceError("CUDA needs an NVIDIA driver, and this machine has none")
    try:
        count: int = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if "InsufficientDriver" in str(error):
            needed = cuda_version(runtime.runtimeGetVersion())
            raise DeviceError(
                f"the NVIDIA driver is too old: it knows CUDA {cuda_version(driver)}, and CuPy needs {needed}"
            ) from None
        raise DeviceError(f"there is no CUDA device to compute on: {error}") from None
    if not count:
        raise DeviceError("there is no CUDA device to compute on: the driver finds none")
    return count


def current_device() -> CuPy:
    """CuPy's current device.

    Raises:
        DeviceError: there is none.
    """
    cupy = package()
    devices(cupy)
    return device(cupy, cupy.cuda.runtime.getDevice())


@functools.lru_cache(maxsize=64)
def device(cupy: Any, number: int) -> CuPy:
    return CuPy(cupy, number)


def compiled(text: str, capability: int, options: Sequence[str] = ()) -> Compiled:
    """The kernels of a text by the NVRTC that is found: hjit's way to it, or CuPy's.

    Raises:
        CompileError: the compiler refused it.
        DeviceError: there is no NVRTC whose code the driver runs, or it is older than the device.
    """
    cuda = driver_cuda()
    if nvrtc.is_available(cuda):
        return nvrtc.compiled(text, usable(capability, nvrtc.capabilities(cuda)), options, cuda)
    return by_cupy(package().cuda.nvrtc, text, capability, options, cuda)


def driver_cuda() -> int | None:
    """The CUDA that the driver is for, 12 say; None: there is no driver."""
    return package().cuda.runtime.driverGetVersion() // 1000 or None


def compiler_version() -> str:
    """Of the NVRTC that `compiled` takes.

    Raises:
        DeviceError: there is none.
    """
    cuda = driver_cuda()
    version = nvrtc.version(cuda) if nvrtc.is_available(cuda) else _version(package().cuda.nvrtc, cuda)
    return ".".join(map(str, version))


def _version(library: Any, cuda: int | None) -> tuple[int, int]:
    """Of CuPy's binding of NVRTC.

    Raises:
        DeviceError: it is none whose code the driver runs.
    """
    try:
        found: tuple[int, int] = library.getVersion()
    except Exception as error:  # CuPy opens the library now
        raise DeviceError(f"{nvrtc.missing(cuda)} ({error})") from error
    if cuda is not None and found[0] > cuda:
        raise DeviceError(nvrtc.missing(cuda, found))
    return found


def usable(capability: int, known: Sequence[int]) -> int:
    """A compute capability whose machine code runs on a device of the given one.

    Raises:
        DeviceError: the compiler knows none.
    """
    found = [c for c in known if c // 10 == capability // 10 and c <= capability]
    if not found:
        raise DeviceError(
            f"NVRTC does not know compute capability {capability / 10}, but {min(known) / 10} to {max(known) / 10}: "
            "install a newer one"
        )
    return max(found)


def by_cupy(library: Any, text: str, capability: int, options: Sequence[str], cuda: int | None = None) -> Compiled:
    """As `nvrtc.compiled`, through CuPy's binding of the library."""
    _version(library, cuda)
    target = usable(capability, library.getSupportedArchs())
    return without_spills(lambda part: _by_cupy(library, part, target, options), text)


def _by_cupy(library: Any, text: str, capability: int, options: Sequence[str]) -> Compiled:
    source = program(text, "cuda")
    handle = library.createProgram(source, "hjit.cu", (), ())
    try:
        words = (f"--gpu-architecture=sm_{capability}", *nvrtc.EXACT, *nvrtc.REPORT, *options)
        try:
            library.compileProgram(handle, words)
        except library.NVRTCError as error:
            log = library.getProgramLog(handle)
            raise CompileError(
                f"NVRTC refused a kernel for sm_{capability}: {error} {log}\n{numbered(source)}"
            ) from None
        log = library.getProgramLog(handle)
        ptx = library.getPTX(handle).decode().rstrip("\0")
        return Compiled(source, ptx, library.getCUBIN(handle), log, nvrtc.resources(log))
    finally:
        library.destroyProgram(handle)


class CuPy:
    """One GPU. Launches and memory are those of CuPy's current stream, so that they follow what CuPy does."""

    shares_memory = False

    def __init__(self, cupy: Any, number: int) -> None:
        self.cupy, self.number = cupy, number
        with cupy.cuda.Device(number) as here:
            self.capability = int(here.compute_capability)
        self.transfers = Transfers(cupy)
        self.empty: Any = cupy.ndarray  # as `cupy.empty` is, with a call less
        self.is_alone = devices(cupy) == 1
        self.capturing = self if hasattr(cupy.cuda.Stream, "begin_capture") else None
        self._capturing = threading.Lock()

    @property
    def key(self) -> Hashable:
        return "cupy", self.number

    @functools.cached_property
    def code_key(self) -> str:
        return f"sm_{self.capability} NVRTC {compiler_version()} {' '.join(nvrtc.EXACT)}"

    def active(self) -> AbstractContextManager[Any]:
        return NOTHING if self.is_alone else self.cupy.cuda.Device(self.number)

    def where(self, array: Any) -> AbstractContextManager[Any]:
        return NOTHING if self.is_alone else self.cupy.cuda.Device(array.data.device_id)

    # -- kernels
    def compile(self, text: str) -> tuple[bytes, str]:
        made = compiled(text, self.capability)
        return made.cubin, made.log

    def load(self, text: str, code: bytes) -> Mapping[str, Any]:
        try:
            module = self.cupy.cuda.Module()
            module.load(code)
            # at once: another thread may have no CUDA context yet, which this needs; they hold the module
            return {name: module.get_function(name) for name in kernel_names(text)}
        except Exception as error:  # CuPy's own exceptions have no common class
            driver = cuda_version(self.cupy.cuda.runtime.driverGetVersion())
            versions = f"NVRTC {compiler_version()} made it, and the driver is for CUDA {driver}"
            raise CompileError(f"the driver refused the code of kernels: {error}; {versions}") from error

    def launcher(self, kernel: Any, blocks: int, threads: int) -> Callable[[Sequence[Any]], object]:
        return functools.partial(kernel, (blocks,), (threads,))

    # -- graphs
    def is_capturing(self) -> bool:
        try:
            return bool(self.cupy.cuda.get_current_stream().is_capturing())
        except Exception:  # the null stream must not be asked while another stream is captured
            return True

    def captured(self, launch: Callable[[], None]) -> Any:
        stream = self._capture_stream
        with self._capturing, stream:
            stream.begin_capture()
            try:
                launch()
            finally:
                graph = stream.end_capture()
        return graph

    def replay(self, graph: Any) -> None:
        graph.launch()

    def event(self) -> Any:
        return self.cupy.cuda.get_current_stream().record()

    def elapsed(self, start: Any, end: Any) -> float | None:
        return 1e-3 * float(self.cupy.cuda.get_elapsed_time(start, end)) if end.done else None

    @functools.cached_property
    def _capture_stream(self) -> Any:
        """A stream on which nothing runs."""
        return self.cupy.cuda.Stream(non_blocking=True)

    def argument(self, array: Any) -> tuple[Any, int]:
        return array, 0  # a pointer to the first element, from which strides may lead either way

    # -- memory
    def address(self, memory: Any) -> Hashable:
        found: int = memory.data.ptr if isinstance(memory, self.cupy.ndarray) else memory.ptr
        return found

    def zeros(self, shape: Sequence[int], dtype: DType) -> Any:
        return self.cupy.zeros(shape, dtype)

    def arranged(self, shape: Sequence[int], dtype: DType, strides: Sequence[int]) -> Any:
        memory = self.cupy.empty((bytes_of(shape, dtype, strides),), np.uint8)
        return self.cupy.ndarray(tuple(shape), dtype, memory.data, tuple(strides))

    def part(self, block: Any, offset: int, count: int, dtype: DType) -> Any:
        return block.data + offset

    def moves(self) -> AbstractContextManager[StagedCopies]:
        return self.transfers.moves()

    def is_array(self, x: Any) -> bool:
        return isinstance(x, self.cupy.ndarray)

    def own(self, x: Any) -> Any:
        if isinstance(x, self.cupy.ndarray):
            return x
        return self.transfers.upload(x) if isinstance(x, np.ndarray) else self.taken(x)

    def taken(self, x: Any) -> Any:
        """An array of another package that is on the device, without a copy.

        Where there are both, it is taken by DLPack: the current stream waits for what makes the array then, and JAX
        computes on streams of its own. DLPack may refuse what the other way allows, as dtypes or streams.
        """
        if hasattr(type(x), "__dlpack__"):
            try:
                return self.cupy.from_dlpack(x)
            except Exception as error:
                if not hasattr(type(x), "__cuda_array_interface__"):
                    raise
                log.debug("not taken by DLPack: %s", error)
        return self.cupy.asarray(x)

    def host(self, x: Any) -> Array:
        return x if isinstance(x, np.ndarray) else self.transfers.download(x)

    def copy(self, source: Any, to: Any) -> None:
        if isinstance(to, np.ndarray):
            np.copyto(to, self.host(source))
        else:
            self.cupy.copyto(to, self.own(source))

    def strided(self, base: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
        return self.cupy.ndarray(tuple(shape), base.dtype, base.data, tuple(strides))

    def view(self, base: Any, offset: int, like: Array) -> Any:
        return self.cupy.ndarray(like.shape, like.dtype, base.data + offset, like.strides)
