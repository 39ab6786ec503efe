"""Complex arrays give what NumPy gives: its bits where an operation has them, and what is not compiled is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import scipy.signal

import hjit
from hjit.errors import TraceError
from tests.numpy_check import check, sample

Array = np.ndarray[Any, Any]
DTYPES = ("complex64", "complex128")
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda z: z,
    "F": np.asfortranarray,
    "transposed": lambda z: z.T.copy().T,
    "every second": lambda z: np.repeat(np.repeat(z, 2, 0), 3, 1)[::2, ::3],
    "rows from the end": lambda z: z[::-1].copy()[::-1],
    "broadcast": lambda z: np.broadcast_to(z[:1], z.shape),
}


def field(shape: Any = (20, 37), dtype: str = "complex128", seed: int = 0, special: bool = False) -> Array:
    """Complex numbers of ordinary size, or special ones among them."""
    if special:
        return sample(shape, dtype, seed)
    rng = np.random.default_rng(seed)
    z: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return z


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda z, w: z + w,
    "subtract": lambda z, w: z - w,
    "multiply": lambda z, w: z * w,
    "true_divide": lambda z, w: z / w,
    "negative": lambda z, w: -z,
    "positive": lambda z, w: +z,
    "conj": lambda z, w: (z.conj(), np.conj(w), np.conjugate(z)),
    "parts": lambda z, w: (z.real + w.imag, z.imag, np.real(z), np.imag(w)),
    "square": lambda z, w: (z**2, np.square(w)),
    "whole powers": lambda z, w: (z**3, w**4, np.power(z, 2), np.power(z, 1), z**7, z[0, 0] ** 5, w**10, w**8),
    "reciprocal": lambda z, w: (z**-1, np.reciprocal(w)),
    "compared": lambda z, w: (z == w, z != w, z == z, z == 1 + 2j, z != 0),
    "tested": lambda z, w: (np.isnan(z), np.isinf(z), np.isfinite(w), np.logical_not(z), z.astype(bool)),
    "logical": lambda z, w: (np.logical_and(z, w), np.logical_or(z, w), np.logical_xor(z, w)),
    "where": lambda z, w: (np.where(z.real > 0, z, w), np.where(z == w, 1j, w), np.where(w.imag > 0, z.real, 2 - 1j)),
    "constants": lambda z, w: (z * 2, z + 1j, (1 - 2j) * w, 3.5 / z, z / 2.0, z - np.float32(2), w * np.complex64(2j)),
    "real arrays": lambda z, w: (z * w.real, z.imag / w, z.real + w, w - z.imag, z.real.astype(np.int16) * w),
    "outer": lambda z, w: (
        np.outer(z[0], w[1]),
        np.outer(z[1].real, w[0]),
        np.outer(z[0], w[1], out=np.empty((37, 37), z.dtype)),
    ),
    "kron": lambda z, w: (np.kron(z[:3, :4], w[:2, :5]), np.kron(z[0], w[:2].real)),
    "out": lambda z, w: np.multiply(z, w, out=np.empty_like(z)),
    "cast": lambda z, w: (z.astype("complex64") + w, z.astype(np.complex128), z.real.astype(np.complex64)),
}
ROUNDED: dict[str, Callable[..., Any]] = {
    "absolute": lambda z, w: (np.abs(z), abs(w), np.absolute(z)),
    "angle": lambda z, w: (np.angle(z), np.angle(w, deg=True), np.angle(z.real)),
    "exp": lambda z, w: (np.exp(z), np.exp(1j * z.real), np.exp(-1j * np.pi * w.imag)),
    "polar": lambda z, w: np.abs(z) * np.exp(1j * np.angle(w)),
}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_operations_with_the_bits_of_numpy(name: str, dtype: str, special: bool) -> None:
    check(EXACT[name], field(dtype=dtype, special=special), field(dtype=dtype, seed=1, special=special))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_operations(name: str, dtype: str) -> None:
    check(ROUNDED[name], field(dtype=dtype), field(dtype=dtype, seed=1), exact=False, ulps=8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_rounded_operations(dtype: str) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -2.5, 90.0, -90.0, 720.0, np.inf, -np.inf, np.nan])
    z = np.empty((10, 10), dtype)
    z.real, z.imag = numbers[:, None], numbers
    pipe = hjit.pipeline(lambda z: (np.exp(z), np.abs(z), np.angle(z)), verify="off", on_unsupported="raise")
    with np.errstate(all="ignore"):
        expected = np.exp(z), np.abs(z), np.angle(z)
    for ours, numpys in zip(pipe(z), expected, strict=True):
        for part in (np.real, np.imag):
            a, b = part(ours), part(numpys)
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            np.testing.assert_allclose(a, b, rtol=8 * float(np.finfo(a.dtype).eps))
            np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype: str, layout: str) -> None:
    z, w = (LAYOUTS[layout](field(dtype=dtype, seed=k)) for k in (0, 1))
    pipe = check(lambda z, w: (z * w + 1, z.conj(), z.real, -w.imag), z, w)
    ours, numpys = pipe(z, w), (z * w + 1, z.conj(), z.real, -w.imag)
    assert [x.strides for x in ours] == [x.strides for x in numpys]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3), (0, 4), (3, 1, 18)])
def test_shapes(shape: tuple[int, ...]) -> None:
    z, w = (field(shape, seed=k) for k in (0, 1))
    check(lambda z, w: (z * w, z + 1j, z.real, np.conj(w)), np.asarray(z), np.asarray(w))


def test_numpy_promotion() -> None:
    arrays = [field((5, 20), d) for d in DTYPES] + [
        np.ones((5, 20), d) for d in ("uint8", "int64", "float32", "float64")
    ]
    for a in arrays[:2]:
        for b in arrays:
            check(lambda a, b: (a + b, b - a, a * 2.5, a * 1j, a * np.float64(2), b * 2j, np.result_type(a, b)), a, b)


def test_scalars_of_numpy_round_twice() -> None:
    """``a[0] * b[0]`` is not fused, though ``a * b`` is."""
    z, w = (field((300,), seed=k) for k in (0, 1))
    check(lambda z, w: [z[k] * w[k] for k in range(20)], z, w)
    check(lambda z, w: [z[k] ** 2 for k in range(20)], z, w)
    check(lambda z, w: (z[3] * w, z * w[2], z[3] + 1j, z[4].real, z[5] / w[1]), z, w)


# -- indexing and views


def set_shapes(z: Any, *shapes: Any) -> Any:
    seen = z.view()
    for shape in shapes:
        seen.shape = shape
    seen[0] = 1j
    return z, seen, seen.shape


VIEWS: dict[str, Callable[[Array], Any]] = {
    "slices": lambda z: (z[2:-1, ::3] * 2, z[::-1, 5:20], z[..., 3], z[4], z[None, :, 0]),
    "one": lambda z: (z[3, 4], z[-1, 0], z[3, 4, ...]),
    "integer arrays": lambda z: (z[[3, 1, 1]], z[:, [0, 5]], z[np.array([1, 2]), np.array([3, 4])]),
    "transposes": lambda z: (z.T * 1j, np.transpose(z) + 1, np.swapaxes(z, 0, 1), np.moveaxis(z, 0, 1) - 1),
    "reshapes": lambda z: (z.reshape(-1) + 1, z.ravel() * 2, z.reshape(5, 4, -1) - 1j, z.flatten(), z.ravel("F")),
    "flips": lambda z: (np.flip(z) + 1, np.flipud(z), np.fliplr(z) * 2, np.rot90(z), np.flip(z, 1)),
    "rolls": lambda z: (np.roll(z, 3, 0), np.roll(z, (-2, 5), (0, 1)), np.roll(z, 7)),
    "shifts": lambda z: (
        np.fft.fftshift(z),
        np.fft.ifftshift(z),
        np.fft.fftshift(z.real, 1),
        np.fft.ifftshift(z, (0,)),
    ),
    "joins": lambda z: (
        np.concatenate([z, z.real, z[:3]]),
        np.stack([z, -z]),
        np.hstack([z, z]),
        np.vstack([z, z.imag]),
        np.dstack([z, z]),
    ),
    "selected": lambda z: np.select([z.real > 0, z.imag > 0], [z, z * 2], 1j),
    "flat": lambda z: (z.flat[3], z.flat[5:9] * 2),
    "seen": lambda z: (z.view(z.real.dtype) * 2, z.view(z.real.dtype).view(z.dtype) + 1),
    "spaces": lambda z: np.linspace(0, 1j, 5) * z[:, :5],
    "pads": lambda z: (
        np.pad(z, 1, constant_values=2 - 1j),
        np.pad(z, 2),
        np.pad(z, ((1, 2), (0, 3)), mode="edge"),
        np.pad(z, 3, mode="reflect"),
        np.pad(z, 3, mode="reflect", reflect_type="odd"),
        np.pad(z, 2, mode="maximum"),
        np.pad(z, ((1, 2), (0, 3)), mode="minimum", stat_length=5),
    ),
    "shapes that are set": lambda z: set_shapes(z * 2, (-1, 4), -1, (5, 8, -1)),
    "broadcasts": lambda z: (np.broadcast_to(z[0], (4, 37)) + 1, z[:, :1] * z[:1], np.expand_dims(z, 1) * 1j),
    "new": lambda z: (
        np.zeros(z.shape, complex) + z,
        np.ones_like(z) * 2j,
        np.zeros((3, 4), dtype=np.complex64),
        np.full(z.shape, 2 - 1j) - z,
        np.empty_like(z, dtype=np.float32).shape,
        np.zeros_like(z.real, dtype=complex),
        np.full_like(z, 1j),
        np.zeros(z.shape, "complex64"),
    ),
    "arrays": lambda z: (
        np.asarray(z) + 1,
        np.array(z),
        np.array([z[0, 0], 1j, 2]),
        np.ascontiguousarray(z.T),
        z.copy(),
    ),
    "triangles": lambda z: (np.tril(z), np.triu(z, 1), np.diagonal(z) + 1, np.trace(z)),
    "differences": lambda z: (np.diff(z), np.diff(z, axis=0)),
    "repeats": lambda z: (np.repeat(z, 3, 0), np.tile(z, (2, 1)), np.take(z, [1, 2], 0)),
    "names": lambda z: (
        z.shape,
        z.ndim,
        z.size,
        z.dtype,
        z.itemsize,
        z.nbytes,
        np.iscomplexobj(z),
        np.isrealobj(z),
        len(z),
    ),
    "questions": lambda z: (isinstance(z, np.ndarray), z.dtype.kind == "c", np.iscomplex(z), np.isreal(z)),
    "repaired": lambda z: np.nan_to_num(z),
    "loops": lambda z: [row * 2 for row in z[:3]],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_new_arrays(name: str, dtype: str) -> None:
    check(VIEWS[name], field(dtype=dtype), exact=name != "triangles", ulps=64)


def test_shapes_that_numpy_does_not_set() -> None:
    def transposed(z: Any) -> Any:
        seen = (z * 2).T
        seen.shape = -1
        return seen

    def argument(z: Any) -> Any:
        z.shape = -1
        return z * 2

    check(transposed, field())
    with pytest.raises(hjit.TraceError, match="outlives"):
        hjit.pipeline(argument)(field())


def test_flags_and_strides() -> None:
    def seen(z: Any) -> Any:
        return z.flags.c_contiguous, z.T.flags.c_contiguous, z.T.flags["F"], z.strides, z[:, ::2].strides

    check(seen, field())


def writes_parts(z: Any) -> Any:
    z.real = 1
    z.imag[2:4] = z.imag[3:5] * 2
    return z


def writes_slices(z: Any, w: Any) -> Any:
    z[1:3] = w[:2] * 1j
    z[:, 0] = 5
    z[4, 4] = 2 - 3j
    z[::2, 3] = w.real[::2, 0]
    z[z.real > 1] = 0
    z[[7, 9]] = w[[1, 2]]
    return z.sum()


def writes_in_place(z: Any, w: Any) -> Any:
    z += w
    z *= 2j
    z[2:] -= w[2:]
    z /= w + 3
    view = z.T
    view[3] = 1
    z **= 2


def writes_new_array(z: Any, w: Any) -> Any:
    out = np.zeros((30, 40), dtype=z.dtype)
    out[5:25, 2:39] = z
    out[:5] = w[0, 0]
    half = out[::2]
    half[:, ::2] += 1j
    np.copyto(out[:3], 2.5)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [writes_slices, writes_in_place, writes_new_array])
def test_assignment(function: Any, dtype: str) -> None:
    check(function, field(dtype=dtype), field(dtype=dtype, seed=1), exact=False, ulps=8)


def test_assignment_to_parts() -> None:
    check(writes_parts, field())


def test_results_share_memory_as_in_numpy() -> None:
    pipe = hjit.pipeline(lambda z: (z, z.real, z[2:, 0], z.T), verify="off", on_unsupported="raise")
    z = field()
    same, real, part, turned = pipe(z)
    assert same is z
    assert all(np.shares_memory(x, z) for x in (real, part, turned))
    real[0, 0] = 7
    assert z[0, 0].real == 7
    new = hjit.pipeline(lambda z: (w := z * 2, w.imag, w[1:])[:3], verify="off", on_unsupported="raise")
    w, imag, rest = new(z)
    assert np.shares_memory(w, imag)
    assert np.shares_memory(w, rest)


def adds(a: Any, b: Any) -> Any:
    a += b
    return a * 2


@pytest.mark.parametrize(
    "arguments",
    [lambda z: (z, z), lambda z: (z[1:], z[:-1]), lambda z: (z, z.real), lambda z: (z[:5], z[5:10])],
    ids=["the same", "overlapping", "its part", "apart"],
)
def test_arguments_that_share_memory(arguments: Callable[[Array], tuple[Array, ...]]) -> None:
    pipe = hjit.pipeline(adds, verify="off", on_unsupported="raise")
    for _ in range(2):
        ours, numpys = field(), field()
        np.testing.assert_array_equal(pipe(*arguments(ours)), adds(*arguments(numpys)))
        np.testing.assert_array_equal(ours, numpys)


def test_fields_of_structures() -> None:
    """Whose numbers do not lie at multiples of their size."""
    records = np.zeros((5, 20), [("flag", "u1"), ("number", "c16")])
    records["number"] = field((5, 20))
    pipe = hjit.pipeline(lambda z: (z * 2j, z.real), verify="off", on_unsupported="raise")
    np.testing.assert_array_equal(pipe(records["number"])[0], records["number"] * 2j)
    np.testing.assert_array_equal(pipe(records["number"])[1], records["number"].real)


def recurrence(z: Any) -> Any:
    out = z.copy()
    for y in range(1, z.shape[0]):
        out[y] = out[y] + 0.5j * out[y - 1]
    return out


def rows(z: Any) -> Any:
    out = np.zeros_like(z)
    for y in range(1, z.shape[0]):
        out[y] = z[y] * 2 + z[y - 1].conj()
    return out


@pytest.mark.parametrize("function", [recurrence, rows])
def test_loops_over_rows(function: Any) -> None:
    check(function, field((150, 20)), exact=function is rows, ulps=8)


def test_read_only() -> None:
    z = field()
    z.flags.writeable = False
    check(lambda z: z * 2, z)

    def writes(z: Any) -> None:
        z[0] = 1

    check(writes, z)


def escapes(c: Any) -> Any:
    """Iterations of the Mandelbrot set."""
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for _ in range(5):
        inside = np.abs(z) < 2
        z[inside] = z[inside] ** 2 + c[inside]
        count[inside] += 1
    z[count == 5] = 0
    return z, count, c[c.real > 0].mean(), (c[c.imag < 1] * 1j).sum()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_read_under_a_mask(dtype: str) -> None:
    check(escapes, field(dtype=dtype), exact=False, ulps=64)


# -- reductions and products

SUMS: dict[str, Callable[[Array], Any]] = {
    "sum": lambda z: (z.sum(), np.sum(z, 0), z.sum(axis=1, keepdims=True), np.sum(z, (0, 1)), np.add.reduce(z, 1)),
    "mean": lambda z: (z.mean(), np.mean(z, axis=0), z.mean(1, keepdims=True)),
    "spread": lambda z: (z.var(), np.std(z, axis=1), np.var(z, 0, ddof=1)),
    "masked": lambda z: np.sum(z, where=z.real > 0),
    "any": lambda z: (z.any(), np.all(z, axis=0), np.count_nonzero(z)),
    "extreme": lambda z: (np.abs(z).max(), np.abs(z).argmax(), z.real.min()),
    "cumsum": lambda z: (np.cumsum(z, 0), z.cumsum(1)),
    "power": lambda z: (np.abs(z) ** 2).sum(),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SUMS)
def test_reductions(name: str, dtype: str) -> None:
    check(SUMS[name], field(dtype=dtype), exact=False, ulps=64)


PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": lambda z, w: (z @ w.T, np.matmul(z.conj(), w.T)),
    "dot": lambda z, w: (np.dot(z, w.T), z.dot(w[0]), np.vdot(z, w), np.inner(z, w)),
    "real": lambda z, w: (z @ w.real.T, z.real @ w.T),
    "large": lambda z, w: (np.tile(z, (4, 1)) @ np.tile(w, (3, 1)).T + 1, np.tile(z, (3, 1)).conj() @ w.real.T),
    "outer": lambda z, w: (np.outer(z[0], w[1]), np.multiply.outer(z[0], w[1])),
    "convolve": lambda z, w: np.convolve(z[0], np.array([1j, 2, 1 - 1j])),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: str) -> None:
    check(PRODUCTS[name], field(dtype=dtype), field(dtype=dtype, seed=1), exact=False, ulps=64)


# -- numbers of the caller, and captured arrays


def test_numbers_are_parameters() -> None:
    pipe = check(lambda z, c: (z * c, c * z.real + 1, np.abs(z - c)), field(), 2 - 1j, exact=False, ulps=4)
    z = field(seed=3)
    for c in (1j, 5.0 + 0j, complex(0, np.nan), -1 + 2j):
        np.testing.assert_array_equal(pipe(z, c)[0], z * c)
    assert pipe.stats.traces == 1
    assert pipe.stats.fallbacks == 0
    check(lambda z, f: z * np.exp(2j * np.pi * f), field(), 0.125, exact=False, ulps=4)
    check(lambda z, c: (z + c, c.real, c.conjugate()), field(dtype="complex64"), np.complex64(2 + 1j))


def test_a_scale_times_an_imaginary_unit_is_a_parameter() -> None:
    pipe = hjit.pipeline(lambda x, f: np.exp(2j * np.pi * f * x), verify="off", on_unsupported="raise")
    x = np.linspace(0, 1, 1000)
    for f in (3.0, 4.5, 7.25):
        np.testing.assert_allclose(pipe(x, f), np.exp(2j * np.pi * f * x), rtol=1e-13)
    assert pipe.stats.traces == 1


@pytest.mark.parametrize("c", [2, 2.5, True, 1 + 2j, np.float32(3), np.int8(3), np.complex64(1 + 2j), [1, 2.0]])
def test_parts_of_numbers_are_numbers(c: Any) -> None:
    check(lambda a, c: (a + 1, np.real(c), np.imag(c)), np.ones(5), c)
    check(lambda z, c: (z + 1, np.real(c), np.imag(c)), field(), c)


KERNEL = field((3, 3))


def test_captured_arrays_are_read_at_every_call() -> None:
    pipe = check(lambda z: z[:3, :3] * KERNEL, field())
    z = field()
    KERNEL[0, 0] = 5j
    np.testing.assert_array_equal(pipe(z), z[:3, :3] * KERNEL)


WRITTEN = np.zeros((20, 37), complex)


def test_captured_arrays_are_written() -> None:
    def writes(z: Any) -> Any:
        WRITTEN[...] = z * 2
        WRITTEN.imag[0] += 1
        return WRITTEN[0] + 1

    pipe = hjit.pipeline(writes, verify="off", on_unsupported="raise")
    for seed in range(2):
        z = field(seed=seed)
        got = pipe(z)
        expected = z * 2
        expected.imag[0] += 1
        np.testing.assert_array_equal(WRITTEN, expected)
        np.testing.assert_array_equal(got, expected[0] + 1)


def test_a_captured_array_of_another_dtype_is_traced_anew() -> None:
    module = {"factor": np.array([1j, 2])}
    pipe = hjit.pipeline(lambda z: z[:, :2] * module["factor"], verify="off", on_unsupported="raise")
    for factor in (np.array([1j, 2]), np.array([3.0, 4]), np.array([1j, 2], np.complex64)):
        module["factor"] = factor
        np.testing.assert_array_equal(pipe(field()), field()[:, :2] * factor)


def test_lists_of_arrays() -> None:
    check(lambda zs: zs[0] + zs[1] * 1j, [field(), field(seed=1)])
    check(lambda zs: {"sum": zs["a"] + 1, "list": [zs["a"].real]}, {"a": field()})


# -- transforms

TRANSFORMS: dict[str, Callable[[Array], Any]] = {
    "fft": lambda z: np.fft.ifft(np.fft.fft(z * 2) * 1j),
    "fft2": lambda z: np.abs(np.fft.fft2(z)) ** 2,
    "rfft2": lambda z: np.fft.irfft2(np.fft.rfft2(z.real) * 0.5, s=z.shape),
    "fftn": lambda z: np.real(np.fft.ifftn(np.fft.fftn(z) / (1 + np.abs(z)))),
    "shifted": lambda z: np.fft.fftshift(np.fft.fft2(z))[5:, 3:] + 1,
    "frequencies": lambda z: z * np.exp(-2j * np.pi * np.fft.fftfreq(z.shape[1])),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, dtype: str) -> None:
    check(TRANSFORMS[name], field(dtype=dtype), exact=False, ulps=16)


def test_what_has_no_formula_is_called() -> None:
    check(lambda z: (np.sqrt(z + 1), np.log(z * 2), np.sin(z), z**-3, z**0.5, 2**z), field(), exact=False, ulps=8)
    check(lambda z: (z.max(), np.min(z, 0), z.argmax(), np.sort(z, 1), z.clip(0, 1)), field(), exact=False, ulps=8)
    check(lambda z: (np.prod(z[:2], axis=0), z[0, :5].prod(), np.cumprod(z[:3], 0)), field(), exact=False, ulps=8)
    check(lambda z: np.linalg.inv(z[:5, :5] * 2 + 3 * np.eye(5)), field(), exact=False, ulps=64)


CALLED: dict[str, Callable[[Array], Any]] = {
    "a filter": lambda z: scipy.ndimage.gaussian_filter(z, 1.0) * 2,
    "fourier": lambda z: np.fft.ifft2(scipy.ndimage.fourier_shift(np.fft.fft2(z.real), (1.5, 2))).real,
    "fftconvolve": lambda z: scipy.signal.fftconvolve(z, z[:5, :5], mode="same") + 1,
    "convolve2d": lambda z: scipy.signal.convolve2d(z.real, np.ones((3, 3)) * 1j, mode="same") * 2,
    "interpolation": lambda z: scipy.ndimage.map_coordinates(z, np.mgrid[0:5, 0:5] * 1.5, order=1),
    "scipy.fft": lambda z: np.abs(scipy.fft.ifft2(scipy.fft.fft2(z) * 2)),
    "weights": lambda z: np.average(z, axis=0, weights=np.arange(20)),
    "windows": lambda z: np.lib.stride_tricks.sliding_window_view(z, (3, 3)).sum((-1, -2)),
    "by strides": lambda z: np.lib.stride_tricks.as_strided(z, (3, 3), (z.itemsize, z.itemsize)) * 2,
    "chosen": lambda z: np.choose((z.real > 0).astype(int), [z, z * 2]),
}


@pytest.mark.parametrize("name", CALLED)
def test_functions_that_are_called_as_they_are(name: str) -> None:
    check(CALLED[name], field(), exact=False, ulps=64)


def test_functions_that_write() -> None:
    def writes(z: Any) -> Any:
        np.put(z, [1, 5], [1j, 2])
        np.putmask(z, z.real > 1, 2j)
        return z * 2

    check(writes, field())


# -- refusals


def into_real(x: Any, z: Any) -> Any:
    x[0] = z[0]
    return x


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "into one": (lambda z: np.prod(z, axis=0, out=z[0]), (field(),)),
    "method": (lambda z: np.multiply.reduce(z), (field(),)),
    "at": (lambda z: np.add.at(z, ([1, 1], [2, 2]), 1j), (field(),)),
    "a mask": (lambda z: z[z.real > 0] * 2, (field(),)),
    "two masks": (lambda z: z[z.real > 0][1:], (field(),)),
    "to real": (lambda z: z.astype(float), (field(),)),
    "into a real array": (into_real, (field().real.copy(), field())),
    "long double": (lambda z: z * 2, (field().astype(np.clongdouble),)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_what_is_refused_runs_as_numpy_has_it(name: str) -> None:
    function, args = REFUSED[name]
    with pytest.raises(TraceError):
        hjit.pipeline(function, on_unsupported="raise")(*[x.copy() for x in args])
    pipe = hjit.pipeline(function, on_unsupported="break")
    for _ in range(2):
        np.testing.assert_array_equal(pipe(*[x.copy() for x in args]), function(*[x.copy() for x in args]))


def test_what_numpy_refuses() -> None:
    check(lambda z: z[0, 0, 0], field())
    check(lambda z: z + np.ones((3, 4)), field())
    check(lambda z: z.reshape(7, -1), field())
    check(lambda z: np.multiply(z, 2, out=np.empty(z.shape)), field())
    check(lambda z: z % 2, field())


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_are_verified(dtype: str) -> None:
    """What is computed in NumPy's order has its bits, and what is fused is as near as that."""
    functions = (EXACT["multiply"], EXACT["true_divide"], ROUNDED["exp"], PRODUCTS["matmul"], EXACT["square"])
    for function in functions:
        pipe = hjit.pipeline(function, on_unsupported="raise", cache="off")
        z, w = field(dtype=dtype), field(dtype=dtype, seed=1)
        pipe(z[::1], w)
        assert pipe.stats.verified
        assert pipe.stats.flipped == 0
    pipe = hjit.pipeline(EXACT["multiply"], on_unsupported="raise", cache="off")
    pipe(field(dtype=dtype)[:, ::-1], field(dtype=dtype)[:, ::-1])  # which NumPy computes by another loop
    assert pipe.stats.verified
