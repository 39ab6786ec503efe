"""Functions taken apart and put together again do what they did, wherever they are cut."""

from __future__ import annotations

import ast
import contextlib
import copy
import random
import types
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hjit.trace.splitting.names import bound_by, definitely_bound, first_reads, live_before, loads, stores
from hjit.trace.splitting.normal_form import steps
from hjit.trace.splitting.source import TREE, NoSource, tree_of
from hjit.trace.splitting.split import Fragment, SourceRange, split
from tests.fuzz import random_program


def tree(text: str) -> ast.FunctionDef:
    (found,) = ast.parse(text).body
    assert isinstance(found, ast.FunctionDef)
    return found


def function_of(text: str) -> types.FunctionType:
    """The function of a text, with its tree: `inspect` knows no source of it."""
    space: dict[str, Any] = {"np": np}
    exec(compile(text, "<text>", "exec"), space)
    made = tree(text[text.index("def ") :])
    found: types.FunctionType = space[made.name]
    setattr(found, TREE, lambda: made)
    return found


def apart(f: types.FunctionType, rng: random.Random, depth: int = 2) -> Callable[..., Any]:
    """A function cut at random, and its parts again."""
    nodes = [x for x in ast.walk(tree_of(f)) if isinstance(x, (ast.stmt, ast.expr)) and not isinstance(x, ast.Constant)]
    x = rng.choice(nodes)
    place = SourceRange(x.lineno, x.end_lineno or x.lineno, x.col_offset, x.end_col_offset)

    def part(p: Fragment) -> Callable[..., Any]:
        return apart(p.function, rng, depth - 1) if depth and rng.random() < 0.7 else p.function

    found = split(f, None if rng.random() < 0.2 else place)
    return f if found is None else found.assembled(f, part)


def outcome(f: Callable[..., Any], args: Any) -> Any:
    """What a call gives and leaves in its arguments."""
    args = copy.deepcopy(args)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args), args
        except Exception as error:
            return type(error), str(error)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_the_same_in_parts(seed: int) -> None:
    program = random_program(seed)
    f = function_of(program.source)
    args = list(program.args.values())
    wanted = outcome(f, args)
    rng = random.Random(seed)
    for _ in range(6):
        np.testing.assert_equal(outcome(apart(f, rng), args), wanted)


CONTROL = """
def f(a, n, log):
    total, k = 0.0, 0
    for i in range(n):
        if a[i % 5] > 0.5:
            log.append(("high", i))
            total = total + np.sqrt(a * i).sum()
            if total > 20:
                break
        elif i == 3:
            continue
        else:
            b = a * total - i
            total = total + b.max()
        k = i
    else:
        log.append("all")
        total = -total
    while True:
        total = total * 0.5 - 1
        k, last = k + 1, k
        try:
            log.append(1 / (k - 4))
        except ZeroDivisionError as error:
            log.append(str(error))
        finally:
            k = k + 0
        if k > 6:
            break
    squares = [x * x for x in a if x > 0.1]
    with np.errstate(all="ignore"):
        ratio = np.log(a - a.min()) / (total + last)
    later = lambda: total + k
    total = total + (len(squares) if squares else 0)
    first, *rest = sorted(squares)
    return ratio, (last, later(), first), {"k": k, "rest": len(rest)}, log
"""


@pytest.mark.parametrize("seed", range(40))
def test_control_flow_is_the_same_in_parts(seed: int) -> None:
    f = function_of(CONTROL)
    rng = random.Random(seed)
    a = np.random.default_rng(seed).random(7)
    for n in (0, 3, 9):
        np.testing.assert_equal(outcome(apart(f, rng), (a, n, [])), outcome(f, (a, n, [])))


CAUGHT = """
def f(a, n, log):
    total, seen, x = a * 2, 0, a + n
    for i in range(n):
        try:
            x = a * i + total
            y = x.max() + 1
            seen = seen + 1
            total = total + y / (i - 2)
            x = x - a[i % 9]
            if (m := x.sum() + i) > 20 or (late := m) < -5:
                log.append(("m", m))
                x = x / m
            if i == 5:
                continue
            if i == 7:
                return x * 2, seen, log
        except ZeroDivisionError as error:
            x = x + seen
            log.append(str(error))
        except IndexError:
            log.append(("index", x.sum(), seen))
            total = total - x
        else:
            seen = seen * 2
            total = total * 0.5 + seen
        finally:
            log.append((seen, x.sum()))
            x = x * 0.5
    match n, [*a[:2]]:
        case 0, [first, *rest] if (k := first + 1) > 1.5:
            log.append(("zero", k))
            total = total * k + first
        case int(count), [first, second]:
            total = total + np.sqrt(a) * count
            log.append("some")
            total = total - first * second
        case _:
            total = total * 0
    with suppress(ValueError):
        seen = seen + total.max()
        total = total - seen
        log.append("before")
        seen = np.reshape(total, (3, -1, 2)).sum()
        total = total + seen
    while (rest := total.max() - seen) > 0.25 and n:
        seen = seen + rest * 0.75
        log.append("again")
    try:
        late = late + 1
    except UnboundLocalError:
        log.append("late")
    return total, seen, x, log
"""


@pytest.mark.parametrize("seed", range(16))
def test_blocks_that_handle_exceptions_are_the_same_in_parts(seed: int) -> None:
    f = function_of(CAUGHT)
    f.__globals__["suppress"] = contextlib.suppress
    rng = random.Random(seed)
    for n in (0, 2, 5, 6, 8, 9, 10):
        for size in (4, 6, 7, 9, 11):
            a = np.random.default_rng(seed).random(size)
            np.testing.assert_equal(outcome(apart(f, rng), (a, n, [])), outcome(f, (a, n, [])))


@pytest.mark.parametrize(
    "text",
    [
        "if (m := a.max()) > 0.2: print(m); a = np.exp(a) / m",
        "match k:\n  case 1:\n   print(k); a = np.exp(a) / 2",
        "try: print(k); a = np.exp(a) / 2\n except ValueError: a = a * 3",
        "try: a = k / 0\n except ZeroDivisionError: print(k); a = np.exp(a) / 2",
        "try: a = a + 1\n finally: print(k); a = np.exp(a) / 2",
        "with suppress(ValueError): print(k); a = np.exp(a) / 2",
        "while (m := a.max()) > 9: print(m); a = np.exp(a) / m",
    ],
)
def test_blocks_are_taken_apart(text: str) -> None:
    f = function_of(f"def f(a, k):\n {text}\n return a")
    place = next(x for x in ast.walk(tree_of(f)) if isinstance(x, ast.Call) and ast.unparse(x.func) == "print")
    bodies: list[str] = []

    def part(p: Fragment) -> Any:
        bodies.append(ast.unparse(tree_of(p.function).body[0]))
        return p.function

    where = SourceRange(place.lineno, place.end_lineno or 0, place.col_offset, place.end_col_offset)
    found = split(f, where)
    assert found is not None
    found.assembled(f, part)
    assert any(body.startswith(("a = np.exp(a)", "return np.exp(a)")) for body in bodies)


def test_names_that_tests_bind() -> None:
    (s,) = ast.parse("(a := 1) < (b := 2) < (c := 3) or (d := 4)").body
    assert isinstance(s, ast.Expr) and bound_by(s.value) == {"a", "b"}
    (s,) = ast.parse("f((a := 1)) if (b := 2) else (c := 3)").body
    assert isinstance(s, ast.Expr) and bound_by(s.value) == {"b"}


@pytest.mark.parametrize(("text", "names"), [
    ("try: b = f()\n except E: b = 1", {"b"}),
    ("try: b = f()\n except E: c = 1", set()),
    ("try: b = f()\n except E: raise", {"b"}),
    ("try: b = f()\n except E as b: b = 1", set()),
    ("try: f()\n except E: b = 1\n else: b = 2\n finally: c = 3", {"b", "c"}),
    ("try: b = f()\n except* E: b = 1", set()),
])  # fmt: skip
def test_names_that_are_bound_after_an_exception_was_handled(text: str, names: set[str]) -> None:
    assert definitely_bound(tree(f"def f():\n {text}").body) == names


def test_a_function_that_handles_an_exception_is_taken_apart() -> None:
    f = function_of(
        "def f(a):\n    try: b = a[:, 0] * 2\n    except IndexError: b = a * 3\n    c = b.tolist()\n    return b * 2, c"
    )
    found = split(f, "c")
    assert found is not None
    run = found.assembled(f, lambda part: part.function)
    for a in (np.ones(3), np.ones((3, 2))):
        np.testing.assert_equal(run(a), f(a))


def test_names() -> None:
    body = tree("def f():\n if a: b = c\n else: b, d = e\n for i in b: g = i + h\n x += [y for y in z if y]").body
    assert set(stores(body)) == {"b", "d", "i", "g", "x"}
    assert set(loads(body)) == {"a", "c", "e", "b", "i", "h", "x", "z"}
    assert definitely_bound(body) == {"b", "x"}
    assert list(first_reads(body)) == ["a", "c", "e", "h", "x", "z"]
    assert live_before(body, frozenset({"x", "g", "q"})) == {"a", "c", "e", "h", "x", "z", "g", "q"}


@pytest.mark.parametrize(("text", "names"), [
    ("b = c and (d := e)", {"b"}),
    ("b = (d := e) and c", {"b", "d"}),
    ("b = [d := x for x in c]", {"b"}),
    ("b: int\n c: int = 2", {"c"}),
    ("b = c = 1\n del b", {"c"}),
    ("b = 1\n if c: del b", set()),
])  # fmt: skip
def test_names_that_are_bound_after_statements(text: str, names: set[str]) -> None:
    assert definitely_bound(tree(f"def f():\n {text}").body) == names


def test_first_iterables_and_defaults_belong_to_the_scope_outside() -> None:
    assert set(stores(tree("def f():\n b = lambda c=(d := 1): c").body)) == {"b", "d"}
    (s,) = tree("def f():\n return [a + c for a, b in zip(a, b) for c in d for d in b if c]").body
    assert set(loads([s])) == {"zip", "a", "b"}


def test_a_block_that_may_end_an_exception_leaves_names_what_they_were() -> None:
    body = "b = f()\n  g(b)"
    assert live_before(tree(f"def f():\n with suppress(E):\n  {body}").body, frozenset({"b"})) >= {"b"}
    assert "b" not in live_before(tree(f"def f():\n with np.errstate():\n  {body}").body, frozenset({"b"}))


@pytest.mark.parametrize("text", [
    "v = n > 5 and (c := a + 1).sum()",
    "with contextlib.suppress(ValueError): c = (a + 1).reshape(n, -1)",
    "c: np.ndarray",
    "v = [(c := r + 1) for r in a[: n - 3]]",
    "c = sum(c * 2 for c in c)",
    "del c\n    if n > 5: c = d * 2",
])  # fmt: skip
def test_statements_that_may_bind_names(text: str) -> None:
    f = function_of(
        "import contextlib\n"
        f"def f(a, n):\n    c, d = a * 2, a * 3\n    log(1)\n    {text}\n    log(2)\n    e = d + 1\n    return e, c"
    )
    f.__globals__["log"] = lambda x: None
    args = [(np.arange(6.0).reshape(2, 3), n) for n in (3, 4, 7)]
    for seed in range(20):
        run = apart(f, random.Random(seed))
        for x in args:
            np.testing.assert_equal(outcome(run, x), outcome(f, x))


def test_a_statement_in_steps() -> None:
    (s,) = tree("def f():\n y = g(a + 1)[b.c(2) if p else q].T + h(*z, k=-w)").body
    assert [ast.unparse(x) for x in steps(s, 0)] == [
        "__hjit_t0 = a + 1",
        "__hjit_t1 = g(__hjit_t0)",
        "__hjit_t2 = __hjit_t1[b.c(2) if p else q]",
        "__hjit_t3 = -w",
        "__hjit_t4 = h(*z, k=__hjit_t3)",
        "y = __hjit_t2.T + __hjit_t4",
    ]


@pytest.mark.parametrize("text", ["def f(a):\n    yield a", "async def f(a):\n    return a"])
def test_generators_and_coroutines_stay_whole(text: str) -> None:
    space: dict[str, Any] = {}
    exec(text, space)
    with pytest.raises(NoSource):
        tree_of(space["f"])


@pytest.mark.parametrize("asks", ["locals()", "vars()", "dir()", "vars", "vars(*[])", "eval('b')"])
def test_what_asks_for_its_own_variables_stays_whole(asks: str) -> None:
    f = function_of(f"def f(a):\n    b = a + 1\n    return {asks}")
    with pytest.raises(NoSource):
        split(f, None)


def test_what_asks_for_those_of_an_object_is_taken_apart() -> None:
    f = function_of("def f(a, config):\n    b = a + vars(config)['gain'] * len(dir(a))\n    return b * 2")
    found = split(f, None)
    assert found is not None
    run = found.assembled(f, lambda part: part.function)
    assert run(1, SimpleNamespace(gain=3)) == f(1, SimpleNamespace(gain=3))
