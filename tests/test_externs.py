"""Extern calls: the arrays that they are given, and the types of what they return."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.special

import hjit
from hjit.report.kinds import rows_of
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.externs.calls import extern_call

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.random.default_rng(1).random((12, 12)) + np.eye(12)
Pair = namedtuple("Pair", "first second")


def extern(g: Any) -> Any:
    """A function that traced functions call as they are."""
    implements(g)(lambda *args: extern_call("g", g, args, {}))
    return g


def shape_of(x: Any) -> Any:
    """The types of a result, and its arrays without their values."""
    if isinstance(x, (tuple, list)):
        return type(x), [shape_of(y) for y in x]
    if isinstance(x, dict):
        return type(x), [(k, shape_of(v)) for k, v in x.items()]
    return (
        (type(x), x.dtype, x.shape)
        if isinstance(x, (np.ndarray, np.generic))
        else (type(x), x if type(x) is not float else None)
    )


def compared(p: Any, *args: Any) -> None:
    ours, expected = p(*args), p.py_func(*args)
    assert shape_of(ours) == shape_of(expected)
    for a, b in zip(leaves(ours), leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12) if isinstance(b, (np.ndarray, float)) else np.testing.assert_equal(
            a, b
        )


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = [*x.values()]
    return [y for z in x for y in leaves(z)] if isinstance(x, (list, tuple)) else [x]


# -- one array in several places


def twice(a: Any) -> Any:
    v = a * 2
    return scipy.special.xlogy(v, v)


def as_arguments(a: Any) -> Any:
    return scipy.special.xlogy(a, a) + scipy.special.xlogy(a, a + 0)


def solved(a: Any) -> Any:
    v = a + np.eye(12)
    return np.linalg.solve(v, v) + v


def views_of_one(a: Any) -> Any:
    v = a * 2
    return np.linalg.solve(v, v.T), np.linalg.solve(v[::-1], v)


def computed_alike(a: Any) -> Any:
    return scipy.special.xlogy(a * 3, a * 3)


def one_of_several(a: Any) -> Any:
    v, w = a * 2, a + 1
    return scipy.special.xlogy(v, w) + scipy.special.xlogy(w, v), scipy.linalg.block_diag(v, w, v, w)


@pytest.mark.parametrize("f", [twice, as_arguments, solved, views_of_one, computed_alike, one_of_several])
def test_an_array_that_is_given_twice(f: Any) -> None:
    p = hjit.pipeline(f)
    for image in (IMAGE, IMAGE * 2, IMAGE):
        compared(p, image)
    assert (p.stats.traces, p.stats.fallbacks) == (1, 0)


def test_an_array_that_is_given_twice_is_one_object() -> None:
    @extern
    def g(x: Any, y: Any) -> Any:
        return x + (1 if x is y else 2)

    def f(a: Any) -> Any:
        v = a * 2
        return g(v, v), g(v, v + 0)

    for _ in range(2):
        same, apart = hjit.pipeline(f, verify="off")(IMAGE)
        np.testing.assert_array_equal(same, IMAGE * 2 + 1)
        np.testing.assert_array_equal(apart, IMAGE * 2 + 2)


# -- types of results


@pytest.mark.parametrize(
    "f",
    [
        lambda a: scipy.ndimage.label(a > 0.7),
        lambda a: scipy.ndimage.label(a > 0.7)[1],
        lambda a: scipy.ndimage.label(a > 0.7)[1] + a,
        lambda a: scipy.ndimage.find_objects(scipy.ndimage.label(a > 1)[0]),
        lambda a: scipy.ndimage.center_of_mass(a * 2),
        lambda a: scipy.ndimage.center_of_mass(a * 2, (a > 0.5) * 1, [0, 1]),
        lambda a: scipy.ndimage.maximum_position(a * 2),
        lambda a: scipy.ndimage.extrema(a * 2),
        lambda a: scipy.ndimage.mean(a * 2, (a > 0.5) * 1, [0, 1]),
        lambda a: np.linalg.svd(a * 2),
        lambda a: np.linalg.slogdet(a * 2),
        lambda a: np.linalg.det(a * 2),
        lambda a: np.linalg.matrix_rank(a * 2),
        lambda a: np.linalg.lstsq(a * 2, a[0] * 1, rcond=None)[1:3],
        lambda a: scipy.linalg.lu(a * 2),
        lambda a: scipy.linalg.bandwidth(a * 2),
        lambda a: scipy.linalg.issymmetric(a * 2),
    ],
    ids=range(17),
)
def test_types(f: Any) -> None:
    p = hjit.pipeline(f)
    for image in (IMAGE, IMAGE * 1.25, IMAGE):
        compared(p, image)
    assert p.stats.fallbacks == 0


def test_labels_in_an_array_that_is_there() -> None:
    def f(a: Any) -> Any:
        labels = np.zeros(a.shape, np.int32)
        return scipy.ndimage.label(a > 0.7, output=labels), labels

    p = hjit.pipeline(f)
    for image in (IMAGE, IMAGE * 0.8, IMAGE):
        compared(p, image)
    assert p.stats.fallbacks == 0


@pytest.mark.parametrize(
    "g",
    [
        lambda x: 7,
        lambda x: 0.1,
        lambda x: int(x.sum()),
        lambda x: float(x.sum()),
        lambda x: bool(x.sum() > 90),
        lambda x: x.sum(),
        lambda x: x > 1,
        lambda x: np.asarray(x.sum()),
        lambda x: [x.sum(), (x, float(x[0, 0]), 3)],
        lambda x: None,
        lambda x: [],
        lambda x: (),
        lambda x: (x + 1,),
        lambda x: [x + 1, x + 2],
        lambda x: {"a": x + 1, "b": 2},
        lambda x: OrderedDict(a=x * 2),
        lambda x: Pair(x * 2, 0.5),
        lambda x: "text",
        lambda x: slice(1, 3),
        lambda x: [x[:k].sum() for k in range(int(x.sum()) % 5)],
        lambda x: x[: int(x.sum()) % 5],
        lambda x: np.datetime64("2020-01-01"),
        lambda x: 1j,
    ],
    ids=range(23),
)
def test_types_of_any_result(g: Any) -> None:
    g = extern(g)

    def f(a: Any) -> Any:
        return g(a * 2)

    p = hjit.pipeline(f)
    for scale in (1.0, 2.0, 3.0, 1.0, 0.1):
        ours, expected = p(IMAGE * scale), g(IMAGE * scale * 2)
        assert shape_of(ours) == shape_of(expected)
        np.testing.assert_equal(ours, expected)
    assert p.stats.traces <= 4


def test_an_argument_that_is_returned() -> None:
    """What is then written to it is seen through the other name."""

    parts = extern(lambda x, n: (x, x.sum(axis=0), n))

    def f(a: Any) -> Any:
        v = a * 2
        w, sums, again = parts(v, [1, v])
        w[0] = sums
        again[1][1] = 5
        return v, w is v, again[0], w

    p = hjit.pipeline(f, verify="off")
    for image in (IMAGE, IMAGE * 3):
        ours, expected = p(image), f(image)
        np.testing.assert_allclose(ours[0], expected[0])
        assert ours[1:3] == expected[1:3] == (True, 1)
        assert ours[0] is ours[3] or np.shares_memory(ours[0], ours[3])


def test_an_array_that_is_returned_twice() -> None:
    @extern
    def g(x: Any) -> Any:
        made = x + 1
        return made, made

    def f(a: Any) -> Any:
        x, y = g(a)
        x[0] = 0
        return y * 2

    expected = (IMAGE + 1) * 2
    expected[0] = 0
    p = hjit.pipeline(f, verify="off")
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE), expected)


def test_a_float_is_given_as_a_float() -> None:
    types = extern(lambda x, y: [type(x).__name__, type(y).__name__])

    def f(a: Any) -> Any:
        return types(float(a.max()), a.max())

    assert hjit.pipeline(f, verify="off")(IMAGE) == ["float", "float64"]


def test_slices_of_numbers_of_the_caller() -> None:
    p = hjit.pipeline(lambda a, n: slice(a.shape[0], n, None))
    for rows, n in ((12, 3), (9, 3), (12, 4)):
        assert p(np.ones((rows * 10, 2)), n) == slice(rows * 10, n)


def test_other_objects_are_refused() -> None:
    g = extern(lambda x: [object()])
    with pytest.raises(hjit.TraceError, match="it returns a object"):
        hjit.pipeline(lambda a: g(a * 2))(IMAGE)


def test_structures_that_change_from_call_to_call_trace_once_each() -> None:
    """Lengths, shapes and whole numbers that have been seen are found again."""
    part = extern(lambda x: x[: int(x.max())])
    p = hjit.pipeline(lambda a: part(a * 2) + 1, verify="off")
    for _ in range(3):
        for k in (1.0, 2.0, 3.0):
            a = np.minimum(IMAGE, 0.9)
            a[0, 0] = k
            np.testing.assert_array_equal(p(a), (a * 2)[: int(k * 2)] + 1)
    assert p.stats.traces == 3


def test_a_matrix_that_a_call_returns_is_no_array() -> None:
    import scipy.sparse

    def f(table: Any, weights: Any) -> Any:
        return np.asarray(-table.sum(axis=0) @ (weights * 2))

    p = hjit.pipeline(f, on_unsupported="break").quiet()
    table, weights = scipy.sparse.csr_matrix(np.arange(60.0).reshape(3, 20)), np.arange(20.0)
    for _ in range(2):
        got, expected = p(table, weights), f(table, weights)
        assert got.shape == expected.shape == (1, 1)
        np.testing.assert_array_equal(got, expected)
    assert rows_of({"f": p})[0].verified is not False


@pytest.mark.parametrize("verify", ["first", "off"])
def test_random_numbers_are_python_numbers(verify: str) -> None:
    def f(a: Any) -> Any:
        draws = np.random.randint(0, 5), np.random.randint(1, 5) * 2, np.random.rand(), np.random.choice(5)
        return (a[0], *draws, a.astype(np.uint8) + np.random.randint(0, 5), np.random.randint(5, size=()))

    p = hjit.pipeline(f, verify=verify)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(3):
            np.random.seed(seed)
            ours = p(np.arange(12.0).reshape(3, 4))
            np.random.seed(seed)
            expected = f(np.arange(12.0).reshape(3, 4))
            for x, y in zip(ours, expected, strict=True):
                assert type(x) is type(y) and getattr(x, "dtype", None) == getattr(y, "dtype", None)
                np.testing.assert_equal(x, y)


GRID, POINTS = np.linspace(0.0, 1.0, 40), np.random.default_rng(5).random((30, 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda y: scipy.interpolate.interp1d(GRID, y),
        lambda y: scipy.interpolate.CubicSpline(GRID, y),
        lambda y: scipy.interpolate.make_interp_spline(GRID, y),
        lambda y: scipy.interpolate.RegularGridInterpolator((GRID,), y),
    ],
)
def test_interpolators_are_called_at_every_call(make: Any) -> None:
    """They may be others, or changed, between calls."""
    y = np.sin(GRID)
    at = make(y)

    def f(q: Any) -> Any:
        return at(q * 0.5) + 1

    p = hjit.pipeline(f, on_unsupported="raise")
    q = POINTS[:, 0]
    for change in ("", "other", "y"):
        if change == "other":
            at = make(y * 2)
        elif hasattr(at, "_y"):
            at._y[:] *= 3
        for _ in range(2):
            np.testing.assert_allclose(p(q), f(q), rtol=1e-12)
    constant = hjit.pipeline(lambda q: at(np.array([0.25, 0.5])) + q[:2], on_unsupported="break").quiet()
    for _ in range(2):
        np.testing.assert_allclose(constant(q), at(np.array([0.25, 0.5])) + q[:2], rtol=1e-12)
        if hasattr(at, "_y"):
            at._y[:] *= 3


@pytest.mark.parametrize("breaks", ["break", "numpy"])
def test_interpolators_that_are_made_inside(breaks: Any) -> None:
    def f(y: Any, q: Any) -> Any:
        return scipy.interpolate.interp1d(GRID, y * 2)(q * 0.5) + 1, scipy.interpolate.interpn((GRID,), y, q * 0.5)

    p = hjit.pipeline(f, on_unsupported=breaks).quiet()
    for k in range(4):
        y, q = np.cos(GRID + k), POINTS[:, 0] * (1 - k / 8)
        for ours, expected in zip(p(y, q), f(y, q), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_upfirdn() -> None:
    p = hjit.pipeline(lambda x, h: scipy.signal.upfirdn(h * 2, x + 1, 2, 3) - 1, on_unsupported="raise")
    x, h = np.random.default_rng(0).normal(size=(8, 60)), np.array([1.0, 2, 3])
    for _ in range(2):
        np.testing.assert_allclose(p(x, h), scipy.signal.upfirdn(h * 2, x + 1, 2, 3) - 1, rtol=1e-12)


ORDERED = {
    "transform": lambda a: np.fft.fft2(a * 2),
    "transform of complex numbers": lambda a: np.fft.ifft2(np.fft.fft2(a) * 2),
    "ufunc": lambda a: scipy.special.gamma(a + 1),
    "transposed": lambda a: np.abs(np.fft.fft2((a * 2).T)).T,
    "repeated": lambda a: np.fft.fft2(np.broadcast_to(a[0] * 2, a.shape)),
    "repeated complex numbers": lambda a: np.fft.ifft(np.broadcast_to(np.fft.fft(a[0]), a.shape) * 1),
    "part": lambda a: np.fft.fft2((a * 2)[1:, ::-1]),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 2, 1), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("f", ORDERED.values(), ids=ORDERED)
def test_computed_arrays_are_given_as_numpy_s_lie_in_memory(f: Any, order: tuple[int, ...]) -> None:
    shape = np.array((7, 9, 12)[: len(order)])
    a = np.random.default_rng(2).random(shape[[*order]]).transpose(np.argsort(order))
    expected, p = f(a), hjit.pipeline(f)
    for _ in range(2):
        found = p(a)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert found.strides == expected.strides
    assert p.stats.fallbacks == 0


def distance(x: Any, y: Any, at: Any) -> Any:
    return x[0] + x[1] * np.sin(at) - y


def held(kind: str, y: Any, at: Any) -> Any:
    match kind:
        case "closure":
            return lambda x: x[0] + x[1] * np.sin(at) - y
        case "default":
            return lambda x, y=y, at=at: distance(x, y, at)
        case "partial":
            return functools.partial(distance, y=y, at=at)
    inner = held("closure", y, at)
    return lambda x: inner(x)


@pytest.mark.parametrize("kind", ["closure", "default", "partial", "of another function"])
@pytest.mark.parametrize("is_known", [False, True])
def test_functions_that_hold_traced_arrays_are_not_called_with_real_ones(
    kind: str, is_known: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """SciPy prints the error of a function that it calls."""

    def f(y: Any, at: Any) -> Any:
        first = 3.0 if is_known else np.mean(y)
        return scipy.optimize.leastsq(held(kind, y, at), [first, 1.0])[0] + 1

    at = np.linspace(0, 6, 50)
    y = 3 + 2 * np.sin(at)
    p = hjit.pipeline(f, on_unsupported="break")
    for _ in range(2):
        np.testing.assert_allclose(p(y, at), f(y, at), rtol=1e-9)
    assert capfd.readouterr().err == ""
    assert "holds traced arrays" in p.explain(y, at)


def test_arrays_are_passed_on_to_functions_that_extern_calls_call() -> None:
    p = hjit.pipeline(lambda y: y + scipy.integrate.quad(lambda x, m: x * m, 0, 1, args=(y.mean(),))[0])
    compared(p, IMAGE)
    assert "quad" in p.explain(IMAGE)


@pytest.mark.parametrize("how", ["always", "default"])
@pytest.mark.parametrize("verify", ["first", "off"])
def test_extern_calls_warn_as_often_as_plain_ones(how: Any, verify: Any) -> None:
    def f(x: Any) -> Any:
        return np.abs(np.prod(np.exp(x) * 1e300j, axis=0)) * 3

    def count(f: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter(how)
            for seed in range(3):
                f(np.random.default_rng(seed).random((20, 30)))
        return [str(w.message) for w in given if "in reduce" in str(w.message)]

    assert count(f)
    assert count(hjit.pipeline(f, verify=verify, on_unsupported="raise")) == count(f)


def test_what_the_comparison_of_an_extern_call_tries_out_does_not_warn() -> None:
    def f(x: Any, c: Any) -> Any:
        return np.abs(np.prod(np.exp(x) * c * 1j, axis=0)) / 3

    x = np.linspace(0, 300, 40).reshape(2, 20)
    c = np.sqrt(np.finfo(float).max / np.exp(x).prod(axis=0))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        while np.isinf(found := f(x, c)).any():  # the largest that do not overflow: by an error, they do
            c[np.isinf(found)] = np.nextafter(c, 0)[np.isinf(found)]
        given.clear()
        pipe = hjit.pipeline(f, on_unsupported="raise")
        for _ in range(2):
            np.testing.assert_allclose(pipe(x, c), f(x, c))
    assert not given


@pytest.mark.parametrize("verify", ["first", "off"])
def test_warnings_of_extern_calls_point_to_the_line_of_the_call(verify: Any) -> None:
    def helper(a: Any) -> Any:
        return scipy.linalg.solve(a, a[0] + 1)

    def f(x: Any) -> Any:
        return helper(x * 1.0) * 2

    def lines(f: Any) -> list[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            for _ in range(3):
                f(scipy.linalg.hilbert(14))
        return [(w.filename, w.lineno) for w in given]

    found = lines(hjit.pipeline(f, verify=verify, on_unsupported="raise"))
    assert found == lines(f) == [(__file__, helper.__code__.co_firstlineno + 1)] * 3


def stretched(img: Any) -> Any:
    out = np.empty_like(img)
    for c in range(img.shape[2]):
        low, high = np.percentile(img[..., c], (1, 99))
        out[..., c] = np.clip((img[..., c] - low) / (high - low), 0, 1)
    return out


def rotated(img: Any) -> Any:
    sums = [scipy.ndimage.rotate(img[..., 0], angle, reshape=False, order=2).sum(0) for angle in range(0, 180, 30)]
    return np.stack(sums)


@pytest.mark.parametrize("f", [stretched, rotated])
def test_calls_for_each_channel_or_angle_are_calls_between_kernels(f: Any) -> None:
    p = hjit.pipeline(f, on_unsupported="raise")
    for k in range(3):
        img = np.random.default_rng(k).random((40 + k, 50, 4), np.float32)
        np.testing.assert_allclose(p(img), f(img), rtol=2e-6)


def test_loops_of_a_few_iterations_with_calls_and_much_between_them_are_compiled_whole() -> None:
    def f(img: Any, count: int = 6) -> Any:
        x = img * 1.0
        for _ in range(count):
            g = np.fft.ifft2(np.fft.fft2(x) * 0.5).real
            for k in range(20):
                g = np.abs(g - np.roll(x, k, 1)) * 0.5 + g[::-1] * 0.5
            x = x - g
        return x

    p = hjit.pipeline(f, on_unsupported="break")
    for seed in range(3):
        img = np.random.default_rng(seed).random((30, 40))
        np.testing.assert_allclose(p(img), f(img), rtol=1e-9, atol=1e-12)
    assert (p.stats.traces, p.stats.parts) == (1, 0)


def test_kernels_for_the_arguments_of_calls_begin_with_those_of_the_calls_before(monkeypatch: Any) -> None:
    from hjit.call import compiling

    made: list[tuple[str, ...]] = []
    evaluating = compiling.evaluating

    def noted(rec: Any, names: Any, options: Any, begun: tuple[str, ...] = ()) -> Any:
        made.append(begun)
        return evaluating(rec, names, options, begun)

    monkeypatch.setattr(compiling, "evaluating", noted)

    def f(img: Any) -> Any:
        for _ in range(3):
            x = scipy.ndimage.gaussian_filter(np.exp(img), 1.0)
            img = np.fft.fft2(x).real * 1e-6 + x
        return img

    p = hjit.pipeline(f, cache="off")
    image = np.random.default_rng(0).random((200, 300)).T
    np.testing.assert_allclose(p(image), f(image), rtol=1e-9)
    assert p(image).strides == f(image).strides
    assert [len(begun) for begun in made] == [0, 1, 1]
