"""Elements side by side, which values choose, are loaded together; their numbers are NumPy's wherever they are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from hjit.kernels.runtime import features
from tests.campaign import fresh
from tests.numpy_check import check, image

MACHINES = {
    "gathers": lambda found: found - {"slow_gathers"},
    "slow gathers": lambda found: found | {"slow_gathers"},
    "no gathers": lambda found: found - {"avx512", "vbmi"},
}
DTYPES = ["bool", "uint8", "int16", "float16", "int32", "float32", "int64", "float64"]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    found = MACHINES[request.param](features.host_features())
    monkeypatch.setattr(features, "host_features", lambda: found)
    fresh.forget()
    yield str(request.param)
    fresh.forget()


def pairs_of(p: Any, *args: Any) -> tuple[int, int]:
    """How many branches the compiled code has for pairs, and how many loads that bring two elements."""
    text = str(p.inspect_llvm(*args))
    wide = re.findall(r"= load (?:i16|i32|i64|<2 x \w+>), ptr %v|@llvm.masked.gather.v\d+i64", text)
    return len(re.findall(r"^pairs\d+:", text, re.MULTILINE)), len(wide)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bilinear_interpolation(dtype: str, machine: str) -> None:
    img, rng = image((40, 61), dtype), np.random.default_rng(1)
    x, y = rng.integers(0, 60, (23, 77)), rng.integers(0, 39, (23, 77))

    def f(img: Any, y: Any, x: Any) -> Any:
        top = img[y, x] + img[y, x + 1] * 2
        return top - (img[y + 1, x] + img[y + 1, x + 1] * 3) if img.dtype != bool else top

    check(f, img, y.astype(np.int32), x.astype(np.int32))
    check(f, img, y, x)
    p = hjit.pipeline(f, cache="off")
    p(img, y, x)
    if dtype in ("uint8", "float32"):
        branches, wide = pairs_of(p, img, y, x)
        assert branches > 0 and wide > 0


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_indices_that_count_from_the_end_or_wrap_are_not_neighbours(dtype: str, machine: str) -> None:
    table = image((300,), dtype)

    def f(t: Any, i: Any) -> Any:
        return t[i] * 2 + t[i + 1]

    check(f, table, np.arange(-300, 299).reshape(1, -1).repeat(3, 0))  # i == -1: the last one, and the first one
    narrow = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, -1)
    check(f, table, narrow)  # 255 + 1 is 0
    check(f, table, narrow.astype(np.int8))


def test_the_last_element_of_an_array_is_the_last_that_is_read(machine: str) -> None:
    table = image((257,), "float32")

    def f(t: Any, i: Any) -> Any:
        return t[i] + t[np.minimum(i + 1, len(t) - 1)]

    check(f, table, np.full((5, 67), 256))
    check(f, table, np.arange(257).repeat(2).reshape(2, -1))


@pytest.mark.parametrize("mode", ["nearest", "reflect", "mirror", "constant", "grid-wrap"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_warps_beyond_the_border(mode: str, dtype: str, machine: str) -> None:
    img = image((37, 53), dtype)
    y, x = np.mgrid[-6:46:41j, -9:66:87j]
    check(lambda img, y, x: ndimage.map_coordinates(img, [y, x], order=1, mode=mode), img, y, x)


def test_channels_of_chosen_pixels(machine: str) -> None:
    rng = np.random.default_rng(2)
    for dtype in ("uint8", "float32"):
        img, x = image((20, 50, 3), dtype), rng.integers(0, 50, (20, 33))
        check(lambda img, x: img[4, x, 0] * 2 + img[4, x, 1] + img[5, x, 2], img, x)


@pytest.mark.parametrize("lanes", [2, 3, 4, 6, 8, 16, 32, 64])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_vectors_of_any_length(lanes: int, dtype: str, machine: str) -> None:
    table, index = image((90,), dtype), np.random.default_rng(4).integers(0, 89, (5, 131)).astype(np.int32)

    def f(t: Any, i: Any) -> Any:
        return t[i] * 2 - t[i + 1]

    p = hjit.pipeline(f, cache="off", tune=False, verify="off")
    s = p.schedule(table, index)
    s[s.stages[-1]].vectorize("x", lanes)
    np.testing.assert_array_equal(p.use(s)(table, index), f(table, index))


def test_neighbours_of_planes_that_are_not_taken(machine: str) -> None:
    """The last plane has none: what is behind it is not read, and its index is not checked."""

    def f(t: Any, i: Any) -> Any:
        padded = np.pad(t, ((0, 1), (0, 0)))
        return np.stack([padded[k][i] + padded[k + 1][i] for k in range(3)])

    check(f, image((3, 40), "float32"), np.random.default_rng(5).integers(0, 40, (9, 50)))


def test_an_index_out_of_bounds_is_reported(machine: str) -> None:
    table, index = image((90,), "float32"), np.arange(90).reshape(1, -1).repeat(2, 0)

    def f(t: Any, i: Any) -> Any:
        return t[i] - t[i + 1]

    with pytest.raises(IndexError, match="index 90 is out of bounds"):
        hjit.pipeline(f, verify="off")(table, index)


def test_arrays_that_the_same_loops_write(machine: str) -> None:
    def f(t: Any, i: Any) -> Any:
        cumulative = np.cumsum(t, axis=1)
        rows = np.arange(t.shape[0])[:, None]
        return cumulative[rows, i] - cumulative[rows, i + 1]

    check(f, image((30, 80), "float32"), np.random.default_rng(3).integers(0, 79, (30, 80)))


def test_a_table_of_interpolated_steps(machine: str) -> None:
    x = image((30, 71), "float32") * 40
    knots = np.sort(image((25,), "float64"))
    check(lambda x, t: np.interp(x, np.arange(25.0), t), x, knots)
