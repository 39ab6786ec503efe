"""Statements that no control flow reaches neither run nor change what those before them give."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.splitting.dead_code import binding, drop_dead
from hjit.trace.splitting.locations import SourceRange
from hjit.trace.splitting.source import tree_of
from hjit.trace.splitting.split import split
from tests.trace.test_splitting import function_of, tree


@pytest.mark.parametrize(
    "text",
    [
        "u = np.unique(a); return a * len(u); a = a + 1",
        "u = np.unique(a)\n if len(u) > 1: return a * 2; u = 3\n return a",
        "u = np.unique(a)\n with np.errstate(all='ignore'): return np.sqrt(a); a = 3",
        "u = np.unique(a)\n try: return a * 2; a = a * 3\n finally: u[0] = 1",
        "u = np.unique(a)\n while True:\n  a = a * 2\n  break\n  a = a * 7\n return a, u",
        "u = np.unique(a)\n match len(u):\n  case 0: return a; u = 1\n  case _: return a * len(u); u = 2",
        "try: a = a / np.unique(a)[99]\n except IndexError: return a * 2; a = 3",
        "u = np.unique(a)\n for i in range(3):\n  if i == 1: return a * i; a = 3\n return a",
    ],
)
def test_what_is_returned_before_dead_statements(text: str) -> None:
    f = function_of(f"def f(a):\n {text}")
    place = next(x for x in ast.walk(tree_of(f)) if isinstance(x, ast.Call) and ast.unparse(x.func) == "np.unique")
    where = SourceRange(place.lineno, place.end_lineno or 0, place.col_offset, place.end_col_offset)
    found = split(f, where)
    assert found is not None
    run = found.assembled(f, lambda part: part.function)
    a = np.array([[1.0, 2.0], [2.0, 5.0]])
    np.testing.assert_equal(run(a.copy()), f(a.copy()))


def dead_at_the_end(a: Any) -> Any:
    u = np.unique(a)
    return a * len(u)
    a = a + 1


def dead_in_a_branch(a: Any) -> Any:
    u = np.unique(a)
    if len(u) > 1:
        return a * 2
        u = 3
    return a


def dead_after_a_print(a: Any) -> Any:
    print(end="")
    b = np.sqrt(a) + 1
    return b * 2
    b = b - 1


@pytest.mark.parametrize("function", [dead_at_the_end, dead_in_a_branch, dead_after_a_print])
def test_pipelines_with_dead_statements(function: Callable[..., Any]) -> None:
    f = hjit.pipeline(function, on_unsupported="break")
    for seed in range(3):
        a = np.random.default_rng(seed).random((9, 7))
        np.testing.assert_array_equal(f(a.copy()), function(a.copy()))


def test_a_name_that_only_a_dead_statement_binds_is_local() -> None:
    f = function_of(
        "def f(a):\n u = np.unique(a)\n v = u * 2 + 1\n if len(u) > 9:\n  return v\n  max = 3\n return v * max(v)"
    )
    place = next(x for x in ast.walk(tree_of(f)) if isinstance(x, ast.Call))
    found = split(f, SourceRange(place.lineno, place.lineno, place.col_offset, place.end_col_offset))
    assert found is not None
    run = found.assembled(f, lambda part: part.function)
    with pytest.raises(UnboundLocalError):
        f(np.ones(3))
    with pytest.raises(UnboundLocalError):
        run(np.ones(3))


def test_dead_statements_go_and_their_names_and_declarations_stay() -> None:
    f = tree(
        "def f(a):\n for x in a:\n  if x:\n   break\n   b: int = 3\n  continue\n  global g; c += 1\n return a\n del d"
    )
    assert list(drop_dead(f)) == ["d", "c", "b"]
    kept = "def f(a):\n for x in a:\n  if x:\n   break\n  continue\n  global g\n return a"
    assert ast.dump(f) == ast.dump(tree(kept))
    assert not drop_dead(tree("def f(a):\n def g():\n  return a\n  b = 2\n return g"))
    assert not binding({})
