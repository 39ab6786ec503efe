"""The compilers of kernels that are not where they are wanted."""

from __future__ import annotations

import pytest

from hjit.errors import DeviceError
from hjit.kernels.cuda.compilers import opencl


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
