"""Views, compiled: slices, new axes, transpositions, flips, reshapes, broadcasts, windows; read, written and returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same, check, image, layouts

STEPS = (1, 2, 3, 4, 5, 7, -1, -2, -3, -4, -5)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "bool"])
def test_steps(dtype: str) -> None:
    a = image((23, 141), dtype)
    check(lambda a: [a[:, ::s].copy() for s in STEPS] + [a[::s, 1:-1].copy() for s in STEPS], a)
    check(
        lambda a: [
            (a[1::s, 2::s] | a[1::s, 2::s]) if a.dtype != np.float32 and a.dtype != np.float64 else a[1::s, 2::s] * 2
            for s in STEPS
        ],
        a,
    )


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 18, 31, 32, 33, 34, 48, 64, 65])
def test_steps_of_small_rows(n: int) -> None:
    a = image((3, n), "float32")
    check(lambda a: (a[:, ::2] + 1, a[:, ::-2] * 2, a[:, 1::3] - 1, a[:, ::-1][:, ::4] + 1, a[::-1] + a[:, ::-1]), a)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_channels(channels: int, dtype: str) -> None:
    """Interleaved channels, forwards and backwards: all reads stay inside the array."""
    last = channels - 1
    for shape in ((20, 64, channels), (20, 129, channels), (2, 17, channels)):
        a = image(shape, dtype)
        check(
            lambda a: (
                a[..., 0] + a[..., last],
                a[:, ::-1, last] * 2,
                a[:, ::-1, 0] + 1,
                a[..., ::-1] + a,
                a[:, ::2, last] + 1,
                a[:, ::-2, 0] + 1,
            ),
            a,
        )


@pytest.mark.parametrize("name", ["C", "F", "step", "reversed", "inside", "rows reversed", "broadcast"])
def test_layouts_of_channels(name: str) -> None:
    a = layouts(image((9, 67, 3), "uint8"))[name]
    check(
        lambda a: (
            a[..., 1] + a[..., 2],
            a[::-1, ::-1, ::-1] + 1,
            np.moveaxis(a, -1, 0) + 1,
            a.T + 1,
            a.sum(-1),
            a[::2, 1::2, 0] * 2,
        ),
        a,
    )


def test_basic_keys() -> None:
    a = image((19, 37, 3), "int16")
    check(
        lambda a: (
            a[3] + 1,
            a[-1] + 1,
            a[..., 0] + 1,
            a[:, 2, ...] + 1,
            a[None] + 1,
            a[:, None, 1:5] + 1,
            a[..., None] + 1,
            a[2, 3, 1] + 1,
            a[5:2] + 1,
            a[2:-30] + 1,
            a[-100:100] + 1,
            a[:, 4:5] + a[:, 7:8],
            a[np.newaxis, ..., ::2] + 1,
            a[1:-1, 1:-1] - a[:-2, 2:],
        ),
        a,
    )


def test_transpositions() -> None:
    a = image((19, 37, 4), "float32")
    check(
        lambda a: (
            a.T + 1,
            a.transpose(1, 0, 2) * 2,
            np.moveaxis(a, 0, -1) + 1,
            np.moveaxis(a, -1, 0)[::-1] + 1,
            np.swapaxes(a, 0, 1) + 1,
            np.rollaxis(a, 2) + 1,
            np.flip(a) + 1,
            np.flipud(a) + 1,
            np.fliplr(a) + 1,
            np.rot90(a) + 1,
            np.rot90(a, 2) + 1,
            np.rot90(a, 3) + 1,
            np.rot90(a, -1, (1, 2)) + 1,
            a[..., 0].T + a[..., 1].T,
            np.flip(a, (0, 2)) + 1,
        ),
        a,
    )


@pytest.mark.parametrize("shape", [(40, 48), (17, 33), (1, 48), (48, 1), (16, 16)])
def test_transposed_sums(shape: tuple[int, int]) -> None:
    check(lambda a: (a.T + a.T, (a.T * 2).T + a, a[::-1].T - 1), image(shape, "float64"))


@pytest.mark.parametrize("order", ["C", "F"])
def test_reshapes_that_must_copy_do(order: str) -> None:
    def f(a: Any) -> Any:
        b = a.reshape(-1, order=order, copy=True)
        b[0] += 1
        c = np.reshape(a, a.shape, order=order, copy=True)
        c[1] = 7
        return a * 2, b, c

    for a in layouts(image((6, 8), "int16")).values():
        check(f, a)


def test_reshapes_that_may_not_copy_raise_where_they_would() -> None:
    def f(a: Any) -> Any:
        b = a.reshape(-1, copy=False)
        b[0] += 1
        return a * 2

    def g(a: Any) -> Any:
        return (a + 1).T.reshape(-1, copy=False)

    check(f, image((6, 8), "int16"))
    check(g, image((6, 8), "int16"))


def test_reshapes() -> None:
    a = image((24, 36), "int32")
    check(
        lambda a: (
            a.reshape(-1) + 1,
            a.ravel() * 2,
            a.reshape(36, 24) + 1,
            a.reshape(12, 2, 18, 2).sum((1, 3)),
            a.reshape(24, 6, 6)[:, ::2] + 1,
            a[:, ::2].reshape(-1) + 1,
            a.T.reshape(-1) + 1,
            a.T.ravel() + 1,
            a[1:-1, 2:-3].reshape(-1) + 1,
            a[::-1].reshape(12, -1) + 1,
            a.reshape(6, 4, 6, 6).transpose(0, 2, 1, 3).reshape(36, 24) + 1,
            a.flatten() + 1,
            np.reshape(a, (4, -1)) + 1,
        ),
        a,
    )


def test_other_views() -> None:
    a = image((1, 33, 1, 20), "uint8")
    check(
        lambda a: (
            np.squeeze(a) + 1,
            a.squeeze(0) + 1,
            np.squeeze(a, (0, 2)) + 1,
            np.expand_dims(a, 0) + 1,
            np.expand_dims(a, (1, 3)) + 1,
            np.broadcast_to(a, (4, 33, 3, 20)) + 1,
            np.broadcast_to(a[0, 0], (5, 20)) * 2,
            np.atleast_3d(a[0, :, 0]) + 1,
            np.broadcast_arrays(a, a[:, :1])[1] + 1,
        ),
        a,
    )


@pytest.mark.parametrize("window", [(3, 3), (1, 5), (5, 2), (4, 4)])
def test_windows(window: tuple[int, int]) -> None:
    a = image((21, 40), "int16")

    def f(a: Any) -> Any:
        w = np.lib.stride_tricks.sliding_window_view(a, window)
        return w.max((-1, -2)), w.sum((2, 3)), w[::2, ::3].min((2, 3)), w[..., 0, 0] + w[..., -1, -1]

    check(f, a)


def test_writes_through_views() -> None:
    def f(a: Any) -> Any:
        b = a.copy()
        row, column, inner, turned = b[2], b[:, 3], b[1:-1, 1:-1], b.T
        row += 1
        column[...] = 7
        inner *= 2
        turned[5] -= 3
        turned[::-1][0] = 9
        b[::-2, ::3] = b[::2, ::3][: len(b[::-2])]
        b.reshape(-1)[::7] = 1
        return b, inner.copy(), row.sum()

    check(f, image((20, 41), "int32"))


def test_arguments_written_through_views() -> None:
    def f(a: Any, b: Any) -> Any:
        a[::2, 1::2] = b[::2, 1::2]
        view = a[3:, ::-1]
        view[0] = 5
        a[..., -1] += 1
        return a.sum()

    for x in layouts(image((12, 40), "int64")).values():
        if x.flags.writeable:
            check(f, x, image((12, 40), "int64", 1))


@pytest.mark.parametrize("name", ["C", "F", "step", "reversed", "inside", "rows reversed"])
def test_returned_views_share_memory(name: str) -> None:
    a = layouts(np.arange(15 * 40.0).reshape(15, 40))[name]

    def f(a: Any) -> Any:
        return a, a[1:, ::-2], a.T, a[3], a[:, 5:6], a[2:4, None], a[..., 7:3:-1]

    pipe = hjit.pipeline(f, verify="off", cache="off")
    for _ in range(2):
        got = pipe(a)
        assert_same(got, f(a))
        assert got[0] is a
        for g, e in zip(got, f(a), strict=True):
            assert g.strides == e.strides and g.ctypes.data == e.ctypes.data and g.flags.writeable == e.flags.writeable
    a.flags.writeable = False
    assert not pipe(a)[1].flags.writeable


def test_results_of_one_buffer_share_memory() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        return b, b[1:], b.T

    pipe = hjit.pipeline(f, verify="off", cache="off")
    a = image((20, 30), "float32")
    b, part, turned = pipe(a)
    assert_same((b, part, turned), f(a))
    part[0, 0] = -1
    assert b[1, 0] == -1 and turned[0, 1] == -1


def test_one_kernel_for_many_sizes() -> None:
    def f(a: Any) -> Any:
        return a[1:-1, ::2] + a[:-2, ::2], a[::-1, 3:][:, : a.shape[1] // 2], a.reshape(-1)[5:]

    pipe = hjit.pipeline(f, verify="off", cache="off")
    for shape in ((20, 40), (33, 17), (100, 65), (18, 128), (257, 19)):
        a = image(shape, "uint16")
        assert_same(pipe(a), f(a))
    assert pipe.stats.fallbacks == 0


def test_squeezing_all_axes_leaves_an_array() -> None:
    def one(a: Any) -> Any:
        total = a.sum(axis=0, keepdims=True).max(axis=1, keepdims=True)
        return np.squeeze(total), total.squeeze(), np.squeeze(total, axis=0)

    check(one, image((7, 9), "int32"))


# -- a shape that is set


def set_shape(*shapes: Any) -> Any:
    def f(a: Any) -> Any:
        out = a * 2
        for shape in shapes:
            out.shape = shape
        out[0] = 7
        return out, out.shape, out.max(axis=0)

    return f


@pytest.mark.parametrize(
    "shapes",
    [
        ((-1, 3),),
        (-1,),
        ((20, -1),),
        ((-1,),),
        (-1, (5, 8, -1)),
        ((2, 60, 1), -1, (3, 40)),
        ((1, 120),),
        ([12, 10],),
        ((np.int64(6), -1),),
    ],
)
@pytest.mark.parametrize("size", [(12, 10), (40, 3), (120,)])
def test_shapes_are_set(shapes: Any, size: Any) -> None:
    check(set_shape(*shapes), image(size, "float32"))


def test_a_shape_is_set_of_one_view_alone() -> None:
    def f(a: Any) -> Any:
        out = a + 1
        rows = out[::2]
        flat = out.view()
        flat.shape = -1
        flat[:4] = 9
        every = rows[:, ::2].copy()
        every.shape = every.shape[::-1]
        rows[0, 0] = 3
        return out, out.shape, flat, every

    check(f, image((12, 10), "uint8"))


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda a: a.T, -1),
        (lambda a: a[::2], -1),
        (lambda a: a, (5, 5)),
        (lambda a: a, (-1, -1)),
        (lambda a: a[:, :3], (36,)),
        (lambda a: a, (7, -1)),
        (lambda a: np.arange(6).reshape(2, 3).T, 6),
    ],
)
def test_shapes_that_numpy_does_not_set(view: Any, shape: Any) -> None:
    def f(a: Any) -> Any:
        b = view(a * 2)
        b.shape = shape
        return b

    a = image((12, 10), "float32")
    with pytest.raises((ValueError, AttributeError)) as theirs:
        f(a)
    with pytest.raises(type(theirs.value)) as ours:
        hjit.pipeline(f)(a)
    assert str(ours.value) == str(theirs.value)


def test_a_shape_that_numpy_does_not_set_is_handled() -> None:
    def f(a: Any) -> Any:
        b = (a * 2).T
        try:
            b.shape = -1
        except AttributeError:
            b = b.reshape(-1)
        return b

    check(f, image((12, 10), "float32"))


CAPTURED = image((12, 10), "float32")


def test_the_shape_of_an_array_of_the_caller_stays() -> None:
    def argument(a: Any) -> Any:
        a.shape = -1
        return a * 2

    def captured(a: Any) -> Any:
        CAPTURED.shape = -1
        return CAPTURED * a

    for f in (argument, captured):
        with pytest.raises(hjit.TraceError, match="outlives"):
            hjit.pipeline(f)(image((12, 10), "float32"))
    assert CAPTURED.shape == (12, 10)


VIEWS = [
    lambda a: a.ravel(), lambda a: a.reshape(-1)[3:9:2], lambda a: a.reshape(2, 2, 6)[1], lambda a: a.reshape(3, 8).T, lambda a: a.reshape(2, 2, 2, 3)[:, 1],
    lambda a: a[1:3].ravel()[::-1], lambda a: np.ravel(a, "K"), lambda a: a.reshape(-1, 1), lambda a: a[None].ravel(), lambda a: a.T.ravel("F"),
    lambda a: a.reshape(2, 2, 6)[:, :, ::2].reshape(4, 3), lambda a: a.flatten(), lambda a: np.roll(a, 0), lambda a: a[:, ::2].ravel(), lambda a: a.T.ravel(),
    lambda a: a[:, ::2].ravel("K"), lambda a: np.array_split(a.ravel(), 5), lambda a: np.broadcast_to(a, (2, 4, 6)), lambda a: np.diagonal(a),
    lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, axis=1), lambda a: (a + 1).reshape(-1), lambda a: np.broadcast_to(a, a.shape),
]  # fmt: skip


@pytest.mark.parametrize("function", VIEWS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_results_share_memory_where_numpy_s_do(function: Any, order: Any) -> None:
    p = hjit.pipeline(function, cache="off")
    for a in (np.arange(24.0).reshape(4, 6), np.ones((4, 6))):
        given = a.copy(order)
        ours, theirs = p(given), function(given)
        for r, e in zip(*((x if isinstance(x, list) else [x]) for x in (ours, theirs)), strict=True):
            np.testing.assert_array_equal(r, e)
            assert np.shares_memory(r, given) == np.shares_memory(e, given)
            assert r.flags.writeable == e.flags.writeable
            assert not np.shares_memory(e, given) or r.__array_interface__["data"] == e.__array_interface__["data"]


@pytest.mark.parametrize("shape", [(100, 1), (1, 100), (100, 1, 1), (100,), (100, 2), (20, 5), (50, 2, 3)])
def test_a_shape_whose_length_is_a_quotient_of_sizes_is_a_view(shape: Any) -> None:
    def f(a: Any) -> Any:
        return a.reshape(5, -1), a.reshape(-1, 5)[::2], a.reshape(2, -1, 5)[:, 1:]

    p = hjit.pipeline(f, cache="off", verify="off")
    for given in (image(shape, "int16"), image((3 * shape[0], *shape[1:]), "int16")):
        for r, e in zip(p(given), f(given), strict=True):
            np.testing.assert_array_equal(r, e)
            assert r.__array_interface__ == e.__array_interface__


def _into(view: Any) -> Any:
    def f(a: Any) -> Any:
        view(a)[...] = 1
        return a

    return f


@pytest.mark.parametrize("function", [
    _into(lambda a: np.broadcast_to(a[0], a.shape)), _into(np.diagonal), _into(lambda a: np.diagonal(a)[::2]),
    _into(lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, axis=1)),
])  # fmt: skip
def test_views_that_numpy_gives_to_be_read_are_not_written(function: Any) -> None:
    a = np.arange(24.0).reshape(4, 6)
    with pytest.raises(ValueError, match="read-only"):
        hjit.pipeline(function, cache="off")(a)
    np.testing.assert_array_equal(a, np.arange(24.0).reshape(4, 6))


@pytest.mark.parametrize("ravel", [
    lambda a: a.ravel()[::2].ravel(), lambda a: a[:, ::2].ravel(), lambda a: a.T.ravel(), lambda a: a.T.ravel("F"), lambda a: a.T.ravel("A"),
    lambda a: a[:, ::2].ravel("K"),
])  # fmt: skip
def test_ravel_copies_what_does_not_lie_one_after_the_other(ravel: Any) -> None:
    def f(a: Any) -> Any:
        r = ravel(a)
        r[0] = 77
        return a, r

    for ours, theirs in zip(
        hjit.pipeline(f, cache="off")(np.arange(24.0).reshape(4, 6)), f(np.arange(24.0).reshape(4, 6)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::hjit.HjitWarning")
@pytest.mark.parametrize("shares", [np.shares_memory, np.may_share_memory])
def test_functions_that_ask_whether_arrays_share_memory_ask_at_every_call(shares: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        return a * 2 if shares(a, b) else a + b

    p = hjit.pipeline(f, verify="off", on_unsupported="numpy")
    x, y = np.random.default_rng(0).random((2, 20, 31))
    a = x[:, :30]
    for b in (y[:, :30], x[:, 1:], y[:, 1:], x[:, 1:]):
        np.testing.assert_array_equal(p(a, b), f(a, b))
