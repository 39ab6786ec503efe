"""Which updates are accumulations ``stage[target] = op(stage[target], element)``."""

from __future__ import annotations

import numpy as np
import pytest

from hjit.trace.ir.analysis.accumulations import Accumulation, accumulation_of
from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Dim, Sym, poly

F2, F4, I1, I4 = (np.dtype(t) for t in ("f2", "f4", "i1", "i4"))
TARGET = (poly(Dim(1)), poly(3))


def own(dtype: np.dtype[np.generic]) -> Load:
    return Load("s", TARGET, dtype)


def x(dtype: np.dtype[np.generic]) -> Load:
    return Load("x", identity(2), dtype)


def found(value: Expr, order: str = "sequential") -> Accumulation | None:
    return accumulation_of("s", Definition((poly(Sym("h")),), (poly(Sym("w")),), TARGET, value, order))


@pytest.mark.parametrize("op", ["add", "maximum", "subtract", "bitwise_or"])
@pytest.mark.parametrize("order", ["pure", "sequential", "add"])
def test_the_own_element_and_another(op: str, order: str) -> None:
    assert found(Op(op, (own(I4), x(I4)), I4), order) == Accumulation(op, own(I4), x(I4), I4)
    assert found(Op(op, (x(I4), own(I4)), I4), order) == Accumulation(op, own(I4), x(I4), I4, is_reversed=True)


def test_floats_may_be_computed_in_a_wider_dtype() -> None:
    wide = Op("add", (cast(own(F2), F4), x(F4)), F4)
    assert found(cast(wide, F2)) == Accumulation("add", own(F2), x(F4), F4)
    whole = Op("add", (cast(own(I1), I4), x(I4)), I4)
    assert found(cast(whole, I1)) is None, "whole numbers wrap around"


@pytest.mark.parametrize(
    "value",
    [
        x(F4),
        own(F4),
        Const(0, F4),
        Op("negative", (own(F4),), F4),
        Op("add", (x(F4), Const(1, F4)), F4),
        Op("add", (own(F4), own(F4)), F4),
        Op("add", (own(F4), Load("s", (poly(Dim(0)), poly(3)), F4)), F4),  # another element of the stage
        Op("add", (Load("s", identity(2), F4), x(F4)), F4),
        Op("add", (Load("t", TARGET, F4), x(F4)), F4),
        Op("select", (Const(True, "?"), own(F4), x(F4)), F4),
        Op("multiply", (Const(2, F4), Op("add", (own(F4), x(F4)), F4)), F4),
    ],
    ids=str,
)
def test_other_updates_are_none(value: Expr) -> None:
    assert found(value) is None
