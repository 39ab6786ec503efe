"""The parts of ``python -m tests.gpu``: what each consists of."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.gpu.collect import Case, cases

PROGRAMS, PAIRS = 400, 400  # random seeds
OPTIONS: Mapping[str, Any] = {"target": "cuda", "verify": "off", "cache": "off", "blas": False}
_KERNELS = "tests.kernels.cuda"


def operations() -> dict[str, Case]:
    """Ufuncs, casts and constants of all dtypes."""
    return _tests("test_operations")


def intrinsics() -> dict[str, Case]:
    """Threads, shared memory, wide accesses, atomics, shuffles, asynchronous copies."""
    return _tests("test_intrinsics")


def indices() -> dict[str, Case]:
    """Index polynomials."""
    return _tests("test_indices")


def functions() -> dict[str, Case]:
    """Whole functions, by default schedules: on NumPy arrays, and on CuPy arrays."""
    from tests.kernels.cuda.test_emit import CASES
    from tests.numpy_check import check

    found: dict[str, Case] = {}
    for name, (function, args, exact) in CASES.items():
        found[f"{name}, NumPy arrays"] = functools.partial(check, function, *args, exact=exact, **OPTIONS)
        found[f"{name}, CuPy arrays"] = functools.partial(_on_cupy, function, args, exact)
    return found


def applications() -> dict[str, Case]:
    """The applications of the benchmarks, small, on CuPy arrays."""
    from benchmarks import apps

    found: dict[str, Case] = {}
    for name in apps.NAMES:
        found[name] = functools.partial(_application, name, name)
        if name in ("harris", "unsharp"):
            found[f"{name}, channels last"] = functools.partial(_application, name, "channels_last")
    return found


def blocks() -> dict[str, Case]:
    """Schedules by hand, those of applications too, and what the threads of a block do together: reductions, scans,
    scatters; accesses side by side, copies to shared memory."""
    together = (
        "test_blocks",
        "test_block_reductions",
        "test_block_scans",
        "test_scatters",
        "test_parallel_scatters",
        "test_compaction",
    )
    accesses = (
        "test_rows",
        "test_copies",
        "test_coalescing",
        "test_lanes",
        "test_operands",
        "test_races",
        "test_share_memory",
    )
    return _tests(*together, *accesses, "test_application_schedules")


def calls() -> dict[str, Case]:
    """Calls with arrays of NumPy and CuPy: views, changes in place, transfers, bands of rows, extern calls, exceptions,
    complex numbers, Fourier transforms, CUDA graphs; what is kept of kernels, in memory and on disk."""
    return _tests(
        "test_calls", "test_bands", "test_geometry", "test_complex", "test_library", "test_graphs", "test_kernels"
    )


def _tests(*names: str) -> dict[str, Case]:
    """The tests of modules; of several, their names have the module's before them."""
    found = {name: cases(importlib.import_module(f"{_KERNELS}.{name}")) for name in names}
    is_one = len(names) == 1
    return {
        test if is_one else f"{name}: {test}": case for name, tests in found.items() for test, case in tests.items()
    }


def programs() -> dict[str, Case]:
    """Random programs by default schedules."""
    return {str(seed): functools.partial(_program, seed, None) for seed in range(PROGRAMS)}


def pairs() -> dict[str, Case]:
    """Random programs under random schedules."""
    from tests.kernels.cuda.pairs import RandomSchedule

    return {str(seed): functools.partial(_program, seed, RandomSchedule(seed)) for seed in range(PAIRS)}


PARTS: Mapping[str, Callable[[], dict[str, Case]]] = {
    f.__name__: f for f in (calls, applications, functions, blocks, intrinsics, indices, operations, pairs, programs)
}


# -- how they run


def _on_cupy(function: Callable[..., Any], args: tuple[Any, ...], exact: bool) -> None:
    """A function on CuPy arrays, twice, against NumPy; what it writes to its arguments, too."""
    import cupy  # type: ignore[import-not-found]

    import hjit
    from tests.numpy_check import assert_same

    f = hjit.pipeline(function, **OPTIONS)
    for _ in range(2):
        theirs = [x.copy(order="K") if isinstance(x, np.ndarray) and x.flags.writeable else x for x in args]
        ours = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in theirs]
        with np.errstate(all="ignore"):
            expected = function(*theirs)
        got = f(*ours)
        assert_same(_host(got, expected), expected, exact)
        assert_same([_host(x, e) for x, e in zip(ours, theirs, strict=True)], theirs, exact, where="arguments")
    assert f.stats.fallbacks == 0, "the plain function ran"


def _host(x: Any, like: Any) -> Any:
    """A result on the device as NumPy's: arrays without axes are scalars there."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(_host, x, like))
    return np.asarray(x.get())[() if isinstance(like, np.generic) else ...] if hasattr(x, "get") else x


def _application(name: str, function: str) -> None:
    import cupy

    import hjit
    from benchmarks import apps

    m = apps.load(name)
    rng = np.random.default_rng(1)
    args = m.inputs(rng, m.SMALL) if function == name else m.inputs_last(rng, m.SMALL)
    f = hjit.pipeline(getattr(m, function), **OPTIONS)
    expected = f.py_func(*args)
    relative, absolute = m.TOLERANCE
    for _ in range(2):
        got = f(*(cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in args))
        np.testing.assert_allclose(got.get(), expected, rtol=max(relative, 1e-6 * bool(relative)), atol=absolute)
    assert f.stats.fallbacks == 0, "the plain function ran"


def _program(seed: int, schedule: Any) -> None:
    from tests.fuzz import random_program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = random_program(seed).fails(schedule=schedule, **OPTIONS)
    assert why is None, why
