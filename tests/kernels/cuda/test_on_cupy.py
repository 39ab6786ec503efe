"""What hjit uses of CuPy: the names that it calls exist there, and what is said where CuPy or a device is missing."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import DeviceError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.runtime import device, inventory, on_cupy, transfers
from tests.kernels.cuda import fake_cupy

TEXT = "HJ_KERNEL(twice, 32, 1, 1)(HJ_GLOBAL f32 *a) { a[HJ_THREAD_X] *= 2; }"
real_compiled, real_version = on_cupy.compiled, on_cupy.compiler_version  # the stand-in has others
# Methods and attributes of CuPy's objects, with the beginning of their signature where CuPy says it
MEMBERS = {
    "cuda.Module": ("load(self, bytes cubin)", "get_function(self, name)"),
    "cuda.Stream": (
        "wait_event(self, event)",
        "record(self, event=None)",
        "synchronize(self)",
        "begin_capture(self, mode=None)",
        "end_capture(self)",
        "is_capturing(self)",
        "__enter__",
    ),
    "cuda.Graph": ("launch(self, stream=None)",),
    "cuda.Event": ("synchronize(self)", "done"),
    "cuda.MemoryPointer": (
        "copy_from_host_async(self, mem, size_t size, stream=None)",
        "copy_to_host_async(self, mem, size_t size, stream=None)",
        "__add__(x, y)",
        "ptr",
        "device_id",
    ),
    "cuda.Device": ("compute_capability", "__enter__", "__exit__"),
    "cuda.nvrtc": (
        "createProgram(str src, str name, headers, include_names)",
        "compileProgram(intptr_t prog, options)",
        "getCUBIN(intptr_t prog) -> bytes",
        "getPTX(intptr_t prog) -> bytes",
        "getProgramLog(intptr_t prog) -> str",
        "destroyProgram(intptr_t prog)",
        "getVersion() -> tuple",
        "getSupportedArchs() -> tuple",
        "NVRTCError",
    ),
    "cuda.runtime": (
        "getDeviceCount() -> int",
        "driverGetVersion() -> int",
        "runtimeGetVersion() -> int",
        "getDevice",
        "deviceSynchronize()",
    ),
    "cuda": ("get_elapsed_time(start_event, end_event)",),
    "ndarray": ("shape", "dtype", "strides", "data", "flags", "get", "transpose", "view", "__cuda_array_interface__"),
}


@functools.cache
def names() -> frozenset[str]:
    """Dotted names of CuPy in the modules that use it."""
    texts = map(inspect.getsource, (on_cupy, transfers, inventory))
    found = {n for text in texts for n in re.findall(r"\bcupy\.((?:cuda\.)?\w+)", text)}
    assert {"empty", "ndarray", "cuda.Module", "from_dlpack"} <= found
    return frozenset(found - {"cuda"})


def reached(package: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), package)


def test_names_are_those_of_the_real_package() -> None:
    cupy = pytest.importorskip("cupy")
    for name in names():
        reached(cupy, name)
    for owner, members in MEMBERS.items():
        for member in members:
            word = member.partition("(")[0]
            found = getattr(reached(cupy, owner), word)
            about = (inspect.getdoc(found) or "").partition("\n")[0].replace("unicode", "str")  # as CuPy 13 has it
            assert "(" not in member or "(" not in about or member.partition("(")[2] in about, (owner, about)
    assert re.match(
        r"__init__\((self, )?shape, dtype=\w+, memptr=None, strides=None", inspect.getdoc(cupy.ndarray) or ""
    )
    cupy.cuda.alloc_pinned_memory.__doc__.index("(size_t size)")
    memory = cupy.cuda.PinnedMemoryPointer
    assert hasattr(memory, "__getbuffer__") or hasattr(memory, "size")
    assert hasattr(cupy.ndarray, "get") and cupy.ndarray.__module__ == "cupy"


def test_the_small_cupy_has_the_names() -> None:
    with fake_cupy.installed() as cupy:
        for name in names():
            if not name.startswith("cuda.nvrtc"):
                reached(cupy, name)


def test_kernels_are_compiled_through_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"CuPy finds no NVRTC: {error}")
    made = on_cupy.by_cupy(cupy.cuda.nvrtc, TEXT, 80, ())
    assert made.cubin[:4] == b"\x7fELF" and ".target sm_80" in made.ptx and made.resources["twice"].registers
    with pytest.raises(hjit.CompileError, match="NVRTC refused"):
        on_cupy.by_cupy(cupy.cuda.nvrtc, "nonsense", 80, ())


class Binding:
    """CuPy's binding of an NVRTC."""

    def __init__(self, *version: int) -> None:
        self.version = version

    def getVersion(self) -> tuple[int, ...]:
        if not self.version:
            raise RuntimeError("CuPy failed to load libnvrtc.so.12")
        return self.version


def test_a_driver_of_cuda_12_gets_no_code_of_cuda_13(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy takes the NVRTC that it finds, which may be of a later CUDA."""
    asked: list[int | None] = []
    monkeypatch.setattr(nvrtc, "is_available", lambda cuda=None: bool(asked.append(cuda)))
    assert on_cupy.driver_cuda() == 12
    for binding, why in ((Binding(13, 5), r"NVRTC 13\.5 is there"), (Binding(), "NVRTC is not installed")):
        monkeypatch.setattr(on_cupy.package().cuda, "nvrtc", binding, raising=False)
        for ask in (real_version, lambda: real_compiled(TEXT, 80)):
            with pytest.raises(DeviceError, match=rf"{why}.* nvidia-cuda-nvrtc-cu12"):
                ask()
    assert set(asked) == {12}
    monkeypatch.setattr(on_cupy.package().cuda, "nvrtc", Binding(12, 9))
    assert real_version() == "12.9"


def test_code_is_made_for_the_nearest_capability() -> None:
    assert on_cupy.usable(89, [75, 80, 86, 90]) == 86
    with pytest.raises(DeviceError, match="does not know compute capability 12"):
        on_cupy.usable(120, [75, 80])


@pytest.fixture
def cuda() -> Iterator[Any]:
    """The runtime of a small CuPy, to be damaged."""
    on_cupy.devices.cache_clear()
    with fake_cupy.installed() as cupy:
        yield cupy.cuda.runtime
    on_cupy.devices.cache_clear()


def test_what_is_missing_is_said(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, a = hjit.pipeline(lambda a: a + 1, target="cuda"), np.ones((20, 30))

    def insufficient() -> int:
        raise cuda.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    def none() -> int:
        raise cuda.CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    for name, value, text in (
        ("driverGetVersion", lambda: 0, "needs an NVIDIA driver"),
        ("getDeviceCount", insufficient, r"driver is too old: it knows CUDA 12.4, and CuPy needs 12.9"),
        ("getDeviceCount", none, "no CUDA device"),
        ("getDeviceCount", lambda: 0, "no CUDA device"),
    ):
        with monkeypatch.context() as m:
            m.setattr(cuda, name, value)
            with pytest.raises(hjit.DeviceError, match=text):
                f(a)
    with monkeypatch.context() as m:
        m.setitem(sys.modules, "cupy", ModuleType("cupy"))  # a folder of that name
        with pytest.raises(hjit.DeviceError, match="what is imported as cupy is not"):
            f(a)
        m.setitem(sys.modules, "cupy", None)
        with pytest.raises(hjit.DeviceError, match="CuPy"):
            f(a)
        g = hjit.pipeline(lambda a: a + 1, target="cuda", on_unsupported="numpy")
        with pytest.warns(hjit.HjitWarning, match="CuPy"):
            np.testing.assert_array_equal(g(a), a + 1)
        np.testing.assert_array_equal(g(a), a + 1)
        m.setenv(device.VARIABLE, "vulkan")
        with pytest.raises(hjit.OptionError, match="choose one of"):
            f(a)


def test_code_that_the_driver_refuses_is_an_error(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nvrtc.Compiled("", "", b"not a cubin", "", {})
    monkeypatch.setattr(on_cupy, "compiled", lambda *args: made)
    f = hjit.pipeline(lambda a: np.cbrt(a) - np.arctan(a), target="cuda", cache="off")  # no other test has that kernel
    with pytest.raises(hjit.CompileError, match=r"the driver refused.*NVRTC text made it, and .* for CUDA 12\.4"):
        f(np.ones((20, 30)))


def test_kernels_are_found_by_the_thread_that_loads_them(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may have no CUDA context, without which the driver finds none."""
    there = on_cupy.current_device()
    text = f"{TEXT}\n\n{TEXT.replace('twice', 'thrice')}\n"
    found = there.load(text, there.compile(text)[0])

    def no_context(self: Any, name: str) -> Any:
        raise RuntimeError("CUDA_ERROR_INVALID_CONTEXT: invalid device context")

    monkeypatch.setattr(there.cupy.cuda.Module, "get_function", no_context)
    assert callable(found["twice"]) and callable(found["thrice"])


def test_what_there_is_is_listed(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COPY_BYTES", "TRANSFER_BYTES"):
        monkeypatch.setattr(inventory, name, 1 << 20)
    found = dict(inventory.lines())
    assert found["CUDA driver"] == "for CUDA 12.4"
    assert re.fullmatch(
        r"Small GPU, compute capability 8.0, 4 GiB; copies \d+ GB/s, from the host [\d.]+ GB/s, to it [\d.]+ GB/s",
        found["GPU 0"],
    )
    with monkeypatch.context() as m:
        m.setattr(nvrtc, "is_available", lambda cuda=None: False)
        m.setattr(on_cupy.package().cuda, "nvrtc", Binding(13, 5), raising=False)
        m.setattr(on_cupy, "compiler_version", real_version)
        assert re.match(r"NVRTC 13\.5 is there, whose code", dict(inventory.lines())["NVRTC"])
        m.setattr(on_cupy.package().cuda, "nvrtc", Binding(12, 4))
        assert dict(inventory.lines())["NVRTC"] == "12.4, which CuPy finds"
    monkeypatch.setattr(cuda, "driverGetVersion", lambda: 0)
    on_cupy.devices.cache_clear()
    assert dict(inventory.lines())["GPU"] == "CUDA needs an NVIDIA driver, and this machine has none"
