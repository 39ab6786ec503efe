"""Nests that differ in constants only share their code, and nothing else does."""

from typing import Any

import numpy as np

import hjit
from hjit.kernels.llvm.builder.function_merging import Function, merged
from hjit.trace.ir.poly import poly
from tests.numpy_check import check

IMAGE = np.random.default_rng(0).integers(0, 1 << 16, (37, 50)).astype(np.uint16)


def around(img: Any) -> Any:
    """The largest product of sums of rows and columns at some distances."""
    padded = np.pad(img, 6, mode="edge")
    best = np.zeros_like(img)
    for dy in (1, 3, 4):
        for dx in (0, 2, 5):
            moved = padded[dy : dy + img.shape[0] + 4, dx : dx + img.shape[1] + 4] ^ padded[4:-4, 4:-4]
            rows = moved[:-4] + moved[1:-3] * 3 + moved[4:]
            best = np.maximum(best, rows[:, :-4] * 5 + rows[:, 4:])
    return best


def test_a_search_window_is_compiled_once() -> None:
    s = hjit.pipeline(around).schedule(IMAGE)
    for name in [n for n in s.inlined if n.startswith(("moved", "rows"))]:
        s[name].root()
    text = hjit.pipeline(around).use(s).inspect_llvm(IMAGE)
    assert text.count("%given0 = load") >= 1
    assert text.count("define internal") < 2 * 9
    check(around, IMAGE, schedule=s)


def function(*constants: int, op: str = "add") -> Function:
    lines = [f"  %v{k} = {op} i64 {c}, %begin" for k, c in enumerate(constants)]
    return Function(
        "\n".join(["define void @nest(ptr %ctx, i64 %begin) {", "entry:", *lines, "  ret void", "}"]), (poly(7),)
    )


def test_constants_that_differ_alike_are_one_number() -> None:
    a, b = merged([function(1, 2, 1, 9), function(4, 5, 4, 9)])
    assert a.text == b.text
    assert a.uniforms == (poly(7), poly(1), poly(2)) and b.uniforms == (poly(7), poly(4), poly(5))
    assert (
        a.text.count("%given0, ") == 2 and "add i64 9" in a.text and "i64 2\n" in a.text
    )  # slots 2 and 3 of the block


def test_many_constants_that_are_shifted_are_one_number() -> None:
    a, b = merged([function(*range(100, 140)), function(*range(7, 47))])
    assert a.text == b.text
    assert a.uniforms == (poly(7), poly(100)) and b.uniforms == (poly(7), poly(7))
    for k in range(1, 40):
        assert f"= add i64 %given0, {k}\n" in a.text
    many = [function(*(k * c for k in range(1, 41))) for c in (3, 5)]
    assert merged(many) == many


def test_other_functions_stay_as_they_are() -> None:
    for pair in ([function(1), function(1)], [function(1), function(2, op="sub")], [function(1), function(1, 2)]):
        assert merged(pair) == pair
