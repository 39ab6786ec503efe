"""Functions of every family, compiled and compared with NumPy and SciPy: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from hjit.call.arguments import leaves_of
from hjit.call.variant import Variant
from tests.inexact import verified
from tests.numpy_check import check, image


@dataclass(frozen=True)
class Row:
    """A function of an image, the dtypes to try, and whether its result has NumPy's bits."""

    name: str
    function: Callable[..., Any]
    dtypes: tuple[str, ...] = ("uint8", "float32")
    exact: bool = True
    shape: tuple[int, ...] = (20, 35)


K3 = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
KERNEL = np.array([0.1, 0.25, 0.3, 0.25, 0.1])
FLOAT = ("float32", "float64")

ROWS = (
    Row(
        "joins",
        lambda a: (
            np.concatenate([a, a[::-1]], 1),
            np.stack([a, a * 2]),
            np.hstack([a, a]),
            np.vstack([a[:3], a]),
            np.dstack([a, a + 1]),
            np.append(a, a[:1], 0),
        ),
    ),
    Row(
        "columns and blocks",
        lambda a: (
            np.column_stack([a[0], a[1]]),
            np.block([[a, a * 2], [a[::-1], a]]),
            np.tile(a, (2, 3)),
            np.repeat(a, 3, 1),
            np.resize(a, (7, 9)),
        ),
    ),
    Row(
        "splits",
        lambda a: (
            [x + 1 for x in np.array_split(a, 3, 1)],
            [x * 2 for x in np.split(a, 4)],
            [x + 1 for x in np.vsplit(a, 2)],
        ),
    ),
    Row(
        "deletions",
        lambda a: (
            np.delete(a, 3, 0),
            np.delete(a, slice(2, 9), 1),
            np.insert(a, 5, 7, axis=1),
            np.insert(a, 0, a[3], axis=0),
        ),
    ),
    Row(
        "repeats of channels",
        lambda a: (
            np.repeat(a[..., None], 3, -1),
            np.repeat(np.repeat(a, 2, 0), 2, 1),
            np.kron(a, np.ones((2, 2), a.dtype)),
        ),
    ),
    Row(
        "sorts",
        lambda a: (
            np.sort(a, 1),
            np.sort(a, 0),
            np.sort(a[:, :5]),
            np.argsort(a, axis=1, kind="stable"),
            np.sort(a[:2, :7], axis=None),
        ),
        shape=(6, 13),
    ),
    Row(
        "medians",
        lambda a: (
            np.median(a),
            np.median(a, 0),
            np.median(a, axis=(0, 1)),
            np.percentile(a, 30),
            np.quantile(a.astype(float), 0.25, axis=1),
        ),
        exact=False,
        shape=(4, 5),
    ),
    Row(
        "median of a window",
        lambda a: np.median(np.stack([a[i : i + 18, j : j + 33] for i in range(3) for j in range(3)]), axis=0),
    ),
    Row("partitions", lambda a: (np.partition(a[:, :20], 4, axis=1)[:, 4], np.partition(a[0, :30], 10)[10])),
    Row("ranks", lambda a: (np.minimum(a, np.roll(a, 1)), np.sort(np.stack([a, a[::-1], a[:, ::-1]]), 0)[1])),
    Row(
        "takes",
        lambda a: (
            np.take(a, [3, 0, -1], 0),
            np.take_along_axis(a, np.argsort(a[:, ::2], 1, kind="stable"), 1),
            np.choose(a > 5, [a, a * 2]),
        ),
    ),
    Row(
        "counts",
        lambda a: (
            np.bincount(a.ravel()),
            np.histogram(a, 10, (0, 256))[0],
            np.isin(a, [3, 5, 7]),
            np.digitize(a, [5, 50]),
        ),
        ("uint8",),
    ),
    Row("puts", lambda a: _puts(a)),
    Row(
        "searches",
        lambda a: (np.searchsorted(np.array([1.0, 20.0, 30.5]), a), np.interp(a, [0.0, 50.0, 255.0], [0.0, 1.0, 3.0])),
        ("uint8", "float64"),
        False,
    ),
    Row(
        "products",
        lambda a: (a @ a.T, np.dot(a, a[0]), np.outer(a[0], a[1]), np.inner(a, a), np.trace(a), np.vdot(a, a)),
        ("int32", "float32", "float64"),
        False,
    ),
    Row(
        "colour matrices",
        lambda a: (a @ K3, a.dot(K3[0]), np.einsum("yxc,dc->yxd", a, K3), np.tensordot(a, K3, 1)),
        FLOAT,
        False,
        (20, 35, 3),
    ),
    Row(
        "sums of products",
        lambda a: (np.einsum("ij,ij->i", a, a), np.einsum("ij->ji", a), np.einsum("ij,kj->ik", a, a[:4])),
        ("int64", "float64"),
        False,
    ),
    Row(
        "convolutions of rows",
        lambda a: (
            np.convolve(a[0], KERNEL, "same"),
            np.convolve(a[1], KERNEL),
            np.correlate(a[2], KERNEL, "valid"),
            np.convolve(a[0], a[1, :4]),
        ),
        FLOAT,
        False,
    ),
    Row("trapezoid", lambda a: (np.trapezoid(a), np.trapezoid(a, dx=0.5, axis=0)), FLOAT, False),
    Row("gradients", lambda a: (np.gradient(a, edge_order=2), np.gradient(a, 0.5, axis=0)), FLOAT),
    Row(
        "uniform filters",
        lambda a: (ndimage.uniform_filter(a, 3), ndimage.uniform_filter1d(a, 5, axis=0, mode="wrap")),
        FLOAT,
        False,
    ),
    Row(
        "gaussians",
        lambda a: (
            ndimage.gaussian_filter(a, 1.2),
            ndimage.gaussian_filter(a, (0.8, 2), mode="nearest"),
            ndimage.gaussian_filter1d(a, 1, order=1),
        ),
        FLOAT,
        False,
    ),
    Row(
        "correlations",
        lambda a: (
            ndimage.convolve(a, K3),
            ndimage.correlate(a, K3, mode="constant", cval=2.0),
            ndimage.convolve1d(a, KERNEL, axis=1, mode="mirror"),
        ),
        FLOAT,
        False,
    ),
    Row("derivatives", lambda a: (ndimage.sobel(a, 0), ndimage.prewitt(a, 1), ndimage.laplace(a)), FLOAT, False),
    Row(
        "extremes",
        lambda a: (
            ndimage.maximum_filter(a, 3),
            ndimage.minimum_filter(a, (1, 5), mode="nearest"),
            ndimage.grey_dilation(a, (3, 3)),
            ndimage.grey_erosion(a, (3, 3)),
        ),
    ),
    Row(
        "rank filters",
        lambda a: (ndimage.median_filter(a, 3), ndimage.percentile_filter(a, 20, 3), ndimage.rank_filter(a, 2, 3)),
    ),
    Row(
        "binary morphology",
        lambda a: (ndimage.binary_dilation(a), ndimage.binary_erosion(a, np.ones((3, 3))), ndimage.binary_opening(a)),
        ("bool",),
    ),
    Row(
        "shifts",
        lambda a: (
            ndimage.shift(a, (1, -2), order=0),
            ndimage.shift(a, (1.5, 2.25), order=1),
            ndimage.zoom(a, 2, order=1),
        ),
        ("float64",),
        False,
    ),
)


def _puts(a: Any) -> Any:
    b = a.copy()
    np.put(b, [0, 5, -1], 9)
    np.place(b, b > 100, 1)
    np.putmask(b, a < 5, 3)
    np.put_along_axis(b, np.argmax(a, 1)[:, None], 77, 1)
    np.fill_diagonal(b, 2)
    np.copyto(b, 4, where=a == 8)
    return b, np.nonzero(np.arange(5) % 2)[0], np.tril(a), np.triu(a, 1), np.diagonal(a) + 1


CASES = [(r, dtype) for r in ROWS for dtype in r.dtypes]


@pytest.mark.parametrize(("row", "dtype"), CASES, ids=[f"{r.name}-{dtype}" for r, dtype in CASES])
def test_family(row: Row, dtype: str) -> None:
    a = image(row.shape, dtype)
    check(row.function, a, exact=row.exact, ulps=64)


@pytest.mark.parametrize(("row", "dtype"), CASES, ids=[f"{r.name}-{dtype}" for r, dtype in CASES])
def test_no_kernel_of_a_family_is_found_wrong(row: Row, dtype: str) -> None:
    pipe, said = verified(row.function, image(row.shape, dtype))
    assert not said and pipe.stats.verified is True


@pytest.mark.parametrize(("row", "dtype"), CASES, ids=[f"{r.name}-{dtype}" for r, dtype in CASES])
def test_one_wrong_element_of_a_family_is_found(row: Row, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Variant.run

    def wrong(self: Variant, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        a = next(x for x in leaves_of(result) if isinstance(x, np.ndarray))
        at = np.unravel_index(a.size // 3, a.shape)
        a[at] = ~a[at] if a.dtype == bool else a[at] * (1 + 1e-4) + 1e-4 if a.dtype.kind == "f" else a[at] + 1
        return result

    monkeypatch.setattr(Variant, "run", wrong)
    pipe, said = verified(row.function, image(row.shape, dtype))
    assert said and pipe.stats.verified is False
