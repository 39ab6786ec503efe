"""A small CuPy for tests: arrays in NumPy's memory, kernels on PoCL, streams that run nothing before they must.

What is launched or copied on a stream is done when somebody waits for it, so that a result that nobody waited for is
wrong. Arrays do not become NumPy's by accident, as CuPy's do not. Memory of arrays that are gone is given to new ones, and
what is launched while a stream is captured knows its arrays by their addresses alone. Code of kernels is their text, see
`installed`.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import scipy.signal

from hjit.kernels.cuda.compilers import nvrtc, opencl
from hjit.kernels.cuda.runtime import device, on_cupy

GARBAGE = 0xA5  # in memory that nothing was written to
log: list[str] = []  # what was done, in order


costs = {"kernel": 1.0, "graph": 1.0}  # milliseconds between events


class CUDARuntimeError(RuntimeError):
    pass


class Stream:
    """A queue of work that is done when it is waited for."""

    def __init__(self, non_blocking: bool = False, name: str = "") -> None:
        self.name = name or f"stream {len(Stream.all)}"
        self.work: list[tuple[str, Callable[[], None]]] = []
        self.done = 0
        self.captured: list[Callable[[], None]] | None = None
        Stream.all.append(self)

    all: list[Stream] = []  # noqa: RUF012
    entered: list[Stream] = []  # noqa: RUF012

    def __enter__(self) -> Stream:
        Stream.entered.append(self)
        return self

    def __exit__(self, *args: object) -> None:
        Stream.entered.pop()

    def put(self, what: str, work: Callable[[], None]) -> None:
        def logged() -> None:
            work()
            log.append(f"{what} on {self.name}")

        if self.captured is not None:
            self.captured.append(work)
        else:
            self.work.append((what, logged))

    def run(self, end: int) -> None:
        if self.captured is not None:
            raise CUDARuntimeError(
                "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )
        while self.done < end:
            self.done += 1
            self.work[self.done - 1][1]()

    def synchronize(self) -> None:
        self.run(len(self.work))

    def record(self, event: Any = None) -> Event:
        return Event(self, len(self.work))

    def wait_event(self, event: Event) -> None:
        self.work.append(("wait", event.synchronize))

    # -- graphs
    def begin_capture(self, mode: Any = None) -> None:
        if self is CURRENT:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        assert self.captured is None
        self.captured = []

    def end_capture(self) -> Graph:
        assert self.captured is not None
        found, self.captured = Graph(self.captured), None
        return found

    def is_capturing(self) -> bool:
        return self.captured is not None


class Graph:
    """What was launched while a stream was captured."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work

    def launch(self, stream: Any = None) -> None:
        def run() -> None:
            for f in self.work:
                f()

        (stream or now()).put("graph", run)


class Event:
    def __init__(self, stream: Stream, position: int) -> None:
        self.stream, self.position = stream, position

    def synchronize(self) -> None:
        self.stream.run(self.position)

    @property
    def done(self) -> bool:
        return self.stream.done >= self.position


def elapsed(start: Event, end: Event) -> float:
    """Milliseconds of what is between two events."""
    assert end.done and start.stream is end.stream
    return sum(costs.get(what, 1.0) for what, _ in start.stream.work[start.position : end.position])


CURRENT = Stream(name="current")


def now() -> Stream:
    """The current stream."""
    return Stream.entered[-1] if Stream.entered else CURRENT


class Block:
    """Memory, which goes to the pool with its last array."""

    free: dict[int, list[tuple[Any, int]]] = {}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        # what is still to run may use memory that was given back
        known = Block.free.setdefault(size, [])
        at = next((k for k, (_, position) in enumerate(known) if CURRENT.done >= position), None)
        self.memory = np.empty(size, np.uint8) if at is None else known.pop(at)[0]
        self.memory[:] = GARBAGE

    def __del__(self) -> None:
        Block.free[self.memory.size].append((self.memory, len(CURRENT.work)))


class MemoryPointer:
    """A place in memory."""

    device_id = 0

    def __init__(self, memory: Any, offset: int = 0, block: Any = None) -> None:
        self.memory, self.offset, self.block = memory, offset, block
        self.ptr = memory.ctypes.data + offset

    def __add__(self, n: int) -> MemoryPointer:
        return MemoryPointer(self.memory, self.offset + n, self.block)

    def rest(self) -> Any:
        """All bytes from here on."""
        return self.memory[self.offset :]

    def copy_from_host_async(self, mem: int, size: int, stream: Stream) -> None:
        stream.put("upload", lambda: ctypes.memmove(self.ptr, mem, size) and None)

    def copy_to_host_async(self, mem: int, size: int, stream: Stream) -> None:
        stream.put("download", lambda: ctypes.memmove(mem, self.ptr, size) and None)


def _allocated(size: int) -> MemoryPointer:
    block = Block(max(size, 1))
    return MemoryPointer(block.memory, 0, block)


class ndarray:
    """An array of the device."""

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.kind not in "biufc" or not self.dtype.isnative:
            raise ValueError(f"Unsupported dtype {self.dtype}")
        if not isinstance(memptr, MemoryPointer | None):
            raise TypeError(f"expected cupy.cuda.memory.MemoryPointer, got {type(memptr)}")
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        usual = np.empty(self.shape, self.dtype, order=order).strides if 0 not in self.shape else (0,) * len(self.shape)
        self.strides = tuple(usual if strides is None else strides)
        self.ndim, self.size = len(self.shape), int(np.prod(self.shape))
        self.itemsize, self.nbytes = self.dtype.itemsize, self.size * self.dtype.itemsize
        self.data = memptr or _allocated(self.nbytes)

    @property
    def flags(self) -> Any:
        flags = self.seen().flags
        return types.SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.data.ptr, False),
            "strides": self.strides,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return _Capsule(self)

    def seen(self) -> Any:
        """The array as NumPy sees it, when nothing is running."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        first = np.ndarray((1,), self.dtype, self.data.memory, self.data.offset)
        return np.lib.stride_tricks.as_strided(first, self.shape, self.strides)

    def ready(self) -> Any:
        now().synchronize()
        return self.seen()

    def like(self, view: Any) -> ndarray:
        """A view of this array's memory, from one that NumPy made."""
        base = self.data.memory.ctypes.data
        at = view.__array_interface__["data"][0] - base if view.size else 0
        return ndarray(view.shape, view.dtype, MemoryPointer(self.data.memory, at, self.data.block), view.strides)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self) -> Any:
        log.append("get")
        return self.ready().copy("K")

    def copy(self, order: str = "C") -> ndarray:
        return asarray(self.ready().copy(order))

    def transpose(self, *axes: Any) -> ndarray:
        return self.like(self.seen().transpose(*axes))

    def reshape(self, *shape: Any) -> ndarray:
        found = self.seen().reshape(*shape)
        if np.may_share_memory(found, self.data.memory):
            return self.like(found)
        return asarray(self.ready().reshape(*shape))

    def view(self, dtype: Any) -> ndarray:
        return self.like(self.seen().view(dtype))

    def __getitem__(self, key: Any) -> ndarray:
        found = self.ready()[_np(key)]
        shares = isinstance(found, np.ndarray) and np.may_share_memory(found, self.data.memory)
        return self.like(found) if shares or not found.size else asarray(np.asarray(found))

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        to, given = self.seen(), value

        def write() -> None:
            to[_np(key)] = given.seen() if isinstance(given, ndarray) else given

        now().put("write", write)

    def __bool__(self) -> bool:
        return bool(self.ready())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def item(self) -> Any:
        return self.ready().item()

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return _called(getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _called(function, args, kwargs)

    @property
    def T(self) -> ndarray:
        return self.transpose()


def _method(name: str) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        return _called(getattr(np.ndarray, name), (self, *args), kwargs)

    return method


_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
for _name in (*_OPERATORS, *(f"r{n}" for n in _OPERATORS), *(f"i{n}" for n in _OPERATORS), "neg lt le gt ge eq ne"):
    for _word in _name.split():
        setattr(ndarray, f"__{_word}__", _method(f"__{_word}__"))
for _name in "sum mean max min any all astype clip ravel".split():
    setattr(ndarray, _name, _method(_name))
ndarray.__module__ = "cupy"
ndarray.__hash__ = None  # type: ignore[assignment, method-assign]


def _np(x: Any) -> Any:
    """CuPy's arrays in it as NumPy's."""
    if isinstance(x, ndarray):
        return x.ready()
    return type(x)(map(_np, x)) if type(x) in (list, tuple) else x


def _called(function: Any, args: Any, kwargs: Any) -> Any:
    """A function of NumPy on CuPy's arrays, which are not mixed with NumPy's."""
    if any(isinstance(x, np.ndarray) and x.ndim for x in args):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    out = kwargs.pop("out", None)
    result = function(*map(_np, args), **{k: _np(v) for k, v in kwargs.items()})
    if result is NotImplemented:
        return result
    target = out[0] if isinstance(out, tuple) else out
    if target is not None:
        target[...] = asarray(result)
        return target
    if isinstance(result, tuple):
        return tuple(map(asarray, result))
    return asarray(np.asarray(result))


def asarray(a: Any, dtype: Any = None) -> ndarray:
    if isinstance(a, ndarray):
        return a
    if hasattr(a, "__cuda_array_interface__"):
        about = a.__cuda_array_interface__
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * a.nbytes).from_address(about["data"][0]))
        found = ndarray(about["shape"], about["typestr"], MemoryPointer(memory), about.get("strides"))
        found.owner = a  # type: ignore[attr-defined]
        return found
    a = np.asarray(a, dtype)
    found = ndarray(a.shape, a.dtype, None, a.copy("K").strides)
    if a.size:
        found.seen()[...] = a
    return found


class _Capsule:
    """What `__dlpack__` gives, to be used once."""

    def __init__(self, array: ndarray) -> None:
        self.array: ndarray | None = array


def from_dlpack(array: Any) -> ndarray:
    kind, device = array.__dlpack_device__()
    if kind == 1:
        raise TypeError("CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))`")
    if (kind, device) != (2, 0):
        raise TypeError(f"Unsupported array type: {kind}")
    try:
        capsule = array.__dlpack__(stream=1, max_version=(1, 1), copy=None)
    except TypeError:
        capsule = array.__dlpack__(stream=1)
    if type(capsule) is not _Capsule or capsule.array is None:
        raise ValueError("A DLPack tensor object cannot be consumed multiple times (or object was not a capsule)")
    found, capsule.array = capsule.array, None
    return found


def _at(place: Any) -> Any:
    """The memory at an address; a number is itself."""
    if not isinstance(place, tuple):
        return place
    address, size = place
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _zeros(shape: Any, dtype: Any = float) -> ndarray:
    found = ndarray(shape, dtype)
    memory = found.seen()
    now().put("write", lambda: memory.fill(0))
    return found


class Module:
    """Kernels, whose code is their text."""

    def load(self, code: bytes) -> None:
        if type(code) is not bytes:
            raise TypeError(f"Argument 'cubin' has incorrect type (expected bytes, got {type(code)})")
        if not code.startswith(b"cubin\n"):
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
        self.program = opencl.compiled(code.decode().partition("\n")[2])

    def get_function(self, name: str) -> Any:
        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], shared_mem: int = 0) -> None:
            def argument(x: Any) -> Any:
                if isinstance(x, ndarray):
                    assert not x.nbytes or x.data.ptr
                    return x.data.rest()
                if isinstance(x, MemoryPointer):
                    return x.rest()
                if not isinstance(x, np.generic):  # CuPy takes Python's numbers, too, as 64 bits
                    raise TypeError(f"Unsupported type {type(x)}")
                return x

            if type(grid) is not tuple or type(block) is not tuple:
                raise TypeError("Argument 'grid' has incorrect type (expected tuple)")
            given = [argument(x) for x in args]
            sizes = [tuple(max(1, n) for n in (*x, 1, 1)[:3]) for x in (grid, block)]
            if max(sizes[0][1:]) > 65535 or sizes[0][0] >= 1 << 31 or np.prod(sizes[1]) > 1024 or shared_mem > 48 << 10:
                raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            if now().is_capturing():
                places = [x if isinstance(x, np.generic) else (x.ctypes.data, x.nbytes) for x in given]
                now().put("kernel", lambda: self.program.launch(name, *sizes, [*map(_at, places)], shared_mem))
            else:
                now().put("kernel", lambda: self.program.launch(name, *sizes, given, shared_mem))

        return launch


def _cuda() -> types.ModuleType:
    cuda = types.ModuleType("cupy.cuda")
    runtime: Any = types.SimpleNamespace(
        driverGetVersion=lambda: 12040,
        runtimeGetVersion=lambda: 12090,
        getDeviceCount=lambda: 1,
        getDevice=lambda: 0,
        deviceSynchronize=lambda: now().synchronize(),
        getDeviceProperties=lambda number: {"name": b"Small GPU", "totalGlobalMem": 4 << 30},
        CUDARuntimeError=CUDARuntimeError,
    )
    vars(cuda).update(
        Module=Module,
        Stream=Stream,
        Event=Event,
        MemoryPointer=MemoryPointer,
        Device=lambda number: contextlib.nullcontext(types.SimpleNamespace(compute_capability="80")),
        alloc_pinned_memory=lambda size: bytearray(size),
        Graph=Graph,
        get_current_stream=now,
        get_elapsed_time=elapsed,
        runtime=runtime,
    )
    return cuda


class _Package(types.ModuleType):
    """A module whose functions are NumPy's, on CuPy's arrays."""

    def __init__(self, name: str, here: Any) -> None:
        super().__init__(name)
        self._here = here

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._here, name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(self._here, name)
        if not callable(value) or isinstance(value, type):
            return value

        def function(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(x, np.ndarray) for x in args):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
            return _called(value, args, kwargs)

        setattr(self, name, function)
        return function


def _by_library(function: Any) -> Any:
    """A function of NumPy or SciPy as a library of the GPU has it: on the stream, rounded otherwise, in C order."""

    def method(*given: Any, **kwargs: Any) -> ndarray:
        if not all(isinstance(x, ndarray) for x in given):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        probe = function(*(np.zeros(x.shape, x.dtype) for x in given), **kwargs)
        result = ndarray(probe.shape, probe.dtype)
        wide = {"f": "d", "e": "d", "F": "D"}

        def compute() -> None:
            arrays = [x.seen().astype(wide.get(x.dtype.char, x.dtype)) for x in given]
            result.seen()[...] = function(*arrays, **kwargs)

        now().put("library", compute)
        return result

    return method


FFTS = "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn".split()
COSINES = "dct idct dst idst dctn idctn dstn idstn".split()


def _ffts(name: str, here: Any, words: Sequence[str]) -> Any:
    module: Any = types.ModuleType(name)
    vars(module).update({word: _by_library(getattr(here, word)) for word in words})
    return module


def is_installed_as(cupy: Any) -> bool:
    """Is it this module, which notes what it does, and not CuPy?"""
    return bool(cupy.cuda.Stream is Stream)


@contextlib.contextmanager
def installed() -> Iterator[Any]:
    """This as the package `cupy`, whose NVRTC gives back the text of kernels."""
    cupy: Any = _Package("cupy", np)
    copyto: Any = lambda to, source: to.__setitem__(..., source)  # noqa: E731
    vars(cupy).update(
        ndarray=ndarray,
        asarray=asarray,
        array=asarray,
        empty=lambda shape, dtype=float: ndarray(shape, dtype),
        zeros=_zeros,
        ascontiguousarray=lambda a: asarray(np.ascontiguousarray(a.ready())),
        copyto=copyto,
        from_dlpack=from_dlpack,
        get_array_module=lambda *args: cupy if any(isinstance(x, ndarray) for x in args) else np,
        cuda=_cuda(),
        fft=_ffts("cupy.fft", np.fft, FFTS),
        **{name: _by_library(getattr(np, name)) for name in ("matmul", "dot", "inner")},
    )
    cupyx, scipy_, ndimage = (
        types.ModuleType("cupyx"),
        types.ModuleType("cupyx.scipy"),
        _Package("cupyx.scipy.ndimage", scipy.ndimage),
    )
    vars(cupyx)["scipy"], vars(scipy_)["ndimage"] = scipy_, ndimage
    modules = {"cupy": cupy, "cupy.cuda": cupy.cuda, "cupyx": cupyx, "cupyx.scipy": scipy_}
    modules["cupyx.scipy.ndimage"] = ndimage
    modules["cupy.fft"] = cupy.fft
    modules["cupyx.scipy.signal"] = _ffts("cupyx.scipy.signal", scipy.signal, ["fftconvolve", "convolve"])
    modules["cupyx.scipy.fft"] = vars(scipy_)["fft"] = _ffts("cupyx.scipy.fft", scipy.fft, FFTS + COSINES)

    def compiled(text: str, capability: int, options: Sequence[str] = ()) -> nvrtc.Compiled:
        return nvrtc.Compiled(text, "", b"cubin\n" + text.encode(), "", {})

    with pytest.MonkeyPatch.context() as m:
        for name, module in modules.items():
            m.setitem(sys.modules, name, module)
        m.delenv(device.VARIABLE, raising=False)
        m.setattr(on_cupy, "compiled", compiled)
        m.setattr(on_cupy, "compiler_version", lambda: "text")
        yield cupy


__all__ = ["CURRENT", "installed", "log", "ndarray"]
