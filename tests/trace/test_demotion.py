"""Integers are computed in the narrowest dtype that holds them, with NumPy's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.runtime import features
from hjit.trace.ir.expressions import Op, walk
from hjit.trace.passes.dtypes.demotion import narrowest
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(3)
SHAPE = (11, 131)


def image(dtype: str) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    a = RNG.integers(info.min, info.max, SHAPE, dtype, endpoint=True)
    a[0, :4] = info.min, info.max, 0, 1
    return a


U1, V1 = image("u1"), image("u1")[:, ::-1].copy()


def widest(function: Any, *args: Any) -> int:
    """Bytes of the widest integers that an operation of a canonical Graph has."""
    graph = canonical(function, *args)
    ops = [e for s in graph.stages for e in walk(*s.exprs()) if isinstance(e, Op)]
    return max(x.dtype.itemsize for e in ops for x in (e, *e.args) if x.dtype.kind in "iu")


CASES = {
    "a sum": (lambda a, b: a.astype(int) + b, 2),
    "a difference": (lambda a, b: a.astype(int) - b - 3, 2),
    "weights": (lambda a, b: (a.astype(int) * 77 + b.astype(int) * 150 + 28) >> 8, 2),
    "many weights": (lambda a, b: (a.astype(int) * 7777 + b.astype(int) * 150 + 28) // 1000, 4),
    "a quotient": (lambda a, b: (4 * a.astype(int)[1:-1] - a[2:] - b[:-2] + 7) // 3, 2),
    "a rest": (lambda a, b: (a.astype(int) * 3 - b) % 7, 2),
    "signs": (lambda a, b: np.abs(-(a.astype(int)) + 2 * b.astype(int)) - 1, 2),
    "shifts": (lambda a, b: (a.astype(int) << 3) | (b.astype(int) >> 2), 2),
    "a comparison": (lambda a, b: a.astype(int) * 2 > b.astype(int) + 3, 2),
    "a choice": (lambda a, b: np.where(a > b, a.astype(int) + 1, b.astype(int) - 1), 2),
    "products": (lambda a, b: a.astype(int) * b.astype(int) * a.astype(int), 4),
    "long products": (lambda a, b: a.astype(int) * b * a * a * b, 8),
    "a stage": (lambda a, b: np.minimum((s := a.astype(int) * 3 + b)[1:], s[:-1]) + s[1:], 2),
    "a saturated sum": (lambda a, b: np.clip(a.astype(np.int16) + b, 0, 255).astype(np.uint8), 1),
    "a saturated sum with a number": (lambda a, b: np.minimum(a.astype(int) + 40, 255).astype(np.uint8), 1),
    "a saturated difference": (lambda a, b: np.clip(a.astype(int) - b, 0, 255).astype(np.uint8), 1),
    "a mean": (lambda a, b: ((a.astype(np.uint16) + b + 1) // 2).astype(np.uint8), 1),
    "a mean rounded down": (lambda a, b: ((a.astype(int) + b) >> 1).astype(np.uint8), 1),
    "a mean of means": (
        lambda a, b: ((b.astype(np.uint16) + (a.astype(np.uint16) + b[::-1] + 1) // 2 + 1) // 2).astype(np.uint8),
        1,
    ),
    "a distance": (lambda a, b: np.abs(a.astype(np.int16) - b), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_need_no_more(case: str) -> None:
    function, most = CASES[case]
    check(function, U1, V1)
    assert widest(function, U1, V1) == most


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtypes", ["i1 i1", "u2 u2", "u2 u1", "i2 u1", "i4 u1", "u4 u4", "i8 u1", "u4 i1"])
def test_the_numbers_are_numpys(case: str, dtypes: str) -> None:
    check(CASES[case][0], *map(image, dtypes.split()))


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_means_of_bytes_in_shuffled_vectors_compile(dtype: str) -> None:
    """Of ``(a & b) + ((a ^ b) >> 1)`` of two vectors whose lanes are repeated LLVM compiled for ever."""

    def written(a: Any, b: Any) -> Any:
        a, b = np.repeat(a, 2, axis=1), np.repeat(b, 2, axis=1)
        return (a & b) + ((a ^ b) >> 1), ((a ^ b) >> 1) + (b & a)

    def meant(a: Any, b: Any) -> Any:
        a, b = np.repeat(a, 2, axis=1), np.repeat(b, 2, axis=1)
        return np.maximum(
            ((a.astype(int) + b) >> 1).astype(a.dtype), ((a.astype(int) + b[::-1]) // 2).astype(a.dtype)
        ) * np.float32(0.5)

    for f in (written, meant):
        check(f, np.tile(image(dtype), (1, 4)), np.tile(image(dtype), (1, 4))[:, ::-1].copy())


def test_what_wraps_around_wraps() -> None:
    a, b = image("u2"), image("u2")
    check(lambda a, b: (a - b) // 2, a, b)
    check(lambda a, b: np.minimum(a - b, 65535), a, b)
    check(lambda a, b: ((a + b + 1) // 2).astype(np.uint8), U1, V1)
    check(lambda a, b: np.abs((a.astype(np.uint16) - b).astype(np.int16)), U1, V1)
    check(lambda a, b: np.maximum(a.astype(np.uint16) - b, 0), U1, V1)


def test_random_formulas_of_integers_are_numpys() -> None:
    names = (
        "add",
        "subtract",
        "multiply",
        "minimum",
        "maximum",
        "floor_divide",
        "right_shift",
        "bitwise_and",
        "bitwise_xor",
        "absolute",
        "less",
    )
    for seed in range(30):
        rng = np.random.default_rng(seed)
        steps = [
            (str(rng.choice(names)), int(rng.integers(0, 8)), int(rng.integers(0, 8)), int(rng.integers(1, 300)))
            for _ in range(9)
        ]

        def formula(a: Any, b: Any, steps: Any = steps) -> Any:
            values = [a.astype(np.int64), b.astype(np.int32), a.astype(np.int16), b]
            for name, i, j, c in steps:
                x, y = values[-1 - i % len(values)], values[-1 - j % len(values)]
                if name == "absolute":
                    new = np.abs(x)
                elif name in ("floor_divide", "right_shift"):
                    new = getattr(np, name)(x, x.dtype.type(c % 7 + 1))
                elif name == "less":
                    new = np.where(x < y, x, x.dtype.type(c % 100))
                else:
                    new = getattr(np, name)(x, y)
                values.append(new)
            return values[-1], values[-2], values[-3]

        check(formula, U1, V1)
        check(formula, image("i1"), image("u2"))


@pytest.mark.skipif("x86" not in features.host_features(), reason="instructions of x86")
@pytest.mark.parametrize("case, instruction", [
    ("a saturated sum", "vpaddusb"), ("a saturated difference", "vpsubusb"), ("a mean", "vpavgb"), ("a mean of means", "vpavgb"),
])  # fmt: skip
def test_idioms_are_single_instructions(case: str, instruction: str) -> None:
    asm = hjit.pipeline(CASES[case][0]).inspect_asm(U1, V1)
    assert instruction in asm or instruction[1:] in asm


def test_the_narrowest_dtype() -> None:
    ranges = [(0, 255), (-1, 127), (-1, 128), (0, 65535), (-40000, 0), (0, 1 << 32)]
    assert [str(narrowest(low, high, 1)) for low, high in ranges] == [
        "uint8",
        "int8",
        "int16",
        "uint16",
        "int32",
        "None",
    ]
    assert narrowest(0, 1, 2) == np.uint16


def test_extremes_that_change_nothing() -> None:
    check(lambda a: (np.zeros((a.shape[0], 5), np.uint64).max(1), a + 1), U1)
    check(lambda a: np.minimum.reduce(np.full((5, a.shape[1]), 255, np.uint8)) + a, U1)
