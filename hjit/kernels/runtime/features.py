"""Instruction-set features of this machine, or of the x86-64 level that is compiled for."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import llvmlite.binding as llvm

from hjit.errors import OptionError
from hjit.process import machine
from hjit.sched.language.target import Target, native_width, table_bytes


@lru_cache(maxsize=1)
def load_libraries() -> bool:
    """Make the C library's scalar and vector functions known to LLVM; True if there are vector functions."""
    for name in ("libm.so.6", "libmvec.so.1"):
        try:
            llvm.load_library_permanently(name)
        except RuntimeError:
            return False
    return True


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """Which of ``x86, sse4.1, avx2, avx512, f16c, fma, libmvec, neon, vbmi`` this machine has.

    And ``slow_gathers``, where single loads are mostly faster: on AMD's processors. On a Zen 5 they took, of 4 bytes,
    0.76 to 0.84 of the time for tables in the first two caches and up to 1.05 for others; of 8, 0.49 for an image.
    """
    triple = llvm.get_default_triple()
    if triple.startswith(("aarch64", "arm64")):
        return AARCH64 | ({"libmvec"} if load_libraries() and _has_newest_functions() else frozenset())
    found = set()
    if triple.startswith(("x86_64", "amd64")):
        cpu = llvm.get_host_cpu_features()
        found.add("x86")
        found.update(name for name in ("avx2", "f16c", "fma", "sse4.1") if cpu.get(name))
        if all(cpu.get(f"avx512{part}") for part in ("f", "bw", "dq", "vl")):
            found.add("avx512")
            found.update(["vbmi"] if cpu.get("avx512vbmi") else [])
        if llvm.get_host_cpu_name().startswith("znver"):
            found.add("slow_gathers")
        if load_libraries():
            found.add("libmvec")
    return frozenset(found)


def _has_newest_functions() -> bool:
    """The C library has aarch64's vector functions from 2.38 on, more in each release: are the last ones there?"""
    try:
        library = ctypes.CDLL("libmvec.so.1")
    except OSError:
        return False
    return all(hasattr(library, name) for name in NEWEST_OF_LIBMVEC)


NEWEST_OF_LIBMVEC = ("_ZGVnN2v_tanh", "_ZGVnN2vv_pow", "_ZGVnN2vv_hypot", "_ZGVnN2v_cbrt")
AARCH64 = frozenset({"neon", "fma"})  # what each of them has

# Levels of x86-64 that can be compiled for instead of this machine, as its psABI names them
_V2 = frozenset({"x86", "sse4.1"})
_V3 = _V2 | {"avx2", "f16c", "fma"}
CUDA = Target(kind="cuda")
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V3 | {"avx512"}}


def target_features(target: str) -> frozenset[str]:
    """The features to generate code for.

    Raises:
        OptionError: this machine lacks some of them.
    """
    host = host_features()
    if target == "cpu":
        return host
    missing = LEVELS[target] - host
    if missing:
        raise OptionError(f"target={target!r}: this machine has no {', '.join(sorted(missing))}")
    return LEVELS[target] | (host & {"libmvec"})


def schedule_target(target: str) -> Target:
    """The target as schedules know it; `target` as in `target_features`."""
    if target == "cuda":
        return CUDA
    found = target_features(target)
    return Target(native_width(found), table_bytes(found), machine.caches()["2"])
