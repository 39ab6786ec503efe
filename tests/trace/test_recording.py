"""What is recorded of an operation does not depend on how it is written, nor on what was recorded before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.trace.ir.expressions import Const
from tests.trace.helpers import trace_of
from tests.trace.test_rerolling import same

RNG = np.random.default_rng(0)
GAIN = 0.25


def image(dtype: Any = np.float32, h: int = 37, w: int = 21) -> Any:
    return RNG.integers(0, 200, (h, w)).astype(dtype)


def recorded(f: Callable[..., Any], *args: Any) -> list[str]:
    """The definitions that a function records, without their names."""
    traced, _ = trace_of(f, *args)
    names = {name: f"s{k}" for k, name in enumerate(traced.recorder.stages)}
    found = []
    for s in traced.recorder.stages.values():
        text = "; ".join(f"{d}" for d in s.definitions)
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(f"{name}[", f"{names[name]}[")
        found.append(f"{s.dtype} {text}")
    return found


ALIKE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "operator": (lambda a, b, k: a + b, lambda a, b, k: np.add(a, b)),
    "number": (lambda a, b, k: a * 2.0, lambda a, b, k: np.multiply(a, 2.0)),
    "run-time number": (lambda a, b, k: a * k, lambda a, b, k: np.multiply(a, k)),
    "swapped": (lambda a, b, k: k - a, lambda a, b, k: np.subtract(k, a)),
    "captured": (lambda a, b, k: a + GAIN, lambda a, b, k: np.add(a, GAIN)),
    "comparison": (lambda a, b, k: a > 3, lambda a, b, k: np.greater(a, 3)),
    "transposed": (lambda a, b, k: a.T + b.T, lambda a, b, k: np.add(a.T, b.T)),
    "method": (lambda a, b, k: a.sum(axis=0), lambda a, b, k: np.sum(a, axis=0)),
    "where": (lambda a, b, k: np.where(a > b, a, 0.0), lambda a, b, k: np.where(np.greater(a, b), a, 0.0)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_operators_and_functions_are_recorded_alike(
    one: Callable[..., Any], other: Callable[..., Any], dtype: Any
) -> None:
    args = image(dtype), image(dtype), 1.5
    assert recorded(one, *args) == recorded(other, *args)


def out_by_position(a: Any, b: Any) -> Any:
    out = np.zeros_like(a)
    np.add(a, b, out)
    np.multiply(out, 2, out=out)
    np.sqrt(out, out=(out,))
    return out


def out_of_another_shape(a: Any, b: Any) -> Any:
    out = np.zeros((3, *a.shape), a.dtype)
    np.add(a, b, out=out)
    return out


def in_place(a: Any, b: Any) -> Any:
    a = a.copy()
    a += b
    a[1:-1, 2] -= 1
    a[3] *= b[4]
    a[5, 6] = 7
    return a


def in_order(a: Any, b: Any) -> Any:
    return a.T + 1, (a.T + b.T).sum(axis=0), np.round(a.T * 0.125, 2), np.round(b * 0.125, 2)


@pytest.mark.parametrize("f", [out_by_position, out_of_another_shape, in_place, in_order])
def test_they_are_numpys(f: Callable[..., Any]) -> None:
    same(f, image(np.float64), image(np.float64))


def test_refusals_are_numpys() -> None:
    def cast_back(a: Any, b: Any) -> Any:
        a += b
        return a

    def too_wide(a: Any, b: Any) -> Any:
        return np.add(a, b, out=np.zeros(a.shape[1:]))

    with pytest.raises(TypeError, match="Cannot cast ufunc 'add' output from"):
        trace_of(cast_back, image(np.int16), image(np.float64))
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        trace_of(too_wide, image(np.float64), image(np.float64))


def test_zeros_keep_their_sign() -> None:
    positive, negative = Const(0.0, np.float64), Const(-0.0, np.float64)
    assert positive != negative and np.signbit(negative.value) and not np.signbit(positive.value)
    assert Const(False, np.bool_) == Const(0, np.bool_)


def test_sizes_of_another_shape_are_not_taken_for_these() -> None:
    def sums(a: Any, b: Any) -> Any:
        return a.mean(axis=0), b.mean(axis=0), a.mean(axis=1), b.T.mean(axis=1), a[2:].mean(), a[:, 2:].mean()

    same(lambda a, b: tuple(np.round(x, 6) for x in sums(a, b)), image(np.float64, 23, 19), image(np.float64, 19, 23))
