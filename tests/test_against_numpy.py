"""Kernels that are slower than NumPy: found while they are used, by a clock of the tests."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.checks import against_numpy
from hjit.call.checks.against_numpy import MAX_ROUNDS, MIN_SECONDS, PAIRS, SHORT_PAIRS, InterleavedCalls, Medians

CALLS = 2 * PAIRS + 2  # that are timed


class Clock:
    """A clock that moves on while something runs: by `compiled` or `plain` seconds, as `hjit.call.checks.against_numpy.InterleavedCalls` has calls run."""

    def __init__(self, compiled: Callable[[int], float], plain: Callable[[int], float]) -> None:
        self.now, self._steps = 0.0, self._next(compiled, plain)

    def _next(self, compiled: Callable[[int], float], plain: Callable[[int], float]) -> Iterator[float]:
        yield from (0.0, compiled(0), plain(0))  # the first comparison
        for k in range(10**6):
            yield from (0.0, (plain if (k + 1) // 2 % 2 else compiled)(k // 2 + 1))

    def __call__(self) -> float:
        self.now += next(self._steps)
        return self.now


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what calls take by the clock: seconds, or what gives them for the n-th pair."""
    monkeypatch.setenv("HJIT_NUMPY_IF_FASTER", "1")

    def set_times(compiled: Any, plain: Any) -> None:
        monkeypatch.setattr(
            against_numpy, "clock", Clock(*(x if callable(x) else (lambda n, x=x: x) for x in (compiled, plain)))
        )

    return set_times


def timed(f: Any) -> list[Any]:
    """The keys of which calls are timed."""
    return [e for e in f._entries.values() if e.timing is not None]


def half(a: Any) -> Any:
    return a / 2 + 1


A = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


def called(f: Any, a: Any, times: int) -> None:
    for _ in range(times):
        np.testing.assert_array_equal(f(a), half(a))


def test_what_is_slower_runs_plain(times: Any, caplog: pytest.LogCaptureFixture) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(half)
    with caplog.at_level(logging.INFO, "hjit"):
        called(f, A, 1 + CALLS - 1)
        assert f.stats.slower == 0 and "timed against NumPy" in f.explain(A)
        called(f, A, 1)
    assert f.stats.slower == 1 and f.stats.verified is True
    for text in (f.explain(A), caplog.text):
        assert "3 ms" in text and "2 ms" in text and "plain NumPy" in text
    assert "numpy_if_faster=False" in f.explain(A) and "f.use" in f.explain(A)
    before = f.stats.fallbacks
    called(f, A, 5)
    assert f.stats.fallbacks == before + 5


@pytest.mark.parametrize(
    ("compiled", "plain"), [(1e-3, 2e-3), (2.1e-3, 2e-3), (2e-3, 2e-3), (MIN_SECONDS / 2, MIN_SECONDS / 4)]
)
def test_what_is_not_clearly_slower_stays_compiled(times: Any, compiled: float, plain: float) -> None:
    times(compiled, plain)
    f = hjit.pipeline(half)
    called(f, A, 200)
    assert f.stats.slower == 0 and f.explain(A).startswith("half runs compiled: 1 kernel\nA call takes ")
    before = f.stats.fallbacks
    called(f, A, 5)
    assert f.stats.fallbacks == before
    assert all(e.fast is not None for e in f._entries.values())  # calls go the hot path again


def test_a_much_faster_kernel_is_not_timed(times: Any) -> None:
    times(1e-3, 20e-3)
    f = hjit.pipeline(half)
    called(f, A, 5)
    assert f.stats.fallbacks == 0 and not timed(f)


def test_timing_ends_early_where_a_warm_kernel_is_much_faster(times: Any) -> None:
    times(lambda n: 1e-3 if n else 30e-3, 10e-3)
    f = hjit.pipeline(half)
    called(f, A, 6)
    assert f.stats.fallbacks == 2 and not timed(f)


def test_one_slow_call_of_numpy_does_not_end_the_timing(times: Any) -> None:
    times(3e-3, lambda n: 50e-3 if n == 1 else 2e-3)
    f = hjit.pipeline(half)
    called(f, A, 1 + CALLS)
    assert f.stats.slower == 1


def test_noise_does_not_decide(times: Any) -> None:
    times(lambda n: 50e-3 if n % 3 == 0 else 1.9e-3, 2e-3)
    f = hjit.pipeline(half)
    called(f, A, 50)
    assert f.stats.slower == 0 and not timed(f)


def test_what_is_slower_as_a_rule_runs_plain(times: Any) -> None:
    times(lambda n: 1.9e-3 if n % 5 < 2 else 2.4e-3, 2e-3)  # in two of five pairs it is faster
    f = hjit.pipeline(half)
    called(f, A, CALLS + 1)
    assert f.stats.slower == 0 and timed(f)
    called(f, A, 2 * (MAX_ROUNDS - 1) * PAIRS)
    assert f.stats.slower == 1 and f"medians of {(MAX_ROUNDS - 1) * PAIRS} pairs" in f.explain(A)


@pytest.mark.parametrize("args", [(A,), (A, 2.0), (A, None, 2.0)])
def test_calls_that_numpy_runs_are_recognised(times: Any, args: Any) -> None:
    times(3e-3, 2e-3)

    def function(a: Any, b: Any = 1.0, c: Any = None) -> Any:
        return a * (1.0 if b is None else b) + (0 if c is None else c)

    f = hjit.pipeline(function, numpy_if_faster=True)
    for _ in range(CALLS + 12):
        np.testing.assert_array_equal(f(*args), function(*args))
    assert f.stats.slower == 1 and f._is_plain_again is not None
    before = f.stats.fallbacks, f.stats.calls
    np.testing.assert_array_equal(f(*args), function(*args))
    assert (f.stats.fallbacks, f.stats.calls) == (before[0] + 1, before[1] + 1)
    for others in ((A.astype(np.float64), *args[1:]), (A[:2], *args[1:]), (A, "2"[:0] or 3), (1.5, *args[1:])):
        assert not (len(others) == len(args) and f._is_plain_again[1](*others))
        np.testing.assert_array_equal(f(*others), function(*others))
    with hjit.options(budget=9.0):
        assert not f._is_plain_again[1](*args)
    f.use(None)
    assert f._is_plain_again is None


def test_other_keys_are_timed_once_one_was_slower(times: Any) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(half)
    called(f, A, 1 + CALLS)
    b = A[:2].copy()
    called(f, b, 1)
    assert "timed against NumPy" in f.explain(b)
    f.use(None)
    assert "call it" in f.explain(A) and not timed(f)


def test_keys_that_are_timed_are_a_bounded_number(times: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against_numpy, "MAX_TIMED", 2)
    times(3e-3, 2e-3)
    f = hjit.pipeline(half)
    called(f, A, 1 + CALLS)
    for n in (20, 21, 22, 23):
        called(f, np.arange(30.0 * n).reshape(n, 30), 1)
    assert len(timed(f)) == 2
    assert sum(e.fast is None for e in f._entries.values() if e.plain is None) == 2


@pytest.mark.parametrize("options", [{"numpy_if_faster": False}, {"verify": "off"}])
def test_options(times: Any, options: dict[str, Any]) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(half, **options)
    called(f, A, 30)
    assert f.stats.fallbacks == 0


def test_schedules_by_hand_are_the_users_choice(times: Any) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(half)
    f.use(f.schedule(A))
    called(f, A, 30)
    assert f.stats.fallbacks == 0


def test_effects_happen_once_a_call(times: Any) -> None:
    times(3e-3, 2e-3)

    def counting(a: Any) -> Any:
        a += 1
        warnings.warn("called", stacklevel=1)
        return a * 2

    f, a = hjit.pipeline(counting), np.arange(12.0)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for n in range(1, 30):
            np.testing.assert_array_equal(f(a), (np.arange(12.0) + n) * 2)
            np.testing.assert_array_equal(a, np.arange(12.0) + n)
            assert len(given) == n
    assert f.stats.slower == 1


def test_calls_into_arrays_are_not_timed(times: Any) -> None:
    times(3e-3, 2e-3)
    f, out = hjit.pipeline(half), np.empty_like(A)
    for _ in range(30):
        np.testing.assert_array_equal(f.into(out, A), half(A))
    assert f.stats.fallbacks == 0


def test_numbers_of_the_call_may_choose_another_variant(times: Any) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(lambda a, n: a * n if n > 2 else a + n)
    for k in range(30):
        n = 3 if k % 3 else 1
        np.testing.assert_array_equal(f(A, n), A * n if n > 2 else A + n)


def test_exceptions_leave_it_as_it_was(times: Any) -> None:
    times(3e-3, 2e-3)

    def checked(a: Any, n: int) -> Any:
        if n > 100:
            raise ValueError(n)
        return a + n

    f = hjit.pipeline(checked, on_unsupported="numpy")
    for k in range(40):
        if k % 3 == 2:
            with pytest.raises(ValueError, match="101"):
                f(A, 101)
        else:
            np.testing.assert_array_equal(f(A, 1), A + 1)


def test_threads(times: Any) -> None:
    times(3e-3, 2e-3)
    f = hjit.pipeline(half)
    called(f, A, 1)
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            called(f, A, 40)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong and not timed(f)


def test_calls_beside_which_others_run_do_not_count() -> None:
    def plain() -> None:
        pytest.fail("the first call that counts runs compiled")

    variant: Any = None
    calls = InterleavedCalls(variant)
    for _ in range(100):
        if calls.is_over:
            break
        calls.run(lambda: calls.run(lambda: 1, plain), plain)
    assert calls.is_over and calls.medians() is None


def test_verdicts() -> None:
    assert Medians(3e-3, 2e-3, 1.5, 1.2, PAIRS).is_slower
    assert not Medians(3e-3, 2e-3, 1.5, 0.9, PAIRS).is_slower
    assert not Medians(3e-3, 2e-3, 1.05, 1.04, PAIRS).is_slower
    assert not Medians(3 * MIN_SECONDS, MIN_SECONDS / 2, 1.5, 1.2, PAIRS).is_slower
    assert Medians(4 * MIN_SECONDS, MIN_SECONDS / 2, 8.0, 6.0, PAIRS).is_slower, "that is not the clock"


def test_calls_of_less_than_the_clock_tells_run_plain_where_they_are_far_slower(times: Any) -> None:
    times(8 * MIN_SECONDS, MIN_SECONDS / 2)
    f = hjit.pipeline(half)
    called(f, A, 4 * SHORT_PAIRS)
    assert f.stats.slower == 1


def test_functions_that_draw_random_numbers_are_timed_and_draw_the_same_ones(times: Any) -> None:
    def shuffled(a: Any) -> Any:
        return np.random.permutation(a) * 2.0

    times(3e-3, 2e-3)
    f = hjit.pipeline(shuffled)
    for seed in range(3):
        np.random.seed(seed)
        found = [f(A) for _ in range(CALLS)]
        np.random.seed(seed)
        for x in found:
            np.testing.assert_array_equal(x, shuffled(A))
    assert f.stats.slower == 1 and f.stats.fallbacks > CALLS


def test_of_short_calls_more_pairs_decide(times: Any) -> None:
    times(18e-6, 9e-6)
    f = hjit.pipeline(half)
    called(f, A, CALLS + 1)
    assert f.stats.slower == 0 and "timed against NumPy" in f.explain(A)
    called(f, A, 2 * (SHORT_PAIRS - PAIRS))
    assert f.stats.slower == 1 and f"medians of {SHORT_PAIRS} pairs" in f.explain(A)


def test_functions_that_make_calls_are_timed_even_if_numpy_was_slow_at_first(times: Any) -> None:
    times(3e-3, lambda n: 2e-3 if n else 1.0)  # its first call loads a library, say
    f = hjit.pipeline(lambda a: np.linalg.inv(a * 2 + np.eye(4)) + 1)
    for _ in range(1 + CALLS):
        f(np.arange(16.0).reshape(4, 4))
    assert f.stats.slower == 1 and f.stats.verified is True
