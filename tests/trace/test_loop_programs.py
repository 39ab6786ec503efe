"""Loops that no update of whole arrays says: slices that move with them, several loops inside, computed indices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.capture.attempts import Attempts
from tests.numpy_check import check
from tests.trace.nesting import with_source

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 2, 3, 16, 17, 25, 70, 83)  # of few iterations each is traced by itself


def trisolv(a: Array, x: Array, b: Array) -> None:
    for i in range(x.shape[0]):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]


def lu(a: Array) -> None:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]


def lu_by_rows(a: Array) -> None:
    n = a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]


def ludcmp(a: Array, b: Array) -> tuple[Array, Array]:
    x, y = np.zeros_like(b), np.zeros_like(b)
    lu(a)
    for i in range(a.shape[0]):
        y[i] = b[i] - a[i, :i] @ y[:i]
    for i in range(a.shape[0] - 1, -1, -1):
        x[i] = (y[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x, y


def cholesky(a: Array) -> None:
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])


def durbin(r: Array) -> Array:
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def gramschmidt(a: Array) -> tuple[Array, Array]:
    q = np.zeros_like(a)
    r = np.zeros((a.shape[1], a.shape[1]), dtype=a.dtype)
    for k in range(a.shape[1]):
        nrm = np.dot(a[:, k], a[:, k])
        r[k, k] = np.sqrt(nrm)
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def seidel(steps: int, a: Array) -> None:
    n = a.shape[0]
    for _ in range(steps):
        for i in range(1, n - 1):
            a[i, 1:-1] += (
                a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 2:] + a[i + 1, :-2] + a[i + 1, 1:-1] + a[i + 1, 2:]
            )
            for j in range(1, n - 1):
                a[i, j] += a[i, j - 1]
                a[i, j] /= 9.0


def syrk(alpha: float, beta: float, c: Array, a: Array) -> None:
    for i in range(a.shape[0]):
        c[i, : i + 1] *= beta
        for k in range(a.shape[1]):
            c[i, : i + 1] += alpha * a[i, k] * a[: i + 1, k]


def covariance(data: Array) -> Array:
    mean = np.mean(data, axis=0)
    data -= mean
    n, m = data.shape
    cov = np.zeros((m, m), dtype=data.dtype)
    for i in range(m):
        cov[i:m, i] = cov[i, i:m] = data[:, i] @ data[:, i:m] / (n - 1.0)
    return cov


def trmm(alpha: float, a: Array, b: Array) -> None:
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= alpha


def symm(alpha: float, beta: float, c: Array, a: Array, b: Array) -> None:
    temp = np.empty((c.shape[1],), dtype=c.dtype)
    c *= beta
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[:i, j] += alpha * b[i, j] * a[i, :i]
            temp[j] = b[:i, j] @ a[i, :i]
        c[i, :] += alpha * b[i, :] * a[i, i] + alpha * temp


def positive(n: int) -> Array:
    a = np.random.default_rng(n).random((n, n))
    return a @ a.T + n * np.eye(n)


def rows(n: int, *more: int) -> Array:
    return np.random.default_rng([n, *more]).random((n, *more))


LOOPS: dict[str, tuple[Any, Any]] = {
    "trisolv": (trisolv, lambda n: (np.tril(rows(n, n)) + 2 * np.eye(n), np.zeros(n), rows(n))),
    "lu": (lu, lambda n: (positive(n),)),
    "lu by rows": (lu_by_rows, lambda n: (positive(n),)),
    "ludcmp": (ludcmp, lambda n: (positive(n), rows(n))),
    "cholesky": (cholesky, lambda n: (positive(n),)),
    "durbin": (durbin, lambda n: (rows(n) / max(n, 1),)),
    "gramschmidt": (gramschmidt, lambda n: (rows(n + 3, n) + np.eye(n + 3, n),)),
    "seidel": (seidel, lambda n: (3, rows(n, n))),
    "syrk": (syrk, lambda n: (1.5, 1.2, rows(n, n), rows(n, n + 1))),
    "covariance": (covariance, lambda n: (rows(n + 2, n),)),
    "trmm": (trmm, lambda n: (1.5, rows(n, n), rows(n, n + 2))),
    "symm": (symm, lambda n: (1.5, 1.2, rows(n, n + 1), rows(n, n), rows(n, n + 1))),
}
EXACT = ("lu by rows", "seidel", "syrk")


def is_program(f: Any, *args: Any) -> bool:
    """Is a function compiled as a whole, its loops as a program?"""
    return str(f.explain(*args)).startswith(f"{f.__name__} runs compiled") and "loops, compiled" in f.explain(*args)


@pytest.mark.parametrize("name", LOOPS)
def test_slices_that_move_with_loops(name: str) -> None:
    f, given = LOOPS[name]
    for n in SIZES:
        if n or name not in ("cholesky", "durbin"):
            check(f, *given(n), exact=name in EXACT, ulps=2000, on_unsupported="break")
    n = 90 if name in ("seidel", "trmm") else 20  # slices that do not move are unrolled where they are few
    p = check(f, *given(n), exact=name in EXACT, ulps=2000, on_unsupported="break")
    assert is_program(p, *given(n))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_sums_of_other_dtypes(dtype: Any) -> None:
    def f(a: Array, b: Array) -> Array:
        out = np.zeros(a.shape[0], a.dtype)
        for i in range(a.shape[0]):
            out[i] = a[i, :i] @ b[:i] + out[:i].sum()
        return out

    for n in SIZES:
        a, b = ((rows(n, *more) * 20).astype(dtype) / dtype(4) for more in ((n,), ()))
        check(f, a.astype(dtype), b.astype(dtype), exact=dtype is not np.float32, on_unsupported="break")


# -- computed indices


def test_scatters_at_computed_ints() -> None:
    def histogram(img: Array) -> Array:
        hist = np.zeros(256, np.int64)
        for y in range(img.shape[0]):
            for x in range(img.shape[1]):
                hist[int(img[y, x])] += 1
        return hist

    def scatter(index: Array, v: Array, n: int) -> Array:
        out = np.zeros(n)
        for i in range(index.shape[0]):
            out[index[i]] = v[i]
        return out

    r = np.random.default_rng(0)
    for shape in ((0, 0), (1, 1), (2, 3), (19, 23), (70, 80)):
        p = check(histogram, r.integers(0, 256, shape).astype(np.uint8), on_unsupported="break")
        n = int(np.prod(shape))
        check(scatter, r.integers(-7, 7, n), r.random(n), 7, on_unsupported="break")
    assert is_program(p, r.integers(0, 256, (70, 80)).astype(np.uint8))


# -- complex numbers that loops carry


def complex_rows(*shape: int) -> Array:
    r = np.random.default_rng(shape)
    z: Array = r.uniform(-1.5, 1.5, shape) + 1j * r.uniform(-1.5, 1.5, shape)
    return z


def mandelbrot(re: Array, im: Array, most: int) -> Array:
    out = np.zeros(re.shape, np.int32)
    for y in range(re.shape[0]):
        for x in range(re.shape[1]):
            c = complex(re[y, x], im[y, x])
            z = 0j
            n = 0
            while n < most and z.real * z.real + z.imag * z.imag <= 4.0:
                z = z * z + c
                n += 1
            out[y, x] = n
    return out


def mandelbrot_of_complex(c: Array, most: int) -> Array:
    out = np.zeros(c.shape, np.int32)
    for y in range(c.shape[0]):
        for x in range(c.shape[1]):
            z = 0j
            for _ in range(most):
                if abs(z) > 2:
                    break
                z = z * z + c[y, x]
                out[y, x] += 1
    return out


def julia(z0: Array, c: complex, most: int) -> Array:
    out = np.zeros(z0.shape, np.int64)
    for y in range(z0.shape[0]):
        for x in range(z0.shape[1]):
            z = z0[y, x]
            for _ in range(most):
                if z.real * z.real + z.imag * z.imag > 4.0:
                    break
                z = z * z + c
                out[y, x] += 1
    return out


def horner(p: Array, zs: Array) -> Array:
    out = np.zeros_like(zs)
    for i in range(zs.shape[0]):
        acc = 0j
        for k in range(p.shape[0]):
            acc = acc * zs[i] + p[k]
        out[i] = acc
    return out


def last(z: Array) -> Any:
    acc = np.complex64(0)
    for i in range(z.shape[0]):
        acc = acc * np.float32(0.5) + z[i]
        if acc.real > 1:
            acc = acc.conjugate()
    return acc


COMPLEX: dict[str, tuple[Any, Any]] = {
    "mandelbrot": (mandelbrot, lambda n: (complex_rows(n, n + 1).real, complex_rows(n + 1, n).imag.T, 60)),
    "mandelbrot of complex": (mandelbrot_of_complex, lambda n: (complex_rows(n, n + 1), 60)),
    "julia": (julia, lambda n: (complex_rows(n, n + 1), -0.4 + 0.6j, 60)),
    "horner": (horner, lambda n: (rows(n), complex_rows(n + 1))),
    "horner in single precision": (horner, lambda n: (rows(n).astype("f"), complex_rows(n + 1).astype("F"))),
    "one of two": (last, lambda n: (complex_rows(n).astype("F"),)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_loops_carry_complex_numbers(name: str) -> None:
    f, given = COMPLEX[name]
    for n in (0, 1, 2, 70):
        p = check(f, *given(n), on_unsupported="break")
    assert str(p.explain(*given(70))).startswith(f"{f.__name__} runs compiled")


def test_pixels_are_not_traced_one_by_one_where_each_has_a_loop_traced_as_one() -> None:
    p = hjit.pipeline(mandelbrot_of_complex, cache="off", tune=False, on_unsupported="break")
    c = complex_rows(40, 41)
    np.testing.assert_array_equal(p(c, 60), mandelbrot_of_complex(c, 60))
    assert is_program(p, c, 60)


def test_complex_numbers_of_python() -> None:
    def f(a: Array, b: Array) -> tuple[Any, ...]:
        x, y = float(a[0]), float(b[0])
        z = complex(x, y)
        return z, z * 2 + 1j, abs(z), -z, z.real, z * a, z * np.float32(2), complex(np.complex64(z)), complex(x)

    check(f, rows(20), rows(21))
    check(f, rows(20).astype("f"), rows(21))

    def quotient(a: Array) -> Any:
        return complex(a[0], a[1]) / complex(a[2], a[3])

    check(quotient, rows(20), on_unsupported="break")
    with pytest.raises(ZeroDivisionError):
        hjit.pipeline(quotient, on_unsupported="break")(np.zeros(20))


def test_products_with_parts_of_matrices() -> None:
    def f(a: Array, x: Array) -> tuple[Array, Array]:
        out, other = np.zeros(a.shape), np.zeros(a.shape)
        for i in range(a.shape[0]):
            out[i, i:] = x[:i] @ a[:i, i:]
            other[i, :i] = a[:i, i:] @ x[i:] + out[i, :i]
        return out, other

    for n in (1, 2, 70, 93):
        check(f, rows(n, n), rows(n), exact=False, on_unsupported="break")
        check(f, (rows(n, n) * 99).astype(np.int32), np.arange(n, dtype=np.int32), on_unsupported="break")


def test_slices_that_end_before_they_begin() -> None:
    def f(a: Array, x: Array) -> Array:
        out = np.zeros(a.shape)
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                out[i, j] = a[i, i:j].sum() - x[j:i] @ a[j:i, j]
                out[j, i:j] += a[i, i:j] * 0.5
                out[i, i:j] -= x[i:j][::-1]
        return out

    def means(a: Array) -> Array:
        out = np.zeros(a.shape)
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                out[i, j] = a[i:j, j].mean()
        return out

    for n in (2, 3, 20, 27):
        check(f, rows(n, n), rows(n), exact=False, on_unsupported="break")
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        p = check(means, rows(20, 20), exact=False, on_unsupported="break")
    assert is_program(p, rows(20, 20))


def test_extremes_of_slices() -> None:
    def f(a: Array) -> Array:
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            out[i] = a[: i + 1].max() + a[i:].min()
        return out

    def may_be_empty(a: Array) -> Array:
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            out[i] = a[:i].max()
        return out

    for n in (1, 2, 20, 90):
        p = check(f, rows(n), on_unsupported="break")
        check(may_be_empty, rows(n), on_unsupported="break")  # NumPy raises
    assert is_program(p, rows(90))


def test_whole_numbers_up_to_or_from_a_loops_variable() -> None:
    def means(a: Array) -> Array:
        out = np.zeros((a.shape[0], 3))
        for i in range(1, a.shape[0]):
            out[i] = (
                (np.arange(i) * a[:i]).sum(),
                (np.arange(i, a.shape[0]) * a[i:]).sum(),
                np.arange(i, i + 5, dtype=np.float32).sum(),
            )
        return out

    for n in SIZES[2:]:
        p = check(means, (rows(n) * 99).astype(np.int64), on_unsupported="break")
    assert p.stats.parts == 0


def test_lengths_of_slices_that_move() -> None:
    """Are computed with, and decided on, in each iteration."""

    def compared(a: Array, b: Array) -> Array:
        for i in range(a.shape[0]):
            s, t = a[:i], a[a.shape[0] - i :]
            if s.size == 3 or len(s) in (5, 7):
                b[i] += 100
            elif s.shape == a[i:].shape:
                b[i] -= 1000
            if len(s) != 4 and s.shape == t.shape:
                b[i] += 10
        return b

    def decided(a: Array, b: Array) -> Array:
        for i in range(a.shape[0]):
            s = a[:i]
            if not s.size:
                b[i] = 50
            elif len(s) >= 9 and s.sum() > 5:
                b[i] = -7
            elif s.shape != (8,):
                b[i] += 1 if len(s) > 2 else 2
        return b

    def computed(a: Array, b: Array) -> Array:
        for i in range(a.shape[0]):
            s = a[i:]
            n = len(s)
            b[i] = s.size / 3 + s.size**2 + np.sqrt(n) - 2 * n + float(n) % 4 + int(s.shape[0]) // 3 + max(n, 4)
        return b

    def skipped(a: Array, b: Array) -> Array:
        for i in range(a.shape[0]):
            s = a[:i]
            if len(s) == 0:
                continue
            b[i] = s.sum() / len(s) + s.var(ddof=1)
        return b

    for n in (2, 3, 20, 70):
        check(computed, rows(n), rows(n), on_unsupported="break")
        pipelines = [check(f, rows(n), rows(n), on_unsupported="break") for f in (compared, decided)]
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            check(skipped, rows(n), rows(n), exact=False, on_unsupported="break")
    assert all(is_program(p, rows(70), rows(70)) for p in pipelines)


def test_windows_that_are_cut_at_the_edges() -> None:
    def kuan(img: Array, r: int, looks: int = 4) -> Array:
        h, w = img.shape
        out = np.zeros_like(img)
        for i in range(h):
            for j in range(w):
                y0, y1 = max(i - r, 0), min(i + r + 1, h)
                block = img[y0:y1, max(0, j - r) : j + r + 1]
                m = block.mean()
                c = block.var() / (m * m) if m else 0.0
                weight = max(0.0, (1 - 1 / looks / c) / (1 + 1 / looks)) if c > 0 else 0.0
                out[i, j] = m + weight * (img[i, j] - m)
        return out

    def contrast(img: Array, r: int) -> Array:
        h, w = img.shape
        out = np.zeros(img.shape, img.dtype)
        for i in range(h):
            for j in range(w):
                block = img[max(i - r, 0) : min(i + r + 1, h), max(j - r, 0) : min(j + r + 1, w)]
                out[i, j] = block.max() - block.min()
        return out

    def copied(img: Array, r: int) -> Array:
        h, w = img.shape
        out = np.zeros(img.shape)
        for i in range(h):
            for j in range(w):
                y0, y1, x0, x1 = max(0, i - r), min(h, i + r + 1), max(0, j - r), min(w, j + r + 1)
                block = img[y0:y1, x0:x1].astype(np.float64)
                m, s = block.mean(), block.std()
                out[i, j] = m + (1 - 0.1 / s if s > 0.1 else 0) * (img[i, j] - m)
        return out

    def below_zero(a: Array, r: int) -> Array:
        out = np.zeros_like(a)
        for i in range(a.shape[0]):
            out[i] = a[i - r : i + r].sum()  # counted from the end where that is negative
        return out

    def carried(a: Array) -> Array:
        out, low, begin, end = np.zeros_like(a), 0, 0, 2
        for i in range(a.shape[0]):
            begin = max(begin, i - 3)
            out[i] = a[low : i + 1].sum() + a[begin : i + 1].sum() - len(a[:end])
            end = min(end + 1, 10)
            if a[i] > 0.7:
                low = i
        return out

    for shape in ((20, 17), (37, 52)):
        p = check(kuan, rows(*shape), 2, exact=False, on_unsupported="break")
        assert is_program(p, rows(*shape), 2)
        check(kuan, np.asfortranarray(rows(*shape)), 2, exact=False, on_unsupported="raise")
        p = check(copied, (rows(*shape) * 255).astype(np.uint8), 2, exact=False, on_unsupported="break")
        assert is_program(p, (rows(*shape) * 255).astype(np.uint8), 2)
        p = check(contrast, (rows(*shape) * 255).astype(np.uint8), 2, on_unsupported="break")
        assert is_program(p, (rows(*shape) * 255).astype(np.uint8), 2)
    check(below_zero, rows(40), 3, exact=False, on_unsupported="break")
    check(carried, rows(40), exact=False, on_unsupported="break")


def test_ways_through_an_iteration_compute_with_numbers_of_the_caller() -> None:
    def metropolis(spins: Array, draws: Array, beta: float) -> tuple[Array, float]:
        h, w = spins.shape
        total = 0.0
        for k in range(len(draws)):
            y, x = int(draws[k, 0] * h), int(draws[k, 1] * w)
            s = spins[y, x]
            cost = 2 * s * (spins[(y + 1) % h, x] + spins[(y - 1) % h, x] + spins[y, (x + 1) % w] + spins[y, x - 1])
            if cost <= 0 or draws[k, 2] < np.exp(-beta * cost):  # beta is negated anew on each way
                spins[y, x] = -s
                total += float(cost)
        return spins, total

    r = np.random.default_rng(0)
    for dtype in (np.int8, np.float32):
        spins, draws = np.where(r.random((30, 40)) > 0.5, 1, -1).astype(dtype), r.random((500, 3))
        p = check(metropolis, spins, draws, 0.4, on_unsupported="break")
        assert is_program(p, spins, draws, 0.4)


def test_conditions_in_loops_over_few_iterations() -> None:
    def f(a: Array, b: Array) -> Array:
        for i in range(40):  # as over taps, until there are too many decisions
            if a[i] > 0.5 and b[i] < 0.3:
                b[i] = 1
        return b

    check(f, rows(40), rows(50), on_unsupported="raise")


def test_ranges_whose_ends_are_computed() -> None:
    def product(start: Array, index: Array, values: Array, x: Array) -> Array:
        y = np.zeros(start.shape[0] - 1)
        for i in range(start.shape[0] - 1):
            s = 0.0
            for k in range(start[i], start[i + 1]):
                if values[k] > 0.9:
                    break
                s += values[k] * x[index[k]]
            y[i] = s
        return y

    def knapsack(weights: Array, values: Array, most: int) -> Array:
        best = np.zeros(most + 1)
        for i in range(weights.shape[0]):
            w = int(weights[i])
            for c in range(most, w - 1, -1):
                best[c] = max(best[c], best[c - w] + values[i])
        return best

    r = np.random.default_rng(0)
    for n in (1, 2, 20, 90):
        matrix = r.random((n, n)) < 0.1
        start, index = np.concatenate([[0], np.cumsum(matrix.sum(1))]), np.nonzero(matrix)[1]
        given = start, index, r.random(index.size), r.random(n)
        p = check(product, *given, on_unsupported="break")
        check(knapsack, r.integers(1, 20, n), r.random(n), 70, on_unsupported="break")
    assert is_program(p, *given)
    with pytest.raises(IndexError):
        p(start, index + 90, r.random(index.size), r.random(90))


def test_loops_that_are_no_programs_are_tried_as_such_once() -> None:
    def f(a: Array, u: Array, v: Array) -> tuple[Any, ...]:
        s = t = 0.0
        for i in range(a.shape[0] - 1, -1, -1):
            a[i, :i] = u[:i][::-1] - t / 4
            t = np.where(v[i] > 0, u[i], 1) * 0.25
            if a[i, 0] > u[i]:
                v[i] = u[i] + 0.5
            else:
                s = u[i] - s / 4
            for _ in range(3):
                v[i] += 1
        return a, v, s, t

    failed = []
    before = Attempts.update

    def counted(self: Attempts, **changes: Any) -> None:
        failed.append(changes)
        before(self, **changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attempts, "update", counted)
        patch.setattr("hjit.trace.capture.trace.MAX_UNROLLED", 5)
        check(f, rows(18, 18) - 0.5, rows(18) - 0.5, rows(18, 1)[:, 0] - 0.5, on_unsupported="break")
    assert len(failed) < 100


def test_variables_that_are_exchanged_while_something_holds() -> None:
    """Whichever is written first, the other one has what the iteration has found, and not what the loop has."""

    def remainders(a: Array) -> Array:
        out = np.zeros((a.shape[0], 4))
        for i in range(a.shape[0]):
            u, v, s, t = a[i], a[i] * 0.37, 1.0, 2.0
            while v > 1e-9:
                u, v = v, u % v
                s, t = t, s + t * 0.5
            out[i] = u, v, s, t
        return out

    def names(order: str) -> str:
        u, v = order
        return f"""def f(a):
    out = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        {u}, {v} = a[i], a[i] * 0.37
        while {v} > 1e-9:
            {u}, {v} = {v}, {u} % {v}
        out[i] = {u}
    return out
"""

    check(remainders, rows(70), on_unsupported="break")
    for order in ("xy", "yx"):
        f = with_source(names(order), f"<exchanged {order}>")
        p = check(f, rows(70), on_unsupported="break")
        assert is_program(p, rows(70))
