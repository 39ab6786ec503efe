"""The first call of every kernel is compared with NumPy's own result."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.signal import convolve, convolve2d
from skimage.transform import probabilistic_hough_line

import hjit
from hjit import HjitWarning
from hjit.call.checks.first_calls import MAX_BLANKS, MAX_DOUBTS, MAX_PATHS
from hjit.call.variant import CompiledSegments, OneKernel, Variant
from hjit.kernels.lower.params import STREAMED
from hjit.kernels.runtime.kernel import Bound
from hjit.trace.ir.analysis.tolerances import EXACT, Tolerance
from hjit.verify import work
from hjit.verify.comparison import Comparison, is_exact
from hjit.verify.reference import Reference
from tests.inexact import fault, verified

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)
SINGLE = np.random.default_rng(0).random((300, 200), dtype=np.float32)
CLOSE = Tolerance(2.0**-52)


def plus_one(img: Any) -> Any:
    return img + 1


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compute something else, and none is there that an earlier process has compared."""
    monkeypatch.setenv("HJIT_CACHE", "off")
    run = Variant.run

    def wrong(self: Variant, *args: Any, **kwargs: Any) -> Any:
        return run(self, *args, **kwargs) + 1

    monkeypatch.setattr(Variant, "run", wrong)
    fast = OneKernel.run
    monkeypatch.setattr(OneKernel, "run", lambda self, leaves: fast(self, leaves) + 1)


def tolerances_of(variant: Variant) -> Any:
    """How the results may differ from NumPy's."""
    return variant.results.arranged(variant.tolerances(), lambda tolerance, *_: tolerance)[0]


def recorded(p: Any) -> list[Any]:
    """The calls of the plain function, from the moment when the pipeline has been built for them."""
    calls: list[Any] = []
    build, plain = p._state.build, p.py_func

    def watched(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return plain(*args, **kwargs)

    def built(request: Any) -> Any:
        p.py_func = plain
        try:
            return build(replace(request, function=plain))
        finally:
            p.py_func = watched

    p._state.build = built
    return calls


def test_the_first_result_is_numpys() -> None:
    p = hjit.pipeline(plus_one, cache="off")  # where another process may have left its verdict
    calls = recorded(p)
    assert p.stats.verified is None
    result = p(IMAGE)
    assert p.stats.verified is True
    np.testing.assert_array_equal(result, plus_one(IMAGE))
    assert len(calls) == 1 and calls[0][0] is IMAGE


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(plus_one)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            np.testing.assert_array_equal(p(IMAGE), IMAGE + 1)
    assert len(seen) == 1
    assert seen[0].category is HjitWarning
    assert seen[0].filename == __file__
    text = str(seen[0].message)
    assert "plus_one" in text
    assert "[0, 0]" in text
    assert p.stats.verified is False
    assert p.stats.fallbacks == 3


def scaled(img: Any) -> Any:
    return (img - img.mean(0)) / img.std(0)


def numpys_roundings() -> Any:
    """A blank image of which NumPy's roundings leave something, as its sums are less exact than hjit's."""
    blank = np.full((500, 40), 0.1, np.float32)
    with np.errstate(all="ignore"):
        assert not np.isnan(scaled(blank)).all()
    return blank


def test_a_blank_image_decides_nothing_where_values_cancel() -> None:
    p = hjit.pipeline(scaled, cache="off")
    blank = numpys_roundings()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        np.testing.assert_array_equal(p(blank), scaled(blank))
        assert p.stats.verified is None and p.stats.fallbacks == 1
        np.testing.assert_array_equal(p(SINGLE), scaled(SINGLE))
        assert p.stats.verified is True
        p(SINGLE)
    assert p.stats.fallbacks == 1


def test_a_wrong_kernel_does_not_pass_behind_a_blank_image(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(scaled, cache="off")
    blank = numpys_roundings()
    with warnings.catch_warnings(record=True) as seen, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        np.testing.assert_array_equal(p(blank), scaled(blank))
        assert p.stats.verified is None and not seen
        np.testing.assert_array_equal(p(SINGLE), scaled(SINGLE))
    assert p.stats.verified is False and len(seen) == 1


def halved_down(img: Any) -> Any:
    out = np.zeros_like(img)
    for y in range(1, img.shape[0]):
        out[y] = img[y] * 0.5 + out[y - 1] * 0.25
    return out


@pytest.mark.parametrize("blank", [np.zeros((30, 40)), np.full((30, 40), np.nan)], ids=["zeros", "NaNs"])
@pytest.mark.parametrize("f", [halved_down, lambda a: np.sqrt(a) * 2, lambda a: (a > 5, a.sum() > 1e9)])
def test_equal_results_of_one_value_decide_nothing(f: Any, blank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE", "off")
    p = hjit.pipeline(f)
    for _ in range(2):
        np.testing.assert_equal(p(blank), f(blank))
    assert p.entries[0].is_compared and p.entries[0].fast is None and p.stats.verified is True
    assert p.stats.traces == 1

    def change(result: Any) -> None:
        first = result[0] if isinstance(result, tuple) else result
        first[...] = ~first if first.dtype == bool else first + 1

    wrong_from_now_on(monkeypatch, change)
    img = 5 * np.random.default_rng(0).random(blank.shape) + 2
    with pytest.warns(HjitWarning, match="differs from NumPy's"):
        np.testing.assert_equal(p(img), f(img))
    assert p.stats.verified is False


def test_what_blank_images_tell_is_not_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HJIT_CACHE", "rw")
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    blank = np.zeros((30, 40))
    p = hjit.pipeline(plus_one)
    for _ in range(MAX_BLANKS):
        p(blank)
        assert p.entries[0].is_compared
    p(blank)
    assert not p.entries[0].is_compared  # there may be no other images

    def verdicts() -> list[Path]:
        return [x for x in tmp_path.rglob("*") if x.name.startswith("verdict_")]

    assert not verdicts()
    p = hjit.pipeline(plus_one)
    p(blank)
    assert not verdicts()
    p(np.random.default_rng(0).random((30, 40)))
    assert len(verdicts()) == 1 and not p.entries[0].is_compared


def test_elements_of_which_roundings_alone_are_left_are_told_in_the_end() -> None:
    p = hjit.pipeline(scaled, cache="off")
    blank = numpys_roundings()
    with warnings.catch_warnings(record=True) as seen, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        for _ in range(MAX_DOUBTS):
            p(blank)
            assert p.stats.flipped == 0 and not seen
        p(blank)
        p(blank)
    assert [x.category for x in seen] == [HjitWarning] and "differ from NumPy's by more than a rounding" in str(
        seen[0].message
    )
    assert 0 < p.stats.flipped <= blank.size and p.stats.verified is True


def test_roundings_of_a_blank_image_are_within_its_bounds() -> None:
    p = hjit.pipeline(lambda img: img - img.mean(0), cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert p(numpys_roundings()).any()
    assert p.stats.verified is True and p.stats.fallbacks == 0


def test_a_blank_image_is_held_to_the_bounds_of_its_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((7, 3), 1e-3))  # NumPy's are some 1e-6
    p = hjit.pipeline(lambda img: img - img.mean(0), cache="off")
    with pytest.warns(HjitWarning, match=r"the first at \[7, 3\]"):
        p(numpys_roundings())
    assert p.stats.verified is False


def test_a_kernel_that_is_wrong_by_more_than_roundings_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(lambda img: np.exp(img))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            np.testing.assert_array_equal(p(SINGLE), np.exp(SINGLE))
    assert len(seen) == 1 and p.stats.verified is False
    assert p.stats.fallbacks == 3


def test_where_bounds_are_not_known_the_next_calls_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    monkeypatch.setattr(work, "MAX_WORK", 0)
    p = hjit.pipeline(lambda img: np.exp(img), cache="off")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(MAX_DOUBTS):
            np.testing.assert_array_equal(p(SINGLE), np.exp(SINGLE))
            assert p.stats.verified is None and not seen
        for _ in range(2):
            np.testing.assert_array_equal(p(SINGLE), np.exp(SINGLE))
    assert len(seen) == 1 and p.stats.verified is False
    assert p.stats.fallbacks == MAX_DOUBTS + 2


def test_more_is_computed_for_a_comparison_after_each_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def marked(img: Any) -> Any:
        v = 1 - np.exp(gaussian_filter(img, 20) * np.float32(-1e-9))  # a rounding, or none
        return np.where(v <= 0, np.float32(1), v)

    monkeypatch.setattr(work, "MAX_WORK", 1_000_000)
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__(slice(9), np.float32(2.0**-24)))
    p = hjit.pipeline(marked, cache="off")
    verdicts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HjitWarning)
        for _ in range(MAX_DOUBTS + 1):
            p(SINGLE[:60, :70])
            verdicts.append(p.stats.verified)
    assert verdicts[0] is None and verdicts[-1] is True
    assert p.stats.flipped == 9 * 70


def test_a_kernel_whose_arguments_overlapped_at_first_is_verified_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(a: Any, b: Any) -> None:
        a += b

    run = Variant.run

    def changed(self: Variant, leaves: Any, *args: Any, **kwargs: Any) -> Any:
        run(self, leaves, *args, **kwargs)
        leaves[0][0, 0] += 1

    monkeypatch.setattr(Variant, "run", changed)
    p = hjit.pipeline(add, cache="off")
    whole = np.arange(600.0).reshape(30, 20)
    expected = whole.copy()
    add(expected[:20], expected[10:])
    p(whole[:20], whole[10:])
    np.testing.assert_array_equal(whole, expected)
    assert p.stats.verified is None
    a, b = IMAGE[:20, :20].copy(), np.ones((20, 20))
    with pytest.warns(HjitWarning, match="differs from NumPy's"):
        p(a, b)
    np.testing.assert_array_equal(a, IMAGE[:20, :20] + 1)


def test_functions_that_draw_random_numbers_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(img: Any, rng: Any) -> Any:
        return np.exp(img) + rng.normal(size=img.shape)

    def drawn() -> Any:
        return np.random.default_rng(5)

    p = hjit.pipeline(noisy, cache="off")
    np.testing.assert_array_equal(p(IMAGE, drawn()), noisy(IMAGE, drawn()))
    assert p.stats.verified is True and p.stats.fallbacks == 0
    mine, theirs = drawn(), drawn()
    for _ in range(3):
        np.testing.assert_allclose(p(IMAGE, mine), noisy(IMAGE, theirs), atol=1e-11)
    wrong_from_now_on(monkeypatch, add_one)
    q = hjit.pipeline(noisy, cache="off")
    with pytest.warns(HjitWarning, match="differs from NumPy's"):
        np.testing.assert_array_equal(q(IMAGE, drawn()), noisy(IMAGE, drawn()))


@pytest.mark.parametrize("is_wrong", [False, True])
def test_arrays_that_extern_functions_draw_at_random_are_not_compared(
    is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = itertools.count()
    call_extern = CompiledSegments.call_extern

    def random(self: CompiledSegments, *args: Any) -> Any:
        outcome, results = call_extern(self, *args)
        return outcome, [r + next(drawn) for r in results]

    monkeypatch.setattr(CompiledSegments, "call_extern", random)
    if is_wrong:
        wrong_from_now_on(monkeypatch, lambda result: result[1].__setitem__((7, 3), -1))
    p = hjit.pipeline(lambda a: (np.linalg.inv(a) + a, a * 2), cache="off")
    with pytest.warns(HjitWarning, match=r"the first at \[7, 3\]") if is_wrong else contextlib.nullcontext():
        p(np.random.default_rng(3).random((30, 30)))
    assert p.stats.verified is not is_wrong


@pytest.mark.parametrize("equal", [0, 1])
def test_an_extern_function_that_gives_other_numbers_each_time_is_a_break(
    equal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first `equal` runs after the trace give the same numbers, by chance, when NumPy's are others."""
    calls, call_extern = itertools.count(), CompiledSegments.call_extern

    def random(self: CompiledSegments, *args: Any) -> Any:
        outcome, results = call_extern(self, *args)
        return outcome if next(calls) < equal else ("value", None), results

    def f(a: Any) -> Any:
        lines = probabilistic_hough_line(a, threshold=1, line_length=2, line_gap=3, rng=7)
        a += 1
        return lines, a * 2

    monkeypatch.setattr(CompiledSegments, "call_extern", random)
    if equal:
        wrong_from_now_on(monkeypatch, lambda result: result[1].fill(7))
    p = hjit.pipeline(f, on_unsupported="break", cache="off")
    for _ in range(3):
        ours, numpys = (np.random.default_rng(3).integers(0, 2, (20, 20), np.uint8) for _ in range(2))
        np.testing.assert_equal(p(ours), f(numpys))
        np.testing.assert_array_equal(ours, numpys)
    assert p.stats.parts and p.stats.verified is None
    assert "it gives other results each time" in p.explain(ours)


def test_verify_off_trusts_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(plus_one, verify="off")
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE), IMAGE + 1 + 1)
    assert p.stats.verified is None


@pytest.mark.parametrize(("verify", "runs"), [("first", 1), ("off", 0)])
def test_the_function_runs_once_in_python_when_verifying(verify: str, runs: int) -> None:
    p = hjit.pipeline(plus_one, verify=verify, cache="off")
    calls = recorded(p)
    for _ in range(3):
        p(IMAGE)
    p(IMAGE[:30].copy())  # another size of a known kernel
    assert p.stats.calls == 4 and p.stats.traces == 2
    assert len(calls) == runs
    p(IMAGE.astype(np.float32))
    assert len(calls) == 2 * runs


def test_arguments_are_changed_once() -> None:
    def f(a: Any) -> Any:
        a += 1
        return a

    p = hjit.pipeline(f)
    for make in (np.zeros((20, 30)), np.zeros((20, 60))[:, ::2], np.zeros((30, 20)).T, np.zeros((20, 30))[::-1]):
        a = make.copy(order="K") if make.base is None else make
        for k in range(1, 4):
            assert p(a) is a
            assert (a == k).all()
    assert p.stats.verified is True
    assert p.stats.fallbacks == 0


def wrong_from_now_on(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """What kernels compute is changed."""
    run = Variant.run

    def changed(self: Variant, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        change(result)
        return result

    monkeypatch.setattr(Variant, "run", changed)


def add_one(result: Any) -> None:
    result += 1


def by_size(img: Any) -> Any:
    return img * 2 if img.max() > 5 else img * 3


@pytest.mark.parametrize(
    ("f", "first", "second"),
    [
        (plus_one, IMAGE, IMAGE.astype(np.float32)),
        (plus_one, IMAGE, IMAGE[:, ::2]),
        (by_size, IMAGE, IMAGE / 9),
    ],
    ids=["dtype", "layout", "branch"],
)
def test_every_kernel_is_verified(f: Any, first: Any, second: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(f, cache="off", tune=False)
    p(first)
    assert p.stats.verified is True
    wrong_from_now_on(monkeypatch, add_one)
    with pytest.warns(HjitWarning, match="differs from NumPy's"):
        np.testing.assert_array_equal(p(second), f(second))
    assert p.stats.verified is False
    np.testing.assert_array_equal(p(second), f(second))


def test_a_kernel_of_another_schedule_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(plus_one, cache="off", tune=False)
    p(IMAGE)
    s = p.schedule(IMAGE)
    s[s.stages[0]].vectorize("x", 2)
    wrong_from_now_on(monkeypatch, add_one)
    with pytest.warns(HjitWarning, match="differs from NumPy's"):
        np.testing.assert_array_equal(p.use(s)(IMAGE), plus_one(IMAGE))


def test_a_wrong_kernel_is_wrong_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(plus_one, cache="off", tune=False)
    with pytest.warns(HjitWarning):
        p(IMAGE)
    for part in (IMAGE[:30].copy(), IMAGE[:25].copy()):
        np.testing.assert_array_equal(p(part), plus_one(part))


def test_results_that_are_written_past_the_caches_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    img = np.zeros((1800, 1800))
    assert img.nbytes >= STREAMED
    p = hjit.pipeline(plus_one, cache="off", tune=False)
    p(img)
    run = Bound.run

    def wrong(self: Any, arrays: Any, outputs: Any, scalars: Any, given: bool = False, streamed: bool = False) -> Any:
        done = run(self, arrays, outputs, scalars, given, streamed)
        if given and (streamed or self._stores.best is None):
            outputs[0][7, 5] += 1
        return done

    monkeypatch.setattr(Bound, "run", wrong)
    out = np.empty_like(img)
    with pytest.warns(HjitWarning, match=r"1 of 3240000 elements, the first at \[7, 5\]"):
        p.into(out, img)
    np.testing.assert_array_equal(out, plus_one(img))
    assert p.stats.verified is False


def test_a_small_number_beside_large_ones_is_held_to_its_own_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    steep = SINGLE * 60

    def change(result: Any) -> None:
        result[np.unravel_index(np.argmin(steep), steep.shape)] *= np.float32(1.001)

    wrong_from_now_on(monkeypatch, change)
    p = hjit.pipeline(lambda img: np.exp(img), cache="off", tune=False)
    with pytest.warns(HjitWarning, match="1 of 60000"):
        for _ in range(MAX_DOUBTS + 1):
            p(steep)
    assert p.stats.verified is False


@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda a: (np.power(a, np.float32(0.45)) * 255).astype(np.uint8), 77),
        (lambda a: np.where(np.exp(a) > 1.5, a, -a), 0.25),
        (lambda a: np.exp(a) > 1.5, None),
    ],
    ids=["whole", "select", "compare"],
)
def test_no_element_may_be_arbitrary(f: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(result: Any) -> None:
        result[9, 9] = ~result[9, 9] if value is None else value

    image = SINGLE.copy()
    image[9, 9] = 0.9
    wrong_from_now_on(monkeypatch, change)
    p = hjit.pipeline(f, cache="off", tune=False)
    with pytest.warns(HjitWarning, match=r"1 of 60000 elements, the first at \[9, 9\]"):
        for _ in range(MAX_DOUBTS + 1):
            p(image)
    assert p.stats.verified is False


def test_flipped_decisions_are_counted_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = np.exp(SINGLE)  # every element is at its threshold
    far = edge * 2

    def above(a: Any, t: Any) -> Any:
        return np.exp(a) >= t

    def change(result: Any) -> None:
        result[...] = np.exp(SINGLE) >= edge  # as NumPy has it, but for one
        result[3, 4] = False

    wrong_from_now_on(monkeypatch, change)
    p = hjit.pipeline(above, cache="off", tune=False)
    with pytest.warns(HjitWarning, match="1 elements of the result differ") as seen:
        p(SINGLE, edge)
        p(np.asfortranarray(SINGLE), np.asfortranarray(edge))
    assert len(seen) == 1
    assert p.stats.flipped == 2 and p.stats.verified is True
    q = hjit.pipeline(above, cache="off", tune=False)
    monkeypatch.undo()
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((3, 4), True))
    with pytest.warns(HjitWarning, match="1 of 60000"):
        for _ in range(MAX_DOUBTS + 1):
            q(SINGLE, far)
    assert q.stats.verified is False and q.stats.flipped == 0


def test_an_argmax_is_a_place_of_the_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = np.tile(SINGLE[:, :20], (1, 2))  # each largest value twice, 20 columns apart
    place = np.argmax(np.sin(twice), axis=1)

    def largest(a: Any) -> Any:
        return np.argmax(np.sin(a), axis=1)

    def shifted(columns: int) -> Callable[[Any], None]:
        def change(result: Any) -> None:
            result[...] = place
            result[5] += columns

        return change

    wrong_from_now_on(monkeypatch, shifted(20))
    p = hjit.pipeline(largest, cache="off", tune=False)
    with pytest.warns(HjitWarning, match="1 elements of the result differ"):
        p(twice)
    assert p.stats.verified is True and p.stats.flipped == 1
    monkeypatch.undo()
    wrong_from_now_on(monkeypatch, shifted(21))
    q = hjit.pipeline(largest, cache="off", tune=False)
    with pytest.warns(HjitWarning, match="1 of 300"):
        for _ in range(MAX_DOUBTS + 1):
            q(twice)
    assert q.stats.verified is False


@pytest.mark.parametrize(("f", "wrong"), [(lambda y: y[:, None] > y, True), (lambda y: y[:, None] - y, 1e-9)])
def test_a_number_is_compared_with_itself_without_doubt(
    f: Callable[[Any], Any], wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((3, 3), wrong))
    p = hjit.pipeline(lambda a: f(np.exp(a)), cache="off", tune=False)
    with pytest.warns(HjitWarning, match=r"the first at \[3, 3\]"):
        for _ in range(MAX_DOUBTS + 1):
            p(np.linspace(0, 1, 50))
    assert p.stats.verified is False and p.stats.flipped == 0


def test_another_path_by_a_rounding_is_no_fault_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Variant.run
    monkeypatch.setattr(Variant, "run", lambda self, *args, **kwargs: run(self, *args, **kwargs) + 1)
    p = hjit.pipeline(lambda a: len(range(int(np.exp(a).sum() * 1e6))), cache="off", tune=False)
    with pytest.warns(HjitWarning, match="1 elements of the result differ") as seen:
        for _ in range(MAX_DOUBTS + 2):
            assert p(SINGLE) == int(np.exp(SINGLE).sum() * 1e6)
    assert len(seen) == 1 and p.stats.verified is None


def test_numpy_may_be_the_inexact_one() -> None:
    tall = (1000 + np.random.default_rng(1).random((40_000, 6)) * 0.1).astype(np.float32)
    p = hjit.pipeline(lambda a: (a.std(axis=0), a.mean(axis=0), a - a.mean(axis=0)), cache="off", tune=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        p(tall)
    assert p.stats.verified is True and p.stats.fallbacks == 0


LARGE = np.random.default_rng(4).random((500, 700), dtype=np.float32)
LONG_SUMS: list[Any] = [
    lambda a: np.exp(a - a.max()) / np.exp(a - a.max()).sum(),
    lambda a: (
        (np.power(a, np.float32(0.45)) - np.power(a, np.float32(0.45)).mean()) / np.power(a, np.float32(0.45)).std()
    ),
    lambda a: np.exp(a) / np.exp(a).sum(axis=1, keepdims=True),
    lambda a: np.sin(a) / np.abs(np.sin(a)).max(),
    lambda a: np.log(a.mean() + a),
]


@pytest.mark.parametrize("f", LONG_SUMS)
def test_sums_of_very_many_elements_have_bounds(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    roughly = Comparison._roughly
    used: list[int] = []
    monkeypatch.setattr(Comparison, "_roughly", lambda self, x, *rest: used.append(len(x)) or roughly(self, x, *rest))
    p, said = verified(f, LARGE)
    assert not said and p.stats.verified is True and p.stats.flipped == 0 and not used
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((99, 9), result[99, 9] * np.float32(1.0005)))
    q = hjit.pipeline(f, cache="off")
    with pytest.warns(HjitWarning, match=r"the first at \[99, 9\]"):
        for _ in range(MAX_DOUBTS + 1):
            np.testing.assert_array_equal(q(LARGE), f(LARGE))
    assert q.stats.verified is False and not used


def test_what_many_elements_of_a_chain_of_stages_read_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def smoothed(a: Any) -> Any:
        for _ in range(9):
            p = np.pad(a, 1, mode="edge")
            a = np.sin((p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4)
        return a

    computed: list[Any] = []
    direct = Reference._direct

    def counted(self: Reference, *args: Any) -> Any:
        computed.append(args)
        return direct(self, *args)

    monkeypatch.setattr(Reference, "_direct", counted)
    monkeypatch.setattr(Comparison, "_roughly", None)
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((99, 9), result[99, 9] * np.float32(1.01)))
    p = hjit.pipeline(smoothed, cache="off", tune=False)
    with pytest.warns(HjitWarning, match=r"the first at \[99, 9\]"):
        for _ in range(MAX_DOUBTS + 1):
            p(SINGLE)
    assert 0 < len(computed) < 200  # the first stage is read in 4 ** 8 ways


@pytest.mark.parametrize("seed", range(25))
def test_random_inexact_programs_are_not_found_wrong(seed: int) -> None:
    assert fault(seed) is None


def test_a_function_that_always_takes_another_path_runs_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(lambda a: len(range(int(np.exp(a).sum() * 1e6))), cache="off", tune=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(MAX_PATHS + MAX_DOUBTS + 2):
            assert p(SINGLE) == int(np.exp(SINGLE).sum() * 1e6)
    assert p.stats.verified is False
    traces = p.stats.traces
    p(SINGLE)
    assert p.stats.traces == traces


@pytest.mark.parametrize("taps", [3, 7, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_convolutions_of_few_taps_are_held_to_the_roundings_of_their_sums(taps: int, dtype: Any) -> None:
    signals = np.random.default_rng(taps).standard_normal((60, 80)).astype(dtype)

    def smoothed(x: Any) -> Any:
        return np.apply_along_axis(lambda row: np.convolve(row, np.hanning(taps + 2)[1:-1], mode="same"), 1, x)

    p = hjit.pipeline(smoothed, cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        p(signals)
    assert p.stats.verified is True


def test_wrong_ends_of_a_convolution_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return np.convolve(x, [0.3, 0.5, 0.2], mode="same")

    x = np.random.default_rng(0).standard_normal(300)
    p, said = verified(f, x)
    assert not said and p.stats.verified is True
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__(0, result[0] * (1 + 1e-14)))
    with pytest.warns(HjitWarning, match=r"1 of 300 elements, the first at \[0\]"):
        hjit.pipeline(f, cache="off")(x)


def test_a_running_sum_is_held_to_its_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(a: Any) -> Any:
        return np.cumsum(np.exp(a), axis=1)

    p, said = verified(f, SINGLE)
    assert not said and p.stats.verified is True
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((3, 0), result[3, 0] * np.float32(1.0001)))
    with pytest.warns(HjitWarning, match=r"1 of 60000 elements, the first at \[3, 0\]"):
        hjit.pipeline(f, cache="off")(SINGLE)


def test_results_of_extern_functions_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    square = np.exp(SINGLE[:20, :20]).astype(np.float64) + 20 * np.eye(20)

    def f(a: Any) -> Any:
        return np.linalg.solve(np.exp(a * 0.1), a)

    p, said = verified(f, square)
    assert not said and p.stats.verified is True
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__((3, 0), result[3, 0] + 1e-3))
    q = hjit.pipeline(f, cache="off")
    with pytest.warns(HjitWarning, match=r"the first at \[3, 0\]"):
        for _ in range(MAX_DOUBTS + 1):
            q(square)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.exp(a).astype(np.float64),
        lambda a: np.exp(a).astype(np.float64) * 2,
        lambda a: np.exp(a.astype(np.float64)).astype(np.float32).astype(np.float64),
        lambda a: a.mean(axis=0).astype(np.float64),
        lambda a: (np.power(a, np.float32(0.45)) * 255).astype(np.uint8),
        lambda a: np.rint(np.power(a, np.float32(0.45)) * 255).astype(np.float64) / 255,
        lambda a: {"small": a, "wide": [np.sin(a).astype(np.float64), a > 0.5]},
        lambda a: float(a.mean()),
        lambda a: np.histogram(np.exp(a), bins=8, range=(1.0, 2.0))[0],
    ],
    ids=range(9),
)
def test_results_may_differ_by_the_precision_that_they_have_passed(f: Any) -> None:
    p = hjit.pipeline(f, cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        p(SINGLE)
    assert p.stats.verified is True
    assert p.stats.fallbacks == 0


def test_arguments_changed_in_place_may_differ_by_their_precision() -> None:
    def f(a: Any, out: Any) -> None:
        out[...] = np.exp(a)

    p = hjit.pipeline(f, cache="off")
    p(SINGLE, np.zeros(SINGLE.shape))
    assert p.stats.verified is True


def test_fast_maths_may_differ_by_a_rounding() -> None:
    p = hjit.pipeline(lambda a, b: a * b + a, cache="off", fast_math=True)
    p(SINGLE, SINGLE[::-1])
    assert p.stats.verified is True


@pytest.mark.parametrize(
    ("f", "eps", "decided"),
    [
        (lambda a: a * 2 + np.sqrt(a), 0, False),
        (lambda a: np.exp(a), 2.0**-23, False),
        (lambda a: np.exp(a).astype(np.float64), 2.0**-23, False),
        (lambda a: np.exp(a.astype(np.float64)), 2.0**-52, False),
        (lambda a: np.exp(a.astype(np.float64)).astype(np.float32).astype(np.float64), 2.0**-23, False),
        (lambda a: np.exp(a.astype(np.float64)) + a, 2.0**-52, False),
        (lambda a: a.astype(np.float64) + a.sum(), 2.0**-23, False),
        (lambda a: a.astype(np.float64).cumsum(axis=0), 2.0**-52, False),
        (lambda a: gaussian_filter(a, 20), 0, False),  # summed one after the other, as SciPy does
        (lambda a: convolve2d(a, SINGLE[:25, :27], mode="same"), 0, False),
        (lambda a: convolve(a, SINGLE[:25, :27], mode="same", method="direct"), 0, False),
        (lambda a: convolve2d(a, SINGLE[:2, :150], mode="same"), 2.0**-23, False),  # SciPy adds four products at a time
        (lambda a: np.convolve(a[0], np.full(5, 0.3, np.float32)), 2.0**-23, False),  # at the ends by NumPy's BLAS
        (lambda a: np.convolve(a[0], np.full(11, 0.3, np.float32), "valid"), 0, False),
        (lambda a: np.convolve(a[0], np.full(12, 0.3, np.float32), "valid"), 2.0**-23, False),
        (lambda a: np.convolve(a[0].astype(np.float16), np.full(12, 0.3, np.float16)), 0, False),
        (lambda a: np.bincount((a * 9).astype(np.int64).ravel(), a.ravel()), 0, False),
        (lambda a: np.histogram(a, 9, (0, 1), weights=a)[0], 2.0**-23, False),  # in blocks
        (lambda a: np.floor(np.exp(a)), 2.0**-23, True),
        (lambda a: np.where(np.exp(a) > 1.5, 1, 0), 2.0**-23, True),
        (lambda a: np.arange(300.0)[(np.exp(a) * 9).astype(np.int64)], 2.0**-23, True),
        (lambda a: (a * 255).astype(np.int64) ** 2, 0, False),
    ],
    ids=range(22),
)
def test_the_tolerance_is_of_the_coarsest_float_since_an_operation_was_inexact(
    f: Any, eps: float, decided: bool
) -> None:
    p = hjit.pipeline(f, cache="off", verify="off")
    p(SINGLE)
    ((variant,),) = (e.variants for e in p._entries.values())
    assert tolerances_of(variant) == Tolerance(eps, decided)


def test_results_are_exact_where_all_are() -> None:
    assert is_exact(({"a": EXACT}, [EXACT, EXACT]))
    assert not is_exact(({"a": EXACT}, [EXACT, CLOSE]))


def test_one_result_may_differ_and_another_not() -> None:
    p = hjit.pipeline(lambda a: (a + 1, np.exp(a)), cache="off", verify="off")
    p(SINGLE)
    ((variant,),) = (e.variants for e in p._entries.values())
    exact, inexact = tolerances_of(variant)
    assert exact == EXACT
    assert inexact.eps


@pytest.mark.parametrize(
    ("ours", "expected", "allowed", "why"),
    [
        (np.ones(3), np.ones(3), EXACT, None),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), EXACT, None),
        (np.ones(3), np.ones(4), EXACT, "shape"),
        (np.ones(3), np.ones(3, np.float32), EXACT, "float64"),
        (np.ones(3), [1.0] * 3, EXACT, "instead of a list"),
        (np.ones(3), np.ones(3) * (1 + 1e-15), EXACT, "3 of 3"),
        (np.ones(3), np.ones(3) * (1 + 1e-15), CLOSE, None),
        (np.ones(3), np.ones(3) * 1.01, CLOSE, "3 of 3"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), CLOSE, "1 of 2"),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), CLOSE, "1 of 2"),
        (np.float64(1), 1.0, EXACT, "float64"),
        ((1, 2), (1, 3), EXACT, "2 instead of 3"),
        ((1,), (1, 3), EXACT, "tuple"),
        ({"a": 1}, {"b": 1}, EXACT, "no item"),
        ({"a": np.ones(2)}, {"a": np.zeros(2)}, EXACT, "2 of 2"),
        (np.array([200], np.uint8), np.array([201], np.uint8), CLOSE, None),
        (np.array([200], np.uint8), np.array([201], np.uint8), EXACT, "200 instead of 201"),
        (np.array([True]), np.array([False]), CLOSE, "1 of 1"),
        (np.zeros((0, 3)), np.zeros((0, 3)), CLOSE, None),
        (np.ones(9), np.ones(9) * (1 + 1e-6), CLOSE, "9 of 9"),
        (np.ones(9), np.ones(9) * (1 + 1e-6), Tolerance(2.0**-23), None),
        (np.arange(2e4), np.where(np.arange(2e4) == 9, 5, np.arange(2e4)), Tolerance(2.0**-23), "1 of 20000"),
        (np.arange(2e4), np.where(np.arange(2e4) == 9, 5, np.arange(2e4)), Tolerance(2.0**-23, True), None),
        (1.0, 1.0 + 1e-15, EXACT, "instead of"),
        (1.0, 1.0 + 1e-15, CLOSE, None),
        ("a", "b", EXACT, "'a' instead of 'b'"),
        (float("nan"), float("nan"), EXACT, None),
        (None, 3, EXACT, "NoneType"),
    ],
)
def test_differences(ours: Any, expected: Any, allowed: Tolerance, why: str | None) -> None:
    compared = Comparison()
    compared.compare(ours, expected, allowed)
    found = compared.why
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    "f", [lambda a: a.mean(axis=-1), lambda a: np.trapezoid(a), lambda a: a @ np.ones((64, 3), a.dtype)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_partial_sums_may_overflow_in_one_order_alone(f: Any, dtype: str) -> None:
    """Two infinities of different signs then meet, or do not."""
    most = np.finfo(dtype).max
    a = np.random.default_rng(0).choice([0, 1, most, -most, most / 8, -np.inf], (200, 64)).astype(dtype)
    a[:, 5] = -np.inf
    with np.errstate(all="ignore"):
        theirs = f(a)
    assert np.isneginf(theirs).any() and np.isnan(theirs).any()
    p, found = verified(f, a, blas=False)
    assert not found and p.stats.verified is not False


def test_an_infinite_sum_is_no_nan_where_nothing_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Variant.run
    monkeypatch.setattr(Variant, "run", lambda self, *args, **kwargs: run(self, *args, **kwargs) * np.nan)
    a = np.ones((20, 64))
    a[:, 5] = -np.inf
    _, found = verified(lambda a: a.sum(axis=-1), a)
    assert "nan instead of -inf" in found[0]


def sums_of_rows(img: Any) -> Any:
    total = np.sum(img, axis=0)
    return total


@pytest.mark.parametrize("by_hand", [False, True])
def test_numpy_may_add_all_elements_one_after_the_other_where_hjit_adds_them_in_parts(by_hand: bool) -> None:
    rng = np.random.default_rng(0)
    if by_hand:
        f, img = hjit.pipeline(sums_of_rows), rng.random((4096, 64), np.float32) ** 2
        s = f.schedule(img)
        s["total"].rfactor("r0", 16)
        f.use(s)
    else:  # rows, then their sum
        f, img = hjit.pipeline(lambda img: np.sum(img, axis=(0, 1))), rng.random((17, 40000, 2), np.float32)
    f(img)
    assert f.stats.verified is True and f.stats.fallbacks == 0
    exact = f.py_func(img.astype(np.float64))
    assert np.abs(f(img) - exact).max() < np.abs(f.py_func(img) - exact).max() / 10  # it is NumPy that is far off


def test_a_wrong_sum_in_parts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    f = hjit.pipeline(lambda img: np.sum(img, axis=(0, 1)))
    img = np.random.default_rng(0).random((17, 40000, 2), np.float32)
    with pytest.warns(HjitWarning):
        for _ in range(MAX_DOUBTS + 1):  # NumPy is far off itself, so the first differences may be its own
            assert np.array_equal(f(img), f.py_func(img))
    assert f.stats.verified is False


def test_steps_of_a_loop_are_computed_for_the_elements_that_differ_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def added(img: Any, gains: Any) -> Any:
        total = np.zeros(img.shape)
        for gain in gains:
            total += np.exp(img.astype(np.float64)) * gain
        return total

    monkeypatch.setattr(work, "MAX_WORK", 10_000_000)
    gains = np.array([1e6, -1e6] * 20 + [1.0])  # what remains has the roundings of numbers that were a million
    wrong_from_now_on(monkeypatch, lambda result: result.__setitem__(slice(9), result[:9] + 1e-10))
    p = hjit.pipeline(added, cache="off", tune=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        p(SINGLE, gains)
    assert p.stats.verified is True
