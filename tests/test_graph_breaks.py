"""Functions that cannot be traced as a whole run in parts, by default, as Python and NumPy run them."""

from __future__ import annotations

import copy
import inspect
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from skimage.measure import find_contours

import hjit
from hjit.call.breaks.limits import PLAIN_CALLS, WARMUP_CALLS
from hjit.call.checks.against_numpy import PAIRS, SHORT_PAIRS, InterleavedCalls, Medians
from hjit.call.function_state import FunctionState

RNG = np.random.default_rng(8)
IMAGE = RNG.random((40, 50))
OTHER = RNG.random((40, 50))
BYTES = RNG.integers(0, 255, (30, 31), np.uint8)
EVENTS: list[Any] = []


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HJIT_ON_UNSUPPORTED")
    EVENTS.clear()


def masked(a: Any, b: Any) -> Any:
    c = np.sqrt(a) * 2 + b
    high = np.sort(c[c > 1.5])
    return np.exp(c - c.mean()), high * 2 + high.size


def until_it_converges(a: Any, tol: Any) -> Any:
    x, n, err = np.sqrt(a), 0, np.inf
    while err > tol:
        y = 0.25 * (np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1))
        err = np.abs(y - x).max()
        x = y
        n += 1
    return x, n


def in_one_line(a: Any) -> Any:
    return np.sqrt(np.abs(a) + 1)[a > 0.5].sum() + np.exp(np.unique(a * 2 + 1)[30] * a)


def with_effects(a: Any) -> Any:
    b = a * 2 + 1
    EVENTS.append(float(b.max()))
    c = np.exp(b) - b
    EVENTS.append(("sum", round(float(c.sum()), 6)))
    return c


def a_list_by_element(a: Any) -> Any:
    rows = []
    for k in range(3):
        scaled = np.sqrt(a + k) * 2
        rows.append(np.unique((scaled * 10).astype(np.int64)).size)
    return np.array(rows) + (a * a).sum()


def written(a: Any, b: Any) -> Any:
    a[1:-1] = (a[:-2] + a[2:]) * 0.5
    order = np.argsort(b, axis=None)
    view = a[2:]
    view += order.reshape(b.shape)[2:] * 0.1
    return a, np.sqrt(a)


def conditions(a: Any, mode: Any) -> Any:
    b = np.exp(a) * 2
    if mode == "few":
        if len(np.unique(b)) < 5:
            return b * 0
        b = b - b.min()
    elif mode == "many":
        for _ in range(100):
            b = b * 0.9 + 0.01
            if float(np.sort(b, axis=None)[-1]) < 0.5:
                break
        else:
            b = b + 7
    return b / (1 + b)


def caught(a: Any) -> Any:
    b = a * 3
    try:
        c = np.linalg.inv((b @ b.T) * 0)
    except np.linalg.LinAlgError:
        c = np.flatnonzero(b > 2)
    return b.sum() + c.sum()


def caught_midway(a: Any) -> Any:
    a, k = np.sqrt(a) * 2 + 1, 0
    try:
        k = 1 + len(a)
        b = np.unique(a * k)
        k = k + 5
        b = b + np.ones(3)
        k = k + 7
    except ValueError:
        b = a * k
    return b, k


def strict(a: Any) -> Any:
    a = np.sqrt(a) * 2 + 1
    n = np.unique(a).size
    try:
        with np.errstate(divide="raise"):
            b = 1 / (a - a)
    except FloatingPointError:
        b = a * n
    return b


def nested(a: Any) -> Any:
    def inner(x: Any) -> Any:
        return x[x > k] * 2

    k = 0.5
    b = np.sqrt(a)
    c = inner(b)
    k = 0.9
    d = inner(b)
    return c.sum(), d.size, np.exp(b)


def wandering(a: Any) -> Any:
    total = 0.0
    for row in a:
        total = total + np.sort(row)[3] * (row * row).mean()
    return total


def complex_numbers(a: Any) -> Any:
    smooth = (a[1:] + a[:-1]) * 0.5
    spectrum = np.fft.fft2(smooth)
    power = np.abs(spectrum) ** 2
    return np.log1p(power), power.mean()


def deleted(a: Any) -> Any:
    b = a * 2
    c = np.nonzero(b > 1)[0]
    del b
    try:
        return b  # noqa: F821
    except UnboundLocalError:
        return c * 2 + a.sum()


def starred(*images: Any, weights: Any = (1, 2)) -> Any:
    total = sum(w * np.sqrt(x) for w, x in zip(weights, images, strict=True))
    first, *_ = np.unique(np.round(total))
    return total - first


def counts_in_an_inner_function(a: Any) -> Any:
    total = 0.0

    def add(x: Any) -> None:
        nonlocal total
        total += x.sum()

    b = np.sqrt(a) + total
    add(b)
    c = b * total + 1
    add(c)
    EVENTS.append(float(c.max()))
    return c[c > total] + total, total


def keeps_in_an_inner_function(a: Any) -> Any:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x.max())
        return x * 2

    b = keep(keep(a) + 1) * 2
    EVENTS.append(len(kept))
    return b, kept


def annotated(a: Any) -> Any:
    b: Nowhere = np.sqrt(a)  # type: ignore[name-defined]  # noqa: F821

    def high(x: Nowhere) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return x[x > 0.5] * 2

    return np.unique(high(b)), high.__annotations__["x"]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a masked read": (masked, (IMAGE, OTHER)),
    "until it converges": (until_it_converges, (IMAGE, 0.05)),
    "in one line": (in_one_line, (IMAGE,)),
    "effects": (with_effects, (IMAGE,)),
    "a list by element": (a_list_by_element, (IMAGE,)),
    "written arguments": (written, (IMAGE, OTHER)),
    "conditions, few": (conditions, (IMAGE, "few")),
    "conditions, many": (conditions, (IMAGE, "many")),
    "conditions, neither": (conditions, (IMAGE, "")),
    "a caught exception": (caught, (IMAGE,)),
    "an exception midway": (caught_midway, (IMAGE,)),
    "strict error settings": (strict, (IMAGE,)),
    "an inner function": (nested, (IMAGE,)),
    "an inner function that assigns": (counts_in_an_inner_function, (IMAGE,)),
    "an inner function that appends": (keeps_in_an_inner_function, (IMAGE,)),
    "annotations that are not evaluated": (annotated, (IMAGE,)),
    "over rows": (wandering, (IMAGE,)),
    "complex numbers": (complex_numbers, (IMAGE,)),
    "deleted": (deleted, (IMAGE,)),
    "starred": (starred, (IMAGE, OTHER)),
    "a lambda": (lambda a: np.exp(a)[a > 0.5] * 2, (IMAGE,)),
    "bytes": (lambda a: np.bincount(np.sort(a, axis=None)[::7]) + (a * 2).max(), (BYTES,)),
}


def same(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            same(g, w)
        return
    if isinstance(wanted, str):
        assert got == wanted
        return
    assert np.asarray(got).dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_results_effects_and_arguments_are_numpys(case: str) -> None:
    function, args = CASES[case]
    compiled = hjit.pipeline(function)
    for _ in range(3):
        EVENTS.clear()
        plain, own = copy.deepcopy(args), copy.deepcopy(args)
        wanted = function(*plain)
        events = list(EVENTS)
        EVENTS.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", hjit.HjitWarning)
            got = compiled(*own)
        same(got, wanted)
        assert events == EVENTS
        for x, y in zip(own, plain, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("case", ["a masked read", "until it converges", "in one line", "effects"])
def test_what_is_around_a_break_is_compiled(case: str) -> None:
    function, args = CASES[case]
    compiled = hjit.pipeline(function)
    compiled(*args)
    compiled(*args)
    assert compiled.stats.parts
    assert "compiled: " in compiled.explain(*args)


def test_explain_names_what_breaks_and_where() -> None:
    compiled = hjit.pipeline(with_effects)
    compiled(IMAGE)
    text = compiled.explain(IMAGE)
    first = with_effects.__code__.co_firstlineno
    assert text.startswith("with_effects runs in Python, with compiled parts: EVENTS")
    assert f"line {first + 2}: Python: EVENTS.append" in text
    assert "compiled: 1 kernel (" in text and " ms, by NumPy " in text
    assert "What to do: " in text.splitlines()[0]


def test_explain_before_the_first_call_says_what_would_be_done() -> None:
    calls = len(EVENTS)
    text = hjit.pipeline(with_effects).explain(IMAGE)
    assert "call it" in text and "parts: EVENTS: " in text

    def printed(a: Any) -> Any:
        print("at every call", a.max())
        return a

    assert f"line {printed.__code__.co_firstlineno + 1}: print: " in hjit.pipeline(printed).explain(IMAGE)
    assert "would run in Python, with compiled parts" in text and "What to do: " in text
    assert "would run compiled" in hjit.pipeline(lambda a: np.sqrt(a) + 1).explain(IMAGE)
    assert "would not be compiled: " in hjit.pipeline(with_effects, on_unsupported="raise").explain(IMAGE)
    assert len(EVENTS) == calls


def test_arguments_that_numpy_refuses_raise_what_it_raises() -> None:
    compiled = hjit.pipeline(masked)
    compiled(IMAGE, OTHER)
    with pytest.raises(ValueError, match="could not be broadcast"):
        compiled(IMAGE, OTHER[:7])
    same(compiled(IMAGE, OTHER), masked(IMAGE, OTHER))


def test_tracebacks_name_the_users_lines() -> None:
    def wrong(a: Any) -> Any:
        b = np.nonzero(a > 0.5)
        c = np.sqrt(a) * 2
        return c[b] + np.ones(3)

    compiled = hjit.pipeline(wrong)
    with pytest.raises(ValueError, match="could not be broadcast") as info:
        compiled(IMAGE)
    lines = [t.lineno + 1 for t in info.traceback if str(t.path).endswith("test_graph_breaks.py")]
    assert wrong.__code__.co_firstlineno + 3 in lines


def test_other_modes_refuse_or_run_plain() -> None:
    with pytest.raises(hjit.TraceError):
        hjit.pipeline(masked, on_unsupported="raise")(IMAGE, OTHER)
    with pytest.warns(hjit.HjitWarning, match="runs as plain NumPy"):
        hjit.pipeline(masked, on_unsupported="numpy")(IMAGE, OTHER)


def test_closures_and_globals_are_read_at_every_call() -> None:
    def scaled_by(k: Any) -> Any:
        def f(a: Any) -> Any:
            b = np.sqrt(a) * k
            return b[b > 1].sum() + EVENTS[0] * np.exp(b)

        def change(value: Any) -> None:
            nonlocal k
            k = value

        return f, change

    EVENTS.append(2.0)
    f, change = scaled_by(3.0)
    compiled = hjit.pipeline(f)
    same(compiled(IMAGE), f(IMAGE))
    change(5.0)
    EVENTS[0] = 1.0
    same(compiled(IMAGE), f(IMAGE))


CALLS, LATEST = 0, 0.0


def counts_in_a_global(a: Any) -> Any:
    global CALLS, LATEST
    CALLS += 1
    b = a * 2 + CALLS
    LATEST = float(b.max()) + LATEST
    return b * CALLS


def counts_outside() -> Any:
    calls = 0

    def f(a: Any) -> Any:
        nonlocal calls
        calls += 1
        return a * 2 + calls

    return f


def test_variables_of_other_scopes_are_assigned_at_every_call() -> None:
    global CALLS, LATEST
    found = []
    for run in (counts_in_a_global, hjit.pipeline(counts_in_a_global)):
        CALLS, LATEST = 0, 0.0
        found.append((run(IMAGE), run(OTHER), run(IMAGE), CALLS, LATEST))
    same(found[1], found[0])
    plain, compiled = counts_outside(), hjit.pipeline(counts_outside())
    for _ in range(3):
        same(compiled(IMAGE), plain(IMAGE))


def test_a_method_runs_in_parts() -> None:
    class Filter:
        def __init__(self) -> None:
            self.calls = 0

        @hjit.pipeline
        def __call__(self, a: Any) -> Any:
            self.calls += 1
            b = np.exp(a) + self.calls
            return b[b > 3].sum() * b

    one, two = Filter(), Filter()
    for _ in range(3):
        same(one(IMAGE), Filter.__call__.py_func(two, IMAGE))
    assert one.calls == two.calls


def test_without_source_the_function_runs_plain_with_a_warning() -> None:
    space: dict[str, Any] = {"np": np}
    exec("def f(a):\n    b = np.sqrt(a)\n    return np.sort(b[b > 0.5])", space)
    with pytest.warns(hjit.HjitWarning, match="runs as plain NumPy"):
        got = hjit.pipeline(space["f"])(IMAGE)
    np.testing.assert_array_equal(got, space["f"](IMAGE))


def test_a_part_that_is_traced_at_every_call_runs_plain() -> None:
    def sized(a: Any, n: Any) -> Any:
        b = a[np.nonzero(a > 0.1)][:n]
        return np.exp(b) * 2 + b

    compiled = hjit.pipeline(sized)
    for n in range(100, 140):
        same(compiled(IMAGE, n), sized(IMAGE, n))
    assert sum(p.stats.traces for p, _, _ in compiled.parts.parts) < 20


def appends_in_a_loop(a: Any, seen: Any) -> Any:
    b = np.sqrt(a) * 2
    for k in range(400):
        row = [k % 7, k % 11]
        seen.append(sum(row))
        if len(row) > 1:
            seen.append(max(row))
    print(end="")
    return np.exp(b), len(seen)


def test_what_python_runs_in_a_loop_is_looked_up_a_few_times_only() -> None:
    compiled = hjit.pipeline(appends_in_a_loop)
    for _ in range(3):
        same(compiled(IMAGE, []), appends_in_a_loop(IMAGE, []))

    def parts_of(p: Any) -> Any:
        for part, _, _ in [] if p.parts is None else p.parts.parts:
            yield part
            yield from parts_of(part)

    parts = list(parts_of(compiled))
    assert any(part.cell is None for part in parts)
    assert all(part.stats.calls <= 2 * PLAIN_CALLS for part in parts)
    assert any(part.cell is not None and part.stats.traces for part in parts)  # the square root
    assert "the function changes a list" in compiled.explain(IMAGE, [])


def longest_contour(a: Any) -> Any:
    return np.sqrt(max(find_contours(a * 2, 1.0), key=len))


def test_an_extern_function_that_returns_thousands_of_numbers_is_a_break() -> None:
    """A trace of all of them takes a minute."""
    compiled = hjit.pipeline(longest_contour)
    for _ in range(2):
        same(compiled(IMAGE), longest_contour(IMAGE))
    assert "arrays and numbers" in compiled.explain(IMAGE)


@pytest.mark.parametrize("is_slower", [False, True])
def test_parts_are_timed_beside_numpy_and_given_up_where_they_are_slower(
    is_slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HJIT_NUMPY_IF_FASTER", "1")
    found = Medians(1.0, 0.5, 2.0, 2.0, PAIRS) if is_slower else Medians(1.0, 2.0, 0.5, 0.5, PAIRS)
    monkeypatch.setattr(InterleavedCalls, "medians", lambda self: found)
    compiled = hjit.pipeline(masked)
    for _ in range(WARMUP_CALLS + 2 * SHORT_PAIRS + 4):
        same(compiled(IMAGE, OTHER), masked(IMAGE, OTHER))
    assert ("runs as plain NumPy" in compiled.explain(IMAGE, OTHER)) == is_slower
    assert compiled.stats.slower == is_slower


def test_threads_share_the_parts() -> None:
    from concurrent.futures import ThreadPoolExecutor

    compiled = hjit.pipeline(masked)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: compiled(IMAGE, OTHER), range(16)))
    for got in found:
        same(got, masked(IMAGE, OTHER))


def warns_in_a_branch(a: Any) -> Any:
    b = np.sqrt(a)
    if np.unique(b).size > 2:
        warnings.warn("odd", stacklevel=2)
    return np.exp(b) * 2


def warns_after_a_break(a: Any) -> Any:
    b = np.exp(a) + 1
    n = np.unique(b).size
    c = b * n + np.sqrt(b)
    warnings.warn("many", UserWarning, 2)
    return c + 1


@pytest.mark.parametrize("f", [warns_in_a_branch, warns_after_a_break])
def test_warnings_point_to_the_caller(f: Callable[..., Any]) -> None:
    compiled = hjit.pipeline(f)
    for _ in range(3):
        with pytest.warns(UserWarning) as found:
            f(IMAGE), compiled(IMAGE)
        assert [(w.filename, w.lineno) for w in found] == [(__file__, found[0].lineno)] * 2
    assert compiled.stats.parts


def decorated(f: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(a: Any, scale: Any = None) -> Any:
        if scale is None:
            return f(a)
        n = np.unique(a).size
        return f(a * scale + n)

    return wrapper


@decorated
def warns_callers_caller(a: Any) -> Any:
    b = np.sqrt(a) * 2 + 1
    warnings.warn("odd", stacklevel=3)
    return b


def says(text: str, level: int = 4) -> None:
    warnings.warn(text, stacklevel=level)


@decorated
def warns_by_another_function(a: Any) -> Any:
    says("odd")
    return np.sqrt(a) * 2 + 1


class Missing(types.ModuleType):
    """Stands for a module that is not there, as those of ``lazy_loader`` do: whatever is asked of it raises."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {self.__name__!r}")


missing = Missing("missing")


def resampled(a: Any, by: str) -> Any:
    return missing.resample(a) if by == "missing" else a * 2


def test_modules_that_are_not_there_are_asked_for_nothing() -> None:
    def f(a: Any, by: str = "numpy") -> Any:
        n = np.unique(a).size
        return resampled(a, by) + n

    compiled = hjit.pipeline(f)
    for _ in range(2):
        same(compiled(IMAGE), f(IMAGE))
    with pytest.raises(ModuleNotFoundError):
        compiled(IMAGE, "missing")


@pytest.mark.parametrize("f", [warns_callers_caller, warns_by_another_function])
def test_a_part_is_no_frame_for_warnings_of_what_it_calls(f: Callable[..., Any]) -> None:
    compiled = hjit.pipeline(f)
    for args in [(IMAGE, 2.0), (IMAGE, 2.0), (IMAGE,), (IMAGE,)]:  # the first one decides what is a part
        with pytest.warns(UserWarning) as found:
            f(*args), compiled(*args)
        assert [(w.filename, w.lineno) for w in found] == [(__file__, found[0].lineno)] * 2
    assert compiled.parts is not None and compiled.parts.callees.made


def caller() -> str:
    return sys._getframe(1).f_code.co_name


def file_of_first_caller() -> str:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name.startswith("file_of"):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def file_of_caller() -> str:
    return file_of_first_caller()


def asks_for_frames(a: Any) -> Any:
    b = np.sqrt(a) * 2 + 1
    if caller() == "asks_for_frames":
        b += 1
    return b * len(file_of_caller())


def test_what_is_called_sees_no_frames_of_parts() -> None:
    compiled = hjit.pipeline(asks_for_frames)
    for _ in range(3):
        same(compiled(IMAGE), asks_for_frames(IMAGE))
    assert "sees frames" in compiled.explain(IMAGE)


@pytest.mark.parametrize(
    "ask", [lambda: sys._getframe(1), lambda: inspect.currentframe(), lambda: traceback.extract_stack()]
)
def test_frames_differ_from_call_to_call(ask: Callable[[], Any]) -> None:
    with pytest.raises(hjit.TraceError, match="sees frames"):
        hjit.pipeline(lambda a: a + len(str(ask())), on_unsupported="raise")(IMAGE)


def prints(a: Any, name: str) -> Any:
    b = np.sqrt(a) + len(name)
    if name != "well":
        print(end="")
    return b * 2


@pytest.mark.parametrize("on_unsupported", ["break", "numpy"])
def test_keys_that_are_refused_one_after_another_are_not_all_traced(
    on_unsupported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    real = FunctionState.build

    def build(self: Any, request: Any) -> Any:
        if not self.is_part:
            tried.append(len(request.leaves[1]))
        return real(self, request)

    compiled = hjit.pipeline(prints, on_unsupported=on_unsupported).quiet()
    monkeypatch.setattr(FunctionState, "build", build)
    for n in range(1, 18):
        same(compiled(IMAGE, "x" * n), prints(IMAGE, "x" * n))
    assert tried == [1, 2, 3, 4, 5, 9, 17]
    assert "print" in compiled.explain(IMAGE, "x" * 12)
    for n in range(18, 33):
        compiled(IMAGE, "x" * n)
    same(compiled(IMAGE, "well"), prints(IMAGE, "well"))  # one more is tried, and is compiled
    same(compiled(IMAGE, "x"), prints(IMAGE, "x"))
    assert tried[7:] == [4] and compiled.stats.traces == 1


def calls_itself(a: Any, again: bool = True) -> Any:
    b = np.sqrt(a)
    if again:
        return calls_itself(b, False) + np.unique(b).size
    return b * 2 + np.unique(b).size


def makes_slices(a: Any) -> Any:
    steps = np.round(np.sqrt(a)).astype(int)
    return tuple(slice(x, None, y) for x, y in zip(steps, steps + 1, strict=True))


@pytest.mark.parametrize(("f", "a"), [(calls_itself, IMAGE), (makes_slices, np.array([4.0, 9.0]))])
def test_names_and_slices(f: Callable[..., Any], a: Any) -> None:
    compiled = hjit.pipeline(f)
    for _ in range(3):
        got, expected = compiled(a), f(a)
        if f is makes_slices:
            assert got == expected
        else:
            same(got, expected)


def test_a_closure_that_calls_itself() -> None:
    def again(a: Any, n: int) -> Any:
        b = np.sqrt(a) * np.unique(a).size
        return b if n == 0 else again(b, n - 1)

    same(hjit.pipeline(again)(IMAGE, 2), again(IMAGE, 2))


def test_a_part_calls_an_inner_function_that_calls_itself() -> None:
    def f(a: Any) -> Any:
        values = np.unique(a)

        def again(x: Any, n: int) -> Any:
            return x if n == 0 else again(np.sqrt(x + n), n - 1)

        b = again(a * 2, 3)
        return b + values.size

    compiled = hjit.pipeline(f)
    same(compiled(IMAGE), f(IMAGE))
    assert "ecursion" not in compiled.explain(IMAGE)  # the closure of `again` holds itself


def test_what_numpy_refuses_in_a_part_without_results_is_refused_at_the_first_call() -> None:
    def f(a: Any, b: Any, n: Any) -> Any:
        unused = (b * n) ^ n  # noqa: F841 - NumPy computes it
        xs = a.astype(object)
        del xs
        return a * 2

    pipe = hjit.pipeline(f, cache="off", num_threads=1, verify="off", on_unsupported="break")
    for shape in ((2, 1), (1, 1)):
        a, b = np.ones(shape), np.ones((1, 2), np.int16)
        np.testing.assert_array_equal(pipe(a, b, -2), a * 2)
        with pytest.raises(OverflowError):
            pipe(a, b[:, : shape[0]].copy(), 2**31)


def test_explain_shows_statements_as_they_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    def f(a: Any) -> Any:
        b = a * 2
        print("mean", b.mean())
        return np.sqrt(b)

    g = hjit.pipeline(f)
    g(np.ones((30, 40)))
    assert "Python: print('mean', b.mean())" in g.explain(np.ones((30, 40)))


def test_what_parts_define_has_its_qualified_names() -> None:
    def f(a: Any) -> Any:
        b = np.sqrt(a) * 2
        n = np.unique(b).size

        class Kept:
            pass

        return Kept, lambda: n, b * n

    p = hjit.pipeline(f)
    for _ in range(3):
        assert [x.__qualname__ for x in p(IMAGE)[:2]] == [x.__qualname__ for x in f(IMAGE)[:2]]
    assert p.stats.parts
