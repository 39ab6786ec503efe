"""New arrays have the memory layout of NumPy's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import hjit
from tests.numpy_check import check, image, layouts

PICTURE = image((40, 30, 5), "float32")

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda a: a.T * 2,
    "channels first": lambda a: np.transpose(a, (2, 0, 1)) + 1,
    "swapped": lambda a: np.sqrt(np.swapaxes(a, 0, 1)),
    "turned": lambda a: np.rot90(a) - 1,
    "moved, then a part": lambda a: -np.moveaxis(a, 2, 0)[:, 3:-2, ::-1],
    "orders that disagree": lambda a: a[:30, :30] + np.swapaxes(a[:30, :30], 0, 1),
    "repeated": lambda a: np.moveaxis(a, 0, 2) * a[:, 0, 0],
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(0, 1)) * 2,
    "split": lambda a: np.swapaxes(a.reshape(20, 2, 30, 5), 1, 2) + 1,
    "joined": lambda a: a.reshape(-1, 5).T + 1,
    "astype": lambda a: a.T.astype(np.float64),
    "astype in C order": lambda a: a.T.astype(np.float64, order="C"),
    "astype without a copy": lambda a: a.T.astype(np.float32, copy=False) * 2,
    "where": lambda a: np.where(a.T > 0.5, a.T, 0),
    "clip": lambda a: np.clip(a.T, 0.2, 0.8),
    "nan_to_num": lambda a: np.nan_to_num(a.T),
    "select": lambda a: np.select([a.T > 0.5, a.T > 0.2], [a.T, -a.T], 0),
    "round": lambda a: np.round(a.T, 2),
    "copy": lambda a: np.copy(np.transpose(a, (2, 0, 1))),
    "method copy": lambda a: a.T.copy(),
    "method copy, order kept": lambda a: a.T.copy(order="K"),
    "method copy, Fortran's order": lambda a: a.copy(order="F"),
    "array": lambda a: np.array(np.swapaxes(a, 0, 1)),
    "array in C order": lambda a: np.array(a.T, order="C"),
    "ascontiguousarray": lambda a: np.ascontiguousarray(np.transpose(a, (2, 0, 1))),
    "asfortranarray": lambda a: np.asfortranarray(a),
    "require": lambda a: np.require(a.T, np.float64, ["C"]),
    "zeros_like": lambda a: np.zeros_like(a.T),
    "zeros_like, small": lambda a: np.zeros_like(a[:4, :3, :2].T),
    "full_like": lambda a: np.full_like(np.swapaxes(a, 0, 1), 3),
    "ones in Fortran's order": lambda a: np.ones(a.shape, order="F") + a.T.T,
    "sum": lambda a: np.transpose(a, (1, 0, 2)).sum(axis=2),
    "mean of all but two": lambda a: np.moveaxis(a, 2, 0).mean(axis=0, keepdims=True),
    "maximum": lambda a: np.transpose(a, (2, 1, 0)).max(axis=1),
    "ufunc in C order": lambda a: np.add(a.T, 1, order="C"),
    "a view of what is new": lambda a: (a + 1).T,
    "changed": lambda a: _changed(a.T * 2),
    "two": lambda a: (a.T + 1, np.ascontiguousarray(a.T + 1)),
    "a view and its base": lambda a: _with_view(a + 1),
    "ravelled": lambda a: (np.ravel(a.T * 2, order="K"), np.ravel(a.T * 2, order="A"), np.ravel(a.T * 2)),
    "cumsum": lambda a: (np.cumsum(a, 0), a.T.cumsum(1), np.add.accumulate(a, 2), np.cumprod(a.T, 0)),
    "sort of few": lambda a: (np.sort(a), np.sort(a.T, 0), np.partition(a, 1)),
    "sort of many": lambda a: np.sort(a, 0),
    "roll": lambda a: (np.roll(a, 3, 1), np.roll(a.T, (1, 2), (0, 1)), np.fft.fftshift(a), np.roll(a, 5)),
    "flip": lambda a: (np.flip(a) * 1, np.flip(a.T, 0) + 1),
    "gradient": lambda a: np.gradient(a),
    "pad": lambda a: (
        np.pad(a, 2),
        np.pad(a.T, 1, mode="reflect"),
        np.pad(a, ((1, 0), (0, 2), (1, 1)), constant_values=2),
    ),
    "joined arrays": lambda a: (np.concatenate([a, a + 1]), np.concatenate([a.T, a.T], 2), np.append(a, a, 1)),
    "joined arrays that disagree": lambda a: np.concatenate([a[:30, :30], np.swapaxes(a[:30, :30], 0, 1)], 1),
    "stacked": lambda a: (np.stack([a, a]), np.stack([a.T, a.T], -1), np.hstack([a, a]), np.dstack([a.T, a.T])),
    "array of arrays": lambda a: np.array([a[:, :, 0], a[:, :, 1]]),
    "left out": lambda a: (np.delete(a, 1, 0), np.delete(a.T, slice(1, 3), 1), np.insert(a, 2, 5.0, 1)),
    "copies by copy": lambda a: (a.__copy__(), copy.deepcopy(a.T), copy.deepcopy(a + 1j)),
    "einsum": lambda a: (
        np.einsum("ijk,ijk->ijk", a, a),
        np.einsum("ijk,ijk->kji", a, a),
        np.einsum("ijk,ilk->lj", a, a),
        np.einsum("ijk,jl->lik", a, a[:30, :, 0].T),
        np.einsum("ij,k->kji", a[:, :, 0], a[0, 0]),
        np.einsum("ii,i->i", a[:30, :30, 1], a[:30, 0, 0]),
    ),
    "by NumPy": lambda a: (scipy.special.erf(a), np.frexp(a)[0], np.fft.fft2(a)),
    "in parts": lambda a: _in_parts(a.T * 2),
}


def _changed(b: Any) -> Any:
    b += 1
    b[2:4] *= b[0]
    b[...] = np.sqrt(b)
    return b


def _with_view(b: Any) -> Any:
    return b, b.T[1]


def _in_parts(b: Any) -> Any:
    flat = b.ravel()  # a copy, as its elements lie in another order
    flat[:20] = 7
    other = b.T.ravel()  # a view
    other[20:40] = 9
    return b, flat


def strides(x: Any) -> Any:
    """But for axes of length 1, whose strides NumPy leaves open."""
    return (
        [strides(y) for y in x]
        if isinstance(x, tuple)
        else [s for s, n in zip(x.strides, x.shape, strict=True) if n > 1]
    )


@pytest.mark.parametrize("layout", ["C", "F", "step", "inside", "rows reversed"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_new_arrays_have_numpys_strides(name: str, layout: str) -> None:
    f, a = FUNCTIONS[name], layouts(PICTURE)[layout]
    pipe = check(f, a, exact=name not in ("mean of all but two", "einsum"), ulps=16)
    assert strides(pipe(a)) == strides(f(a))


REPEATED: dict[str, Callable[[Any], Any]] = {
    "accumulated": lambda a: (np.cumsum(a, 0), np.cumprod(a, 1), np.maximum.accumulate(a, 2), np.cumsum(a.T, 1)),
    "accumulated, complex": lambda a: np.cumsum(np.broadcast_to(a[:1] + 1j, a.shape), 1),
    "joined": lambda a: (np.concatenate([a, a + 1]), np.concatenate([a.T, a.T], 2), np.stack([a, a], 2)),
    "joined arrays that disagree": lambda a: np.concatenate([a[:30, :30], np.swapaxes(a[:30, :30], 0, 1)], 1),
    "joined, of one row": lambda a: np.concatenate([a[:1], a[:1]], 1),
    "ravelled": lambda a: (a.ravel("K"), a.T.ravel("K"), a.flatten("K"), a[:5, ::-1].ravel("K"), a.copy("K").ravel("K")),
    "ravelled, complex": lambda a: np.ravel(np.broadcast_to(a[:1] * 1j, a.shape), order="K"),
    "joined, complex": lambda a: (np.concatenate([a + 1j, a], 1), np.concatenate([np.broadcast_to(a[:1] * 1j, a.shape)] * 2)),
}  # fmt: skip


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2)])
@pytest.mark.parametrize("name", REPEATED)
def test_arrays_with_repeated_axes(name: str, axes: tuple[int, ...]) -> None:
    """Their strides of 0 count where arrays are joined, and tell nothing to ufuncs."""
    f, once = REPEATED[name], PICTURE[tuple(slice(1 if k in axes else None) for k in range(3))]
    for a in (np.broadcast_to(once, PICTURE.shape), np.broadcast_to(np.asfortranarray(once), PICTURE.shape)):
        pipe = check(f, a, exact=not name.startswith("accumulated"), ulps=16)
        assert strides(pipe(a)) == strides(f(a))


def test_contiguous_copies_are_no_views() -> None:
    def f(a: Any) -> Any:
        b = np.ascontiguousarray(a[:, ::2])
        b += 1
        c = np.ascontiguousarray(a[2:4])
        c *= 2
        return b

    check(f, PICTURE)


def test_flags_and_strides_are_known() -> None:
    def f(a: Any) -> Any:
        views = (a, a.T, a[:, ::2], a[0], np.moveaxis(a, 0, 1), a.T + 1, a[:, :, :1], a.reshape(-1))
        return [
            (x.strides, x.flags.c_contiguous, x.flags.f_contiguous, x.flags.fnc, x.flags["C_CONTIGUOUS"]) for x in views
        ]

    for a in layouts(PICTURE).values():
        check(f, a)


@pytest.mark.parametrize("f", [FUNCTIONS["transposed"], FUNCTIONS["channels first"]])
def test_results_are_put_into_arrays_of_any_order(f: Any) -> None:
    pipe = hjit.pipeline(f, cache="off", verify="off")
    expected = f(PICTURE)
    for out in (np.empty(expected.shape, np.float32), np.empty_like(expected)):
        assert pipe.into(out, PICTURE) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.filterwarnings("error")
def test_results_of_broadcast_arrays_give_no_warning() -> None:
    for unit in (1, 1j):
        a, b = np.broadcast_arrays(np.arange(4.0)[:, None] * unit, np.arange(5.0))
        pipe = hjit.pipeline(lambda a, b: (a * 2 + b, a[1:], [b.T]), on_unsupported="raise")
        for _ in range(2):
            np.testing.assert_array_equal(pipe(a, b)[0], a * 2 + b)
