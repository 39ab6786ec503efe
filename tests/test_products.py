"""Products of matrices that BLAS computes: which, with what numbers, and beside what else a function does."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ops.limits import MAX_PRODUCTS
from hjit.trace.ops.reductions.blas import is_faster
from hjit.trace.tracing.recording.products import Product

RNG = np.random.default_rng(5)


def noise(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def product(a: Any, b: Any) -> Any:
    return a @ b


def products(f: Any, *args: Any) -> list[str]:
    """The operands of the products that BLAS computes in a call."""
    variant = f.variant_of(args, {}, f._state.options.of(()))
    return [
        f"{e.product.first.source} @ {e.product.second.source}" for e in variant.rec.breaks if e.product is not None
    ]


def check(function: Callable[..., Any], *args: Any, expected: int, **options: Any) -> Any:
    """Three calls have NumPy's results, and change the arguments as it does; so many products are BLAS's."""
    f = hjit.pipeline(function, **{"verify": "off", **options})
    for _ in range(3):
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        got, wanted = f(*ours), function(*theirs)
        for a, b in zip((got, ours), (wanted, theirs), strict=True):
            for x, y in zip(*(v if isinstance(v, tuple) else (v,) for v in (a, b)), strict=True):
                assert type(x) is type(y)
                if y is not None:
                    assert np.asarray(x).dtype == np.asarray(y).dtype and np.shape(x) == np.shape(y)
                    assert np.asarray(x).flags.c_contiguous or not np.asarray(y).flags.c_contiguous
                    near = 5e-2 if np.asarray(y).dtype.itemsize == 2 else 2e-4
                    np.testing.assert_allclose(x, y, rtol=near, atol=near)
    assert f.stats.fallbacks == 0
    assert len(products(f, *args)) == expected
    return f


A, B = noise(200, 150), noise(150, 120)
SQUARE = noise(128, 128)

FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "operator": (product, (A, B)),
    "float64": (product, (A.astype(np.float64), B.astype(np.float64))),
    "mixed types": (product, (A, B.astype(np.float64))),
    "whole numbers": (lambda a, b: a @ b, (A, RNG.integers(-9, 9, B.shape))),
    "matmul": (lambda a, b: np.matmul(a, b), (A, B)),
    "dot": (lambda a, b: np.dot(a, b), (A, B)),
    "dot of a stack": (lambda a, b: np.dot(a, b), (noise(3, 70, 150), B)),
    "inner": (lambda a, b: np.inner(a, b), (A, noise(90, 150))),
    "tensordot": (lambda a, b: np.tensordot(a, b, axes=((0, 1), (1, 0))), (noise(30, 40, 80), noise(40, 30, 90))),
    "einsum": (lambda a, b: np.einsum("ijk,lk->ijl", a, b), (noise(20, 30, 64), noise(64, 64))),
    "einsum of a batch": (lambda a, b: np.einsum("bij,bkj->bik", a, b), (noise(4, 70, 80), noise(4, 90, 80))),
    "einsum, transposed": (lambda a, b: np.einsum("ij,jk->ki", a, b), (A, B)),
    "first transposed": (lambda a, b: a.T @ b, (A, noise(200, 120))),
    "second transposed": (lambda a, b: a @ b.T, (A, noise(120, 150))),
    "steps, backwards": (lambda a, b: a[::-2, 3:-7] @ b[10:, ::-1], (noise(400, 150), B)),
    "a plane": (lambda a, b: a[:, :, 1] @ b[..., 2], (noise(100, 120, 3), noise(120, 100, 4))),
    "rows of a stack that lie apart": (lambda a, b: a[:, 1:-1] @ b, (noise(5, 60, 90, 64), noise(64, 70))),
    "stacks": (product, (noise(3, 2, 80, 90), noise(3, 2, 90, 80))),
    "given operand": (lambda a: a @ B, (A,)),
    "matrix and vector": (product, (noise(700, 900), noise(900))),
    "vector and matrix": (product, (noise(700), noise(700, 900))),
    "transposed matrix and vector": (lambda a, x: a.T @ x, (noise(700, 900), noise(700))),
    "linalg": (lambda a, b: np.linalg.multi_dot([a, b]), (A, B)),
    "out": (lambda a, b, c: np.matmul(a, b, out=c), (A, B, noise(200, 120))),
}


FORMS |= {  # what BLAS cannot read as it lies
    "steps along both axes": (lambda a, b: a[::2, ::2] @ b, (noise(300, 400), noise(200, 150))),
    "overlapping windows": (
        lambda a, b: np.lib.stride_tricks.sliding_window_view(a, 64) @ b,
        (noise(1063), noise(64, 70)),
    ),
    "batch innermost": (lambda a, b: np.einsum("ijb,jkb->bik", a, b), (noise(80, 90, 4), noise(90, 100, 4))),
    "backwards vector": (lambda a, x: a @ x[::-1], (noise(600, 600), noise(600))),
    "strided vector": (lambda a, x: a @ x[:, 1], (noise(600, 600), noise(600, 3))),
}


@pytest.mark.parametrize("name", FORMS)
def test_products_of_all_kinds(name: str) -> None:
    function, args = FORMS[name]
    check(function, *args, expected=1)


def scaled(alpha: float, beta: float, c: Any, a: Any, b: Any) -> None:
    c[:] = alpha * a @ b + beta * c


def two_products(x1: Any, x2: Any, y1: Any, y2: Any, a: Any) -> None:
    x1 += a @ y1
    x2 += y2 @ a


def layers(a: Any, b: Any) -> Any:
    hidden = np.maximum(a @ b + 1, 0)
    return np.tanh(hidden @ a / 100)


def returned_twice(a: Any, b: Any) -> Any:
    c = a @ b
    return c, c.T, c + 1, c[2:5]


def decided(a: Any, b: Any) -> Any:
    c = a @ b
    return c - c.max() if c.max() > 0 else c


def changed(a: Any, b: Any) -> Any:
    c = a @ b
    c[3] = 0
    a[:] = c
    return c


def overwritten_later(a: Any, b: Any) -> Any:
    c = a @ b
    a[0] = 1
    return c, a @ b


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (scaled, (1.5, 0.5, noise(128, 128), SQUARE, SQUARE.T.copy()), 1),
        (two_products, (noise(600), noise(600), noise(600), noise(600), noise(600, 600)), 2),
        (layers, (SQUARE, noise(128, 128)), 2),
        (returned_twice, (SQUARE, noise(128, 128)), 1),
        (decided, (SQUARE, noise(128, 128)), 1),
        (changed, (SQUARE, noise(128, 128)), 1),
        (overwritten_later, (SQUARE, noise(128, 128)), 2),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_products_beside_other_operations(function: Any, args: Any, expected: int) -> None:
    check(function, *args, expected=expected)
    check(function, *args, expected=0, blas=False)


def test_new_results_at_every_call() -> None:
    f = hjit.pipeline(product, verify="off")
    first = f(SQUARE, SQUARE)
    kept = first.copy()
    second = f(2 * SQUARE, SQUARE)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(first, SQUARE @ SQUARE)  # NumPy's own numbers


def test_a_product_that_is_there_is_not_computed_again() -> None:
    check(lambda a, b: (a @ b, np.exp(a @ b / 100)), SQUARE, noise(128, 128), expected=1)
    f = check(lambda a, b: (a @ b, a @ b), SQUARE, noise(128, 128), expected=1)
    first, second = f(SQUARE, SQUARE)
    assert not np.shares_memory(first, second)


def test_small_and_narrow_products_stay_fused() -> None:
    image, matrix = noise(300, 400, 3), noise(3, 3)
    check(lambda a, m: np.clip(a @ m, 0, 1), image, matrix, expected=0)
    check(lambda a, m: np.einsum("yxc,dc->yxd", a, m), image, matrix, expected=0)
    check(product, noise(20, 20), noise(20, 20), expected=0)
    check(product, noise(40, 40), noise(40), expected=0)
    check(lambda a, b: np.dot(a, b), noise(5000), noise(5000), expected=0)


def test_what_is_no_product_of_two_matrices_stays_fused() -> None:
    check(lambda a, b: np.einsum("ij,jk,kl->il", a, b, b), noise(30, 30), noise(30, 30), expected=0, blas=True)
    check(lambda a, b: np.einsum("ij,jk->i", a, b), SQUARE, SQUARE, expected=0, blas=True)
    check(lambda a, b: np.einsum("ii,ij->ij", a, b), SQUARE, SQUARE, expected=0, blas=True)
    check(lambda a, b: np.einsum("ijk,kl->jil", a, b), noise(20, 30, 40), noise(40, 50), expected=1, blas=True)
    check(product, *(RNG.integers(0, 9, (90, 90)) for _ in range(2)), expected=0, blas=True)
    check(product, *(noise(90, 90, dtype=np.float16) for _ in range(2)), expected=0, blas=True)
    check(product, np.zeros((0, 90), np.float32), noise(90, 90), expected=0, blas=True)


def test_a_vector_needs_a_matrix_that_is_there() -> None:
    big, vector = noise(700, 900), noise(900)
    check(lambda a, x: (a * 2 + 1) @ x, big, vector, expected=0)
    check(lambda a, x: (a * 2 + 1) @ x, big, vector, expected=1, blas=True)


@pytest.mark.parametrize(("sizes", "expected"), [
    ((1, 1024, 1024, 1024, 4, True), True), ((1, 1024, 1024, 1024, 4, False), True), ((1, 64, 64, 64, 4, True), False),
    ((1, 10**6, 3, 3, 4, True), False), ((1, 4096, 16, 256, 4, True), False), ((1, 8192, 8, 128, 4, True), True), ((1, 8192, 8, 128, 8, True), False),
    ((1, 2048, 1, 2048, 4, True), True), ((1, 1, 2048, 2048, 4, True), True), ((1, 2048, 1, 2048, 4, False), False), ((1, 32, 1, 32, 4, True), False),
    ((64, 2048, 1, 2048, 4, True), False), ((1, 1, 1, 10**6, 4, True), False), ((1000, 64, 64, 16, 4, True), False), ((8, 128, 128, 128, 4, True), True),
])  # fmt: skip
def test_the_rule(sizes: Any, expected: bool) -> None:
    assert is_faster(*sizes) is expected


def test_options() -> None:
    small = noise(5, 6), noise(6, 7)
    check(product, *small, expected=1, blas=True)
    check(product, SQUARE, SQUARE, expected=0, blas=False)
    f = hjit.pipeline(product, verify="off")
    with hjit.options(blas=False):
        f(SQUARE, SQUARE)
        assert "BLAS" not in f.explain(SQUARE, SQUARE)
    f(SQUARE, SQUARE)
    assert "BLAS" in f.explain(SQUARE, SQUARE)
    with pytest.raises(hjit.OptionError, match="blas"):
        hjit.pipeline(product, blas="never")


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("0", 0), ("1", 1), ("auto", 0)):
        monkeypatch.setenv("HJIT_BLAS", text)
        check(product, noise(20, 20), noise(20, 20), expected=expected)


def test_sizes_decide_anew() -> None:
    f = hjit.pipeline(product, verify="off")
    for n, expected in ((24, 0), (256, 1), (40, 0), (200, 1)):
        a, b = noise(n, n), noise(n, n)
        np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-4)
        assert len(products(f, a, b)) == expected


def test_one_kernel_beside_products_serves_all_sizes() -> None:
    f = hjit.pipeline(layers, verify="off")
    f(noise(128, 128), noise(128, 128))
    before = f.stats.compilations
    f(noise(160, 144), noise(144, 160))
    assert f.stats.compilations == before


def test_into_arrays_of_the_caller() -> None:
    f = hjit.pipeline(product, verify="off")
    out = np.full((200, 120), np.nan, np.float32)
    for _ in range(2):
        assert f.into(out, A, B) is out
        np.testing.assert_array_equal(out, A @ B)
    own = SQUARE.copy()
    f.into(own, own, SQUARE)  # it may not be written before it is read
    np.testing.assert_allclose(own, SQUARE @ SQUARE, rtol=1e-4, atol=1e-4)
    strided = np.zeros((400, 120), np.float32)[::2]
    np.testing.assert_array_equal(f.into(strided, A, B), A @ B)


def test_schedules_by_hand_have_all_products() -> None:
    f = hjit.pipeline(layers, verify="off")
    other = noise(128, 128)
    f(SQUARE, other)
    s = f.schedule(SQUARE, other)
    assert "product" in s.stages
    s["product"].parallel("y")
    f.use(s)
    np.testing.assert_allclose(f(SQUARE, other), layers(SQUARE, other), rtol=1e-4, atol=1e-4)
    assert products(f, SQUARE, other) == []
    f.use(None)
    assert len(products(f, SQUARE, other)) == 2


def test_trees_have_the_products_that_they_compute() -> None:
    other, small = noise(128, 128), (noise(24, 24), noise(24, 24))
    for blas, expected in (("auto", 2), (False, 0)):
        f = hjit.pipeline(layers, verify="off", blas=blas)
        f.use(list(f.tree(SQUARE, other)))
        for args in ((SQUARE, other), small):  # also at sizes at which BLAS would not be chosen
            np.testing.assert_allclose(f(*args), layers(*args), rtol=1e-4, atol=1e-4)
            assert len(products(f, *args)) == expected


def test_products_in_loops_that_are_traced_once_stay_fused() -> None:
    def rows(a: Any, b: Any) -> Any:
        out = np.zeros_like(a)
        for y in range(a.shape[0]):
            out[y] = a[y] @ b
        return out

    check(rows, noise(600, 600), noise(600, 600), expected=0)


def test_there_is_a_limit_to_the_number_of_products() -> None:
    def power(a: Any) -> Any:
        b = a
        for _ in range(MAX_PRODUCTS + 5):
            b = (b @ a) / 8
        return b

    f = hjit.pipeline(power, verify="off", blas=True)
    a = noise(20, 20)
    np.testing.assert_allclose(f(a), power(a), rtol=1e-3, atol=1e-3)
    assert len(products(f, a)) == MAX_PRODUCTS


def test_verification_lets_blas_round_as_it_does() -> None:
    f = hjit.pipeline(lambda a, b: np.einsum("ij,jk->ik", a, b) * 2)  # NumPy's einsum adds one product after the other
    a, b = noise(100, 900), noise(900, 100)
    f(a, b)
    assert f.stats.verified is True and len(products(f, a, b)) == 1


def test_a_wrong_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Product.compute

    def wrong(self: Product, arrays: Any, out: Any = None) -> Any:
        result = real(self, arrays, out)
        result[..., 3] *= np.float32(1.01)
        return result

    monkeypatch.setattr(Product, "compute", wrong)
    f = hjit.pipeline(product)
    with pytest.warns(hjit.HjitWarning, match="differs from NumPy's"):
        for _ in range(4):
            np.testing.assert_array_equal(f(SQUARE, SQUARE), SQUARE @ SQUARE)
    assert f.stats.verified is False


def test_overflows_give_no_warnings() -> None:
    big = np.full((100, 100), 1e30, np.float32)
    f = hjit.pipeline(product, verify="off")
    with warnings.catch_warnings(action="error"):
        assert np.isinf(f(big, big)).all()


def test_explained() -> None:
    f = hjit.pipeline(product, verify="off")
    assert "call it" in f.explain(A, B)
    f(A, B)
    assert "product = a @ b by BLAS" in f.explain(A, B)
    f(A[:9, :9].copy(), B[:9, :9].copy())
    text = f.explain(A[:9, :9].copy(), B[:9, :9].copy())
    assert text.startswith("product runs compiled: 1 kernel") and "BLAS" not in text
