"""Sizes of arrays as numbers: NumPy's results at every size, by kernels that the first size has compiled."""

from __future__ import annotations

import functools
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit

SIZES = ((60, 91), (77, 61), (130, 67))
Array = np.ndarray[Any, Any]


def image(shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
    numbers = np.random.default_rng(shape[0]).random(shape)
    return (numbers * (1 if np.dtype(dtype).kind == "f" else 100)).astype(dtype)


def pipeline(f: Callable[..., Any]) -> Any:
    return hjit.pipeline(f, tune=False, numpy_if_faster=False, verify="off", cache="off", on_unsupported="raise")


def variants(p: Any) -> list[Any]:
    return [v for x in p.entries for v in x.variants]


def same(found: Any, expected: Any, exact: bool = True) -> None:
    if isinstance(expected, tuple):
        assert type(found) is tuple and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b, exact)
        return
    assert type(found) is type(expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    if exact:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12)


# -- one kernel for all sizes


def centred(a: Array) -> Array:
    h, w = a.shape
    y, x = np.ogrid[:h, :w]
    return a * ((y - h / 2) ** 2 + (x - 0.5 * w) ** 2 < (0.4 * min(h, w)) ** 2)


def rows(a: Array) -> Array:
    h, _ = a.shape
    out = np.zeros_like(a)
    for y in range(h):
        out[y] = a[y] * (y / h)
    return out


def written(a: Array) -> Array:
    h, w = a.shape
    out = np.empty((h, w))
    out[...] = h
    out[::2] = w / 3
    out[a > 0.5] = 0.25 * h
    return out


def cut(a: Array) -> Array:
    n = int(0.4 * a.shape[0])
    return a[:n] * n + a[n : 2 * n] * round(a.shape[1] / 3)


def fill(a: Array) -> Array:
    b = np.empty_like(a)
    b.fill(a.shape[0] / 8)
    b[:, 3] += a.shape[1]
    np.add.at(b, (slice(None), 5), a.shape[0])
    return b


def arranged(a: Array) -> Array:
    shape = np.array(a.shape)
    pairs = np.roll(shape, 1)[0] * np.tile(shape, 2)[2:] + np.pad(shape, 1)[1:3] - np.repeat(shape, 2)[::2]
    return (
        a * np.sort(shape)[0] + pairs[0] / pairs.reshape(2, 1).T[0, 1] + np.concatenate([shape, pairs]).astype(float)[2]
    )


def half(a: Array) -> Array:
    h, w = a.shape
    return np.zeros((math.ceil(h * 0.5), round(w / 2))) + h // 3 * math.floor(w * 0.3)


def place(a: Array) -> Array:
    n = a.argmax()
    return a[n // a.shape[1], n % a.shape[1]] + a


def from_array(a: Array) -> Array:
    cy, cx = np.array(a.shape) / 2.0 - 0.5
    y, x = np.indices(a.shape)
    return a * ((y - cy) ** 2 + (x - cx) ** 2) / np.prod(a.shape)


def filled(a: Array) -> Array:
    corners = np.zeros((2, 2))
    corners[0] = a.shape
    corners[1, 0] = a.shape[0] / 2
    return a * corners.sum() + corners[1, 0]


EXACT: dict[str, Callable[[Array], Any]] = {
    "size": lambda a: a / a.size,
    "length": lambda a: a * len(a) - len(a) ** 2,
    "left operand": lambda a: 2.0 - a.shape[0] * a + a.shape[1] / a,
    "of a float": lambda a: a * (0.1 * a.shape[0]) + (1.0 - a.shape[1]) / 3.0,
    "ratio": lambda a: (a * (a.shape[0] / a.shape[1]), a.shape[0] / a.shape[1], a.shape[0]),
    "ramp": lambda a: a * (np.arange(a.shape[1]) / (a.shape[1] - 1)),
    "line": lambda a: a + np.linspace(-1, 1, a.shape[1]),
    "line to a size": lambda a: a + np.linspace(0, a.shape[0] - 1, a.shape[1]),
    "scalars of NumPy": lambda a: a * np.float64(a.shape[0]) - np.int32(a.shape[1]) + np.float32(a.shape[0]),
    "roots": lambda a: a * math.sqrt(a.size) + np.sqrt(a.shape[0]) - a.shape[1] ** 0.5,
    "where": lambda a: np.where(a > 0.5, a.shape[0], a) + np.where(a > 0.2, 0.5 * a.shape[0], a.shape[1]),
    "full": lambda a: a + np.full(a.shape, a.shape[0] / a.shape[1]) + np.full(a.shape, a.shape[0]),
    "clipped index": lambda a: a[np.clip(np.arange(a.shape[0]) + 3, 0, a.shape[0] - 1)],
    "computed index": lambda a: a[np.minimum((a * a.shape[0]).astype(int), a.shape[0] - 1), 3],
    "clip": lambda a: np.clip(a * a.shape[0], 5, a.shape[0] - 20) + np.minimum(a * 100, a.shape[1] / 2),
    "flat index": lambda a: np.arange(a.size) // a.shape[1] * 2 + np.arange(a.size) % a.shape[1],
    "pair": lambda a: a * divmod(a.shape[0], 3)[0] + a * (a.shape[1] >> 1) - (a.shape[1] << 2),
    "comparison": lambda a: (a * 100 < a.shape[1]) & (a.shape[0] > a * 90),
    "sum": lambda a: a + sum(a.shape) + sum(n / 2 for n in a.shape),
    "pad": lambda a: np.pad(a, 2, constant_values=a.shape[0] / 2) + np.pad(a, 2, constant_values=a.shape[1]),
    "select": lambda a: np.select([a > 0.7, a > 0.2], [a.shape[0], a / a.shape[1]], 0.1 * a.shape[0]),
    "fill": lambda a: fill(a),
    "average": lambda a: a * np.mean(a.shape) + max(a.shape) * np.max(a.shape) - np.array([a.shape[0], 2.5])[0],
    "window": lambda a: a * np.bartlett(a.shape[1]),
    "range of floats": lambda a: a * np.arange(0, 1, 1 / 32).sum() + np.arange(a.shape[1]) * (1 / a.shape[1]),
    "centred": centred,
    "rows": rows,
    "written": written,
    "cut": cut,
    "half": half,
    "place": place,
    "of an array": from_array,
    "known array": filled,
    "arranged": arranged,
}
CLOSE: dict[str, Callable[[Array], Any]] = {
    "gaussian": lambda a: np.exp(-(a**2) / (2 * (0.1 * min(a.shape)) ** 2)),
    "moments": lambda a: a.std(ddof=1) + a.sum() / a.size + a.mean(0) * len(a),
    "frequencies": lambda a: a * np.fft.fftfreq(a.shape[1]),
    "windows": lambda a: a * np.hanning(a.shape[0])[:, None] * np.hamming(a.shape[1]),
    "decibel": lambda a: 20 * np.log10(a.shape[0] / (a + 1)) + math.log(a.size),
}
FUNCTIONS = {**EXACT, **CLOSE}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_new_size_compiles_nothing(name: str) -> None:
    f = FUNCTIONS[name]
    p = pipeline(f)
    compiled = []
    for shape in SIZES:
        a = image(shape)
        same(p(a.copy()), f(a.copy()), name in EXACT)
        compiled.append(p.stats.compilations)
    assert compiled == compiled[:1] * 3
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    assert not any(e.call is None for v in variants(p) for e in v.rec.breaks)


def test_a_decision_on_a_size_is_another_kernel() -> None:
    def f(a: Array) -> Array:
        return a * 2.5 if a.shape[0] / a.shape[1] > 1 else a - 0.5

    p = pipeline(f)
    for shape in SIZES:
        same(p(image(shape)), f(image(shape)))
    assert p.stats.traces == 3 and len({x.kernel.name for v in variants(p) for x in v.bounds}) == 2


def test_calls_of_a_known_size_work_nothing_out() -> None:
    p = pipeline(lambda a: a * (a.shape[0] / a.shape[1]) + np.sqrt(a.size))
    p(image((60, 91)))
    (variant,) = variants(p)
    assert variant.fast is not None and variant.fast.tape is None and len(variant.fast.scalars) == 2


def test_numbers_of_the_caller_and_sizes() -> None:
    def f(a: Array, sigma: Any) -> Array:
        return a * (sigma * a.shape[0]) + a.shape[1] / sigma - (a.shape[0] - sigma)

    p = pipeline(f)
    for shape, sigma in zip((*SIZES, SIZES[0]), (2.5, 3.5, -1.0, 7.25), strict=True):
        same(p(image(shape), sigma), f(image(shape), sigma))
    assert p.stats.traces == 3 and len({x.kernel.name for v in variants(p) for x in v.bounds}) == 1


def test_what_is_cached_outside_gets_plain_numbers() -> None:
    @functools.lru_cache
    def ratio(n: int) -> float:
        return n / 3

    p = pipeline(lambda a: a * ratio(a.shape[0]))
    same(p(image((60, 91))), image((60, 91)) * 20.0)
    assert type(ratio(60)) is float and ratio.cache_info().hits == 1


def test_sizes_are_ints_to_python() -> None:
    def f(a: Array) -> Array:
        h, w = a.shape
        assert isinstance(h, int) and type(h) is int and not isinstance(h, float)
        assert f"{h:5d}|{w}|{h!r}" == f"{int(h):5d}|{int(w)}|{int(h)!r}" and "%d" % h == str(int(h))  # noqa: UP031
        assert (
            {h: 1}[int(h)] == 1 and h in (int(h), 3) and hash(h) == hash(int(h)) and (h, w) == tuple(map(int, (h, w)))
        )
        assert (
            len([0] * h) == h
            and len(range(h)) == h
            and [*range(100000)][h] == h
            and h.bit_length() == int(h).bit_length()
        )
        assert (
            h == float(h)
            and h < 1e9
            and not h > 1e9
            and (h & 1, 1 | h, h ^ 3, ~h) == (int(h) & 1, 1 | int(h), int(h) ^ 3, ~int(h))
        )
        assert (
            math.gcd(h, 4) == math.gcd(int(h), 4)
            and round(h, -1) == round(int(h), -1)
            and pow(h, 2, 7) == int(h) ** 2 % 7
        )
        assert np.zeros(h).shape == (h,) and np.dtype(type(h)) == np.int64 and abs(-h) == h
        return a + h**2 + 2**-h

    p = pipeline(f)
    for shape in SIZES:
        same(p(image(shape)), f(image(shape)))


# -- dtypes


DTYPES = (np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_)
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, n: a + n,
    "subtract": lambda a, n: n - a,
    "multiply": lambda a, n: a * n,
    "divide": lambda a, n: a / n,
    "floor": lambda a, n: a // n,
    "remainder": lambda a, n: a % n,
    "less": lambda a, n: a < n,
    "minimum": np.minimum,
    "where": lambda a, n: np.where(a > 0, a, n),
    "clip": lambda a, n: np.clip(a, 0, n),
    "full": lambda a, n: np.full(a.shape, n, a.dtype),
    "stored": lambda a, n: stored(a, n),
}


def stored(a: Array, n: Any) -> Array:
    b = a.copy()
    b[1:] = n
    return b


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = f(*args)
        except Exception as error:
            return type(error)
    return str(result.dtype), result.shape, result.tobytes()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_promotion_and_overflow_are_numpys(name: str, dtype: Any) -> None:
    """A size is a Python int, which gives way to the dtype of an array, and may be too large for it."""
    operation = OPERATIONS[name]
    kinds: list[Callable[[Any], Any]] = [lambda n: n, lambda n: n / 4, lambda n: np.int32(n), lambda n: n * -1]
    for kind in kinds:

        def f(a: Array, kind: Any = kind) -> Any:
            return operation(a, kind(a.shape[0]))

        p = hjit.pipeline(f, tune=False, numpy_if_faster=False, verify="off", cache="off").quiet()
        for n in (60, 101, 300, 77):
            a = image((n, 20), dtype)
            assert outcome(p, a) == outcome(f, a), n


def test_a_scalar_type_refuses_a_size_that_it_does_not_hold() -> None:
    p = pipeline(lambda a: a + np.uint8(a.shape[0]))
    same(p(image((60, 20))), image((60, 20)) + np.uint8(60))
    with pytest.raises(OverflowError):
        p(image((300, 20)))
    same(p(image((70, 20))), image((70, 20)) + np.uint8(70))


# -- at random


class Expressions:
    """Random arithmetic of sizes, as Python text."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, depth: int) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.15:
            return r.choice(["h", "w", "h", "w", "a.size", "len(a)", "3", "7", "0.5", "2.0", "1e-3", "-4"])
        x, y = self.number(depth - 1), self.number(depth - 1)
        one = r.choice(["({x})", "(-{x})", "abs({x})", "float({x})", "np.float32({x})", "np.float64({x})", "np.abs({x})",
                        "math.sqrt(abs({x}))", "np.sqrt(abs({x}) + 1)", "int({x})", "round({x})", "math.floor({x})",
                        "np.ceil({x})", "({x} ** 2)"])  # fmt: skip
        two = r.choice(["({x} + {y})", "({x} - {y})", "({x} * {y})", "({x} / ({y} + 1.5))", "({x} // (abs({y}) + 2))",
                        "({x} % (abs({y}) + 2))", "max({x}, {y})", "np.minimum({x}, {y})", "np.hypot({x}, {y})"])  # fmt: skip
        return r.choice([one, two, two]).format(x=x, y=y)

    def function(self) -> str:
        r = self.random
        terms = []
        for _ in range(r.randint(1, 3)):
            n = self.number(r.randint(1, 3))
            terms.append(
                r.choice(["a * ({n})", "({n}) - a", "a / ({n})", "np.where(a > 0.5, {n}, a)", "np.maximum(a, {n})",
                          "np.full(a.shape, {n}, np.float64)", "(x / ({n}) + a)", "a[:, ::-1] + ({n})"]).format(n=n)
            )  # fmt: skip
        return f"def f(a):\n    h, w = a.shape\n    y, x = np.ogrid[:h, :w]\n    return {' + '.join(terms)}\n"


def _numbers(f: Callable[..., Any], a: Array) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(a)
        except (ArithmeticError, ValueError, TypeError) as error:
            return type(error)


@pytest.mark.parametrize("seed", range(40))
def test_random_arithmetic(seed: int) -> None:
    text = Expressions(seed).function()
    names: dict[str, Any] = {"np": np, "math": math}
    exec(text, names)
    f = names["f"]
    p = hjit.pipeline(f, tune=False, numpy_if_faster=False, verify="off", cache="off").quiet()
    for k, shape in enumerate(((60, 91), (61, 90), (63, 95), (200, 333))):
        a, before = image(shape), p.stats.compilations
        expected, found = _numbers(f, a), _numbers(p, a)
        if isinstance(expected, type):
            assert found is expected, text
            continue
        assert found.dtype == expected.dtype, text
        np.testing.assert_allclose(found, expected, 1e-13, 0, err_msg=text)
        # an int of at most 16 is part of a kernel, and `max` decides: these have more than one
        if k and not any(word in text for word in ("int(", "round(", "floor(", "//", "%", "max(")):
            assert p.stats.compilations == before, text
