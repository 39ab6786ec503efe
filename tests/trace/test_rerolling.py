"""Python loops over ``range(...)``: one update for all iterations where that is NumPy's result, unrolled elsewhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.capture.loops.bytecode import loops
from hjit.trace.ir.poly import Var, poly
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable
from hjit.trace.tracing.scalars.size import Size
from tests.trace.helpers import assert_same, check, trace_of

RNG = np.random.default_rng(0)
ALPHA = 0.3
TABLE = np.random.default_rng(1).random(99)
SCALES: list[float] = [0.5, 0.25]


def image(h: int = 43, w: int = 29) -> np.ndarray:
    return RNG.random((h, w), np.float32)


def definitions(f: Callable[..., Any], *args: Any) -> int:
    """How many definitions the function's stages have before any rewriting."""
    traced, _ = trace_of(f, *args)
    return sum(len(s.definitions) for s in traced.recorder.stages.values())


def orders(f: Callable[..., Any], *args: Any) -> list[str]:
    """The orders of the updates of the canonical Graph."""
    traced, _ = trace_of(f, *args)
    wanted = [r.name for r in [traced.result] if r.kind in ("array", "view")] or [stage for _, stage in traced.writes]
    graph = canonicalise(traced.recorder.graph(tuple(wanted)))
    return [d.order for s in graph.stages for d in s.updates]


def same(f: Callable[..., Any], *args: Any) -> None:
    """The interpreted trace and the compiled kernel give NumPy's result, bit for bit, arguments included."""
    check(f, *[a.copy() if isinstance(a, np.ndarray) else a for a in args])
    expected, given = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    with np.errstate(all="ignore"):
        theirs = f(*expected)
    p = hjit.pipeline(f, verify="off")
    ours = p(*given)
    assert p.stats.fallbacks == 0
    assert_same(ours, theirs)
    assert_same(given, expected)


# -- what rolls


def down(img: Any, alpha: float = 0.3) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = alpha * img[y] + (1 - alpha) * out[y - 1]
    return out


def up(img: Any, alpha: float = 0.3) -> Any:
    out = img.copy()
    h = img.shape[0]
    for y in range(h - 2, -1, -1):
        out[y] = alpha * out[y] + (1 - alpha) * out[y + 1]
    return out


def backwards(img: Any) -> Any:
    out = img.copy()
    for y in reversed(range(len(img) - 1)):
        out[y] += 0.5 * out[y + 1]
    return out


def columns(img: Any) -> Any:
    out = img.astype(np.float64)
    for x in range(1, img.shape[1]):
        out[:, x] = 0.25 * img[:, x] + 0.75 * out[:, x - 1]
    return out


def last_axis(img: Any) -> Any:
    out = np.empty_like(img)
    out[..., 0] = img[..., 0]
    for x in range(1, img.shape[-1]):
        out[..., x] = out[..., x - 1] + img[..., x]
    return out


def from_zero(img: Any) -> Any:
    out = np.zeros((img.shape[0] + 1, img.shape[1]))
    for y in range(img.shape[0]):
        out[y + 1] = out[y] + img[y]
    return out


def second_order(img: Any) -> Any:
    out = img.copy()
    for y in range(2, img.shape[0]):
        out[y] = img[y] + 0.5 * out[y - 1] - 0.25 * out[y - 2]
    return out


def every_second(img: Any) -> Any:
    out = img.copy()
    for y in range(2, img.shape[0], 2):
        out[y] = out[y - 2] + 0.5 * img[y - 1]
    return out


def mirrored(img: Any) -> Any:
    out = img.copy()
    n = img.shape[0]
    for y in range(n - 1):
        out[n - 2 - y] += out[n - 1 - y]
    return out


def through_a_view(img: Any) -> Any:
    out = img.copy()
    turned = out.T[::-1]
    for k in range(1, turned.shape[0]):
        turned[k] = turned[k] - 0.5 * turned[k - 1]
    return out


def part_of_rows(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y, 1:-1] = out[y - 1, 1:-1] + img[y, 2:]
    return out


def strided_target(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y, ::2] *= out[y - 1, ::2]
    return out


def in_place_argument(img: Any) -> None:
    for y in range(1, img.shape[0]):
        img[y] += img[y - 1]


def small_integers(img: Any) -> Any:
    out = (img * 255).astype(np.uint8)
    for y in range(1, img.shape[0]):
        out[y] += out[y - 1]
    return out


def rounded_at_assignment(img: Any) -> Any:
    out = np.zeros(img.shape, np.float16)
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] * np.float64(1.7) + img[y]
    return out


def to_integers(img: Any) -> Any:
    out = np.zeros(img.shape, np.int32)
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] * 0.9 + img[y] * 1000
    return out


def running_maximum(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        np.maximum(out[y - 1], img[y], out=out[y])
    return out


def selected(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        before = out[y - 1]
        out[y] = np.where(img[y] > 0.5, before * 0.5, np.clip(before + img[y], 0, 1))
    return out


def masked(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        row = out[y]
        row[row > 0.5] = 0
        row += out[y - 1]
    return out


def written_twice(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] + img[y]
        out[y] *= 0.5
        out[y] -= 0.125
    return out


def summed(img: Any) -> Any:
    total = np.zeros(img.shape[1], img.dtype)
    for y in range(img.shape[0]):
        total += img[y]
    return total


def decaying(img: Any) -> Any:
    state = img[0].copy()
    for y in range(img.shape[0]):
        state[...] = 0.5 * state + img[y]
    return state


def with_row_mean(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = 0.5 * out[y - 1] + img[y].max()
    return out


def with_blurred_row(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        p = np.pad(img[y], 1, mode="edge")
        out[y] = out[y - 1] + (p[:-2] + p[1:-1] + p[2:])
    return out


def lerp(a: Any, b: Any, t: float = 0.25) -> Any:
    if a.ndim > 5:
        raise ValueError
    return a + t * (b - a)


def by_a_helper(img: Any) -> Any:
    out = img.copy()
    weights = [0.25, 0.75]
    for y in range(1, img.shape[0]):
        out[y] = lerp(img[y], out[y - 1], weights[1]) * SCALES[0] + TABLE[y] * ALPHA
    return out


def branches_that_stay(img: Any, flag: int = 1) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        if flag:
            out[y] += out[y - 1]
            continue
        out[y] = 0
    return out


def taps_inside(img: Any) -> Any:
    out = img.copy()
    for y in range(3, img.shape[0]):
        total = img[y]
        for k in range(1, 4):
            total = total + out[y - k] * (0.5 / k)
        out[y] = total
    return out


def pixel_by_pixel(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        for x in range(1, img.shape[1]):
            out[y, x] = 0.25 * (out[y - 1, x] + out[y, x - 1] + out[y - 1, x - 1] + img[y, x])
    return out


def with_errstate(img: Any) -> Any:
    out = img.copy()
    with np.errstate(divide="ignore"):
        for y in range(1, img.shape[0]):
            out[y] = out[y - 1] / (img[y] - 0.5)
    return out


def name_used_again(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        row = out[y - 1]
        out[y] += row
    y = 3
    row = out[y]
    return out + row


def shifted_row(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y, 1:] += out[y - 1, :-1]
    return out


def lowest_path(img: Any) -> Any:
    cost = img.copy()
    for y in range(1, cost.shape[0]):
        cost[y, 1:-1] += np.minimum(np.minimum(cost[y - 1, :-2], cost[y - 1, 1:-1]), cost[y - 1, 2:])
    return cost


def lowest_path_from_the_right(img: Any) -> Any:
    cost = img.astype(np.float64)
    for x in reversed(range(cost.shape[1] - 1)):
        before = np.pad(cost[:, x + 1], 1, constant_values=np.inf)
        cost[:, x] += np.minimum(np.minimum(before[:-2], before[1:-1]), before[2:])
    return cost


def of_joined_rows(img: Any) -> Any:
    cost = img.copy()
    for y in range(1, cost.shape[0]):
        left, right = np.concatenate(([np.inf], cost[y - 1, :-1])), np.concatenate((cost[y - 1, 1:], [np.inf]))
        cost[y] += np.minimum(np.minimum(left, cost[y - 1]), right)
    return cost


def of_turned_rows(img: Any) -> Any:
    out = img.copy()
    for y in range(2, out.shape[0]):
        out[y] += 0.25 * np.roll(out[y - 1], 1) - 0.5 * np.roll(out[y - 2], -2)
    return out


def of_rows_to_come(img: Any) -> Any:
    out = img.copy()
    for y in range(1, out.shape[0] - 1):
        out[y, 1:] = 0.5 * out[y + 1, :-1] + 0.25 * out[y - 1, 1:]
    return out


def of_planes(img: Any) -> Any:
    cost = np.stack([img, 2 * img, 1 - img], axis=-1)
    for y in range(1, cost.shape[0]):
        padded = np.pad(cost[y - 1], ((0, 0), (1, 1)), mode="edge")
        cost[y] += np.minimum(cost[y - 1], np.minimum(padded[:, :-2], padded[:, 2:]) + 0.125)
    return cost


ROLLED = [
    down,
    up,
    backwards,
    columns,
    last_axis,
    from_zero,
    second_order,
    every_second,
    mirrored,
    through_a_view,
    part_of_rows,
    strided_target,
    in_place_argument,
    small_integers,
    rounded_at_assignment,
    to_integers,
    running_maximum,
    selected,
    masked,
    written_twice,
    summed,
    decaying,
    with_row_mean,
    with_blurred_row,
    by_a_helper,
    branches_that_stay,
    taps_inside,
    pixel_by_pixel,
    with_errstate,
    name_used_again,
    shifted_row,
    lowest_path,
    lowest_path_from_the_right,
    of_joined_rows,
    of_turned_rows,
    of_rows_to_come,
    of_planes,
]


@pytest.mark.parametrize("f", ROLLED, ids=lambda f: f.__name__)
def test_recurrences_are_one_update(f: Callable[..., Any]) -> None:
    same(f, image())
    assert "sequential" in orders(f, image())
    assert definitions(f, image(36, 28)) == definitions(f, image(72, 56))


@pytest.mark.parametrize("f", ROLLED[-7:], ids=lambda f: f.__name__)
def test_there_may_be_few_neighbours(f: Callable[..., Any]) -> None:
    for shape in ((20, 1), (20, 2), (20, 3), (2, 20), (19, 19)):
        check(f, image(*shape))


def test_more_axes_and_filters_forth_and_back() -> None:
    def both(img: Any, alpha: Any) -> Any:
        return up(down(img, alpha).swapaxes(0, 1), alpha).swapaxes(0, 1)

    same(both, image(), 0.25)
    same(both, RNG.random((20, 30, 3)), np.float32(0.25))


def test_a_kernel_serves_other_sizes() -> None:
    p = hjit.pipeline(columns, verify="off")
    for h, w in ((23, 29), (40, 64), (64, 40), (101, 33)):
        img = image(h, w)
        np.testing.assert_array_equal(p(img), columns(img))
    assert p.stats.compilations <= 1


def test_recurrences_are_computed_in_strips() -> None:
    """What a consumer needs of the axes that a recurrence does not run along is computed by itself."""

    def turned(img: Any) -> Any:
        blurred = up(down(img))
        return np.ascontiguousarray(blurred.T)

    img = image(300, 900)
    p = hjit.pipeline(turned, verify="off")
    s = p.schedule(img)
    name, result = s.stages
    s[result].split("y", "y", "yi", 16).parallel("y")
    s[name].compute_at(result, "y")
    np.testing.assert_array_equal(p.use(s)(img), turned(img))
    assert p.stats.scratch_bytes < img.nbytes // 2


# -- rows that do not depend on each other


def rows(img: Any) -> Any:
    out = np.empty_like(img)
    for y in range(img.shape[0]):
        out[y] = img[y] * 2 + 1
    return out


def rows_in_place(img: Any) -> None:
    for y in range(1, img.shape[0]):
        img[y] *= 0.5


def columns_from_others(img: Any) -> Any:
    out = np.zeros_like(img)
    for x in range(img.shape[1] - 1):
        out[:, x] = img[:, x + 1] - img[:, x]
    return out


def rows_reversed(img: Any) -> Any:
    out = np.zeros_like(img)
    n = len(img)
    for y in range(n):
        out[n - 1 - y] = img[y]
    return out


def windows_of_rows(img: Any) -> Any:
    out = np.zeros((img.shape[0] // 2, img.shape[1] - 2))
    for y in range(img.shape[0] // 2):
        out[y] = img[2 * y : 2 * y + 2].max(axis=0)[2:] - img[2 * y : 2 * y + 2, 1:-1].min(0)
    return out


INDEPENDENT = [rows, rows_in_place, columns_from_others, rows_reversed, windows_of_rows]


@pytest.mark.parametrize("f", INDEPENDENT, ids=lambda f: f.__name__)
def test_independent_iterations_run_at_once(f: Callable[..., Any]) -> None:
    same(f, image())
    assert "sequential" not in orders(f, image())
    assert definitions(f, image(36, 28)) == definitions(f, image(72, 56))


def test_every_row_makes_a_stage_of_its_own() -> None:
    traced, _ = trace_of(rows, image())
    assert all(not s.updates for s in traced.recorder.stages.values())


# -- conditions on computed values


def thresholded(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            if img[y, x] > 0.5:
                out[y, x] = 1
            else:
                out[y, x] = img[y, x] / 2
    return out


def in_one_branch_only(img: Any) -> Any:
    out = img * 2
    for y in range(1, img.shape[0]):
        for x in range(img.shape[1]):
            if img[y, x] > img[y - 1, x]:
                out[y, x] += 1
    return out


def chained(img: Any) -> Any:
    out = np.full(img.shape, -1, np.int16)
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            v = img[y, x]
            if v < 0.2:
                out[y, x] = 1
            elif v < 0.4 or v > 0.9:
                out[y, x] = 100
            elif not (v > 0.5 and img[y, 0] > 0.3):
                continue
            else:
                out[y, x] = out[y, x] - 3 if v > 0.7 else 7
    return out


def sign(v: Any) -> Any:
    if v > 0.5:
        return 1.0
    if v < 0.25:
        return -1.0
    return v


def by_a_helper_that_returns_early(img: Any) -> Any:
    out = np.empty_like(img)
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            out[y, x] = sign(img[y, x]) * 2
    return out


def of_rows(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(img.shape[0]):
        row = img[y] - img[y, 0] / 2
        if row.max() > 0.45:
            out[y] = row / row.max()
        if row[0] > 0:
            out[y] = out[y] + 1
    return out


def in_a_recurrence(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        for x in range(img.shape[1]):
            before = out[y - 1, x]
            if before > 0.5:
                out[y, x] = before * 0.5
            else:
                out[y, x] = before + img[y, x]
    return out


def hue(img: Any) -> Any:
    out = np.zeros(img.shape)
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            r, g, b = img[y, x], 1 - img[y, x], 0.3 + 0.5 * img[y, 0]
            most, least = max(r, g, b), min(r, g, b)
            if most == least:
                h = 0.0
            elif most == r:
                h = (g - b) / (most - least)
            elif most == g:
                h = 2 + (b - r) / (most - least)
            else:
                h = 4 + (r - g) / (most - least)
            out[y, x] = h / 6 if h > 0 else h / 6 + 1
    return out


def at_both_levels(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(img.shape[0]):
        if img[y, 0] > 0.5:
            for x in range(img.shape[1]):
                out[y, x] = 1 if img[y, x] > 0.5 else 2
        else:
            out[y] = img[y]
    return out


BRANCHING = [
    thresholded, in_one_branch_only, chained, by_a_helper_that_returns_early, of_rows, in_a_recurrence, hue,
    at_both_levels,
]  # fmt: skip


@pytest.mark.parametrize("f", BRANCHING, ids=lambda f: f.__name__)
def test_an_iteration_that_decides_on_values_selects_among_what_it_writes(f: Callable[..., Any]) -> None:
    for size in ((43, 29), (100, 70)):
        same(f, image(*size))
    assert definitions(f, image(36, 28)) == definitions(f, image(72, 56))
    traced, _ = trace_of(f, image(60, 50))
    assert not traced.recorder.breaks


def stops_early(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(img.shape[0]):
        if img[y, 0] > 0.9:
            break
        out[y] = img[y]
    return out


def counts(img: Any) -> Any:
    n = 0
    for y in range(img.shape[0]):
        if img[y, 0] > 0.9:
            n = n + 1
    return img + n


def writes_elsewhere(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(1, img.shape[0]):
        if img[y, 0] > 0.5:
            out[y] = img[y]
        else:
            out[y - 1] = img[y]
    return out


def too_many_conditions(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(img.shape[0]):
        for k in range(12):
            if img[y, k] > 0.5:
                out[y] = out[y] + img[y] * k
    return out


@pytest.mark.parametrize("f", [stops_early, counts, writes_elsewhere, too_many_conditions], ids=lambda f: f.__name__)
def test_other_iterations_that_decide_run_one_by_one(f: Callable[..., Any]) -> None:
    for size in ((20, 29), (30, 17)):
        given = image(*size)
        np.testing.assert_array_equal(hjit.pipeline(f, on_unsupported="break").quiet()(given), f(given))


# -- what is unrolled


def wraps_around(img: Any) -> Any:
    out = img.copy()
    for y in range(img.shape[0]):
        out[y] += out[y - 1]
    return out


def carried(img: Any) -> Any:
    out = np.empty_like(img)
    state = img[0]
    for y in range(img.shape[0]):
        state = 0.5 * state + 0.5 * img[y]
        out[y] = state
    return out


def used_after(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        row = out[y - 1] * 0.5
        out[y] += row
    return out + row + y


def turn_in_the_value(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] + y
    return out


def decision_on_the_turn(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = out[max(y - 3, 0)] + img[y]
    return out


def condition_on_the_turn(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        if y % 3:
            out[y] += out[y - 1]
    return out


def breaks(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        if y > 12:
            break
        out[y] += out[y - 1]
    return out


def returns_early(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] += out[y - 1]
        if y == 7:
            return out
    return out


def along_the_row(img: Any) -> Any:
    out = img.copy()
    for y in range(img.shape[0]):
        out[y, 1:] += out[y, :-1]
    return out


def along_both_rows(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y, 1:] += out[y - 1, :-1] + out[y, :-1]
    return out


def across_a_fixed_row(img: Any) -> Any:
    out = img.copy()
    for y in range(img.shape[0]):
        out[y, 1:] += out[7, :-1]
    return out


def across_mirrored_rows(img: Any) -> Any:
    out = img.copy()
    for y in range(img.shape[0]):
        out[y, 1:] += out[img.shape[0] - 1 - y, :-1]
    return out


def two_arrays(img: Any) -> Any:
    a, b = img.copy(), img.copy()
    for y in range(1, img.shape[0]):
        a[y] = 0.5 * b[y - 1] + img[y]
        b[y] = 0.5 * a[y - 1] - img[y]
    return a + b


def two_places(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y, 0] = out[y - 1, 0]
        out[y, 1:] += out[y - 1, 1:]
    return out


def collects(img: Any) -> Any:
    found = []
    for y in range(img.shape[0]):
        found.append(img[y] * 2)
    return np.stack(found)


def remembers_in_a_list(img: Any) -> Any:
    out, state = img.copy(), [0.0]
    for y in range(1, img.shape[0]):
        state[0] = state[0] * 0.5 + 1.0
        out[y] = out[y - 1] + state[0]
    return out


def remembers_in_a_closure(img: Any) -> Any:
    out, n = img.copy(), 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] + count()
    return out


def remembers_in_an_iterator(img: Any) -> Any:
    out, numbers = img.copy(), iter(range(1000))
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] + next(numbers)
    return out


def remembers_in_a_default(img: Any) -> Any:
    def grow(seen: list[int] = []) -> int:  # noqa: B006
        seen.append(1)
        return len(seen)

    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] + grow()
    return out


def mean_of_what_it_writes(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] += out[y - 1].max()
    return out


def length_of_the_turn(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] += out[:y, 0].max()
    return out


def by_math(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] *= math.floor(y / 3)
    return out


def by_enumerate(img: Any) -> Any:
    out = img.copy()
    for k, y in enumerate(range(1, img.shape[0])):
        out[y] += out[k]
    return out


def swallows_everything(img: Any) -> Any:
    out = img.copy()
    try:
        for y in range(1, img.shape[0]):
            out[y] = out[y - 1] * divmod(y, 2)[1]
    except:  # noqa: E722
        out[0] = -1
    return out


def swallows_an_index_error(img: Any) -> Any:
    out = img.copy()
    try:
        for y in range(1, img.shape[0]):
            out[y] += out[y + 1]
    except IndexError:
        out[0] = -1
    return out


def handles_in_the_body(img: Any) -> Any:
    out, count = img.copy(), 0
    for y in range(1, img.shape[0]):
        try:
            out[y] += out[y - 1]
            np.reshape(img[y], (3, 5))
        except ValueError:
            count += 1
    return out + count


def swallows_a_refusal(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        try:
            out[y] = out[y - 1] * divmod(y, 2)[1]
        except:  # noqa: E722
            out[y] = 7
    return out


def swallow(f: Any, y: Any) -> Any:
    try:
        return f(y)
    except:  # noqa: E722
        return 7


def a_helper_swallows_a_refusal(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0]):
        out[y] = out[y - 1] * swallow(operator.index, y)
    return out


def decides_in_the_body(img: Any) -> Any:
    out = img.copy()
    for y in range(1, img.shape[0] - 1):
        if img[0, 0] > 2:
            out[y] = 5
        out[y] += out[y - 1]
    return out


UNROLLED = [
    wraps_around,
    used_after,
    breaks,
    returns_early,
    along_the_row,
    along_both_rows,
    across_a_fixed_row,
    across_mirrored_rows,
    two_arrays,
    collects,
    remembers_in_a_closure,
    remembers_in_an_iterator,
    remembers_in_a_default,
    mean_of_what_it_writes,
    length_of_the_turn,
    by_enumerate,
    swallows_everything,
    swallows_an_index_error,
    handles_in_the_body,
    swallows_a_refusal,
    a_helper_swallows_a_refusal,
]


def distance_to_a_point(img: Any) -> Any:
    out = np.zeros_like(img)
    h, w = img.shape
    for y in range(h):
        for x in range(w):
            away = np.sqrt((y - h / 2) ** 2 + (x - 3) ** 2)
            out[y, x] = img[y, x] / (away + 1)
    return out


def checkerboard(img: Any) -> Any:
    out = img.copy()
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            if (x + y) % 2 == 0:
                out[y, x] = x * y - abs(y - x)
    return out


def clamped_neighbours(img: Any) -> Any:
    h, w = img.shape
    out = np.zeros_like(img)
    for y in range(h):
        for x in range(w):
            above, right = max(y - 1, 0), min(x + 1, w - 1)
            out[y, x] = img[above, x] + img[y, right] + img[above, right]
    return out


def twice_as_large(img: Any) -> Any:
    h, w = img.shape
    out = np.zeros((2 * h, 2 * w))
    for y in range(2 * h):
        for x in range(2 * w):
            y0, x0 = int(y / 2), x // 2
            fy = y / 2 - y0
            out[y, x] = img[y0, x0] * (1 - fy) + img[min(y0 + 1, h - 1), x0] * fy
    return out


COMPUTING = [
    turn_in_the_value, decision_on_the_turn, condition_on_the_turn, distance_to_a_point, checkerboard,
    clamped_neighbours, twice_as_large, carried, two_places, remembers_in_a_list, by_math,
]  # fmt: skip


@pytest.mark.parametrize("f", COMPUTING, ids=lambda f: f.__name__)
def test_iterations_may_compute_with_their_number(f: Callable[..., Any]) -> None:
    for size in ((43, 29), (21, 34)):
        same(f, image(*size))
    assert definitions(f, image(36, 28)) == definitions(f, image(72, 56))


@pytest.mark.parametrize("f", UNROLLED, ids=lambda f: f.__name__)
def test_other_loops_are_traced_one_by_one(f: Callable[..., Any]) -> None:
    same(f, image(20, 21))


def test_a_decision_in_the_body() -> None:
    check(decides_in_the_body, image(20, 21))


def test_what_unrolls_grows() -> None:
    assert all(
        definitions(f, image(40, 21)) > definitions(f, image(20, 21))
        for f in UNROLLED
        if f is not returns_early and f is not breaks
    )


def test_results_known_while_tracing_stay_known() -> None:
    def powers(img: Any) -> Any:
        table = np.ones(20)
        for k in range(1, img.shape[0]):
            table[k] = table[k - 1] * 0.5
        return img * float(table[3]) + table[:, None]

    same(powers, image(20, 21))
    traced, _ = trace_of(powers, image(20, 21))
    assert len(traced.recorder.stages) == 2


def test_taps_unroll() -> None:
    """A loop that has nothing to do with a size becomes one expression."""

    def taps(img: Any) -> Any:
        total = np.zeros_like(img[:, 20:])
        for k in range(20):
            total += img[:, k : img.shape[1] - 20 + k] * (1 / 8)
        return total

    same(taps, image(20, 60))
    assert "sequential" not in orders(taps, image(20, 60))


def test_empty_and_short_loops() -> None:
    for n in (1, 2, 3, 16, 17, 18, 19):
        same(down, image(n, 19))
        same(up, image(n, 19))


def test_errors_are_numpys() -> None:
    def beyond(img: Any) -> Any:
        out = img.copy()
        for y in range(img.shape[0]):
            out[y] = out[y + 5]
        return out

    with pytest.raises(IndexError, match="index 20 is out of bounds for axis 0 with size 20"):
        hjit.pipeline(beyond)(image(20, 20))


def test_random_streams_are_taken_back_where_a_loop_is_traced_again() -> None:
    stream = np.random.default_rng(0)

    def noisy(img: Any) -> Any:
        out = img + stream.random(img.shape)
        for y in range(1, img.shape[0]):
            out[y] = out[y - 1] * (y + 1)
        return out

    img = image(20, 20)
    p = hjit.pipeline(noisy)
    for _ in range(2):
        state = stream.bit_generator.state
        ours = p(img)
        after = stream.bit_generator.state
        stream.bit_generator.state = state
        np.testing.assert_array_equal(ours, noisy(img))
        assert stream.bit_generator.state == after


# -- the variable of a loop


class ALoop:
    def refusal(self, why: str) -> CannotReroll:
        return CannotReroll((None, 0), why)


def variable(first: int, last: int) -> InductionVariable:
    return InductionVariable(ALoop(), first, last, poly(Var("t")) + first)


def test_induction_variables_compare_where_all_agree() -> None:
    t = variable(3, 40)
    n = Size(50, poly(Var("n")))
    assert t < n and t >= 0 and t != 50 and t - 3 >= 0 and n - t > 0 and (t == t) and not t > 40 and t
    for question in (
        lambda: t < 40,
        lambda: t == 10,
        lambda: t != 3,
        lambda: bool(variable(0, 40)),
        lambda: int(t),
        lambda: divmod(t, 2),
        lambda: [0][t],
        lambda: np.asarray(t),
        lambda: range(t),
        lambda: f"{t}",
        lambda: t == "a",
    ):
        with pytest.raises(CannotReroll):
            question()
    assert t - t == 0 and type((t + n) - t) is Size
    with pytest.raises(TypeError):
        hash(t)


def test_bytecode_of_loops() -> None:
    found = set(loops(taps_inside.__code__).values())
    assert len(found) == 2
    outer = next(x for x in found if "np" not in x.names and "range" in x.names)
    assert outer.read == {"img", "out"} and not outer.kept
    assert set(loops(carried.__code__).values()).pop().kept == {"state"}
    assert set(loops(used_after.__code__).values()).pop().kept == {"row", "y"}
    assert set(loops(backwards.__code__).values()).pop().is_reversed
    assert not loops(breaks.__code__) and not loops(returns_early.__code__)


# -- random recurrences


@pytest.mark.parametrize("seed", range(24))
def test_random_recurrences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, step = int(rng.integers(2)), int(rng.choice([1, 1, 2, 3, -1, -1, -2]))
    dtype = rng.choice(["float32", "float64", "float16", "uint8", "int16", "int64"])
    own, other = rng.integers(-3, 4, 2).tolist(), rng.integers(-3, 4, 2).tolist()
    weights = rng.choice([0.5, 0.25, 1.5, 2, -1], 4).tolist() if dtype[0] == "f" else rng.integers(-3, 4, 4).tolist()
    pad = int(max(map(abs, (*own, *other))))
    side, in_place = int(rng.integers(3)), bool(rng.integers(2))
    turned = int(rng.integers(-2, 3)) if own[0] else 0

    def f(img: Any) -> Any:
        out = img * 2
        a, b = (out, img) if axis == 0 else (out.T, img.T)
        n = a.shape[0]
        a, b = a[:, side:], b[:, : b.shape[1] - side]
        start, stop = (pad, n - pad) if step > 0 else (n - pad - 1, pad - 1)
        for y in range(start, stop, step):
            if in_place:
                a[y] += np.roll(a[y + own[0]], turned) * weights[0] - b[y + other[0]] * weights[1]
            else:
                a[y] = (
                    np.roll(a[y + own[0]], turned) * weights[0]
                    + a[y + own[1]] * weights[1]
                    + b[y + other[1]] * weights[2]
                )
        return out

    img = rng.integers(-20 if np.dtype(dtype).kind != "u" else 0, 20, tuple(rng.integers(60, 99, 2))).astype(dtype)
    if np.dtype(dtype).kind == "u":
        weights = [abs(w) for w in weights]
    same(f, img)
    assert len(trace_of(f, img)[0].recorder.stages) < 10


def sum_in_one_element(x: Any) -> Any:
    acc = np.zeros(3)
    for i in range(x.shape[0]):
        acc[1] += x[i]
    return acc


def alternating(x: Any) -> Any:
    acc = np.ones(30)
    for i in range(x.shape[0]):
        before = acc[3]
        acc[3] = x[i] - before
    return acc


def in_two_loops(x: Any) -> Any:
    acc = np.array([1.0, 2.0, 3.0])
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            acc[2] = acc[2] * 0.5 + x[i] * x[j]
    return acc


@pytest.mark.parametrize("f", [sum_in_one_element, alternating, in_two_loops])
def test_iterations_that_read_known_numbers_where_others_have_written(f: Callable[..., Any]) -> None:
    x = RNG.random(40)
    same(f, x)
    assert definitions(f, x) < 40  # not unrolled
