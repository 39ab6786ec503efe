"""The compilers of kernels that are not where they are wanted."""

from __future__ import annotations

import ctypes

import pytest

from hjit.errors import DeviceError
from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.compilers.pocl import name_processor
from hjit.kernels.runtime.features import host_features


def test_a_device_that_compiles_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL's LLVM does not know every processor."""
    cl = pytest.importorskip("pyopencl")

    class Refused:
        def __init__(self, *given: object) -> None:
            pass

        def build(self, *given: object, **options: object) -> None:
            raise cl.RuntimeError("clBuildProgram failed\nerror: unknown target CPU 'generic'")

    try:
        if not cl.get_platforms():
            pytest.skip("no OpenCL")
    except cl.Error:
        pytest.skip("no OpenCL")
    monkeypatch.setattr(cl, "Program", Refused)
    opencl.device.cache_clear()
    try:
        assert not opencl.is_available()
        with pytest.raises(DeviceError, match=r"compiles no kernels: error: unknown target CPU"):
            opencl.device()
    finally:
        opencl.device.cache_clear()


class DeviceInMemory:
    """What PoCL keeps of a device: a structure, one of whose fields points to the processor's name."""

    def __init__(self, processor: bytes) -> None:
        self.name, self.version = "pthread-some processor", "OpenCL 3.0 PoCL: pthread-x86_64-" + processor.decode()
        self._name = ctypes.create_string_buffer(processor)
        self._fields = (ctypes.c_uint64 * 200)(7, 0, 2**63, ctypes.addressof(self._name))
        self.int_ptr = ctypes.addressof(self._fields)

    def processor(self) -> bytes | None:
        return ctypes.cast(ctypes.c_void_p(self._fields[3]), ctypes.c_char_p).value


@pytest.mark.skipif("avx2" not in host_features(), reason="needs AVX2")
def test_a_processor_that_pocl_does_not_know_gets_a_name_that_it_knows() -> None:
    device = DeviceInMemory(b"generic")
    name_processor(device)
    assert device.processor() == b"haswell"


def test_a_processor_that_pocl_knows_keeps_its_name() -> None:
    device = DeviceInMemory(b"znver3")
    name_processor(device)
    assert device.processor() == b"znver3"
