"""Nests that differ in arrays and sizes alone are lowered, and written, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm import statements
from hjit.kernels.lower import nest_merging, place_loops
from tests.numpy_check import check, image

pytestmark = pytest.mark.usefixtures("no_kernels")  # what is changed here is not part of a kernel's key


def sweeps(a: Any, times: int) -> Any:
    """Two arrays in alternation: each sweep has other arrays."""
    b = a.copy()
    for _ in range(times):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a = a.copy()
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3
    return a, b


def twelve(a: Any) -> Any:
    return sweeps(a, 12)


def triangle(a: Any) -> Any:
    """Sums and updates of parts whose lengths change from iteration to iteration; some are empty, or small and so constants."""
    x = np.zeros(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        x[i] = a[i, :i] @ x[:i] + a[i, i]
        a[:i, i] -= a[i, i] * a[i, :i]
    return x, a


def kinds(a: Any) -> Any:
    """Alike, but for what decides on the code: types, strides, reductions, scalars, results, what is looked up."""
    found = []
    for t in (np.float32, np.float64, np.int32):
        b = a.astype(t)
        found += [
            b[:, 1:] - b[:, :-1],
            b.T[1:] - b.T[:-1],
            b.sum(axis=0),
            b.max(axis=1),
            b[::2].sum(),
            b[np.arange(20) * 2 % 30],
            np.cumsum(b, axis=1),
        ]
    return found


FUNCTIONS = [twelve, triangle, kinds]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("least", [0, 10**9])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_same_results(f: Any, least: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest_merging, "MANY", least)
    check(f, image((40, 40), "float64"), exact=False, num_threads=threads, cache="off")


def test_each_kind_is_lowered_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest_merging, "MANY", 0)
    counts = {"lowered": 0, "written": 0}
    build, function = place_loops.build_nest, statements.nest_function

    def counted_build(*args: Any) -> Any:
        counts["lowered"] += 1
        return build(*args)

    def counted_function(self: Any, nest: Any) -> str:
        counts["written"] += 1
        return function(self, nest)

    monkeypatch.setattr(place_loops, "build_nest", counted_build)
    monkeypatch.setattr(statements, "nest_function", counted_function)
    seen = []
    for times in (6, 12):
        counts.update(lowered=0, written=0)
        p = hjit.pipeline(lambda a, n=times: sweeps(a, n), cache="off", tune=False, verify="off")
        p(image((40, 41), "float64"))
        seen.append(dict(counts))
    assert seen[0] == seen[1], "more iterations, no more code"
    assert seen[0]["lowered"] == seen[0]["written"] < 12


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nest_merging, "MANY", 0)
    text = str(hjit.pipeline(twelve, tune=False).loops(image((40, 41), "float64")))
    assert ": as nest " in text
    assert " for " in text
    monkeypatch.setattr(nest_merging, "MANY", 10**9)
    assert ": as nest " not in str(hjit.pipeline(twelve, tune=False).loops(image((40, 41), "float64")))


def test_shapes() -> None:
    """The text has what the code depends on; arrays and sizes are told apart by where they occur."""

    def shapes(f: Any, *arrays: Any) -> list[nest_merging.Signature | None]:
        from hjit.sched.language.build import nests

        p = hjit.pipeline(f, tune=False)
        (graph,), (tree,) = p.graph(*arrays), p.tree(*arrays)
        return [nest_merging.signature_of(graph, {}, top) for top in nests(tree)]

    a = np.arange(40.0 * 41).reshape(40, 41)
    first, second, *_ = shapes(
        lambda a: np.cumsum(np.cumsum(np.cumsum(a, axis=0)[:, ::-1], axis=0)[:, ::-1], axis=0) + 1, a
    )[1:] + [None]
    for s in (first, second):
        if s is not None:
            assert s.arrays
    for f in (lambda a, k: np.cumsum(a, axis=0)[k] * 2,):
        assert None in shapes(f, a, np.arange(20))
