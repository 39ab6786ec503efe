"""Neighbourhoods, compiled: shifted slices, pads of every mode, rolls, differences, mosaics, in-place updates that overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same, check, image

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
SHAPES = ((1, 1), (1, 40), (40, 1), (2, 3), (3, 17), (5, 16), (16, 33), (17, 64), (40, 65), (33, 130))


def shifted(p: Any, shape: tuple[int, ...], radius: int) -> list[Any]:
    h, w = shape
    return [p[i : i + h, j : j + w] for i in range(2 * radius + 1) for j in range(2 * radius + 1)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_padded_stencils(mode: str, dtype: str) -> None:
    """Also images that are smaller than the stencil."""

    def f(a: Any) -> Any:
        p = np.pad(a, 1, mode=mode)
        taps = shifted(p, a.shape, 1)
        q = np.pad(a, ((2, 2), (0, 0)), mode=mode)
        return sum(x.astype(np.float32) for x in taps) / 9, np.maximum(taps[0], taps[8]), q[:-4] + q[4:] - q[2:-2]

    pipe = hjit.pipeline(f, verify="off", cache="off")
    for shape in SHAPES:
        a = image(shape, dtype)
        assert_same(pipe(a), f(a))
        check(f, a) if shape in ((1, 1), (17, 64), (40, 65)) else None
    assert pipe.stats.fallbacks == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_pads(mode: str, width: int) -> None:
    for shape in ((1, 1), (2, 33), (23, 70)):
        a = image(shape, "int16")
        check(
            lambda a: (
                np.pad(a, width, mode=mode),
                np.pad(a, ((0, width), (2, 0)), mode=mode),
                np.pad(a, ((width, 1), (0, 3)), mode)[::-1, ::2] + 1,
            ),
            a,
        )


def test_constant_pads() -> None:
    a = image((20, 33, 3), "uint8")
    check(
        lambda a: (
            np.pad(a, ((1, 2), (3, 4), (0, 0)), constant_values=9),
            np.pad(a[..., 0], 2, constant_values=((1, 2), (3, 4))),
            np.pad(a[:, :, 1], 20, mode="reflect"),
            np.pad(a[0, 0], (40, 3), mode="symmetric"),
            np.pad(a[0, :, 0], 100, mode="wrap"),
        ),
        a,
    )


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_box_filters(radius: int) -> None:
    def f(a: Any) -> Any:
        p = np.pad(a.astype(np.int32), radius, mode="edge")
        rows = sum(p[i : i + a.shape[0]] for i in range(2 * radius + 1))
        return (sum(rows[:, j : j + a.shape[1]] for j in range(2 * radius + 1)) // (2 * radius + 1) ** 2).astype(
            a.dtype
        )

    for shape in SHAPES:
        check(f, image(shape, "uint8"))


def test_chains_of_stencils() -> None:
    """Several stages deep, so that line buffers hold the rows between them."""

    def f(a: Any) -> Any:
        for _ in range(3):
            p = np.pad(a, 1, mode="symmetric")
            a = (p[1:-1, 1:-1] * 4 + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 8
        dx, dy = a[:, 2:] - a[:, :-2], a[2:] - a[:-2]
        return a, dx[1:-1] ** 2 + dy[:, 1:-1] ** 2

    for shape in ((3, 3), (17, 18), (40, 65), (200, 300)):
        check(f, image(shape, "float32"))


def test_valid_stencils() -> None:
    def f(a: Any) -> Any:
        sobel = (a[:-2, 2:] - a[:-2, :-2]) + 2 * (a[1:-1, 2:] - a[1:-1, :-2]) + (a[2:, 2:] - a[2:, :-2])
        return sobel, a[1:] - a[:-1], a[:, 2:] + a[:, :-2] - 2 * a[:, 1:-1], a[4:, 4:] * a[:-4, :-4]

    for shape in ((5, 5), (17, 17), (18, 130), (65, 40)):
        check(f, image(shape, "int32"))
        check(f, image(shape, "float64"))


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (16, 17), (20, 33), (40, 130)])
def test_rolls_and_differences(shape: tuple[int, int]) -> None:
    a = image(shape, "int32")
    check(
        lambda a: (
            [np.roll(a, s, axis) for s in (1, -1, 3, -7, 50) for axis in (0, 1, None)]
            + [np.roll(a, (1, -2), (0, 1)) - a, np.roll(np.roll(a, 1, 0), -1, 1)]
        ),
        a,
    )
    check(
        lambda a: (
            np.diff(a, axis=0),
            np.diff(a),
            np.diff(a, n=2, axis=1),
            np.diff(a, prepend=0),
            np.diff(a, axis=0, append=a[:1]),
            np.ediff1d(a),
        ),
        a,
    )
    if min(shape) > 1:
        check(lambda a: (np.gradient(a), np.gradient(a, 2.0, axis=1), np.gradient(a.astype(np.float32), axis=0)), a)


def mosaic(rgb: Any) -> Any:
    bayer = np.zeros(rgb.shape[:2], rgb.dtype)
    bayer[0::2, 0::2] = rgb[0::2, 0::2, 0]
    bayer[0::2, 1::2] = rgb[0::2, 1::2, 1]
    bayer[1::2, 0::2] = rgb[1::2, 0::2, 1]
    bayer[1::2, 1::2] = rgb[1::2, 1::2, 2]
    return bayer


def test_mosaics() -> None:
    def merge(bayer: Any) -> Any:
        out = np.empty((*bayer.shape, 3), np.float32)
        p = np.pad(bayer.astype(np.float32), 1, mode="reflect")
        cross = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
        out[..., 1] = bayer
        out[0::2, 0::2, 1] = cross[0::2, 0::2]
        out[1::2, 1::2, 1] = cross[1::2, 1::2]
        out[..., 0] = cross
        out[..., 2] = bayer - cross
        return out

    for shape in ((2, 2), (17, 35), (40, 64)):
        for dtype in ("uint8", "float32"):
            check(mosaic, image((*shape, 3), dtype))
        check(merge, image(shape, "uint16"))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_colours(dtype: str) -> None:
    def f(a: Any) -> Any:
        r, g, b = a[..., 0], a[..., 1], a[..., 2]
        y = 0.299 * r + 0.587 * g + 0.114 * b
        planar = np.moveaxis(a, -1, 0)
        out = np.stack([y, b - y, r - y], axis=-1)
        swapped = np.zeros_like(a)
        swapped[..., 0], swapped[..., 2] = b, r
        return y, out, planar + 1, a[..., ::-1] * 2, swapped, out.clip(0, 1).astype(np.float32)

    for shape in ((1, 1), (5, 16), (20, 17), (33, 67)):
        check(f, image((*shape, 3), dtype))
        check(
            lambda p: (0.25 * p[0] + 0.5 * p[1] + 0.25 * p[2], np.moveaxis(p, 0, -1) + 1, p[::-1] + p),
            image((3, *shape), dtype),
        )


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 2), (17, 33), (40, 64)])
def test_updates_in_place_that_overlap(dtype: str, shape: tuple[int, int]) -> None:
    def f(a: Any) -> Any:
        b = a.copy()
        b[1:] += b[:-1]
        b[:, :-1] -= b[:, 1:]
        b[::-1] += b
        b[1:, 1:] = b[:-1, :-1]
        b[:, ::2] *= 2
        b[0] = b[-1]
        b[...] = b[:, ::-1]
        b[1:-1] = (b[:-2] + b[2:]) * b.dtype.type(2)
        a[:, 1:] += a[:, :-1]
        a[:-1] = a[1:]
        return b

    check(f, image(shape, dtype))


def test_square_transposed_in_place() -> None:
    def f(a: Any) -> Any:
        a += a.T
        a[...] = a.T
        a[:, :] = np.rot90(a)
        return a

    check(f, image((40, 40), "int64"))
    check(f, image((5, 5), "float32"))


def test_borders_by_assignment() -> None:
    def f(a: Any) -> Any:
        out = np.zeros_like(a)
        out[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1]) // 2
        out[0], out[-1] = out[1], out[-2]
        out[:, 0], out[:, -1] = out[:, 1], out[:, -2]
        return out

    for shape in ((3, 3), (20, 40), (17, 16)):
        check(f, image(shape, "int32"))


def test_pyramids() -> None:
    def f(a: Any) -> Any:
        small = (a[::2, ::2] + a[1::2, ::2] + a[::2, 1::2] + a[1::2, 1::2]) / 4
        smaller = small.reshape(small.shape[0] // 2, 2, small.shape[1] // 2, 2).mean((1, 3))
        large = np.repeat(np.repeat(smaller, 4, 0), 4, 1)
        up = np.zeros_like(a)
        up[::2, ::2] = small
        up[1:-1:2] = (up[:-2:2] + up[2::2]) / 2
        return small, smaller, a - large, up

    for shape in ((4, 4), (32, 64), (40, 68)):
        check(f, image(shape, "float64"), exact=False, ulps=4)


def test_recurrences() -> None:
    def f(a: Any) -> Any:
        out = a.copy()
        for y in range(1, a.shape[0]):
            out[y] = 0.5 * out[y - 1] + a[y]
        for x in range(a.shape[1] - 2, -1, -1):
            out[:, x] += 0.25 * out[:, x + 1]
        return out

    check(f, image((12, 14), "float64"))


def test_windows_that_wrap_around_in_reduction_loops() -> None:
    def spread(img: Any) -> Any:
        w = np.lib.stride_tricks.sliding_window_view(np.pad(img, 2, mode="wrap"), (5, 5))
        return w.max((-1, -2)) - w.mean((2, 3))

    check(spread, np.random.default_rng(0).random((40, 60)), exact=False)
