"""Python's builtins on traced scalars."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.arguments import leaves_of
from tests.numpy_check import check, sample

SPECIAL = [np.nan, 0.0, -0.0, 1.0, -np.inf, np.inf]
NUMBERS = "bool uint8 int16 uint64 int64 float16 float32 float64".split()


def extremes(a: Any) -> Any:
    x, y, z = a[0], a[1], a[2]
    return max(x, y), min(x, y), max(x, y, z), min((z, y, x)), max([z, x]), reduce(max, [x, y, z]), reduce(min, [z, y])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_extremes_of_scalars_of_one_type(dtype: str) -> None:
    values = [1, 0, 1] if dtype == "bool" else [0, 3, 200] if dtype == "uint8" else SPECIAL
    values = [2**63, 2**63 + 1, 5] if dtype == "uint64" else values if dtype[0] in "bfu" else [-3, 0, 99]
    f = hjit.pipeline(extremes, verify="off")
    for triple in itertools.product(values, repeat=3):
        ours, expected = f(np.array(triple, dtype)), extremes(np.array(triple, dtype))
        for x, y in zip(ours, expected, strict=True):
            assert type(x) is type(y) and np.array_equal(x, y, equal_nan=dtype[0] == "f")
            assert np.signbit(x) == np.signbit(y) if dtype[0] == "f" and x == 0 else True
    assert f.stats.traces == 1  # which one is larger is no condition of the trace


def test_extremes_of_python_floats() -> None:
    def f(a: Any, k: float) -> Any:
        x, y = float(a.max()), float(a.min())
        return max(x, y), min(x, 2.5), max(k, x), min(y, k, x), a * max(x, k), a.astype(np.float32) * min(x, k)

    a = sample((9, 17), "float64", special=False)
    p = check(f, a, 0.5)
    for k in (-1.0, 0.25, np.inf, np.nan):
        for x, y in zip(leaves_of(p(a * 2, k)), leaves_of(f(a * 2, k)), strict=True):
            assert type(x) is type(y)
            np.testing.assert_array_equal(x, y)
    assert p.stats.traces == 1


OF_MATH = """sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh radians degrees fabs isnan isinf
    isfinite acos asin atan acosh asinh atanh""".split()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", OF_MATH)
def test_functions_of_math(name: str) -> None:
    """Of computed numbers are no conditions of the trace; where they raise, they raise."""
    function = getattr(math, name)

    def f(a: Any) -> Any:
        return function(a[0, 0]), function(float(a[0, 1])), a * float(function(a.max()))

    p = hjit.pipeline(f, verify="off", numpy_if_faster=False)
    for value in (0.3, 1.5, -2.5, 0.0, 1.0, -1.0, 1e4, *SPECIAL):
        for dtype in ("float32", "float64"):
            a = np.full((20, 30), value, dtype)
            try:
                expected = f(a)
            except (ValueError, OverflowError) as error:
                with pytest.raises(type(error)):
                    p(a)
                continue
            for ours, theirs in zip(p(a), expected, strict=True):
                assert type(ours) is type(theirs)
                np.testing.assert_allclose(ours, theirs, rtol=1e-6 if np.ndim(theirs) and dtype == "float32" else 1e-15)
    assert p.stats.traces <= 4  # two dtypes, and once more where NumPy has run


def test_functions_of_math_with_two_arguments() -> None:
    def f(a: Any, k: float) -> Any:
        x, y = a[0, 0], a[0, 1]
        return (
            math.atan2(x, y),
            math.hypot(x, k),
            math.pow(y, k),
            math.log(y + 2, 3),
            math.atan2(k, 2),
            math.hypot(x, y, k),
        )

    def each(img: Any, h: float) -> Any:
        out = np.zeros(img.shape)
        for y in range(img.shape[0]):
            for x in range(1, img.shape[1]):
                if not math.isnan(img[y, x]):
                    out[y, x] = math.exp(-((img[y, x] - img[y, x - 1]) ** 2) / (h * h)) + math.hypot(y, x)
        return out

    a = np.random.default_rng(0).random((20, 30))
    for k in (2.0, 0.5, -1.0):
        p = check(f, a, k, exact=False)
        check(each, a, k, exact=False, on_unsupported="raise")
    for function in (f, p):
        with pytest.raises(ValueError, match="domain|expected"):
            function(a * 0, -1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_whole_numbers_of_computed_ones_in_loops(dtype: str) -> None:
    def f(img: Any, q: float) -> Any:
        counts, out = np.zeros(40, np.int64), np.zeros(img.shape)
        for y in range(img.shape[0]):
            for x in range(img.shape[1]):
                out[y, x] = round(img[y, x] / q) * q
                counts[round(img[y, x])] += 1
                counts[math.floor(img[y, x])] += 10
                counts[math.ceil(img[y, x] / 2)] += 100 + round(y) - math.floor(x)
        return counts, out, round(img[0, 0] / 3), round(img[0, 1] / 3, 2)

    img = (sample((20, 33), "float64", special=False) % 30).astype(dtype)
    img[2, 2:5] = [0.5, 1.5, 2.5]
    check(f, img, 3.5, on_unsupported="raise")
    p = hjit.pipeline(f, verify="off")
    if dtype[0] == "f":
        for bad, error in ((np.nan, ValueError), (np.inf, OverflowError), (1e30, IndexError)):
            img[3, 4] = bad
            for function in (f, p):
                with pytest.raises(error):
                    function(img, 3.5)


def test_extremes_whose_type_depends_on_values() -> None:
    def f(a: Any) -> Any:
        return max(a[0], 0), min(a[1], 3.0), max(a[2], a.astype(np.float32)[3]), max(1, 2), min(a[:3].sum(), 5, key=abs)

    p = hjit.pipeline(f)
    for a in (np.array([-1.0, 2, 3, 4]), np.array([1.0, 4, 3, 2])):
        ours, expected = p(a), f(a)
        assert ours == expected and [*map(type, ours)] == [*map(type, expected)]


def test_extremes_that_python_refuses() -> None:
    check(lambda a: max(a[:2], a[2:4]), np.arange(5.0))
    check(lambda a: max(a[0]), np.arange(5.0))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
def test_extremes_in_loops_are_traced_once(dtype: str) -> None:
    def f(x: Any) -> Any:
        largest, pair = np.zeros(3, x.dtype), np.full(x.shape[0], x[0])
        for i in range(x.shape[0]):
            largest[1] = max(largest[1], x[i])
        for i in range(1, x.shape[0]):
            pair[i] = min(pair[i - 1], x[i], x[i - 1])
        return largest, pair

    a = sample((50,), dtype, special=False)
    p = check(f, a)
    assert len(str(p.graph(a)).splitlines()) < 16
    for k in (0, 3, 49):
        if dtype[0] == "f":
            a[k] = np.nan
        for x, y in zip(p(a), f(a), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("order", "CF")
def test_shallow_copies(order: Any) -> None:
    def f(a: Any) -> Any:
        b, c, d = copy.copy(a.T), copy.copy([a, a + 1]), copy.copy(a * 1j)
        b[0] = 5
        return a, b, c[0] + c[1], d, copy.copy(a[0, 0]), copy.copy(a.shape[0])

    check(f, sample((9, 17), "float64", special=False).copy(order))


KINDS: Any = {np.ndarray: 2, np.float32: 3, float: 5, int: 7}
ALIAS = type
TABLE = {"type": type}


class Asks:
    kind = type

    def through_attribute(self, x: Any) -> Any:
        return KINDS.get(self.kind(x), 1)


CAPTURED = Asks()


def by_import(x: Any) -> Any:
    import builtins

    return KINDS.get(builtins.type(x), 1)


def by_name_from_module(x: Any) -> Any:
    from builtins import type as kind

    return KINDS.get(kind(x), 1)


def by_class_body(x: Any) -> Any:
    class Inner:
        number = KINDS.get(type(x), 1)

    return Inner.number


def by_variable(x: Any) -> Any:
    kind = type
    return KINDS.get(kind(x), 1)


def by_default(x: Any, kind: Any = type) -> Any:
    return KINDS.get(kind(x), 1)


def by_conditional(x: Any) -> Any:
    return KINDS.get((type if x.size else len)(x), 1)


TYPES: dict[str, Callable[[Any], Any]] = {
    "call": lambda x: KINDS.get(type(x), 1),
    "name": lambda x: len(type(x).__name__),
    "text": lambda x: len(f"{type(x)}"),
    "default": lambda x: (lambda y, kind=type: KINDS.get(kind(y), 1))(x),
    "argument": lambda x: (lambda kind: KINDS.get(kind(x), 1))(type),
    "list": lambda x: KINDS.get(next(kind(x) for kind in (type,)), 1),
    "table": lambda x: KINDS.get({"type": type}["type"](x), 1),
    "global": lambda x: KINDS.get(ALIAS(x), 1),
    "global_table": lambda x: KINDS.get(TABLE["type"](x), 1),
    "attribute": lambda x: CAPTURED.through_attribute(x),
    "partial": lambda x: KINDS.get(functools.partial(type, x)(), 1),
    "partial_of_none": lambda x: KINDS.get(functools.partial(type)(x), 1),
    "group": lambda x: sum(KINDS.get(kind, 1) for kind, _ in itertools.groupby([x, x], type)),
    "call_of_call": lambda x: KINDS.get(type.__call__(type, x), 1),
    "eval": lambda x: KINDS.get(eval("type(x)"), 1),
    "map": lambda x: sum(KINDS.get(kind, 1) for kind in map(type, [x, 1])),
    "walrus": lambda x: KINDS.get(kind(x), 1) if (kind := type) else 0,
    "compared": lambda x: 1 + (type(x) is np.ndarray) + 2 * (type(type(x)) is type) + 4 * isinstance(type(x), type),
    **{f.__name__: f for f in (by_import, by_name_from_module, by_class_body, by_variable, by_default, by_conditional)},
}
GIVEN: dict[str, Callable[[Any], Any]] = {
    "array": lambda a: a,
    "element": lambda a: a[0, 0],
    "sum": lambda a: a.sum(),
    "item": lambda a: a[0, 0].item(),
    "size": lambda a: a.shape[0],
}


@pytest.mark.filterwarnings("ignore::hjit.HjitWarning")  # that some run in Python
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("use", TYPES)
def test_types_are_those_of_arrays_and_numbers(use: str, given: str) -> None:
    ask, take = TYPES[use], GIVEN[given]

    def f(a: Any) -> Any:
        return a * ask(take(a))

    p, a = hjit.pipeline(f, verify="off", on_unsupported="numpy"), sample((20, 30), np.float32, special=False)
    if use == "by_conditional" and given in ("item", "size"):
        return
    for _ in range(2):
        assert np.array_equal(p(a), f(a))


def test_what_is_reached_through_the_module_of_builtins_is_traced() -> None:
    import builtins

    def f(a: Any) -> Any:
        return a * builtins.len(a) + builtins.max(a.shape)

    def prints(a: Any) -> Any:
        builtins.print(a.shape)
        return a + 1

    a = sample((20, 30), np.float32, special=False)
    check(f, a)
    with pytest.raises(hjit.TraceError, match="print"):
        hjit.pipeline(prints, on_unsupported="raise")(a)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f4", "f8"])
def test_sorting_numbers_in_loops(dtype: str) -> None:
    def windows(a: Any) -> Any:
        out = np.zeros((len(a), 4), a.dtype)
        for i in range(2, len(a) - 2):
            v = sorted([a[i - 2], a[i - 1], a[i], a[i + 1], a[i + 2]])
            out[i, 0], out[i, 1] = v[0], v[2]
            low, high = sorted((int(a[i]), int(a[i + 1])), reverse=True)
            out[i, 2], out[i, 3] = low, high
        return out

    def medians(a: Any) -> Any:
        out = np.zeros_like(a)
        for y in range(1, a.shape[0] - 1):
            for x in range(1, a.shape[1] - 1):
                w = a[y - 1 : y + 2, x - 1 : x + 2]
                v = [w[0, 0], w[0, 1], w[0, 2], w[1, 0], w[1, 1], w[1, 2], w[2, 0], w[2, 1], w[2, 2]]
                out[y, x] = sorted(v)[4]
        return out

    a = np.random.default_rng(0).integers(-9, 9, 300).astype(dtype)
    if dtype[0] == "f":
        a[::7], a[3::7] = 0.0, -0.0  # equal ones stay in their order
    p = check(windows, a, on_unsupported="break")
    assert p.stats.parts == 0
    p = check(medians, a.reshape(15, 20), on_unsupported="break")
    p = check(medians, np.tile(a.reshape(15, 20), 2), on_unsupported="break")
    assert p.stats.parts == 0


def test_nans_are_sorted_by_python() -> None:
    def windows(a: Any) -> Any:
        out = np.zeros((len(a), 3))
        for i in range(1, len(a) - 1):
            v = sorted([a[i - 1], a[i], a[i + 1]])
            out[i, 0], out[i, 1], out[i, 2] = v
        return out

    a = np.random.default_rng(0).random(200)
    p = hjit.pipeline(windows, verify="off", cache="off", on_unsupported="break")
    for _ in range(2):
        np.testing.assert_array_equal(p(a), windows(a))
        a[[5, 60, 61]] = np.nan
    np.testing.assert_array_equal(p(a), windows(a))


@pytest.mark.parametrize("dtype", ["i2", "i8", "f8"])
def test_quotients_with_remainders_in_loops(dtype: str) -> None:
    def f(a: Any) -> Any:
        out = np.zeros((len(a), 4), a.dtype)
        for i in range(len(a)):
            out[i, 0], out[i, 1] = divmod(a[i], 7)
            q, r = divmod(int(a[i]), -7)
            out[i, 2], out[i, 3] = q, r
        return out

    p = check(f, np.random.default_rng(0).integers(-99, 99, 300).astype(dtype), on_unsupported="break")
    assert p.stats.parts == 0


@dataclasses.dataclass(frozen=True)
class Sharpening:
    gain: float = 1.5
    weights: tuple[float, ...] = (0.3, 0.6, 0.1)
    mask: Any = None
    scale: float = dataclasses.field(default=2.0, init=False)
    levels: dataclasses.InitVar[int] = 3

    def __post_init__(self, levels: int) -> None:
        object.__setattr__(self, "scale", levels * self.gain)


def replaced(img: Any, options: Any = Sharpening(), **changes: Any) -> Any:
    options = dataclasses.replace(options, levels=4, **changes)
    return img * options.gain + options.scale * options.weights[0]


def as_dict(img: Any, options: Any = Sharpening()) -> Any:
    found = dataclasses.asdict(dataclasses.replace(options, mask=img > 0.5, levels=2))
    return img * found["scale"] * found["mask"] + sum(found["weights"])


def as_tuple(img: Any, options: Any = Sharpening()) -> Any:
    gain, weights, _, _ = dataclasses.astuple(options)
    return img * gain + sum(weights)


def gain_of(img: Any, options: Any = Sharpening()) -> Any:
    return img * (options.gain if dataclasses.is_dataclass(options) else options) * dataclasses.is_dataclass(Sharpening)


@pytest.mark.parametrize("f", [replaced, as_dict, as_tuple, gain_of])
def test_functions_of_dataclasses_take_objects_of_the_caller(f: Any) -> None:
    img = sample((20, 30), "float64", special=False)
    for given in ((), (Sharpening(0.7),)):
        p = hjit.pipeline(f, cache="off")
        for _ in range(2):
            np.testing.assert_array_equal(p(img, *given), f(img, *given))
        assert p.stats.fallbacks == 0


def test_fields_that_are_replaced_are_run_time_numbers() -> None:
    img = sample((20, 30), "float64", special=False)
    p = hjit.pipeline(replaced, cache="off")
    for gain in (0.5, 0.7, 0.9):
        np.testing.assert_array_equal(p(img, gain=gain), replaced(img, gain=gain))
    assert p.stats.traces == 1


@pytest.mark.parametrize("changes", [{"scale": 1.0}, {"no_field": 1.0}])
def test_replacing_what_is_no_field_raises_as_python_does(changes: dict[str, float]) -> None:
    p = hjit.pipeline(replaced, cache="off", on_unsupported="break")
    with pytest.raises((TypeError, ValueError)) as expected:
        replaced(sample((20, 30), "float64", special=False), **changes)
    with pytest.raises(expected.type, match=str(expected.value).partition("(")[0]):
        p(sample((20, 30), "float64", special=False), **changes)


def test_numbers_that_are_kept_from_zero_are_no_decisions() -> None:
    def f(stack: Any, masks: Any) -> Any:
        found = []
        for x, m in zip(stack, masks, strict=True):
            found.append(x / max(x.sum(), 1e-12) + m.sum() / max(1, m.sum()))
        return found, max(stack.max(), 1e-3), max(1, masks.sum())

    pipeline = hjit.pipeline(f)
    r = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        stack = r.integers(0, 3, (3, 20, 30)).astype(dtype)  # whose sums are exact
        check(f, stack, stack > 0.5)
        pipeline(stack, stack > 0.5)
    assert pipeline.stats.traces == 2 and "decision" not in pipeline.explain(stack, stack > 0.5)
    with np.errstate(all="ignore"):
        for zero in (np.zeros_like(stack), -stack, np.full_like(stack, np.nan), np.zeros_like(stack, np.float32)):
            found, expected = pipeline(zero, zero > 0.5), f(zero, zero > 0.5)
            assert [type(x) for x in found] == [type(x) for x in expected]
            assert np.array_equal(found[0], expected[0], equal_nan=True) and found[2] == expected[2]
            assert [x.dtype for x in found[0]] == [x.dtype for x in expected[0]]
