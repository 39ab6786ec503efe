"""A work-around for processors that are newer than PoCL's LLVM.

LLVM calls such a processor "generic", and PoCL passes that name to Clang, which has no x86 processor of that name, so
nothing compiles. PoCL has no option for the name; it is replaced in the device's own record.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from typing import Any

import llvmlite.binding as llvm

log = logging.getLogger("hjit")

UNKNOWN = b"generic"
_STANDS_FOR_IT = ctypes.create_string_buffer(b"haswell")  # has AVX2 and FMA, as each newer x86 processor has
_NEEDS = ("avx2", "bmi2", "fma")
_DEVICE_BYTES = 1024  # of PoCL's `struct _cl_device_id`, in which `llvm_cpu` is a pointer to the name


def name_processor(device: Any) -> None:
    """Have PoCL compile for Haswell where its LLVM does not know the processor, and leave every other device alone.

    Args:
        device: a `pyopencl.Device`.
    """
    if not device.name.startswith("pthread-") or not device.version.endswith(UNKNOWN.decode()):
        return
    has = llvm.get_host_cpu_features()
    if not all(has.get(feature) for feature in _NEEDS):
        return
    for field in _pointers_to(UNKNOWN + b"\0", device.int_ptr):
        ctypes.c_void_p.from_address(field).value = ctypes.addressof(_STANDS_FOR_IT)
        log.debug("PoCL does not know this processor: kernels are compiled for Haswell")


def _pointers_to(text: bytes, struct_address: int) -> list[int]:
    """Addresses of the fields of a structure that point to a text."""
    try:
        with open("/proc/self/mem", "rb", 0) as memory:  # a read from a bad address fails, and does not fault

            def read(address: int, n: int) -> bytes:
                try:
                    memory.seek(address)
                    return memory.read(n)
                except (OSError, ValueError, OverflowError):
                    return b""

            fields = read(struct_address, _DEVICE_BYTES)
            return [
                struct_address + at
                for at in range(0, len(fields) - 7, 8)
                if read(struct.unpack_from("<Q", fields, at)[0], len(text)) == text
            ]
    except OSError:
        return []
