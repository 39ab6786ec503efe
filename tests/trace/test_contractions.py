"""Contractions against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hjit import TraceError
from tests.trace.helpers import check, interpreted

DTYPES = ("bool", "uint8", "int16", "int64", "float32", "float64")
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def data(shape: Any, dtype: Any = "float64", seed: int = 0) -> np.ndarray[Any, Any]:
    a = np.random.default_rng(seed).standard_normal(shape)
    return a.astype(dtype) if np.dtype(dtype).kind == "f" else (a * 20).astype(dtype)


def same(f: Callable[..., Any], *args: Any, captured: Any = 0) -> None:
    """Integers exactly; floats within the rounding of their largest terms, which sums may cancel."""
    expected = np.asarray(f(*[a.copy() for a in args]))
    if expected.dtype.kind != "f":
        check(f, *args)
        return
    got = interpreted(f, *args)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    scale = (
        1 + max((float(np.abs(a.astype(float)).max(initial=0)) for a in (*args, np.asarray(captured))), default=0) ** 2
    )
    np.testing.assert_allclose(got, expected, rtol=0, atol=64 * scale * np.finfo(expected.dtype).eps)


MATMULS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((20, 17), (17, 19)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4, 5, 3), (3,)),
    ((1, 1), (1, 1)),
    ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
    ((20, 30, 3), (3, 3)),
    ((1, 20), (20, 1)),
]


@quick
@given(st.sampled_from(MATMULS), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_products(shapes: Any, first: str, second: str) -> None:
    a, b = data(shapes[0], first), data(shapes[1], second, 1)
    same(lambda a, b: a @ b, a, b)
    same(lambda a, b: np.matmul(a, b), a, b)
    same(lambda a, b: np.dot(a, b), a, b)
    if a.ndim > 1 and b.ndim > 1:
        same(lambda a, b: np.inner(a, np.swapaxes(b, -1, -2)), a, b)
        same(lambda a, b: np.tensordot(a, b, (-1, -2)), a, b)
    same(lambda a: a @ b, a, captured=b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors(dtype: str) -> None:
    a, b = data(19, dtype), data(19, dtype, 1)
    same(lambda a, b: np.vdot(a, b), a, b)
    same(lambda a, b: np.outer(a, b[:5]), a, b)
    same(lambda a, b: np.outer(a, b).sum(), a, b)
    same(lambda a, b: np.kron(a[:3], b), a, b)
    same(lambda a, b: np.kron(a.reshape(-1, 1), b[:3]), a, b)
    if dtype != "bool":
        same(lambda a, b: np.cross(a[:18].reshape(6, 3), b[:18].reshape(6, 3)), a, b)
    same(lambda a: np.trace(a[:16].reshape(4, 4), 1), a)
    same(lambda a, b: np.vecdot(a.reshape(1, 19), b), a, b)
    same(lambda a: np.dot(a, 3), a)


def test_products_along_other_axes() -> None:
    a, b = data((6, 7, 8), "float64"), data((6, 7, 8), "float64", 1)
    for axis in (0, 1, -1):
        same(lambda a, b, axis=axis: np.vecdot(a, b, axis=axis), a, b)
        same(lambda a, b, axis=axis: np.vecdot(a, b, axis=axis, keepdims=True), a, b)
        same(lambda a, b, axis=axis: np.linalg.vecdot(a, b, axis=axis), a, b)
    same(lambda a, b: np.vecdot(a, b, axes=[1, 1]), a, b)
    same(lambda a, b: np.matmul(a, b, axes=[(1, 2), (2, 1), (0, 1)]), a, b)
    same(lambda a, b: np.matmul(a, b, axes=[(0, 1), (1, 0), (-2, -1)]), a, b)
    same(lambda a, b: np.matvec(a, b[:, 0], axes=[(1, 2), 1, 0]), a, b)
    with pytest.raises(TypeError, match="single shared core dimension"):
        same(lambda a, b: np.matmul(a, b, axis=0), a, b)
    with pytest.raises(TraceError, match="the argument order"):
        same(lambda a, b: np.vecdot(a, b, order="F"), a, b)


def test_dot_of_a_scalar_argument() -> None:
    check(lambda a, k: np.dot(a, k), data(20), 2.5)


EINSUMS = [
    "ij,jk->ik",
    "ij,jk",
    "ij->ji",
    "ii->i",
    "ii",
    "ij->",
    "i,j->ij",
    "ij,ij->i",
    "...i,i->...",
    "...ij,jk",
    "ij,j,ik->k",
    "ij->j",
    "...j->j...",
]


@pytest.mark.parametrize("subscripts", EINSUMS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_einsum(subscripts: str, dtype: str) -> None:
    for n in (3, 20):
        terms = subscripts.split("->")[0].split(",")
        arrays = [data((n,) * len(t.replace("...", "x")), dtype, k) for k, t in enumerate(terms)]
        same(lambda *a: np.einsum(subscripts, *a, optimize=True), *arrays)


def test_einsum_forms() -> None:
    a, b = data((4, 20)), data((20, 5))
    same(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), a, b)
    same(lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), a, b)
    same(lambda a: np.einsum("ij,kj->ik", a, a[:1]), a)
    same(lambda a: np.einsum("ij,ij->j", a, a[:1]), a)
    same(lambda a: np.einsum("hwc,dc->hwd", a.reshape(4, 5, 4), np.arange(12).reshape(3, 4)), a)

    def diagonal_is_a_view(a: Any) -> Any:
        square = a[:, :4].copy()
        np.einsum("ii->i", square)[...] = 0
        return square

    same(diagonal_is_a_view, a)

    def into(a: Any, b: Any) -> Any:
        out = np.zeros((4, 5))
        np.einsum("ij,jk->ik", a, b, out=out)
        np.matmul(a, b, out=out)
        return out

    same(into, a, b)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_norms(dtype: str) -> None:
    a = data((19, 3), dtype)
    for kwargs in (
        {},
        {"axis": 1},
        {"axis": -1, "keepdims": True},
        {"ord": 1, "axis": 0},
        {"ord": np.inf, "axis": 1},
        {"ord": -np.inf, "axis": 1},
        {"ord": 0, "axis": 1},
        {"ord": 3, "axis": 1},
        {"ord": "fro"},
        {"ord": 1},
        {"ord": np.inf},
        {"axis": (0, 1)},
    ):
        check(lambda a, kwargs=kwargs: np.linalg.norm(a, **kwargs), a, exact=False)
    check(lambda a: np.linalg.norm(a[:, 0], 2), a, exact=False)
    check(lambda a: a / np.linalg.norm(a, axis=-1, keepdims=True), a, exact=False)
    check(lambda a: np.linalg.matrix_power(a[:3].astype(float), 2), a, exact=False)


ERRORS: list[Callable[[Any], Any]] = [
    lambda a: a @ a,
    lambda a: np.dot(a, a),
    lambda a: np.inner(a, a[:, :2]),
    lambda a: np.matmul(a, 3),
    lambda a: np.vdot(a, a[0]),
    lambda a: np.einsum("ij,jk", a, a),
    lambda a: np.einsum("i", a),
    lambda a: np.einsum("ij->k", a),
    lambda a: np.einsum("ij,i", a),
    lambda a: np.tensordot(a, a, 1),
    lambda a: a.reshape(1, 3, 4) @ np.ones((2, 4, 1)) @ np.ones((3, 1, 1)),
]


@pytest.mark.parametrize("k", range(len(ERRORS)))
def test_errors(k: int) -> None:
    with pytest.raises(Exception) as expected:
        ERRORS[k](data((3, 4)))
    with pytest.raises(type(expected.value)) as got:
        interpreted(ERRORS[k], data((3, 4)))
    assert str(got.value) == str(expected.value)
