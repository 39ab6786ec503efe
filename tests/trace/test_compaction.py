"""Results whose length depends on the image's values: what a mask keeps, where elements are not zero, values that occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import TraceError
from hjit.export.description import CannotExport
from hjit.trace.ops.limits import FEW_VALUES, MIN_DIGITS_COUNTED
from tests.numpy_check import assert_same, check, layouts, sample

RNG = np.random.default_rng(5)
IMAGE = RNG.random((70, 90)).astype(np.float32)
COLOURS = RNG.random((21, 80, 3))
LABELS = RNG.integers(0, 40, (70, 90))
Function = Callable[..., Any]


def compiled(f: Function, *args: Any, **options: Any) -> Any:
    return check(f, *args, on_unsupported="raise", tune=False, **options)


RESULTS: dict[str, Function] = {
    "elements": lambda x: x[x > 0.5],
    "computed elements": lambda x: (np.sqrt(x[x > 0.5]) + 1, x.mean(), {"few": x[x > 0.99]}),
    "none": lambda x: (x[x > 2], np.nonzero(x > 2), np.argwhere(x > 2)),
    "all": lambda x: (x[x >= 0], np.flatnonzero(x >= 0)),
    "places": lambda x: np.nonzero(x > 0.9),
    "rows of places": lambda x: np.argwhere(x > 0.9),
    "flat places": lambda x: np.flatnonzero(x > 0.9),
    "where": lambda x: np.where(x > 0.9),
    "rows": lambda x: x[x[:, 3] > 0.5],
    "of short rows": lambda x: x[:, :7][x[:, :7] > 0.5],
    "extracted": lambda x: (np.extract(x > 0.5, x), np.compress(x[:, 0] > 0.5, x, axis=0)),
    "small wholes": lambda x: (x * 9).astype(np.uint8)[x > 0.3],
    "stencil": lambda x: np.argwhere((x[1:-1] > x[:-2]) & (x[1:-1] > x[2:])),
    "standardised": lambda x: (x[x > 0.5] - x[x > 0.5].min()) / 2,
}


@pytest.mark.parametrize("name", RESULTS)
def test_of_any_layout(name: str) -> None:
    for x in layouts(IMAGE):
        compiled(RESULTS[name], x)


@pytest.mark.parametrize("name", RESULTS)
def test_of_long_rows(name: str) -> None:
    compiled(RESULTS[name], np.tile(IMAGE[:9], (1, 4)))


def test_memory_is_laid_out_as_numpys() -> None:
    def f(x: Any) -> Any:
        return np.nonzero(x > 0.9), np.argwhere(x > 0.9), x[x > 0.9], np.transpose(np.nonzero(x > 0.9))

    (rows, columns), *others = compiled(f, IMAGE)(IMAGE)
    (theirs, _), *others_of_numpy = f(IMAGE)
    assert rows.strides == theirs.strides
    assert rows.base is columns.base
    assert [x.strides for x in others] == [x.strides for x in others_of_numpy]
    assert others[1].flags.owndata
    assert others[1].flags.writeable


def test_one_kernel_serves_every_number_of_elements() -> None:
    p = hjit.pipeline(RESULTS["places"], on_unsupported="raise", cache="off", verify="off", tune=False)
    for k, x in enumerate((IMAGE, IMAGE / 2, IMAGE[::-1] + 1, np.zeros_like(IMAGE))):
        assert_same(p(x), RESULTS["places"](x))
        assert p.stats.traces == 1, k
    assert_same(p(IMAGE[:31, :50]), RESULTS["places"](IMAGE[:31, :50]))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float64"])
def test_of_any_dtype(dtype: str) -> None:
    a = sample((31, 70), dtype)
    compiled(lambda x: (x[x > x.dtype.type(0)], np.nonzero(x)), a)


def test_colours() -> None:
    compiled(lambda c: c[c[..., 1] > 0.5], COLOURS)
    compiled(lambda c: c[c[..., 1] > 0.5][:, 1], COLOURS)
    compiled(lambda c: c[c > 0.5], COLOURS)
    compiled(lambda c: (c[c[..., 1] > 0.5][..., :2] + 1, c[c[..., 0] > 0.2].max(axis=0)), COLOURS)


def test_operands_that_are_the_same_for_all_elements() -> None:
    def centred(x: Any) -> Any:
        places = np.argwhere(x > 0.9)
        return places - places.min(axis=0), places - places.max(axis=0, keepdims=True), ((places - [3, 4]) ** 2).sum(1)

    compiled(centred, IMAGE)
    compiled(lambda c: c[c[..., 0] > 0.5] * [1, 2, 3.0] + np.array([1.0, 2, 3]) - c[0, 0], COLOURS)
    compiled(lambda c: (c[c[..., 0] > 0.5] + c[0, 0, :1], c[c > 0.5] + c[0, 0, :1]), COLOURS)
    p = hjit.pipeline(lambda x: x[x > 0.5] + x[:1, :1], on_unsupported="break", cache="off")
    assert_same(p(IMAGE), IMAGE[IMAGE > 0.5] + IMAGE[:1, :1])


def test_a_volume() -> None:
    volume = RNG.random((5, 9, 70))
    compiled(lambda v: (np.argwhere(v > 0.8), v[v > 0.8], v[v[..., 0] > 0.3]), volume)


def test_uncertain_masks_are_not_compacted() -> None:
    """Their number of elements might not be NumPy's: the comparison is a segment of its own."""

    def f(x: Any) -> Any:
        return x[np.exp(x) > 1.5]

    with pytest.raises(TraceError, match="depends on the image's values"):
        hjit.pipeline(f, on_unsupported="raise", cache="off")(IMAGE)
    assert_same(hjit.pipeline(f, on_unsupported="break", cache="off")(IMAGE), f(IMAGE))


def test_uncertain_elements_are_compared_with_numpys() -> None:
    p = hjit.pipeline(lambda x: np.exp(x)[x > 0.5], on_unsupported="raise", cache="off")
    for _ in range(3):
        assert_same(p(IMAGE), np.exp(IMAGE)[IMAGE > 0.5], exact=False)
    assert p.stats.verified


def test_complex_numbers_run_in_parts() -> None:
    z = IMAGE + 1j

    def f(z: Any) -> Any:
        return z[z.real > 0.5]

    assert_same(hjit.pipeline(f, on_unsupported="break", cache="off")(z), f(z))


def test_such_a_result_is_not_exported(tmp_path: Any) -> None:
    p = hjit.pipeline(RESULTS["elements"], cache="off", tune=False)
    with pytest.raises(CannotExport, match="the length of a result depends on the image's values"):
        p.export(tmp_path / "compacted.o", IMAGE)


# -- indices that are read under a mask


PLACES: dict[str, Function] = {
    "exchanged": lambda x: x[tuple(reversed(np.nonzero(x[:60, :60] > 0.9)))].mean(),
    "of a part": lambda x: x[np.nonzero(x[:9, :9] > 0.5)],
    "elements beside": lambda x: x[np.nonzero(x[:-1] > 0.9)[0] + 1, np.nonzero(x[:-1] > 0.9)[1]],
    "columns of places": lambda x: (np.argwhere(x > 0.9)[:, 0], np.argwhere(x > 0.9)[:, ::-1].sum(axis=0)),
    "stacked": lambda x: (
        np.column_stack(np.nonzero(x > 0.9)),
        np.stack(np.nonzero(x > 0.9), axis=1),
        np.stack(np.nonzero(x > 0.9), axis=-1)[:, 0],
    ),
    "colours of places": lambda x: np.stack([x, x + 1], axis=-1)[np.nonzero(x > 0.9)[0]],
    "of a table": lambda x: np.arange(300.0)[(x[x > 0.5] * 200).astype(np.intp)],
    "taken": lambda x: np.take(np.arange(300.0), (x[x > 0.5] * 200).astype(np.intp) - 300),
    "flat": lambda x: (x[x > 0.5].flat[0], x[x > 0.5].ravel()[-1], x[x > 0.5].flatten()[3], x[x > 0.5].T[1]),
}


@pytest.mark.parametrize("name", PLACES)
def test_indices(name: str) -> None:
    compiled(PLACES[name], IMAGE)


def test_what_is_changed_in_place() -> None:
    def f(x: Any) -> Any:
        rows, columns = np.nonzero(x > 0.9)
        rows += 5
        columns *= rows
        elements = x[x > 0.9]
        elements -= 1
        return rows, columns, elements

    compiled(f, IMAGE)

    def by_columns(x: Any) -> Any:
        places = np.argwhere(x > 0.9)
        rows = places[:, 0]
        rows += 5
        return places, rows

    def by_places(x: Any) -> Any:
        places = np.argwhere(x > 0.9)
        rows = places[:, 0]
        places += 5
        return places, rows

    for g in (by_columns, by_places):
        with pytest.raises(TraceError, match="depends on the image's values"):
            hjit.pipeline(g, on_unsupported="raise", cache="off")(IMAGE)
        assert_same(hjit.pipeline(g, on_unsupported="break", cache="off")(IMAGE), g(IMAGE))


def test_what_lies_out_of_bounds_raises_numpys_error() -> None:
    def f(x: Any, n: Any) -> Any:
        rows, columns = np.nonzero(x > 0.9)
        return x[rows + n, columns].sum()

    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    assert_same(p(IMAGE, 0), f(IMAGE, 0))
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 70"):
        p(IMAGE, 60)
    dark = np.where(np.arange(70)[:, None] < 5, IMAGE, 0)
    assert_same(p(dark, 60), f(dark, 60))  # only what the mask keeps is looked up


def test_elements_written_at_places() -> None:
    def f(x: Any) -> Any:
        rows, columns = np.nonzero(x > 0.7)
        out = np.full_like(x, 3)
        out[rows // 2, columns // 3] = x[rows, columns]
        out[rows[0], 1] = 9
        out[rows // 9] = 5
        return out

    for x in layouts(IMAGE):
        compiled(f, x)

    def changed(x: Any) -> None:
        rows, columns = np.nonzero(x > 0.7)
        x[rows // 2, columns] *= 2

    compiled(changed, IMAGE)


def test_running_sums_of_what_is_read() -> None:
    numbers = RNG.normal(size=300).astype(np.float32)
    numbers[:5] = -0.0
    compiled(lambda v: np.cumsum(v[v > -1]), numbers)
    compiled(lambda v: np.cumsum((v * 50).astype(np.int16)[v > 0.5]), numbers)
    compiled(lambda v: (v[v > 0.5].cumsum()[-1], np.cumsum(v[v == 0])), numbers)


def test_tables_that_are_read_under_a_mask() -> None:
    def f(x: Any) -> Any:
        levels, counts = np.unique(x, return_counts=True)
        shares = np.cumsum(counts) / x.size
        return np.interp(x / 99, shares, levels), np.searchsorted(levels, x[0]), np.isin(x[::-1], levels[levels > 7])

    compiled(f, LABELS.astype(np.uint8))
    compiled(lambda x: np.digitize(x[x > 0.5], np.array([0.6, 0.8])), IMAGE)
    compiled(lambda x: np.interp(x[x > 0.5], [0.0, 1.0], [3.0, 5.0]), IMAGE)
    compiled(lambda a: np.isin(a[a > 7], a[(a > 20) & (a < 25)]), LABELS)


def test_matched_histograms() -> None:
    def f(image: Any, other: Any) -> Any:
        _, places, counts = np.unique(image.ravel(), return_inverse=True, return_counts=True)
        values, others = np.unique(other.ravel(), return_counts=True)
        found = np.interp(np.cumsum(counts) / image.size, np.cumsum(others) / other.size, values)
        return found[places].reshape(image.shape)

    compiled(f, LABELS.astype(np.uint8), (LABELS // 2).astype(np.uint8))


def test_elements_at_computed_places() -> None:
    def f(a: Any, k: Any) -> Any:
        values, counts = np.unique(a, return_counts=True)
        return values[np.argmax(counts)], counts[k], values[np.array([0, 2, -1])]

    small = LABELS.astype(np.uint8)
    compiled(f, small, np.array([[1, 3], [-1, -2]]))
    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    with pytest.raises(IndexError, match="out of bounds"):
        p(small, np.array([[1, 3], [-1, -60]]))


# -- values that occur


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_near_values_of_wide_dtypes(dtype: str) -> None:
    def f(a: Any) -> Any:
        return np.unique(a, return_index=True, return_inverse=True, return_counts=True)

    info = np.iinfo(dtype)
    for least in (info.min, 0, info.max - 50):
        compiled(f, (LABELS.astype(object) + least).astype(dtype))


def test_values_that_lie_far_apart_are_numpys() -> None:
    p = hjit.pipeline(lambda a: np.unique(a), on_unsupported="break", cache="off")
    info = np.iinfo(np.int64)
    for a in (LABELS, LABELS * (FEW_VALUES // 20), np.array([info.min, info.max]), np.array([3, 3 + FEW_VALUES])):
        assert_same(p(a), np.unique(a))


def test_many_values_of_many_elements() -> None:
    a = RNG.integers(5, 9000, (MIN_DIGITS_COUNTED // 100, 101)) * 7
    compiled(lambda a: np.unique(a, return_counts=True), a)


def test_of_the_array_api() -> None:
    compiled(lambda a: (np.unique_counts(a), np.unique_inverse(a), np.unique_all(a)), LABELS)


def test_values_of_what_is_read_under_a_mask() -> None:
    def f(a: Any, x: Any) -> Any:
        values, inverse, counts = np.unique(a[x > 0.5], return_inverse=True, return_counts=True)
        return values, inverse, counts, len(values)

    compiled(f, LABELS, IMAGE)
    compiled(f, LABELS.astype(np.int8), IMAGE)
    p = hjit.pipeline(f, on_unsupported="break", cache="off")
    assert_same(p(LABELS, IMAGE - 9), f(LABELS, IMAGE - 9))


def test_regions_one_after_another() -> None:
    """A loop over the labels runs in Python; what finds them is compiled."""

    def f(a: Any, x: Any) -> Any:
        return [float(x[a == k].max()) for k in np.unique(a)]

    p = hjit.pipeline(f, on_unsupported="break", cache="off", verify="off")
    assert_same(p(LABELS, IMAGE), f(LABELS, IMAGE))
