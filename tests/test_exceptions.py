"""Exceptions that a function handles: whether there is one is found out anew at every call."""

from __future__ import annotations

import contextlib
import math
import traceback
from typing import Any

import numpy as np
import pytest
import scipy.special

import hjit
from hjit.call.function_state import FunctionState

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

REGULAR = np.random.default_rng(0).random((6, 6)) + np.eye(6) * 4
SINGULAR = np.zeros((6, 6))
SIDE = np.arange(6.0)


def outcome(f: Any, args: Any) -> Any:
    """A result, or an exception as its type and text."""
    try:
        return f(*(a.copy() if isinstance(a, np.ndarray) else a for a in args))
    except Exception as error:
        return type(error), str(error)


def checked(f: Any, calls: list[tuple[Any, ...]], traces: int | None = None, **options: Any) -> Any:
    """Compare the pipeline with the function over calls in this order."""
    p = hjit.pipeline(f, **options)
    for args in calls:
        ours, expected = outcome(p, args), outcome(f, args)
        assert type(ours) is type(expected)
        np.testing.assert_equal(ours, expected)
    if traces is not None:
        assert (p.stats.traces, p.stats.fallbacks) == (traces, 0)
    return p


def solved(a: Any, b: Any) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.full(b.shape, np.nan)


@pytest.mark.parametrize("first", [SINGULAR, REGULAR])
def test_whether_an_extern_call_raises_is_a_decision(first: Any) -> None:
    checked(solved, [(first, SIDE), *[(a, SIDE) for a in (REGULAR, SINGULAR, REGULAR, SINGULAR)]], traces=2)


def test_extern_calls_in_a_row_that_raise() -> None:
    def f(a: Any, b: Any) -> Any:
        found = 0.0
        for k, x in enumerate((a * 2, b + 0, a @ b)):
            try:
                found = found + np.linalg.inv(x) * k
            except np.linalg.LinAlgError:
                found = found + k * 10
        return found

    p = hjit.pipeline(f)
    for _ in range(2):
        for args in ((REGULAR, REGULAR), (REGULAR, SINGULAR), (SINGULAR, REGULAR), (SINGULAR, SINGULAR)):
            np.testing.assert_allclose(p(*args), f(*args), atol=1e-12)
    assert (p.stats.traces, p.stats.fallbacks) == (4, 0)


def test_what_the_handler_sees_is_of_this_call() -> None:
    def f(a: Any) -> Any:
        try:
            return np.linalg.cholesky(a), ""
        except np.linalg.LinAlgError as error:
            return a + 1, str(error)

    p = hjit.pipeline(f)
    for a in (REGULAR @ REGULAR.T, -REGULAR, REGULAR @ REGULAR.T, -REGULAR, REGULAR[:5]):
        ours, expected = outcome(p, (a,)), outcome(f, (a,))
        assert ours[1] == expected[1]
        if len(a) == 6:
            np.testing.assert_array_equal(ours[0], expected[0])


def test_an_exception_that_is_not_handled_is_raised_again_and_again() -> None:
    checked(
        lambda a, b: np.linalg.solve(a, b) + 1,
        [(SINGULAR, SIDE), (REGULAR, SIDE), (SINGULAR, SIDE), (SINGULAR, SIDE), (REGULAR, SIDE)],
    )


def test_clean_up_and_another_exception() -> None:
    def f(a: Any) -> Any:
        try:
            np.linalg.inv(a)
        except np.linalg.LinAlgError as error:
            raise ValueError("no inverse") from error
        else:
            a += 1
        finally:
            a *= 2
        return a

    p = hjit.pipeline(f)
    for a in (SINGULAR, REGULAR, SINGULAR, REGULAR):
        assert repr(outcome(p, (a,))) == repr(outcome(f, (a,)))


@pytest.mark.parametrize(
    ("f", "numbers"),
    [
        (lambda a, n: a * 1 / n, (0, 2.0)),
        (lambda a, n: a * (1 / n), (0, 2, 4)),
        (lambda a, n: a * (5 % n), (0, 2)),
        (lambda a, n: a * math.sqrt(n), (-1.0, 4.0)),
        (lambda a, n: a * math.log(n), (0, 4)),
        (lambda a, n: a * 10.0**n, (400, 2)),
        (lambda a, n: a * (1 << n), (-1, 2)),
        (lambda a, n: a.astype(np.uint8) + n, (300, 4)),
        (lambda a, n: a * (7 if n else 8) ** np.array([1, 2, 3])[n], (9, 2)),
        (lambda a, n: a[n], (9, 2)),
    ],
)
def test_exceptions_of_numbers(f: Any, numbers: tuple[Any, ...]) -> None:
    def handled(a: Any, n: Any) -> Any:
        try:
            return f(a, n)
        except (ArithmeticError, ValueError, IndexError):
            return a - 7

    for order in (numbers, numbers[::-1]):
        checked(handled, [(SIDE, n) for n in (*order, *order)])


def test_a_float_of_the_image_that_divides() -> None:
    def f(a: Any) -> Any:
        try:
            return a * (1.0 / float(a.max()))
        except ZeroDivisionError:
            return a - 1

    for order in ((SIDE, SIDE * 0), (SIDE * 0, SIDE)):
        checked(f, [(a,) for a in (*order, *order)])


def test_a_bad_index_that_shows_late() -> None:
    def f(a: Any, index: Any) -> Any:
        try:
            found = a[index]
        except IndexError:
            return a - 1
        try:
            return found * 2 if found.max() < 100 else found
        except IndexError:
            return a - 2

    good, bad = np.array([1, 2]), np.array([1, 20])
    for order in ((good, bad), (bad, good)):
        checked(f, [(SIDE, index) for index in (*order, *order)])
    with pytest.raises(IndexError, match="out of bounds"):
        hjit.pipeline(f).graph(SIDE, bad)


GOOD, BAD = np.array([1, 2, 3, 0, 2, 1]), np.array([1, -2, 3, 0, 2, 9])
TABLE = np.arange(5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: TABLE[x],
        lambda x: (TABLE[x], x)[1],  # what is read is not needed, wholly or in part
        lambda x: TABLE[x][0],
        lambda x: np.take(TABLE, x)[:2],
        lambda x: np.take_along_axis(TABLE, x, 0)[1],
        lambda x: (np.add.at(np.zeros(6), x, 1), x)[1],
        lambda x: (np.put_along_axis(np.zeros(6), x, 1.0, 0), x)[1],
        lambda x: np.unravel_index(x, (2, 4))[1],
        lambda x: np.ravel_multi_index((x, x), (4, 4)),
        lambda x: np.choose(x, [TABLE[0] * 0 + k for k in range(4)]),
        lambda x: np.bincount(x, minlength=12),
        lambda x: np.array([2, 3, 4, 5, 6, 7]) ** x,
        lambda x: 2**x,
        lambda x: np.power(x, x)[0],
        lambda x: np.repeat(np.arange(6), x),
    ],
    ids=range(15),
)
def test_values_that_numpy_refuses(f: Any) -> None:
    def handled(x: Any) -> Any:
        try:
            return f(x)
        except (ValueError, IndexError) as error:
            return x - 1, str(error)

    for order in ((GOOD, BAD), (BAD, GOOD)):
        checked(handled, [(x,) for x in (*order, *order)])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.unravel_index(x, (2, 4))[1],
        lambda x: np.array([2, 3, 4, 5, 6, 7]) ** x,
        lambda x: x**x,
        lambda x: (x + 1) ** int(x[1]),
        lambda x: np.power(x, x, where=x > 5, out=x * 0),
    ],
    ids=range(5),
)
def test_values_that_numpy_refuses_and_nobody_handles(f: Any) -> None:
    for order in ((GOOD, BAD), (BAD, GOOD)):
        p = hjit.pipeline(f)
        for x in (*order, *order):
            ours, expected = outcome(p, (x,)), outcome(f, (x,))
            assert type(ours) is type(expected)
            np.testing.assert_equal(ours, expected)


def test_powers_of_integers_by_a_number() -> None:
    checked(lambda x, n: x**n, [(GOOD, n) for n in (2, 3, -1, 2, -2)])


@pytest.mark.parametrize(
    "f",
    [
        lambda a: float(a.max()) ** 400.0,
        lambda a: float(a.max()) ** -1,
        lambda a: float(a.min()) ** 0.5,
        lambda a: 2.0 ** float(a.max()),
        lambda a: a * float(a.max()) ** float(a.min()),
    ],
)
def test_powers_of_floats_of_the_image(f: Any) -> None:
    def handled(a: Any) -> Any:
        try:
            return f(a)
        except ArithmeticError as error:
            return a - 1, str(error)

    calls = [(a,) for _ in range(2) for a in (SIDE + 1, SIDE * 1000, SIDE * 0, -SIDE, SIDE + 1)]
    p, q = hjit.pipeline(f), hjit.pipeline(handled)
    for pipeline in (p, q):
        for args in calls:
            ours, expected = outcome(pipeline, args), outcome(pipeline.py_func, args)
            assert type(ours) is type(expected)
            if isinstance(expected, tuple):
                assert repr(ours) == repr(expected)
            else:
                np.testing.assert_allclose(ours, expected, rtol=1e-15)


def test_suppressed_exceptions() -> None:
    def f(x: Any) -> Any:
        out = x + 1
        with contextlib.suppress(IndexError):
            TABLE[x]
            out = x * 2
        return out

    for order in ((GOOD, BAD), (BAD, GOOD)):
        checked(f, [(x,) for x in (*order, *order)])


class Ends:
    """A context manager that ends all exceptions."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


@pytest.mark.parametrize("block", [lambda: contextlib.suppress(ValueError), Ends])
def test_names_that_a_suppressed_exception_leaves_unset(block: Any) -> None:
    """What comes before the first use of one is done."""

    def f(a: Any, n: int) -> Any:
        with block():
            found = np.unique(a)
            b = (a + len(found)).reshape(n, -1)
        a[0] = 5
        return b * 2 + a.sum()

    p = hjit.pipeline(f, on_unsupported="break")
    for n in (3, 5, 4, 5):
        ours, expected = np.arange(12.0), np.arange(12.0)
        if n == 5:
            with pytest.raises(UnboundLocalError, match="local variable 'b'"):
                p(ours, n)
            with pytest.raises(UnboundLocalError, match="local variable 'b'"):
                f(expected, n)
        else:
            np.testing.assert_array_equal(p(ours, n), f(expected, n))
        np.testing.assert_array_equal(ours, expected)


def test_a_refusal_that_the_function_handles_is_still_one() -> None:
    def f(a: Any) -> Any:
        try:
            return np.unique(a)
        except Exception:
            return a

    with pytest.raises(hjit.TraceError, match="numpy.unique"):
        hjit.pipeline(f)(SIDE)


def test_random_numbers_are_drawn_once_whatever_is_raised() -> None:
    stream = np.random.default_rng(3)

    def f(a: Any, index: Any) -> Any:
        noise = stream.normal(size=a.shape[0])
        try:
            noise = noise + np.linalg.solve(a, noise)
        except np.linalg.LinAlgError:
            noise = noise * 2
        return noise[index] + stream.random()

    good, bad = np.arange(6), np.arange(6) + 3
    calls = [(REGULAR, good), (SINGULAR, good), (REGULAR, bad), (REGULAR, good), (SINGULAR, bad), (SINGULAR, good)]
    for start in range(len(calls)):
        p = hjit.pipeline(f)
        results = []
        for function in (p, f):
            stream.bit_generator.state = np.random.default_rng(3).bit_generator.state
            results.append([outcome(function, args) for args in (*calls[start:], *calls[:start])])
        np.testing.assert_equal(*results)


def test_an_unknown_ufunc_that_raises() -> None:
    def f(a: Any) -> Any:
        with scipy.special.errstate(domain="raise"):
            try:
                return scipy.special.xlogy(a, a)
            except scipy.special.SpecialFunctionError:
                return a

    checked(f, [(SIDE,), (-SIDE,)])


def roots(a: Any) -> Any:
    before = np.seterr(all="raise")
    try:
        return np.sqrt(a) * 2
    except FloatingPointError:
        return None
    finally:
        np.seterr(**before)


def test_errors_of_floats_that_are_to_raise() -> None:
    def f(a: Any) -> Any:
        return np.sqrt(a) / a

    p = hjit.pipeline(f)
    for args in ((SIDE + 1,), (SIDE,), (-SIDE - 1,)):
        for settings in ({"all": "ignore"}, {"all": "raise"}, {"divide": "raise", "invalid": "ignore"}):
            with np.errstate(**settings):
                ours, expected = outcome(p, args), outcome(f, args)
            np.testing.assert_equal(ours, expected)
    with np.errstate(all="raise"):
        assert "np.errstate" in p.explain(SIDE)
    assert "runs compiled" in p.explain(SIDE)
    checked(roots, [(SIDE,), (-SIDE,), (SIDE,)], on_unsupported="break")


def test_warnings_of_floats_that_a_function_asks_for() -> None:
    def f(a: Any) -> Any:
        b = np.sqrt(a) * 2
        with np.errstate(divide="warn"):
            c = 1 / b
        return c * 2

    p = hjit.pipeline(f, on_unsupported="break")
    for outside in ("ignore", "warn", "ignore"):
        with np.errstate(all=outside), pytest.warns(RuntimeWarning, match="divide by zero"):
            np.testing.assert_array_equal(p(SIDE * 0), SIDE + np.inf)
    assert p.stats.parts > 1


def maximum(a: Any) -> Any:
    return a.max()


def doubled(a: Any) -> Any:
    a *= 2
    return a


def too_large(a: Any) -> Any:
    a[1:3] = 300
    return a


def regrouped(a: Any) -> Any:
    return (np.sqrt(a) + 1).reshape(7)


def outside(a: Any) -> Any:
    return a[5]


def read_only(a: Any) -> Any:
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("function", "image"),
    [
        (maximum, np.ones(0)),
        (doubled, read_only(np.ones(9))),
        (too_large, np.zeros(9, np.uint8)),
        (regrouped, np.ones(9)),
        (outside, np.ones(3)),
    ],
)
def test_a_function_that_raises_at_each_call_is_not_traced_at_each(
    function: Any, image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    build = FunctionState.build

    def counted(*args: Any, **more: Any) -> Any:
        tries.append(1)
        return build(*args, **more)

    monkeypatch.setattr(FunctionState, "build", counted)
    p = hjit.pipeline(function, on_unsupported="break").quiet()
    expected = [type(error) for error in (outcome_of(function, image) for _ in range(12))]
    assert [type(outcome_of(p, image)) for _ in range(12)] == expected
    assert len(tries) <= 4  # of the whole, and of parts


def outcome_of(f: Any, image: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        f(image)
    return caught.value


def refuses_large(a: Any) -> Any:
    if a.max() > 1:
        raise ValueError("too large")
    return np.sqrt(a) * 2


def test_a_function_that_no_longer_raises_is_compiled() -> None:
    p = hjit.pipeline(refuses_large, on_unsupported="break").quiet()
    small, large = np.full((4, 5), 0.5), np.full((4, 5), 2.0)
    for image in (large, large, large, small, small, large, small):
        assert str(outcome(p, (image,))) == str(outcome(refuses_large, (image,)))
    assert p.stats.traces
    before = p.stats.fallbacks
    np.testing.assert_array_equal(p(small), refuses_large(small))
    assert p.stats.fallbacks == before


def element_of(a: Any, k: Any) -> Any:
    a[1, 1] = k
    return a


def element_at_a_computed_place(a: Any, k: Any) -> Any:
    a[TABLE[a[0, 1].astype(int)], 1] = k
    return a


def row_of(a: Any, k: Any) -> Any:
    a[1] = k
    return a


def array_of_one(a: Any, k: Any) -> Any:
    a[..., 1, 1] = k
    return a


def filled_with(a: Any, k: Any) -> Any:
    a.fill(k)
    return a


@pytest.mark.parametrize("f", [element_of, element_at_a_computed_place, row_of, array_of_one, filled_with])
@pytest.mark.parametrize("verify", ["first", "off"])
def test_lists_that_do_not_fit_where_numbers_do(f: Any, verify: str) -> None:
    a = np.arange(12.0).reshape(3, 4)
    values = (np.float64(1), [5.0], 2.0, [[5.0]], np.ones(1), np.ones((1, 1)), (3,), [], np.array(4.0))
    checked(f, [(a, k) for k in values], verify=verify, on_unsupported="break")


@pytest.mark.parametrize(
    "f",
    [
        lambda a: (np.full((2, 3), (2, 3)), np.full_like(a, (2, 3))),
        lambda a: np.full_like(a, (2, 3)),
        lambda a: np.full((2, 3), a),
        lambda a: np.full((3, 4), [[[1.0, 2.0, 3.0, 4.0]]]) + a,
        lambda a: np.round(a, 1.5),
        lambda a: np.round(a, np.float64(1)),
        lambda a: a.round(2**40),
    ],
    ids=range(7),
)
def test_what_is_wrong_with_an_argument_is_said_as_numpy_does(f: Any) -> None:
    checked(f, [(np.arange(12.0).reshape(3, 4),)] * 2, verify="off", on_unsupported="break")


class OwnError(Exception):
    pass


def refuses(img: Any, k: int) -> Any:
    match k:
        case 0:
            raise OwnError("one")
        case 1:
            raise OwnError("two") from ValueError("cause")
        case 2:
            try:
                raise KeyError("first")
            except KeyError:
                raise OwnError("second")  # noqa: B904
        case 3:
            return img @ np.ones(7)
        case 4:
            return np.sort(img[img > 0.5]) + np.ones(3)
        case _:
            return img[100]


def chain(error: BaseException | None) -> list[Any]:
    """The exception, its cause and its context, and theirs."""
    if error is None:
        return []
    return [type(error), str(error), error.__suppress_context__, chain(error.__cause__), chain(error.__context__)]


def raised(f: Any, *args: Any) -> BaseException:
    try:
        f(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing raised")


@pytest.mark.parametrize("on_unsupported", ["break", "numpy", "raise"])
@pytest.mark.parametrize("k", range(6))
def test_exceptions_have_the_cause_and_the_context_that_they_have_without_hjit(k: int, on_unsupported: Any) -> None:
    p = hjit.pipeline(refuses, on_unsupported=on_unsupported).quiet()
    img = np.random.default_rng(0).random((10, 12))
    for _ in range(3):
        error = raised(p, img, k)
        if not isinstance(error, hjit.TraceError):
            assert chain(error) == chain(raised(refuses, img, k))


@pytest.mark.parametrize("on_unsupported", ["break", "numpy", "raise"])
@pytest.mark.parametrize("k", range(6))
def test_tracebacks_show_the_call_and_the_users_lines(
    k: int, on_unsupported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HJIT_CHECK")
    p = hjit.pipeline(refuses, on_unsupported=on_unsupported).quiet()
    for _ in range(3):
        frames = traceback.extract_tb(raised(p, np.random.default_rng(0).random((10, 12)), k).__traceback__)
        names = [f.name for f in frames]
        assert names[0] == "raised" and names.index("refuses") <= 4
        assert names.count("refuses") == 1 or on_unsupported == "break"  # and that of a part
        assert set(names[names.index("refuses") :]) == {"refuses"}


def test_the_traceback_of_what_cannot_be_traced_ends_in_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        steps = np.round(img)
        return np.unique(steps)

    img = np.random.default_rng(0).random((10, 12))
    assert len(traceback.extract_tb(raised(hjit.pipeline(f), img).__traceback__)) > 10  # HJIT_CHECK=1
    monkeypatch.delenv("HJIT_CHECK")
    frames = traceback.extract_tb(raised(hjit.pipeline(f), img).__traceback__)
    assert len(frames) <= 5
    assert frames[-1].name == "f" and frames[-1].line == "return np.unique(steps)"
