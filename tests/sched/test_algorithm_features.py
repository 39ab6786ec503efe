"""What of a definition does not depend on its schedule: the histogram of its operations, and how its accesses move."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hjit.model.feature_names import OPERATIONS, PIPELINE
from hjit.sched.features.algorithm_features import access_class, jacobian, pipeline_features
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import Boundary, Dim, Indirect, Mod, Poly, Sym, deep_atoms, poly
from tests.trace.test_canonical import canonical

F = np.random.default_rng(0).random((6, 40)) + 0.5
I = (F * 100).astype(np.int32)
B = F > 1
X, Y, Z = (poly(Dim(k)) for k in range(3))

CASES = {
    "add": lambda f, i, b: f + f[::-1],
    "sub": lambda f, i, b: f - f[::-1],
    "mul": lambda f, i, b: f * f[::-1],
    "div": lambda f, i, b: f / f[::-1],
    "div_const": lambda f, i, b: i // 3,
    "mod": lambda f, i, b: i % i[::-1],
    "mod_const": lambda f, i, b: i % 7,
    "shift": lambda f, i, b: i >> 2,
    "and": lambda f, i, b: i & i[::-1],
    "or": lambda f, i, b: i | i[::-1],
    "xor": lambda f, i, b: i ^ i[::-1],
    "not": lambda f, i, b: ~i,
    "min": lambda f, i, b: np.minimum(f, f[::-1]),
    "max": lambda f, i, b: np.maximum(f, f[::-1]),
    "abs": lambda f, i, b: np.abs(f),
    "compare_eq": lambda f, i, b: f == f[::-1],
    "compare_lt": lambda f, i, b: f < f[::-1],
    "logic": lambda f, i, b: b & b[::-1],
    "select": lambda f, i, b: np.where(b, f, f[::-1]),
    "sqrt": lambda f, i, b: np.sqrt(f),
    "exp": lambda f, i, b: np.exp(f),
    "log": lambda f, i, b: np.log(f),
    "pow": lambda f, i, b: np.power(f, f[::-1]),
    "trig": lambda f, i, b: np.sin(f),
    "hyperbolic": lambda f, i, b: np.tanh(f),
    "round": lambda f, i, b: np.floor(f),
    "saturate": lambda f, i, b: np.clip(f, 0.6, 0.9),
    "cast_narrow": lambda f, i, b: i.astype(np.int16),
    "cast_wide": lambda f, i, b: i.astype(np.int64),
    "cast_float": lambda f, i, b: i.astype(np.float64),
    "fma": lambda f, i, b: f @ f.T,
    "accumulate": lambda f, i, b: f.max(1),
    "gather": lambda f, i, b: f[0][i % 40],
    "scalar": lambda f, i, b, s=2.5: f * s,
    "const": lambda f, i, b: f + 3,
    "input_load": lambda f, i, b: f + 3,
    "index": lambda f, i, b: f + np.arange(f.shape[1]),
}


def counted(function: Any) -> dict[str, float]:
    graph = canonical(function, F, I, B)
    atoms = {a for s in graph.stages for d in s.definitions for n in (*s.shape, *d.extents) for a in deep_atoms(n)}
    rows = pipeline_features(graph, {a.name: 40 for a in atoms if isinstance(a, Sym)})
    return {x: float(rows[:, PIPELINE.index(f"op_{x}")].max()) for x in OPERATIONS}


@pytest.mark.parametrize("name", CASES)
def test_every_operation_has_its_bucket(name: str) -> None:
    found = counted(CASES[name])
    if name != "scalar":
        assert found[name] > 0.5, {k: v for k, v in found.items() if v}
    assert found["other"] == 0


def test_what_has_no_bucket_is_other() -> None:
    assert counted(lambda f, i, b: np.gcd(i, i[::-1]))["other"] == 1


def test_jacobians_have_unknown_entries_where_an_index_does_not_move_steadily() -> None:
    rest = poly(Mod(Y, poly(2)))
    assert jacobian((rest, X), 2) == ((0, None), (1, 0))
    value = poly(Indirect(Load("a", (Y,), np.dtype("i8")), None))
    assert jacobian((value, Z * 2), 3) == ((0, None, 0), (0, 0, 2))
    assert jacobian((X // 2, poly(Boundary("clamp", Y - 1, poly(9)))), 2) == ((Fraction(1, 2), 0), (0, 1))
    assert jacobian((X * Y, Y), 2)[0] == (None, None)
    assert {access_class(jacobian(p, 2), 1) for p in ((rest, X), (value, X))} == {"unknown"}


def test_accesses_are_classified_by_their_jacobians() -> None:
    def kind(*index: Poly | int, taps: int = 1) -> str:
        return access_class(jacobian(tuple(map(poly, index)), 2), taps)

    assert [kind(X, Y), kind(Y, X), kind(Y), kind(X, 3), kind(X * 2, Y), kind(X + Y, Y), kind(X, Y, taps=3)] == [
        "pointwise", "transpose", "broadcast", "slice", "strided", "stencil", "stencil",
    ]  # fmt: skip
