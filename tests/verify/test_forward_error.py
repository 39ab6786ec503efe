"""Bounds of errors hold for whatever arguments within theirs are, and are no wider than they need be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.analysis.tolerances import INEXACT
from hjit.trace.ir.expressions import Load, Op
from hjit.trace.ir.fma import fma
from hjit.verify.approx import NUMPYS, OURS, SAME_WAY, Approx
from hjit.verify.forward_error import EXACT_AT, apply, cast
from hjit.verify.reductions import sums_of, total_of

DOUBLE = np.dtype(np.float64)
RANDOM = np.random.default_rng(3)
ANY = RANDOM.normal(size=400) * 3
UNIT = RANDOM.uniform(-0.99, 0.99, 400)
POSITIVE = np.abs(ANY) + 0.01

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh cbrt".split(), (ANY,)),
    **dict.fromkeys("square absolute negative floor rint trunc sign degrees".split(), (ANY,)),
    **dict.fromkeys("log log2 log10 log1p sqrt reciprocal".split(), (POSITIVE,)),
    **dict.fromkeys("arcsin arccos arctanh".split(), (UNIT,)),
    "arccosh": (POSITIVE + 1,),
    **dict.fromkeys(
        "add subtract multiply true_divide maximum fmin hypot arctan2 logaddexp logaddexp2".split(), (ANY, ANY[::-1])
    ),
    **dict.fromkeys("copysign floor_divide remainder fmod heaviside".split(), (ANY, ANY[::-1])),
    "power": (POSITIVE, ANY[::-1]),
    "fma": (ANY, ANY[::-1], np.roll(ANY, 7)),
    **dict.fromkeys("greater less_equal equal".split(), (np.round(ANY), np.round(ANY[::-1]))),
}


def operation(name: str, count: int, dtype: Any = DOUBLE) -> Op:
    return Op(name, tuple(Load(f"x{k}", (), DOUBLE) for k in range(count)), np.dtype(dtype))


def known(value: Any, error: Any) -> Approx:
    error = np.broadcast_to(np.asarray(error, np.float64), np.shape(value))
    return Approx(np.asarray(value), (error, error, 2 * error))


@pytest.mark.parametrize("size", [1e-12, 1e-4])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_results_of_moved_arguments_are_within_the_bounds(name: str, size: float) -> None:
    args = ARGUMENTS[name]
    errors = [size * RANDOM.random(a.shape) for a in args]
    decides = name in ("greater", "less_equal", "equal")
    given = [
        known(a, e + np.spacing(np.abs(a))) for a, e in zip(args, errors, strict=True)
    ]  # a moved argument is rounded
    found = apply(operation(name, len(args), bool if decides else DOUBLE), given, name in INEXACT, False)
    assert found.errors is not None or not decides
    open_ = np.zeros(args[0].shape, bool) if found.nonfinite is None else found.nonfinite
    errors_found = np.zeros(args[0].shape) if found.errors is None else found.errors[OURS]
    for _ in range(50):
        with np.errstate(all="ignore"):
            moved = [a + RANDOM.choice([-1.0, 1.0, 0.5], a.shape) * e for a, e in zip(args, errors, strict=True)]
            there = fma(*moved) if name == "fma" else getattr(np, name)(*moved)
        apart = np.abs(there.astype(np.float64) - found.value.astype(np.float64))
        assert (open_ | (apart <= errors_found)).all(), name
    assert np.isfinite(errors_found).mean() > 0.9


@pytest.mark.parametrize("name", ["exp", "log1p", "multiply", "arctan2", "hypot", "power", "sqrt"])
def test_the_bounds_are_of_the_size_of_the_errors(name: str) -> None:
    args = tuple(np.abs(a) + 0.5 for a in ARGUMENTS[name])
    found = apply(operation(name, len(args)), [known(a, 1e-9) for a in args], name in INEXACT, False)
    largest = np.zeros(args[0].shape)
    for corner in np.ndindex(*(2,) * len(args)):
        there = getattr(np, name)(*(a + (2 * s - 1) * 1e-9 for a, s in zip(args, corner, strict=True)))
        largest = np.maximum(largest, np.abs(there - getattr(np, name)(*args)))
    assert found.errors is not None
    assert (found.errors[OURS] <= 5 * largest + 1e-14 * np.abs(found.value)).all()


def test_a_power_of_two_scales_the_error() -> None:
    n = RANDOM.integers(-40, 40, ANY.shape)
    e = Op("ldexp", (Load("x0", (), DOUBLE), Load("x1", (), np.dtype(np.int64))), DOUBLE)
    found = apply(e, [known(ANY, 1e-9), Approx(n)], "ldexp" in INEXACT, False)
    assert found.errors is not None
    there = np.abs(np.ldexp(ANY + 1e-9, n) - np.ldexp(ANY, n))
    assert (there <= found.errors[OURS]).all() and (found.errors[OURS] <= 1.01 * np.ldexp(1e-9, n) + there).all()
    moved = apply(e, [known(ANY, 1e-9), known(n, 1)], "ldexp" in INEXACT, False)
    assert moved.errors is None or np.isinf(moved.errors[OURS]).all()


def test_exact_values_have_no_error() -> None:
    for name in ("add", "multiply", "sqrt", "greater"):
        args = [Approx(np.abs(a)) for a in (ANY, ANY[::-1])][: 1 if name == "sqrt" else 2]
        assert (
            apply(operation(name, len(args), bool if name == "greater" else DOUBLE), args, False, False).errors is None
        )
    one = known(ANY, np.where(ANY > 0, 1e-9, 0))
    found = apply(operation("add", 2), [one, Approx(ANY)], False, False)
    assert found.errors is not None
    np.testing.assert_array_equal(found.errors[OURS] > 0, ANY > 0)


def test_a_decision_is_doubtful_only_within_its_error() -> None:
    x = known(np.array([1.0, 1.0, 2.0]), np.array([0.1, 0.0, 0.1]))
    found = apply(operation("greater", 2, bool), [x, Approx(np.array([1.05, 1.05, 1.05]))], False, False)
    assert found.errors is not None
    np.testing.assert_array_equal(found.errors[OURS], [1, 0, 0])
    np.testing.assert_array_equal(found.errors[SAME_WAY], [0, 0, 0])
    chosen = apply(
        Op("select", (*operation("greater", 2, bool).args, Load("c", (), DOUBLE)), DOUBLE),
        [found, Approx(np.full(3, 5.0)), Approx(np.full(3, 7.0))],
        False,
        False,
    )
    assert chosen.errors is not None
    np.testing.assert_array_equal(chosen.errors[NUMPYS], [2, 0, 0])
    np.testing.assert_array_equal(chosen.errors[SAME_WAY], [0, 0, 0])


def test_whole_numbers_are_one_apart_where_a_value_is_at_their_border() -> None:
    found = cast(known(np.array([2.999, 2.5, 255.0, 255.9]), 0.01), np.dtype(np.uint8))
    assert found.errors is not None
    np.testing.assert_array_equal(found.errors[OURS], [1, 0, 1, 0])
    np.testing.assert_array_equal(found.errors[SAME_WAY], 0)
    beyond = cast(known(np.array([255.999, 300.0]), 0.01), np.dtype(np.uint8))
    assert beyond.errors is not None and np.isinf(beyond.errors[OURS]).all()


def test_an_undefined_place_within_reach_is_told() -> None:
    found = apply(operation("sqrt", 1), [known(np.array([1e-9, 1.0]), 1e-6)], False, False)
    assert found.nonfinite is not None
    np.testing.assert_array_equal(found.nonfinite, [True, False])
    ratio = apply(operation("true_divide", 2), [Approx(np.ones(2)), known(np.array([1e-9, 1.0]), 1e-6)], False, False)
    assert ratio.errors is not None and np.isinf(ratio.errors[OURS][0]) and ratio.errors[OURS][1] < 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_numpy_are_within_its_bound_and_good_ones_within_ours(dtype: Any) -> None:
    for x in (
        np.full((3, 100_000), 0.1, dtype),
        RANDOM.normal(size=(3, 50_000)).astype(dtype),
        (1000 + RANDOM.random((3, 50_000))).astype(dtype),
    ):
        total = total_of("add", np.dtype(dtype), False)
        for begin in range(0, x.shape[1], 30_000):
            total.add(Approx(x[:, begin : begin + 30_000]))
        found = total.result()
        assert found.errors is not None
        one_by_one = np.cumsum(x, axis=1)[:, -1:]  # the worst order
        pairwise = x.sum(axis=1, keepdims=True)
        assert (np.abs(one_by_one.astype(np.longdouble) - found.value) <= found.errors[NUMPYS]).all()
        assert (np.abs(pairwise.astype(np.longdouble) - found.value) <= found.errors[OURS]).all()
        assert (found.errors[OURS] < found.errors[NUMPYS] / 100).all()


def test_extremes_lie_between_those_of_the_ends() -> None:
    x = known(np.array([[1.0, 3.0, 2.95]]), np.array([[0.0, 0.1, 0.3]]))
    total = total_of("maximum", DOUBLE, False)
    total.add(x)
    found = total.result()
    assert found.value == 3.0 and found.errors is not None
    np.testing.assert_allclose(found.errors[OURS], 0.25)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_functions_are_exact_where_they_are_said_to_be(dtype: Any) -> None:
    zeros, ones = np.zeros(19, dtype), np.ones(19, dtype)
    names = sorted(EXACT_AT)

    def values(zeros: Any, ones: Any) -> Any:
        return [getattr(np, name)(ones if EXACT_AT[name] else zeros) for name in names]

    compiled = hjit.pipeline(values, cache="off", verify="off", tune=False)(zeros, ones)
    for name, ours, numpys in zip(names, compiled, values(zeros, ones), strict=True):
        expected = 1 if name in ("exp", "exp2", "cos", "cosh") else 0
        assert (ours == expected).all() and (numpys == expected).all(), name
        found = apply(operation(name, 1), [Approx(np.array([EXACT_AT[name]]))], True, False)
        assert found.errors is None or not found.errors[OURS].any()


def test_a_wave_of_an_argument_that_may_be_anywhere_is_no_rounding() -> None:
    found = apply(operation("sin", 1), [known(np.array([3.0, 1e20]), np.array([1e-9, 1e4]))], True, False)
    assert found.errors is not None
    assert found.errors[SAME_WAY].max() < 1e-8
    np.testing.assert_array_less([1e-9, 1.9], found.errors[OURS])
    rest = apply(
        operation("remainder", 2),
        [known(np.array([3.3, 1e20]), np.array([1e-9, 1e4])), Approx(np.ones(2))],
        False,
        False,
    )
    assert rest.errors is not None
    assert rest.errors[SAME_WAY].max() < 1e-8
    assert rest.errors[OURS][1] >= 1


@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 6)])
def test_sums_up_to_each_element_are_as_far_off_as_their_roundings(shape: tuple[int, ...]) -> None:
    x = RANDOM.normal(size=shape).astype(np.float32)
    error = 1e-3 * RANDOM.random(shape)
    found = sums_of(Approx(np.ones(shape[:-1], np.float32)), Approx(x, (error, error, 2 * error)))
    assert found.errors is not None
    exact = 1 + np.cumsum(x.astype(np.float64), axis=-1)
    one_by_one = np.cumsum(np.concatenate([np.ones((*shape[:-1], 1), np.float32), x], axis=-1), axis=-1)[..., 1:]
    for moved in (exact + np.cumsum(error, axis=-1), exact - np.cumsum(error, axis=-1), one_by_one):
        assert (np.abs(moved - found.value) <= found.errors[NUMPYS]).all()
    assert (found.errors[OURS] <= np.cumsum(error, axis=-1) + 1e-5).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cumulative_sums_by_trees_are_within_the_bound_of_those_in_any_order(dtype: Any) -> None:
    x = RANDOM.normal(size=(400, 1024)).astype(dtype)
    ours = x.copy()
    for k in 2 ** np.arange(10):  # Hillis and Steele
        ours[:, k:] = ours[:, k:] + ours[:, :-k]
    start = Approx(np.zeros(400, dtype))
    free, fixed = (sums_of(start, Approx(x), reorders) for reorders in (True, False))
    assert free.errors is not None and fixed.errors is not None
    assert (np.abs(ours - free.value) <= free.errors[OURS]).all()
    assert (np.abs(ours - np.cumsum(x, axis=-1)) <= free.errors[SAME_WAY]).all()
    assert (free.errors[OURS] <= 120 * np.finfo(dtype).eps * np.cumsum(np.abs(x), axis=-1) + fixed.errors[OURS]).all()


def test_a_fused_product_is_near_the_one_that_is_rounded_twice() -> None:
    """NumPy computes some layouts of complex numbers without it."""
    args = [ANY, ANY[::-1], -np.asarray(ANY * ANY[::-1])]
    found = apply(operation("fma", 3), [Approx(a) for a in args], "fma" in INEXACT, False)
    assert found.errors is not None
    plain = args[0] * args[1] + args[2]
    assert (np.abs(plain - found.value) <= found.errors[NUMPYS]).all()
    assert (found.errors[NUMPYS] < 1e-14).all()
