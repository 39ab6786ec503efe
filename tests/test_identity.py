"""Which arrays of a call are the same object: traces know it, and later calls with other ones are traced anew."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit

X = np.arange(1.0, 7)
REF = np.arange(1.0, 7)


def by_is(a: Any, b: Any) -> Any:
    return a * 2 if a is b else a + b * 3


def by_is_not(a: Any, b: Any) -> Any:
    if b is not a:
        a = a + 1
    return a * 2


def by_id(a: Any, b: Any) -> Any:
    return a * 2 if id(a) == id(b) else a * 3


def by_set(a: Any, b: Any) -> Any:
    return a * len({id(a), id(b)})


def by_operator(a: Any, b: Any) -> Any:
    return a * (2 if operator.is_(a, b) else 3)


def by_name(a: Any, *, b: Any) -> Any:
    return a * (2 if a is b else 3)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "complex128"])
@pytest.mark.parametrize("function", [by_is, by_is_not, by_id, by_set, by_operator])
@pytest.mark.parametrize("first", [True, False])
def test_arguments_that_are_one_array(function: Callable[..., Any], dtype: str, first: bool) -> None:
    f, x = hjit.pipeline(function), X.astype(dtype)
    for is_one in (first, not first, first, not first):
        y = x if is_one else x.copy()
        np.testing.assert_array_equal(f(x, y), function(x, y))
    assert f.stats.traces == 2 and f.stats.fallbacks == 0


def test_arguments_by_name_and_in_containers() -> None:
    f, g, h = (hjit.pipeline(g) for g in (by_name, lambda s: by_is(*s), lambda d: by_is(d["a"], d["b"])))
    for y in (X.copy(), X, X.copy(), X):
        np.testing.assert_array_equal(f(X, b=y), by_name(X, b=y))
        np.testing.assert_array_equal(g([X, y]), by_is(X, y))
        np.testing.assert_array_equal(g((X, y)), by_is(X, y))
        np.testing.assert_array_equal(h({"a": X, "b": y}), by_is(X, y))


def test_some_of_many_arguments() -> None:
    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * len({id(x) for x in (a, b, c, d)}) + (b if c is d else d)

    compiled, y, z = hjit.pipeline(f), X + 1, X.astype("float32")
    for args in [
        (X, X, X, X),
        (X, y, X, y),
        (X, y, y, X),
        (X, y, X + 2, X + 3),
        (X, y, z, z),
        (X, X, y, y),
        (X, y, z, z),
    ]:
        np.testing.assert_array_equal(compiled(*args), f(*args))


def test_arguments_and_globals_that_are_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(a: Any) -> Any:
        return a * 2 if a is REF else a + REF * 3

    compiled = hjit.pipeline(f)
    for a in (X, REF, X, REF, X.astype("int64")):
        np.testing.assert_array_equal(compiled(a), f(a))
    monkeypatch.setitem(globals(), "REF", X)
    for a in (X, X.copy()):
        np.testing.assert_array_equal(compiled(a), f(a))


def test_captured_arrays_that_are_one_array() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

        def __call__(self, x: Any) -> Any:
            return x * 2 if self.a is self.b else x + self.a * self.b

    pair = Pair(X, X.copy())
    f = hjit.pipeline(pair)
    for b in (X.copy(), X, X.copy(), X):
        pair.b = b
        np.testing.assert_array_equal(f(X + 1), pair(X + 1))


def test_objects_that_are_one() -> None:
    class Gain:
        by = 2.0

    f, one, other = hjit.pipeline(lambda x, g, h: x * g.by if g is h else x * 3), Gain(), Gain()
    for h in (one, other, one):
        np.testing.assert_array_equal(f(X, one, h), X * (2 if h is one else 3))


def test_one_array_that_is_changed() -> None:
    def f(a: Any, b: Any) -> Any:
        a[1:] += b[:-1]
        b *= 2
        return a + b

    compiled = hjit.pipeline(f)
    for is_one in (True, False, True):
        a, c = X.copy(), X.copy()
        b, d = (a, c) if is_one else (X.copy(), X.copy())
        np.testing.assert_array_equal(compiled(a, b), f(c, d))
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)
    assert compiled.stats.fallbacks == 0


def test_products_and_parts_know_it() -> None:
    def product(a: Any, b: Any) -> Any:
        return (a @ b) * (2 if a is b else 3)

    def in_parts(a: Any, b: Any) -> Any:
        c = np.frompyfunc(lambda x: x, 1, 1)(a).astype(float)
        return c * 2 if a is b else c + b

    x = np.arange(16.0).reshape(4, 4)
    for f in (hjit.pipeline(product, blas=True), hjit.pipeline(in_parts, on_unsupported="break")):
        for y in (x.copy(), x, x.copy(), x):
            np.testing.assert_array_equal(f(x, y), f.py_func(x, y))


def test_what_is_compiled_for_other_callers_takes_two_arrays() -> None:
    from hjit.call.arguments import each_apart

    found = each_apart([X, 2.0, X, X[1:]])
    assert found[0] is X and found[2] is not X and found[1] == 2.0
    np.testing.assert_array_equal(found[2], X)


# -- common memory


def views_of(a: Any) -> list[Any]:
    return [
        a, a[::2], a[1::2], a[:3], a[3:], a[2:5], a[:, ::2], a[:, 1::2], a[::-1], a.T, a.T[1:], a[2], a[:, 3],
        a.reshape(-1), a.reshape(-1)[4:9], a[None], a[0:0], a.copy(), a + 1, a[1, 1], np.broadcast_to(a[0], (3, 8)),
        np.diagonal(a), a[1:3, 2:4], a.T.reshape(-1), np.float64(2.0),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a * 2, lambda a: a.T * 2, lambda a: np.zeros((8, 8))])
@pytest.mark.parametrize("dtype", ["float64", "uint8", "complex64"])
@pytest.mark.parametrize("ask", [np.shares_memory, np.may_share_memory])
def test_common_memory_of_views(ask: Any, dtype: str, make: Any) -> None:
    def f(a: Any) -> Any:
        found = views_of(make(a))
        return [ask(x, y) for x in found for y in found]

    a = np.arange(128).reshape(8, 16)[:, ::2].astype(dtype)
    for b in (a, np.asfortranarray(a), np.arange(128).astype(dtype).reshape(8, 16)[:, 8:]):
        assert hjit.pipeline(f)(b) == f(b)


def test_common_memory_of_parts() -> None:
    def f(z: Any, n: int) -> Any:
        x = np.arange(12.0)
        pairs = [(z.real, z), (z.real, z.imag), (z.real[1:], z[:1]), (x[n:], x[:n]), (x[n:], x[: n + 1])]
        pairs += [(x.view("int64"), x), (x.view("int64")[1:], x[:1]), (x, z), ([1.0], x)]
        return [np.shares_memory(p, q) for p, q in pairs]

    z = np.arange(6) + 1j
    assert hjit.pipeline(f)(z, 3) == f(z, 3)


def test_arguments_in_the_same_memory() -> None:
    """It is asked of the arrays of the call, and not of those of another one."""

    def f(a: Any, b: Any) -> Any:
        b = b * 2 if np.shares_memory(a, b) else b * 3
        return b + a

    compiled = hjit.pipeline(f, on_unsupported="break")
    for b in (X.copy(), X, X[:], X[::-1], X.copy()):
        np.testing.assert_array_equal(compiled(X, b), f(X, b))
    assert hjit.pipeline(f)(X, X.copy()).shape == X.shape, "one kernel where they have none in common"
    with pytest.raises(hjit.TraceError, match="shares_memory"):
        hjit.pipeline(f)(X, X[:])


def test_a_filter_into_an_argument_runs_compiled() -> None:
    """SciPy asks whether the result shares memory with the image."""
    compiled = hjit.pipeline(ndimage.median_filter, on_unsupported="break")
    image = np.random.default_rng(0).random((9, 12))
    for out in (np.empty((9, 12)), np.empty((9, 12)), np.empty((18, 12))[::2]):
        assert compiled(image, 3, output=out) is out
        np.testing.assert_array_equal(out, ndimage.median_filter(image, 3))
    assert "runs compiled" in compiled.explain(image, 3, output=np.empty((9, 12)))
    both = [image.copy(), image.copy()]
    for a, f in zip(both, (compiled, ndimage.median_filter), strict=True):
        f(a, 3, output=a[:])
    np.testing.assert_array_equal(*both)
