"""Indices that cannot leave their axis are not checked at run time, and all others are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.analysis.ranges import Ranges, of_dtype
from hjit.trace.ir.expressions import Const, Load, Op, cast, select
from hjit.trace.ir.poly import Dim, poly
from tests.numpy_check import check

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 70)).astype(np.uint8)
TABLE = np.sqrt(np.arange(1000, dtype=np.float32))


def checks(f: Callable[..., Any], *args: Any) -> bool:
    """Does the code of a function check an index?"""
    return "label %bad" in hjit.pipeline(f, tune=False, cache="off").inspect_llvm(*args)


def smoothed(a: Any) -> Any:
    for _ in range(8):
        a = (a[:, 1:] + a[:, :-1]) // 2
    return a


INSIDE: dict[str, Callable[..., Any]] = {
    "bytes": lambda a, t: t[a],
    "clipped": lambda a, t: t[np.clip(a.astype(np.int16) * 5 - 100, 0, 999)],
    "a remainder": lambda a, t: t[(a.astype(int) * 7 - 500) % 1000],
    "a mask": lambda a, t: t[a.astype(np.int32) * 1000 & 511],
    "shifts": lambda a, t: t[(a.astype(np.int16) << 1) >> 1],
    "a choice": lambda a, t: t[np.where(a > 9, a, np.uint8(3)).astype(int) * 3],
    "a distance": lambda a, t: t[np.abs(a[:, 1:].astype(np.int16) - a[:, :-1])],
    "a mean": lambda a, t: t[(a[:, 1:].astype(np.int16) + a[:, :-1] + 1) // 2],
    "truth": lambda a, t: t[(a > 100).astype(int) + (a > 200)],
    "a table of indices": lambda a, t: t[(np.arange(256) * 3)[a]],
    "many steps": lambda a, t: t[smoothed(a.astype(np.int32))],
    "bits": lambda a, t: t[(a | 3) ^ (a >> 2)],
}
OUTSIDE: dict[str, Callable[..., Any]] = {
    "too large": lambda a, t: t[a.astype(np.int16) * 3 + 240],
    "negative": lambda a, t: t[a.astype(np.int16) - 5],
    "wrapped around": lambda a, t: t[(a.astype(np.int8) * np.int8(1)).astype(int)],
    "of floats": lambda a, t: t[(np.clip(a * 0.5, 0, 999)).astype(int)],
    "of an argument": lambda a, t: t[a.astype(np.uint16) * a],
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_stays_inside_is_not_checked(name: str) -> None:
    assert not checks(INSIDE[name], IMAGE, TABLE)
    check(INSIDE[name], IMAGE, TABLE)


@pytest.mark.parametrize("name", OUTSIDE)
def test_all_else_is(name: str) -> None:
    assert checks(OUTSIDE[name], IMAGE, TABLE)


def test_indices_outside_are_refused_as_ever() -> None:
    f = hjit.pipeline(lambda a, t: t[a.astype(np.int16) * 3 + 240], tune=False)
    with pytest.raises(IndexError):
        f(IMAGE, TABLE)
    with pytest.raises(IndexError):  # as many as there are bytes, in a call; fewer in the next
        g = hjit.pipeline(lambda a, t: t[a], tune=False)
        g(IMAGE, TABLE[:256])
        g(IMAGE, TABLE[:200])


def test_what_a_loop_changes_is_checked() -> None:
    def steps(a: Any, t: Any) -> Any:
        at = np.zeros(len(a), np.int64)
        out = np.zeros(len(a), t.dtype)
        for y in range(1, len(a)):
            at[y] = at[y - 1] + 30
            out[y] = t[at[y - 1]]
        return out

    assert np.array_equal(hjit.pipeline(steps, tune=False)(IMAGE[:30], TABLE), steps(IMAGE[:30], TABLE))
    with pytest.raises(IndexError):
        hjit.pipeline(steps, tune=False)(IMAGE, TABLE)


# -- brute force

DTYPES = ("bool", "int8", "uint8", "int16")
BINARY = "add subtract multiply minimum maximum floor_divide remainder right_shift left_shift bitwise_and bitwise_or bitwise_xor".split()


def found_and_true(
    op: Callable[..., Op], *values: np.ndarray[Any, Any]
) -> tuple[tuple[int, int], np.ndarray[Any, Any]]:
    """The range of an operation on arrays of known contents, and all its results."""
    loads = [Load(str(k), (poly(Dim(0)),), v.dtype) for k, v in enumerate(values)]
    found = Ranges({}, lambda name: values[int(name)]).of(op(*loads))
    grid = np.meshgrid(*values, indexing="ij")
    assert found is not None
    return found, grid if len(grid) > 1 else grid[0]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_ranges_hold_all_results(name: str, dtype: str) -> None:
    rng = np.random.default_rng(BINARY.index(name))
    low, high = of_dtype(np.dtype(dtype)) or (0, 0)
    for _ in range(60):
        (a, b), (c, d) = (sorted(rng.integers(max(low, -300), min(high, 300) + 1, 2)) for _ in range(2))
        if name in ("right_shift", "left_shift"):
            c, d = (int(x) % 8 for x in (c, d))
            c, d = min(c, d), max(c, d)
        x, y = (np.arange(p, q + 1).astype(dtype) for p, q in ((a, b), (c, d)))
        (least, most), (p, q) = found_and_true(lambda s, t: Op(name, (s, t), s.dtype), x, y)
        with np.errstate(all="ignore"):
            every = getattr(np, name)(p, q)
        assert least <= int(every.min()) and int(every.max()) <= most, (name, dtype, (a, b), (c, d))


@pytest.mark.parametrize(("dtype", "other"), list(itertools.product(DTYPES, DTYPES)))
def test_ranges_of_casts_and_choices_hold_all_results(dtype: str, other: str) -> None:
    rng = np.random.default_rng(1)
    low, high = of_dtype(np.dtype(dtype)) or (0, 0)
    for _ in range(40):
        a, b = sorted(rng.integers(max(low, -300), min(high, 300) + 1, 2))
        x = np.arange(a, b + 1).astype(dtype)
        (least, most), _ = found_and_true(lambda s: cast(s, np.dtype(other)), x)
        every = x.astype(other)
        assert least <= int(every.min()) and int(every.max()) <= most
        if dtype not in ("bool", "uint8"):
            for name in ("negative", "absolute"):
                (least, most), _ = found_and_true(lambda s, name=name: Op(name, (s,), s.dtype), x)  # type: ignore[misc]
                every = getattr(np, name)(x)
                assert least <= int(every.min()) and int(every.max()) <= most
        (least, most), _ = found_and_true(lambda s: select(Const(True, np.bool_), s, Const(1, s.dtype)), x)
        assert least <= min(int(x.min()), 1) and max(int(x.max()), 1) <= most
