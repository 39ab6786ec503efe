"""Ints of Python that are made of computed numbers: `int(x.sum())`, `x.sum().item()`. One trace serves all their values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same, check

IMAGES = [np.random.default_rng(seed).random((40, 50)) for seed in range(4)]
Function = Callable[[Any], Any]


def located(x: Any) -> Any:
    row, column = divmod(int(x.argmax()), x.shape[1])
    return x[row, column], row, column, x[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]


def sized(x: Any) -> Any:
    n = int(x[0, 0] * 10) + 1
    return x[:n].sum(), np.roll(x, n), np.arange(n), np.linspace(0, 1, n), np.repeat(x[0], n), x[:, -n:]


def looked_up(x: Any) -> Any:
    n = int(x[0, 0] * 10)
    return {n: 1, 3: 2}.get(n), sorted([n, 2]), list(range(11))[n], str(n), f"{n:03d}", "%d" % n, n.bit_length()  # noqa: UP031


def of_narrow_arrays(x: Any) -> Any:
    n = int(x[0, 0] * 10) + 1
    u = (x * 255).astype(np.uint8)
    return u + n, u > n, u // n, u / n, np.full((2, 2), n), np.array([n, 1]), np.clip(u, n, 200), np.maximum(u, n)


ONE_TRACE: dict[str, Function] = {
    "counts": lambda x: (x * 2, int((x > 0.5).sum()), np.count_nonzero(x > 0.3)),
    "items": lambda x: {"n": (x > 0.5).sum().item(), "row": x[3].argmax().item()},
    "arithmetic": lambda x: (
        int(x.sum()) * 3 + 1,
        -int(x.sum()),
        abs(int(-x.sum())),
        int(x.sum()) // 7,
        x.size - int(x.sum()),
    ),
    "shares": lambda x: (int((x > 0.5).sum()) / x.size, float(int(x.sum())), 100 * int(x.sum()) // x.size),
    "bits": lambda x: (int(x.sum()) & 255, int(x.sum()) | 1, ~int(x.sum()), int(x.sum()) ^ 3, int(x.sum()) % 7),
    "of narrow arrays": of_narrow_arrays,
    "list": lambda x: [int(x[k].sum()) for k in range(4)],
    "truncated": lambda x: (int(-x.sum()), int(x.mean()), int(np.float32(3.7)), int(x[0, 0] > 2)),
    "array": lambda x: np.array([int(x[0].sum()), int(x[1].sum())]),
}
DECIDED: dict[str, Function] = {
    "located": located,
    "sized": sized,
    "looked up": looked_up,
    "powers": lambda x: (
        2 ** int(x[0, 0] * 60),
        int(x[0, 0] * 9) ** -1 if x[0, 0] > 0.2 else 0,
        int(x.sum()) << 3,
        900 >> int(x[0, 0] * 9),
    ),
    "math": lambda x: (math.sqrt(int(x.sum())), round(int(x.sum()), -1), min(int(x.sum()), 5), int(x.sum()) != 3),
}


def compared(f: Function) -> Any:
    """The pipeline, whose results for all images are NumPy's."""
    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    for x in IMAGES:
        assert_same(p(x), f(x), exact=False)
    return p


@pytest.mark.parametrize("name", ONE_TRACE)
def test_values_are_no_decisions(name: str) -> None:
    p = compared(ONE_TRACE[name])
    assert p.stats.traces == 1
    assert p.stats.fallbacks == 0


@pytest.mark.parametrize("name", DECIDED)
def test_what_needs_the_value_decides_on_it(name: str) -> None:
    compared(DECIDED[name])


def test_decisions_are_on_the_int_not_on_what_it_is_made_of() -> None:
    p = hjit.pipeline(lambda x: np.zeros((int(x.max() * 3), 2)), on_unsupported="raise", cache="off", verify="off")
    for x in IMAGES:
        assert p(x).shape == (2, 2)
    assert p.stats.traces == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: int(x.sum() * 1e15) * int(x.sum() * 1e15),
        lambda x: int(x.sum() * 1e15) + 9 * int(x.sum() * 1e15),
        lambda x: int(x.sum() * 1e30),
        lambda x: (x * 255).astype(np.uint8) + int(x.sum() * 100),
        lambda x: int(np.sqrt(x.sum() - 5000)),
        lambda x: int(x[0].sum()) // (int(x[0].sum()) // 1000),
    ],
    ids=range(6),
)
def test_what_64_bits_cannot_hold_is_pythons(f: Function) -> None:
    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    for x in IMAGES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = f(x)
            except Exception as error:
                with pytest.raises(type(error)) as ours:
                    p(x)
                assert str(ours.value) == str(error)
            else:
                assert_same(p(x), expected)


def test_unsigned_numbers_of_64_bits() -> None:
    f: Function = lambda a: (int(a.max()), a.max().item())  # noqa: E731
    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    for top in (5, 2**63 - 1, 2**63, 2**64 - 1):
        a = np.array([1, top], np.uint64)
        assert p(a) == f(a)


def test_powers_and_shifts_by_the_callers_numbers() -> None:
    def f(x: Any, n: Any) -> Any:
        return int(x.sum()) << n, int(x.sum()) >> n, int(x.sum()) ** n, n ** int(x[0, 0] * 3)

    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    for n in (0, 3, 5):
        assert_same(p(IMAGES[0], n), f(IMAGES[0], n))
    with pytest.raises(ValueError, match="negative shift count"):
        p(IMAGES[0], -1)


def test_int_of_an_argument() -> None:
    check(lambda x, n: (x[: int(n)], int(n) + 1), IMAGES[0], np.int64(3))
    check(lambda x: (int(x.shape[0] / 3), np.zeros(int(x.shape[0] * 0.5)), int("12"), int(3.7)), IMAGES[0])


def test_as_many_arrays_as_a_computed_int_says() -> None:
    """Hundreds of arrays are put together by NumPy: a kernel would write each by itself."""

    def f(x: Any, n: Any) -> Any:
        return np.stack([x[k % 40] + k for k in range(n)])[:, 0], np.concatenate([x[0, k % 50 :] for k in range(n)])

    check(f, IMAGES[0], 300)
    check(f, IMAGES[0], 60)


def repeated(a: Any) -> Any:
    n = int(a[0, 0]) % 5
    return [0] * n, n * [1, 2], (3,) * n, "ab" * n, [0] * (a[0, 1] % 4), n == [n], n != (n,)


def test_a_computed_int_repeats_a_list() -> None:
    pipe = hjit.pipeline(repeated, on_unsupported="break")
    for seed in range(4):
        a = np.random.default_rng(seed).integers(0, 256, (6, 7)).astype(np.uint8)
        assert pipe(a) == repeated(a)
