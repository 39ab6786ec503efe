"""Programs whose outermost loop threads share: each iteration has its own elements of arrays, and numbers of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower.programs.independence import with_independent_iterations
from hjit.kernels.lower.programs.lowering import lower_program
from hjit.kernels.runtime.programs import compiling
from hjit.trace.ir.programs.steps import Program
from tests.trace.test_carried_variables import identical, outcome
from tests.trace.test_while_loops import image, roots

Array = np.ndarray[Any, Any]


def means_of_clipped_windows(a: Array) -> Array:
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = np.mean(a[max(0, y - 2) : y + 3, max(0, x - 1) : x + 4])
    return out


def escapes(a: Array) -> Any:
    c, z, k = a / 80.0 - 2.0 + 0.3j, 0j, 0
    out = np.zeros(a.shape, np.int64)
    for y in range(c.shape[0]):
        for x in range(c.shape[1]):
            z, k = 0j, 0
            while abs(z) <= 2 and k < 90:
                z = z * z + c[y, x]
                k += 1
            out[y, x] = k
    return out, k


def along_rows(a: Array) -> Array:
    b = a.astype(np.float32)
    for y in range(a.shape[0]):
        for x in range(1, a.shape[1]):
            b[y, x] += 0.5 * np.max(b[y, max(0, x - 3) : x])
    return b


def histograms_of_rows(a: Array) -> Array:
    out = np.zeros((a.shape[0], 16), np.int64)
    for y in range(a.shape[0]):
        counts = np.zeros(16, np.int64)
        for x in range(a.shape[1]):
            counts[a[y, x] // 16] += 1
            if counts[a[y, x] // 16] > 5:
                break
        out[y] = counts
    return out


def backwards(a: Array) -> Array:
    out = np.full(a.shape[0], -1)
    for y in range(a.shape[0] - 1, -1, -1):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                out[y] = x
                break
    return out


INDEPENDENT: list[Callable[..., Any]] = [
    means_of_clipped_windows, roots, escapes, along_rows, histograms_of_rows, backwards
]  # fmt: skip


def down_columns(a: Array) -> Array:
    b = a.astype(np.float32)
    for y in range(1, a.shape[0]):
        for x in range(a.shape[1]):
            b[y, x] += np.min(b[y - 1, max(0, x - 1) : x + 2])
    return b


def last_that_is_found(a: Array) -> Any:
    out, at = np.zeros(a.shape[0]), -1
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 250:
                at = x
                break
        out[y] = np.mean(a[y, max(0, y - 3) : y + 1])
    return out, at


def total(a: Array) -> Any:
    out, n = np.zeros(a.shape[0]), 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 200:
                n += 1
                break
        out[y] = n
    return out


def at_computed_places(a: Array) -> Array:
    out = np.zeros(256)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 128:
                out[a[y, x]] = y + np.mean(a[y, max(0, x - 1) : x + 1])
                break
    return out


def overlapping(a: Array) -> Array:
    b = a.astype(np.float64)
    for y in range(a.shape[0] - 2):
        for x in range(1, a.shape[1]):
            b[y : y + 2, x] += np.max(b[y, max(0, x - 2) : x])
    return b


DEPENDENT: list[Callable[..., Any]] = [down_columns, last_that_is_found, total, at_computed_places, overlapping]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """What is lowered."""
    found: list[Program] = []

    def lowered(program: Program, *more: Any) -> Any:
        found.append(program)
        return lower_program(program, *more)

    monkeypatch.setattr(compiling, "lower_program", lowered)
    return found


@pytest.mark.parametrize("f", INDEPENDENT, ids=lambda f: f.__name__)
def test_threads_share_iterations_that_do_not_depend_on_each_other(f: Any, programs: list[Program]) -> None:
    p = hjit.pipeline(f, cache="off", verify="off", on_unsupported="raise", num_threads=3)
    for shape in ((40, 43), (83, 21)):
        a = image(*shape)
        for _ in range(3):
            assert identical(outcome(p, a), outcome(f, a))
    assert programs and all(with_independent_iterations(x) is not None for x in programs)


@pytest.mark.parametrize("f", DEPENDENT, ids=lambda f: f.__name__)
def test_iterations_that_depend_on_each_other_run_one_after_the_other(f: Any, programs: list[Program]) -> None:
    p = hjit.pipeline(f, cache="off", verify="off", on_unsupported="raise", num_threads=3)
    for shape in ((40, 43), (83, 21)):
        a = image(*shape)
        assert identical(outcome(p, a), outcome(f, a))
    assert programs and all(with_independent_iterations(x) is None for x in programs)


def out_of_bounds(a: Array) -> Array:
    out = np.zeros(a.shape[0])
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 10:
                out[y] = a[y, a[y, x]] + np.mean(a[y, max(0, x - 1) : x + 1])
                break
    return out


def test_an_index_out_of_bounds_in_one_iteration_is_an_error(programs: list[Program]) -> None:
    p = hjit.pipeline(out_of_bounds, cache="off", verify="off", on_unsupported="raise", num_threads=3)
    a = np.full((40, 43), 20, np.uint8)
    assert identical(outcome(p, a), outcome(out_of_bounds, a))
    a[31, 0] = 77
    assert outcome(p, a) == outcome(out_of_bounds, a)
    assert programs and with_independent_iterations(programs[0]) is not None


def test_what_loops_without_iterations_leave_is_what_was_there(programs: list[Program]) -> None:
    p = hjit.pipeline(roots, cache="off", verify="off", on_unsupported="raise", num_threads=3)
    p(image(40, 43))
    for shape in ((0, 43), (40, 0), (2, 20), (20, 2), (1, 1)):
        a = image(*shape)
        assert identical(outcome(p, a), outcome(roots, a))
