"""Indices out of bounds raise IndexError, before anything is written, also where nobody needs what is read there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit

N = 40


def in_a_loop(b: Any, a: Any) -> Any:
    out = np.zeros(a.shape[0], b.dtype)
    for i in range(a.shape[0]):
        out[i] = b[a[i]]
    return out


def unused_in_a_loop(b: Any, a: Any) -> Any:
    out = np.zeros(a.shape[0], b.dtype)
    for i in range(a.shape[0]):
        b[a[i]]
        out[i] = a[i] * 2
    return out


def a_loop_for_nothing(b: Any, a: Any) -> Any:
    for i in range(a.shape[0]):
        b[a[i]]
    return a + 1


def loops_in_loops(b: Any, a: Any) -> Any:
    out = np.zeros((a.shape[0], a.shape[0]), b.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[0]):
            b[a[i] + a[j]]
            out[i, j] = a[i] + a[j]
    return out


def one_of_many_in_a_loop(b: Any, a: Any) -> Any:
    out = np.zeros(a.shape[0], b.dtype)
    for i in range(a.shape[0]):
        out[i] = b[a][0] + a[i]
    return out


def overwritten(b: Any, a: Any) -> Any:
    out = np.zeros(b.shape[0])
    out[a] = 1
    out[0 : b.shape[0]] = 2
    return out


def before_a_write(b: Any, a: Any) -> Any:
    b[a]
    b[0] = 5
    return b


def before_a_decision(b: Any, a: Any) -> Any:
    b[a]
    return b + 1 if b.max() > 3 else b + 2


def cross(b: Any, a: Any) -> Any:
    x = b[a.reshape(5, -1)]
    return x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]  # no corners


def half_overwritten(b: Any, a: Any) -> Any:
    out = b[a]
    out[: a.shape[0] // 2] = 0
    return out


def taps(b: Any, a: Any) -> Any:
    p = np.pad(b[a], 1, mode="edge")
    return p[:-2] + p[1:-1] * 2 + p[2:]


def down(b: Any, a: Any) -> Any:
    p = np.pad(b[a.reshape(5, -1)], 1, mode="edge")
    y = p[:-2] + p[1:-1] + p[2:]
    return y[:, :-2:2] + y[:, 1:-1:2] + y[:, 2::2]


def interleaved(b: Any, a: Any) -> Any:
    out = np.empty(2 * a.shape[0], b.dtype)
    out[0::2] = b[a]
    out[1::2] = b[a % 16] + 1
    return out


def in_slabs(b: Any, a: Any) -> Any:
    out = np.zeros((3, a.shape[0]), b.dtype)
    for k in range(3):
        out[k] = b[a - k] * k
    return out


def counted(b: Any, a: Any) -> Any:
    out = np.zeros(30, int)
    np.add.at(out, a, 1)
    return out[1:] - out[:-1]


def between(b: Any, a: Any, levels: int = 16) -> Any:
    table = np.arange(2 * levels)
    return table[np.clip(b, 0, levels - 1) + np.arange(levels)[0]][:3]  # in bounds for these levels


def in_place(b: Any, a: Any) -> Any:
    b[a] += 1
    return b


UNNEEDED: list[Any] = [
    unused_in_a_loop, a_loop_for_nothing, loops_in_loops, one_of_many_in_a_loop, overwritten, before_a_write, before_a_decision,
    cross, half_overwritten,
    lambda b, a: (b[a], b)[1],
    lambda b, a: b[a][:3],
    lambda b, a: b[a][::2] + 1,
    lambda b, a: (np.take(b, a), a)[1],
    lambda b, a: (np.put(b, a, 0), a)[1][:2],
    lambda b, a: b[a[:, None] + np.zeros(3, int)][:, 1],
    lambda b, a: np.broadcast_to(b[:5], (b.shape[0], 5))[a],  # all rows are one row
    lambda b, a: np.pad(b[a], 2)[1:-1],
    lambda b, a: b[a][a % 7],
    lambda b, a: np.cumsum(b[a])[:5],
]  # fmt: skip
NEEDED: list[Any] = [
    in_a_loop, in_place, taps, down, interleaved, in_slabs, counted, between,
    lambda b, a: b[a],
    lambda b, a: np.where(a > 5, b[a], 0),
    lambda b, a: b[a].sum(),
    lambda b, a: np.stack([b, b * 2], 1)[a][:, 0],
    lambda b, a: b[:, None][a].T + 1,
    lambda b, a: b[a] - b[a],
    lambda b, a: (b[a] * 0).astype(bool),
    lambda b, a: np.maximum(b[a], b[a % 9]).max(),
    lambda b, a: b[b[a] % 3],
    lambda b, a: b.reshape(5, -1)[(a % 5)[:, None], np.array([1, 2])] + b[a][:, None],
]  # fmt: skip


def outcome(f: Any, b: Any, a: Any) -> Any:
    try:
        return f(b, a), b
    except IndexError as error:
        return str(error), b


def compared(f: Any) -> hjit.Pipeline:
    pipe = hjit.pipeline(f, verify="off", cache="off")
    b, good = np.arange(30), np.arange(N) % 15
    calls = [good]
    for at in (0, N // 2, N - 1):
        bad = good.copy()
        bad[at] = 77
        calls += [bad, good]
    for a in (*calls, *calls[1:2], -good):
        ours, expected = outcome(pipe, b.copy(), a), outcome(f, b.copy(), a)
        np.testing.assert_equal(ours, expected)
    return pipe


@pytest.mark.parametrize("f", UNNEEDED, ids=range(len(UNNEEDED)))
def test_what_nobody_needs(f: Any) -> None:
    compared(f)


@pytest.mark.parametrize("f", NEEDED, ids=range(len(NEEDED)))
def test_what_is_looked_up_anyway_is_not_looked_up_twice(f: Any) -> None:
    pipe = compared(f)
    assert not any(v.rec.checks for e in pipe._entries.values() for v in e.variants)


def written_twice(x: Any) -> Any:
    y = np.zeros((2 * x.shape[0], x.shape[1]), x.dtype)
    y[0::2] = x
    y[1::2] = x + 1
    y[:1] = 3
    return y


STEPS: list[Any] = [
    lambda x: x[1:], lambda x: x[:, 2:-1], lambda x: x[::2], lambda x: x.T, lambda x: x[::-1] + x, lambda x: np.pad(x, 2, mode="reflect"),
    lambda x: np.pad(x, ((1, 0), (0, 2))), lambda x: x[:-2] + x[1:-1] + x[2:], lambda x: x[:, :-2] * 2 + x[:, 2:], lambda x: x * (x > 2),
    lambda x: x[1:-1, 1:-1] + x[:-2, 1:-1], lambda x: np.concatenate([x, x + 1])[3:], lambda x: np.stack([x, x * 2])[1], lambda x: np.roll(x, 2, 1),
    lambda x: np.cumsum(x, axis=0)[:-1], lambda x: np.repeat(x, 2, axis=1), lambda x: x + x.sum(axis=0), lambda x: x[np.array([0, 2, 1])],
    lambda x: np.where(x > 3, x, np.roll(x, 1)), lambda x: x + x[0], lambda x: x.reshape(-1)[3:15].reshape(3, 4), lambda x: x.mean(axis=1)[:, None] + x,
    written_twice,
]  # fmt: skip
ENDS: list[Any] = [
    lambda x, b: x,
    lambda x, b: x.sum(),
    lambda x, b: x[1:],
    lambda x, b: x.max(axis=0),
    lambda x, b: b,
    lambda x, b: x[0],
]


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_of_what_is_looked_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, end = [STEPS[k] for k in rng.integers(len(STEPS), size=3)], ENDS[rng.integers(len(ENDS))]

    def f(b: Any, a: Any) -> Any:
        x = b[a]
        for step in steps:
            x = step(x)
        return end(x, b)

    pipe = hjit.pipeline(f, verify="off", cache="off")
    b, good = np.arange(60) % 17, rng.integers(60, size=(24, 20))
    np.testing.assert_allclose(pipe(b, good), f(b, good), rtol=1e-12)
    for at in ((0, 0), (23, 19), (0, 19), (12, 10), tuple(rng.integers(20, size=2))):
        bad = good.copy()
        bad[at] = 77
        with pytest.raises(IndexError, match="index 77 is out of bounds"):
            pipe(b, bad)


def test_indices_that_cannot_be_out_of_bounds_are_not_checked() -> None:
    pipe = hjit.pipeline(lambda b, a: (b[a % 30], a)[1] + 1, verify="off", cache="off")
    pipe(np.arange(30), np.arange(N))
    assert not next(iter(pipe._entries.values())).variants[0].rec.checks


def test_a_first_call_with_an_index_out_of_bounds() -> None:
    for f in (UNNEEDED[9], NEEDED[8]):
        pipe = hjit.pipeline(f)
        with pytest.raises(IndexError, match="index 99 is out of bounds for axis 0 with size 30"):
            pipe(np.arange(30), np.full(N, 99))
        np.testing.assert_array_equal(pipe(np.arange(30), np.arange(30)), np.arange(30))


def powers_in_a_loop(b: Any, a: Any) -> Any:
    out = np.zeros(a.shape[0], b.dtype)
    for i in range(a.shape[0]):
        out[i] = 2 ** a[i]
    return out


def unused_powers_in_a_loop(b: Any, a: Any) -> Any:
    out = np.zeros(a.shape[0], b.dtype)
    for i in range(a.shape[0]):
        2 ** a[i]
        out[i] = a[i]
    return out


@pytest.mark.parametrize("f", [powers_in_a_loop, unused_powers_in_a_loop])
def test_negative_powers_of_integers_in_loops(f: Any) -> None:
    pipe = hjit.pipeline(f, verify="off", cache="off")
    good = np.arange(N) % 15
    for a in (good, np.where(good == 7, -1, good), good):
        if a.min() < 0:
            with pytest.raises(ValueError, match="negative integer powers"):
                pipe(good, a)
        else:
            np.testing.assert_array_equal(pipe(good, a), f(good, a))
    assert pipe.stats.fallbacks == 1
    assert len(next(iter(pipe._entries.values())).variants[0].rec.stages) < N  # not iteration by iteration
