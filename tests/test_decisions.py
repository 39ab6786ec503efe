"""Python decisions on values of the image, and extern calls, in the middle of a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.random.default_rng(0).random((40, 50))


def checked(p: Any, *args: Any, exact: bool = True) -> None:
    ours, expected = p(*args), p.py_func(*args)
    assert type(ours) is type(expected)
    if isinstance(expected, np.ndarray):
        assert ours.dtype == expected.dtype
    if exact:
        np.testing.assert_array_equal(ours, expected)
    else:
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert p.stats.fallbacks == 0


def branch(img: Any) -> Any:
    if img.max() > 1:
        return img / 255
    return img + 1


def test_both_branches() -> None:
    p = hjit.pipeline(branch)
    for image in (IMAGE, IMAGE * 255, IMAGE, IMAGE * 3, IMAGE * 0.5, IMAGE * 255):
        checked(p, image)
    assert p.stats.traces == 2


@pytest.mark.parametrize(
    ("ask", "size", "kernels"),
    [
        (lambda a: (a * 2).max() > 1, 40, 0),
        (lambda a: (a - a[0]).sum() > 1, 40, 0),
        (lambda a: len(range(int(a.sum()))) > 1, 40, 1),  # NumPy's sum may differ in its last bits
        (lambda a: (a * 2).max() > 1, 1100, 0),
        (lambda a: (a * 2).max() > 1, 5000, 1),  # that is for a kernel
        (lambda a: a[a[0, 0].astype(int)].max() > 1, 40, 0),
    ],
)
def test_little_work_for_a_decision_needs_no_kernel(
    ask: Any, size: int, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hjit.call import build

    made: list[Any] = []
    real = build._by_kernel
    monkeypatch.setattr(build, "_by_kernel", lambda *args: made.append(1) or real(*args))

    def f(a: Any) -> Any:
        return a * 3 if ask(a) else a + 1

    p = hjit.pipeline(f)
    image = np.random.default_rng(1).random((size, 1000))
    for _ in range(2):
        checked(p, image)
    assert len(made) == kernels and p.stats.traces == 1


def test_what_one_decision_needs_is_not_computed_again_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.call import interpreted

    computed: list[str] = []
    real = interpreted.interpret_stages

    def noted(graph: Any, *args: Any) -> Any:
        computed.extend(s.name for s in graph.stages)
        return real(graph, *args)

    monkeypatch.setattr(interpreted, "interpret_stages", noted)

    def f(a: Any) -> Any:
        doubled = a * 2
        if doubled.sum() > 1:
            doubled = doubled + 1
        tripled = doubled * 3
        return tripled if tripled.max() > 1 else doubled

    checked(hjit.pipeline(f), IMAGE)
    assert "doubled" in computed and "tripled" in computed and len(set(computed)) == len(computed)


@pytest.mark.parametrize("verify", ["first", "off"])
def test_a_decision_that_a_kernel_makes_otherwise_is_made_by_kernels(
    verify: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hjit.call import interpreted

    def f(a: Any) -> Any:
        return a * 3 if a.sum() > 1 else a + 1

    monkeypatch.setattr(interpreted.Interpretation, "outputs", lambda *args: [np.array(False)])
    p = hjit.pipeline(f, verify=verify)
    for _ in range(3):
        np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.traces == 2 and p.stats.fallbacks <= 1
    assert "runs compiled" in p.explain(IMAGE)


def test_decisions_in_a_row() -> None:
    def f(img: Any) -> Any:
        out = img * 2
        if img.min() < 0:
            out = out - img.min()
        if out.max() > 10:
            out = out / 10
        elif out.max() > 5 and img[0, 0] > 0.5:
            out = out / 5
        return out

    p = hjit.pipeline(f)
    for _ in range(2):
        for image in (IMAGE, IMAGE - 3, IMAGE * 9, IMAGE * 9 - 5, IMAGE * 3, IMAGE * 3 + 1):
            checked(p, image)
    assert p.stats.traces <= 6


def test_many_outcomes() -> None:
    p = hjit.pipeline(lambda img: img + int(img.max()))
    for k in [*range(40), *range(40)]:
        checked(p, IMAGE[:8, :8] + k)
    assert len(next(iter(p._entries.values())).variants) <= 16


def test_loops_on_values() -> None:
    def f(img: Any) -> Any:
        steps = 0
        while img.max() > 1:
            img = img / 2
            steps += 1
        return img + steps

    p = hjit.pipeline(f)
    for scale in (1, 4, 30, 1, 4, 100, 30):
        checked(p, IMAGE * scale)
    assert p.stats.traces == 4


def converge(img: Any) -> Any:
    for _ in range(20):
        smooth = (img + np.roll(img, 1, 0)) / 2
        if np.abs(smooth - img).max() < 0.05:
            break
        img = smooth
    return img


def ball(radius: Any) -> Any:
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    left = radius**2 - x**2 - y**2
    return np.where(left >= 0, np.sqrt(np.maximum(left, 0)), -np.inf)


def test_values_that_no_call_changes_are_no_decisions() -> None:
    def rolled(img: Any, radius: Any) -> Any:
        heights = ball(radius)
        padded = np.pad(img, radius, mode="edge")
        out = np.full(img.shape, np.inf)
        for dy in range(2 * radius + 1):
            for dx in range(2 * radius + 1):
                if np.isfinite(heights[dy, dx]):  # 81 times
                    window = padded[dy : dy + img.shape[0], dx : dx + img.shape[1]]
                    out = np.minimum(out, window - heights[dy, dx])
        return out

    p = hjit.pipeline(rolled, on_unsupported="raise", numpy_if_faster=False)
    for image, radius in ((IMAGE, 4), (IMAGE * 2, 4), (IMAGE[:33], 4), (IMAGE, 3)):
        checked(p, image, radius)
    assert p.stats.traces == 3


def test_a_second_decision_on_the_same_number_is_none() -> None:
    shifts = np.array([(x, y) for x in (0, -1, 1) for y in (0, -1, 1)])

    def streamed(a: Any) -> Any:
        for _ in range(3):
            a = a * 0.5 + np.stack([np.roll(a[i], (shifts[i, 0], shifts[i, 1]), (0, 1)) for i in range(9)])
        return a

    planes = np.random.default_rng(0).random((9, 20, 33))
    p = hjit.pipeline(streamed, on_unsupported="raise", numpy_if_faster=False)
    checked(p, planes)
    checked(p, planes[..., ::-1].copy())
    shifts[4, 1] = 2
    checked(p, planes)
    assert p.stats.traces == 2


def test_decisions_on_numbers_that_calls_may_change() -> None:
    def make(level: float) -> Any:
        def f(img: Any, limit: Any) -> Any:
            steps = np.cumsum(np.ones(5)) * level  # a number of the closure, which is no condition
            return img + 1 if steps[1] > limit else img - 1

        def change(value: float) -> None:
            nonlocal level
            level = value

        return f, change

    f, change = make(1.0)
    p = hjit.pipeline(f, on_unsupported="raise", numpy_if_faster=False)
    for level, limit in ((1.0, 1.5), (0.5, 1.5), (1.0, 1.5), (1.0, 2.5), (2.0, 2.5)):
        change(level)
        checked(p, IMAGE, limit)


def test_until_converged() -> None:
    p = hjit.pipeline(converge)
    for _ in range(2):
        for image in (IMAGE, IMAGE * 0.1, np.zeros((40, 50))):
            checked(p, image)


@pytest.mark.parametrize(
    "f",
    [
        lambda img: img / float(img.mean()),
        lambda img: (img - float(img.min())) / (float(img.max()) - float(img.min())),
        lambda img: img * (255.0 / float(img.max())),
        lambda img: img - img.mean().item(),
        lambda img: np.where(img > 0.5, img, float(img.max())),
        lambda img: float(img.max()),
        lambda img: (img - img.mean()) / img.std(),
        lambda img: np.clip(img, 0, float(img.mean()) * 2),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_of_the_image_do_not_retrace(f: Any, dtype: str) -> None:
    p = hjit.pipeline(f)
    for k in range(1, 6):
        checked(p, (IMAGE * k).astype(dtype), exact=False)
    assert p.stats.traces == 1


def test_a_float_of_the_image_divides_as_python_does() -> None:
    p = hjit.pipeline(lambda img: img * (1.0 / float(img.max())), verify="off")
    checked(p, IMAGE)
    with pytest.raises(ZeroDivisionError):
        p(IMAGE * 0)
    checked(p, IMAGE)


def test_ints_of_the_image() -> None:
    small = (IMAGE * 20).astype(np.uint8)
    p = hjit.pipeline(lambda img: (img.astype(np.int64) * (img.max().item() + 250), img.max().item())[0])
    for k in (0, 1, 2, 0, 1):
        checked(p, small + np.uint8(k))
    q = hjit.pipeline(lambda img: np.zeros(int(img.max()) + 1) + img.sum())
    for k in (0, 1, 2, 0, 1):
        checked(q, small + np.uint8(k))
    assert q.stats.traces == 3


def test_decisions_on_nan() -> None:
    p = hjit.pipeline(branch)
    for image in (np.full((4, 4), np.nan), IMAGE[:4, :4], np.full((4, 4), np.nan)):
        checked(p, image)
    q = hjit.pipeline(lambda img: img + int(img[0, 0] != img[0, 0]))
    for image in (np.full((4, 4), np.nan), IMAGE[:4, :4], np.full((4, 4), np.nan)):
        checked(q, image)


def test_a_decision_after_a_write() -> None:
    def f(img: Any) -> Any:
        img += 1
        if img.max() > 5:
            img *= 2
        return img.sum(axis=0)

    p = hjit.pipeline(f)
    for k in (1, 9, 1, 9):
        ours, theirs = np.round(IMAGE * 8) * k, np.round(IMAGE * 8) * k
        np.testing.assert_array_equal(p(ours), f(theirs))
        np.testing.assert_array_equal(ours, theirs)
    assert p.stats.fallbacks == 0


def test_decisions_on_numbers_and_values_together() -> None:
    def f(img: Any, threshold: float, steps: int) -> Any:
        for _ in range(steps):
            img = img + 1 if img.mean() < threshold else img - 1
        return img

    p = hjit.pipeline(f)
    for threshold, steps in ((0.2, 1), (0.9, 1), (0.9, 3), (0.2, 3), (0.9, 1)):
        checked(p, IMAGE, threshold, steps)


# -- extern calls


def test_linear_algebra() -> None:
    square = IMAGE[:20, :20] + np.eye(20)
    for f in (
        lambda a: np.linalg.inv(a * 2) + 1,
        lambda a: a / np.linalg.norm(a),
        lambda a: np.linalg.svd(a)[1][0] * a,
        lambda a: np.linalg.det(a) * a,
    ):
        p = hjit.pipeline(f)
        for k in (1.0, 2.0, 3.0):
            checked(p, square * k, exact=False)
        assert p.stats.traces == 1
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        hjit.pipeline(lambda a: np.linalg.inv(a) + 1)(square * 0)
    p = hjit.pipeline(lambda a: np.linalg.inv(a) + 1)
    checked(p, square, exact=False)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        p(square * 0)


def test_an_extern_call_with_its_array_later() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        c = np.linalg.inv(b)
        return b + c, c @ b

    p = hjit.pipeline(f, verify="off")
    square = IMAGE[:20, :20] + np.eye(20)
    for k in (1.0, 2.0):
        for ours, expected in zip(p(square * k), f(square * k), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-12)


def scaled(img: Any) -> Any:
    return img / max(img.sum(), 1e-12)


def test_where_the_bound_that_keeps_from_zero_is_the_result_at_each_call_a_decision_follows() -> None:
    p = hjit.pipeline(scaled)
    zero = IMAGE * 0
    for image in (IMAGE, zero, zero):  # assumed; refused by a kernel; traced with a decision
        np.testing.assert_allclose(p(image), scaled(image))
    assert (p.stats.traces, p.stats.fallbacks) == (2, 1)
    for image in (zero, zero, IMAGE, zero, IMAGE, *[IMAGE] * 9, zero):
        np.testing.assert_allclose(p(image), scaled(image))
    assert (p.stats.traces, p.stats.fallbacks) == (2, 1)


def test_a_first_call_where_the_bound_is_the_result() -> None:
    p = hjit.pipeline(scaled)
    zero = IMAGE * 0
    for image in (zero, zero, zero, IMAGE, IMAGE, zero, IMAGE):
        np.testing.assert_allclose(p(image), scaled(image))
    assert (p.stats.traces, p.stats.fallbacks) == (3, 1)


def test_what_has_too_many_bounds_to_decide_on_stays_compiled() -> None:
    def f(img: Any) -> Any:
        parts = [img[k:] / max(img[k:].sum(), 1e-12) for k in range(30)]
        return parts[0], parts[-1]

    p = hjit.pipeline(f, on_unsupported="break")
    zero = IMAGE * 0
    for image in (IMAGE, zero, zero, zero, IMAGE):
        for ours, expected in zip(p(image), f(image), strict=True):
            np.testing.assert_allclose(ours, expected)
    (entry,) = p.entries
    assert len(entry.variants) == 1 and entry.parts is None and entry.plain is None and p.stats.fallbacks == 3
    p(IMAGE)
    assert p.stats.fallbacks == 3


def test_kernels_that_refuse_one_call_after_another_are_tried_now_and_then() -> None:
    def f(img: Any) -> Any:
        return img * 2, int(img.sum()) * 10**15

    p = hjit.pipeline(f, numpy_if_faster=True)
    small, large = np.ones((40, 50)), np.full((40, 50), 1e6)
    p(small)
    (entry,) = p.entries
    tried = []
    assert p.stats.fallbacks == 0
    for _ in range(80):
        before = entry.refused
        assert p(large)[1] == f(large)[1]
        tried.append(entry.refused > before)
    assert sum(tried) < 8
    for _ in range(70):
        assert p(small)[1] == f(small)[1]
    assert entry.refused == 0


def clustered(img: Any) -> Any:
    centres = np.linspace(0.1, 0.9, 5)
    for _ in range(3):
        labels = np.abs(img[..., None] - centres).argmin(-1)
        for k in range(5):
            mask = labels == k
            if mask.any():
                centres[k] = img[mask].max()
    return labels, centres


def same(ours: Any, expected: Any) -> None:
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_conditions_in_short_loops_that_come_out_alike_are_checked_once() -> None:
    p = hjit.pipeline(clustered, on_unsupported="break")
    for k in range(3):
        image = np.random.default_rng(k).random((40, 50))
        same(p(image), clustered(image))
    assert (p.stats.traces, p.stats.parts, p.stats.fallbacks) == (1, 0, 0)

    again = hjit.pipeline(clustered, on_unsupported="break")  # as a later process
    same(again(image), clustered(image))
    (entry,) = again.entries
    assert entry.variants[0].rec.known.assumed > 0


def test_speculated_conditions_are_not_evaluated_again_for_another_size() -> None:
    p = hjit.pipeline(clustered, on_unsupported="break", cache="off")
    for shape in ((40, 50), (44, 51)):
        image = np.random.default_rng(1).random(shape)
        same(p(image), clustered(image))
    first, second = (entry.variants[0].rec.known for entry in p.entries)
    assert first.assumed == 0 and second.assumed == len(first.speculated) and p.stats.parts == 0


def test_where_conditions_in_short_loops_come_out_otherwise_python_runs_the_loop() -> None:
    p = hjit.pipeline(clustered, on_unsupported="break")
    p(IMAGE)
    for image in (IMAGE * 0.3, IMAGE * 0.3, IMAGE, IMAGE * 0.3):
        same(p(image), clustered(image))
    assert p.stats.fallbacks == 1 and p.stats.parts > 0


def test_loops_until_convergence_are_left_to_python() -> None:
    def f(img: Any) -> Any:
        for _ in range(10):
            before, img = img, (img + np.roll(img, 1, 0)) / 2
            if np.abs(img - before).max() < 0.3:
                break
        return img

    p = hjit.pipeline(f, on_unsupported="break")
    for scale in (1.0, 2.0):
        np.testing.assert_array_equal(p(IMAGE * scale), f(IMAGE * scale))
    assert p.stats.parts > 0 and "its iterations make decisions" in p.explain(IMAGE)


def test_what_computes_a_decision_is_compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs once, and the kernels of later calls do not share its code."""
    from hjit.kernels.runtime import backend

    quick: dict[str, bool] = {}
    real = backend.compile_module

    def compile_module(text: str, name: str, target: str, is_quick: bool = False) -> bytes:
        quick[name] = is_quick
        return real(text, name, target, is_quick)

    def total(a: Any) -> Any:
        return len(range(int(a.sum())))  # its last bits may differ from NumPy's

    def longer(a: Any) -> Any:
        return a + total(a)

    monkeypatch.setattr(backend, "compile_module", compile_module)
    for work in (1e9, 0.0):
        monkeypatch.setattr("hjit.call.compiling.QUICK_WORK", work)
        quick.clear()
        checked(hjit.pipeline(longer, cache="off"), IMAGE[:, : 20 + bool(work)])
        assert [*quick.values()].count(True) == (1 if work else 0)
        assert not all(quick.values())


def test_kernels_of_decisions_do_not_compute_again_what_earlier_ones_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.call import compiling

    def averaged(a: Any) -> Any:
        rows = np.exp(a) + 1
        first = len(range(int(rows.sum())))
        second = len(range(int((rows * 2).sum())))
        third = len(range(int((rows * 3).sum())))
        return rows + first + second + third + len(range(int((rows * 4).sum())))

    names: list[set[str]] = []
    real = compiling.evaluating

    def evaluating(rec: Any, wanted: tuple[str, ...], options: Any, begun: tuple[str, ...] = ()) -> Any:
        found = real(rec, wanted, options, begun)
        names.append({n for n in found.inputs if n in rec.stages})
        return found

    monkeypatch.setattr(compiling, "evaluating", evaluating)
    checked(hjit.pipeline(averaged, cache="off"), IMAGE, exact=False)
    assert not names[0] and not names[1], "the second one returns what both need"
    assert len(names) == 4 and all(names[2:])
