"""``a[k[0]]`` is a view where ``k[0]`` is a number: what is written to it changes `a`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.training.cases import leaves
from tests.numpy_check import check

RNG = np.random.default_rng(7)


def written(a: Any, k: Any) -> Any:
    row = a[k[0]]
    row[0] = 100.0
    return a.sum()


def element(a: Any, k: Any) -> Any:
    a[k[0]][2] = 50.0
    return a * 1


def filled(a: Any, k: Any) -> Any:
    a[k[0]].fill(3.0)
    return a * 1


def sorted_(a: Any, k: Any) -> Any:
    a[k[0]].sort()
    return a * 1


def into(a: Any, k: Any) -> Any:
    np.multiply(a[k[0]], 2.0, out=a[k[0]])
    return a * 1


def masked(a: Any, k: Any) -> Any:
    mask = a[0] > 0.5
    a[k[0]][mask] = 0.0
    return a * 1


def part(a: Any, k: Any) -> Any:
    column = a[:, k[1]]
    column[:3] += 1.0
    return a * 1


def pivoted(a: Any, k: Any) -> Any:
    for c in range(len(a) - 1):
        row = a[c + np.argmax(a[c:, c])]
        row[c:] *= 0.5
    return a


def triangle(a: Any, k: Any) -> Any:
    for j in range(len(k)):
        for i in range(j):
            part = a[i // 2, :i]
            part += 1.0
    return a


def stale(a: Any, k: Any) -> Any:
    row = a[k[0]]
    a[:] = 7.0
    return row.sum()


def returned(a: Any, k: Any) -> Any:
    return a[k[0]]


def best(a: Any, k: Any) -> Any:
    sharp = np.abs(np.diff(a, axis=1)).sum(axis=1)
    return a[np.argmax(sharp)], sharp


def beside_a_number(a: Any, k: Any) -> Any:
    row = a.reshape(8, 3, 24)[k[0] // 3, 1]
    row[0] = 100.0
    return a.sum()


def of_complex(a: Any, k: Any) -> Any:
    z = a + 1j * a
    row = z[k[0]]
    row[1:] *= 2
    return z


@pytest.mark.parametrize(
    "f",
    [
        written,
        element,
        filled,
        sorted_,
        into,
        masked,
        part,
        pivoted,
        triangle,
        stale,
        returned,
        best,
        beside_a_number,
        of_complex,
    ],
)
@pytest.mark.parametrize("verify", ["off", "first"])
def test_what_is_written_to_a_view_changes_its_array(f: Callable[..., Any], verify: str) -> None:
    pipe = hjit.pipeline(f, verify=verify, cache="off", on_unsupported="break")
    for _ in range(3):
        ours, k = RNG.random((24, 24)), RNG.integers(0, 24, 24)
        theirs = ours.copy()
        got, expected = pipe(ours, k), f(theirs, k)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        for x, y in zip(leaves(got), leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
            assert np.shares_memory(x, ours) == np.shares_memory(y, theirs)


def reads(a: Any, k: Any) -> Any:
    return a[k[0]] * 2.0 + a[:, k[1]]


def of_new(a: Any, k: Any) -> Any:
    return np.sqrt(a)[k[0]]


def copied(a: Any, k: Any) -> Any:
    row = a[k[0]].copy()
    a[:] = row * 2.0
    row[0] = 5.0
    return row


def rows(a: Any, k: Any) -> Any:
    out = np.zeros(k.shape[0])
    for i in range(k.shape[0]):
        row = a[k[i]]
        out[i] = row[0] - row[3]
    return out


@pytest.mark.parametrize("f", [reads, of_new, copied, rows])
def test_what_is_only_read_runs_compiled(f: Callable[..., Any]) -> None:
    check(f, RNG.random((24, 24)), RNG.integers(0, 24, 24))


def test_numbers_that_do_not_fit_are_refused_at_computed_places() -> None:
    def stored(a: Any, k: Any) -> Any:
        a[k[0]] = k[1] * 9
        return a

    pipe = hjit.pipeline(stored, verify="off", cache="off")
    for number in (2, 19, 3):
        ours, k = np.zeros(5, np.int8), np.array([1, number])
        if number == 19:
            with pytest.raises(OverflowError):
                stored(ours.copy(), k)
            with pytest.raises(OverflowError):
                pipe(ours, k)
            assert not ours.any()
        else:
            np.testing.assert_array_equal(pipe(ours, k), stored(np.zeros(5, np.int8), k))


def test_an_argument_that_only_numpy_changes_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.trace.tracing.arrays.buffers import TracedBuffer

    def unwritten(self: TracedBuffer, stage: str) -> None:
        """What a write must not be: lost."""

    def doubled(a: Any) -> Any:
        b = a + 1.0
        a *= 2.0
        return b

    monkeypatch.setattr(TracedBuffer, "set_version", unwritten)
    pipe = hjit.pipeline(doubled, verify="first", cache="off", numpy_if_faster=False)
    a = RNG.random((9, 30))
    before = a.copy()
    with pytest.warns(hjit.HjitWarning, match="changes a"):
        pipe(a)
    np.testing.assert_array_equal(a, before * 2)
    assert pipe.stats.verified is False
