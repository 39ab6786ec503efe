"""Whole functions by kernels of the CUDA back end on PoCL: NumPy's numbers; and what NVRTC makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from benchmarks import apps
from hjit.kernels.cuda.compilers import nvrtc
from tests.kernels.cuda.launching import needs_opencl
from tests.kernels.cuda.on_opencl import module, on_opencl
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(5)
GRAY = RNG.random((37, 53), np.float32)
RGB = RNG.random((19, 23, 3), np.float32)
BYTES = RNG.integers(0, 256, (37, 53), np.uint8)
INTS = RNG.integers(-1000, 1000, (37, 53), np.int32)

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def stepped(a: Any) -> Any:
    out = np.zeros_like(a)
    out[::2, 1::3] = a[::2, 1::3] * 2
    out[1:, :-1] += a[:-1, 1:]
    return out


def scanned(a: Any) -> Any:
    out = a.copy()
    for y in range(1, a.shape[0]):
        out[y] = 0.25 * a[y] + 0.75 * out[y - 1]
    return out


def written(a: Any) -> Any:
    a[1:-1] = (a[:-2] + a[2:]) / 2
    return a.sum(axis=0)


def branched(a: Any) -> Any:
    return a / a.max() if a.max() > 2 else a * 3


LARGE = ("nl_means", "stencil_chain")  # a minute each on PoCL
CASES: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "point-wise": (lambda a: np.sqrt(a) * 2 + a // 0.25, (GRAY,), True),
    "channels": (lambda a: np.stack([a[..., 2], a.mean(axis=-1), a[..., 0]], axis=-1), (RGB,), False),
    "bytes": (lambda a: np.clip(a.astype(np.int16) * 3 // 2 - 20, 0, 255).astype(np.uint8), (BYTES,), True),
    "halves": (lambda a: (a.astype(np.float16) * 3).astype(np.float32), (GRAY,), True),
    "transcendental": (lambda a: np.exp(a) + np.arctan2(a, a + 1), (GRAY,), False),
    "edge": (lambda a: (p := np.pad(a, 2, mode="edge"))[:-4, 2:-2] + p[4:, 2:-2], (GRAY,), True),
    "reflect": (lambda a: np.pad(a, 3, mode="reflect")[1:-2, ::2], (INTS,), True),
    "wrap": (lambda a: np.roll(a, (3, -5), axis=(0, 1)) - a, (INTS,), True),
    "a constant around": (lambda a: np.pad(a, 1, constant_values=7)[:-2] * 2, (INTS,), True),
    "a filter": (lambda a: ndimage.convolve1d(a, [1, 2, 1], axis=0, mode="mirror"), (GRAY,), True),
    "sums": (lambda a: (a.sum(), a.sum(axis=1), a.max(axis=0), a.mean()), (GRAY,), False),
    "integer sums": (lambda a: (a.sum(), a.prod(axis=0), a.min()), (INTS,), True),
    "positions": (lambda a: (a.argmax(), a.argmin(axis=1)), (GRAY,), True),
    "truth": (lambda a: ((a > 3).any(axis=0), (a > -2000).all(), ~(a > 0)), (INTS,), True),
    "a product": (lambda a, b: a @ b, (GRAY, GRAY.T.copy()), False),
    "running sums": (lambda a: np.cumsum(a, axis=1), (INTS,), True),
    "rows that follow from one another": (scanned, (GRAY,), True),
    "a histogram": (lambda a: np.bincount(a.ravel(), minlength=256), (BYTES,), True),
    "a table": (lambda a, t: t[a], (BYTES, RNG.random(256)), True),
    "sorted neighbours": (lambda a: np.median(np.stack([a[:-2], a[1:-1], a[2:]]), axis=0), (GRAY,), True),
    "written with steps": (stepped, (INTS,), True),
    "written arguments": (written, (GRAY.copy(),), False),
    "a decision": (branched, (GRAY,), True),
    "a run-time number": (lambda a, k, n: (a * k > 1) | (a < n), (GRAY, 2.5, 1), True),
    "strides": (lambda a: a * 2 + 1, (INTS[::-2, ::3],), True),
    "columns": (lambda a: a.T - a.T[:1], (INTS,), True),
    "broadcast": (lambda a, b: a * b[:, None] + b[0], (INTS, np.broadcast_to(np.int32(3), 37)), True),
    "64 bits": (lambda a: (a.astype(np.int64) << 33) // 7 % 1000, (INTS,), True),
    "nothing": (lambda a: a[:0] * 2, (INTS,), True),
}  # fmt: skip


@needs_opencl
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_numpys(case: str) -> None:
    function, args, exact = CASES[case]
    if case == "nothing":
        check(function, *args)
        return
    with on_opencl():
        check(function, *args, exact=exact, tune=False, blas=False, numpy_if_faster=False)


@needs_opencl
def test_indices_out_of_bounds_raise() -> None:
    with on_opencl():
        check(lambda a, i: a[i], INTS, np.array([1, 2, 99]), tune=False)


@needs_opencl
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in apps.NAMES])
def test_applications_are_numpys(name: str) -> None:
    m = apps.load(name)
    args = m.inputs(np.random.default_rng(1), m.SMALL)
    with on_opencl():
        import hjit

        got = hjit.pipeline(getattr(m, name), tune=False, blas=False, verify="off", cache="off")(*args)
    relative, absolute = m.TOLERANCE
    np.testing.assert_allclose(got, getattr(m, name)(*args), rtol=max(relative, 1e-6 * bool(relative)), atol=absolute)


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 80, 90, 100])
def test_kernels_compile_to_machine_code(capability: int) -> None:
    if capability not in nvrtc.capabilities():
        pytest.skip(f"this NVRTC has no sm_{capability}")
    for case in ("channels", "reflect", "sums", "a product", "a histogram", "running sums", "halves"):
        function, args, _ = CASES[case]
        _, kernels = module(canonical(function, *args))
        made = nvrtc.compiled(kernels.text, capability)
        assert made.cubin and len(made.resources) == len({x.kernel for x in kernels.launches})
        assert all(r.spill_loads == 0 for r in made.resources.values()), case
