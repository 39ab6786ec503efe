"""Calling a pipeline: forms of the decorator, forms of arguments and results, sizes and layouts."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import gc
import inspect
import pickle
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import ndimage

import hjit
from hjit import HjitError, TraceError

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.linspace(0, 255, 40 * 50, dtype=np.float32).reshape(40, 50)


def same(ours: Any, expected: Any) -> None:
    """Assert equal types, dtypes, shapes and values."""
    assert type(ours) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected, strict=True):
            same(a, b)
    elif isinstance(expected, dict):
        assert list(ours) == list(expected)
        for k in expected:
            same(ours[k], expected[k])
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert ours.dtype == expected.dtype
        assert ours.shape == expected.shape
        np.testing.assert_array_equal(ours, expected)
    else:
        assert ours == expected


def twice(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Compare two calls of a compiled `f` with plain ones; the pipeline, for a look at its counters."""
    p = hjit.pipeline(f, verify="off")
    for _ in range(2):
        same(p(*args, **kwargs), f(*args, **kwargs))
    assert p.stats.fallbacks == 0
    return p


def blur(img: Any) -> Any:
    """The mean of three rows."""
    return (img[:-2] + img[1:-1] + img[2:]) / 3


@hjit.pipeline
def module_level(img: Any) -> Any:
    return img * 2


# -- the decorator


def test_forms_of_the_decorator() -> None:
    @hjit.pipeline
    def plain(img: Any) -> Any:
        return img + 1

    @hjit.pipeline()
    def called(img: Any) -> Any:
        return img + 1

    @hjit.pipeline(verify="off", num_threads=1)
    def with_options(img: Any) -> Any:
        return img + 1

    for f in (plain, called, with_options, hjit.pipeline(lambda img: img + 1), hjit.pipeline(plain)):
        same(f(IMAGE), IMAGE + 1)
        same(f(IMAGE), IMAGE + 1)
        assert f.stats.calls == 2
        assert f.stats.fallbacks == 0


def test_it_looks_like_the_function() -> None:
    f = hjit.pipeline(blur)
    assert f.__name__ == "blur"
    assert f.__doc__ == blur.__doc__
    assert f.py_func is blur
    assert f.__wrapped__ is blur
    assert inspect.signature(f) == inspect.signature(blur)
    assert "blur" in repr(f)


def test_methods() -> None:
    class Filter:
        gain = 3.0

        @hjit.pipeline
        def method(self, img: Any) -> Any:
            return img * self.gain

        @staticmethod
        @hjit.pipeline
        def static_outside(img: Any) -> Any:
            return img + 1

        @hjit.pipeline
        @staticmethod
        def static_inside(img: Any) -> Any:
            return img + 1

        @classmethod
        @hjit.pipeline
        def of_class_outside(cls, img: Any) -> Any:
            return img * cls.gain

        @hjit.pipeline(verify="off")
        @classmethod
        def of_class_inside(cls, img: Any) -> Any:
            return img * cls.gain

    a, b = Filter(), Filter()
    b.gain = 5.0
    for _ in range(2):
        same(a.method(IMAGE), IMAGE * 3.0)
        same(b.method(IMAGE), IMAGE * 5.0)
        same(Filter.method(b, IMAGE), IMAGE * 5.0)
        for owner in (Filter, a):
            same(owner.static_outside(IMAGE), IMAGE + 1)
            same(owner.static_inside(IMAGE), IMAGE + 1)
            same(owner.of_class_outside(IMAGE), IMAGE * 3.0)
            same(owner.of_class_inside(IMAGE), IMAGE * 3.0)


def test_a_pipeline_calls_another() -> None:
    twice(lambda img: module_level(img) + 1, IMAGE)


def test_what_is_not_a_function() -> None:
    with pytest.raises(TypeError, match="decorates a function"):
        hjit.pipeline(5)
    with pytest.raises(TraceError, match="not a Python function"):
        hjit.pipeline(len)(IMAGE)
    with pytest.raises(TraceError, match="not a Python function"):
        hjit.pipeline(functools.partial(len, IMAGE))()


@pytest.mark.parametrize(
    "function", [np.add, functools.partial(np.add, 2), np.hypot, functools.partial(np.pad, pad_width=2), np.var]
)
def test_functions_of_numpy_are_pipelines_as_they_are(function: Any) -> None:
    args = [IMAGE] * getattr(function, "nin", 1)
    p = hjit.pipeline(function)
    same(p(*args), function(*args))
    assert p.stats.fallbacks == 0 and p.py_func is function


@pytest.mark.parametrize("angle", [30, 30.5])
def test_functions_of_scipy_are_what_they_are_inside_of_a_function(angle: float) -> None:
    p = hjit.pipeline(ndimage.rotate)
    assert np.array_equal(p(IMAGE, angle), ndimage.rotate(IMAGE, angle))
    assert "1 kernel" in str(p.explain(IMAGE, angle)) and "as it is" not in str(p.explain(IMAGE, angle))


def test_a_partial_of_a_function() -> None:
    table = np.arange(5.0)

    def f(table: Any, img: Any, k: float, *, names: Any = ("a", "b")) -> Any:
        return img * table[int(k)] + len(names) * k

    p = hjit.pipeline(functools.partial(f, table, names=["x"]))
    for k in (2.0, 3.0):
        same(p(IMAGE, k), f(table, IMAGE, k, names=["x"]))
    table[2] = 9  # an array is read at every call
    same(p(IMAGE, k=2.0), f(table, IMAGE, 2.0, names=["x"]))
    assert (p.stats.traces, p.stats.fallbacks) == (3, 0)
    same(hjit.pipeline(functools.partial(functools.partial(module_level), IMAGE))(), module_level(IMAGE))
    q = hjit.pipeline(functools.partial(lambda img, n: img.reshape(n, -1), n=7))
    with pytest.raises(ValueError, match="cannot reshape"):
        q(IMAGE[:5, :5])


def test_pickle_and_copy() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    made = pickle.loads(pickle.dumps(hjit.pipeline(blur, verify="off")))
    assert isinstance(made, hjit.Pipeline)
    assert made.py_func is blur
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(hjit.pipeline(lambda img: img))
    assert copy.copy(module_level) is copy.deepcopy(module_level) is module_level


class Wrapper:
    """What `functools.update_wrapper` makes of an object."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, img: Any) -> Any:
        return self.__wrapped__(img) + 1  # type: ignore[attr-defined]


def test_what_wraps_a_pipeline_has_nothing_of_its_state() -> None:
    img = np.random.default_rng(0).random((9, 9))
    inner = module_level(img)
    wrapper = Wrapper(module_level)
    assert not wrapper.__dict__.keys() & {"py_func", "stats", "tuned", "parts"}
    assert pickle.loads(pickle.dumps(wrapper)).__wrapped__ is module_level
    np.testing.assert_array_equal(wrapper(img), inner + 1)


def test_cloudpickle() -> None:
    """Takes what cannot be found by its name, as it takes plain functions."""
    cloudpickle = pytest.importorskip("cloudpickle")
    gain = 3.0
    made = cloudpickle.loads(cloudpickle.dumps(hjit.pipeline(lambda img: img * gain, verify="off")))
    assert isinstance(made, hjit.Pipeline)
    np.testing.assert_array_equal(made(IMAGE), IMAGE * gain)
    assert cloudpickle.loads(cloudpickle.dumps(module_level)) is module_level


# -- arguments and results


class Pair(NamedTuple):
    image: Any
    gain: float


def test_parameters() -> None:
    def f(a: Any, b: Any = 2.0, *more: Any, gain: float = 1.0, **rest: Any) -> Any:
        return a * b * gain + sum(more) + rest.get("offset", 0)

    twice(f, IMAGE)
    twice(f, IMAGE, 3.0)
    twice(f, IMAGE, b=3.0)
    twice(f, b=3.0, a=IMAGE)
    twice(f, IMAGE, IMAGE, IMAGE, 4.0)
    twice(f, IMAGE, gain=2.0, offset=IMAGE)
    p = hjit.pipeline(f, verify="off")
    for offset in (1.0, 2.0):
        same(p(IMAGE, gain=offset, offset=3), f(IMAGE, gain=offset, offset=3))
        same(p(IMAGE, offset=3, gain=offset), f(IMAGE, offset=3, gain=offset))


def test_containers() -> None:
    twice(lambda images: images[0] + images[1], [IMAGE, IMAGE * 2])
    twice(lambda images: images[0] + images[1], (IMAGE, 3))
    twice(lambda d: d["image"] * d["gain"], {"image": IMAGE, "gain": 2.0})
    twice(lambda d: d["a"][0] * d["a"][1]["b"], {"a": [IMAGE, {"b": 2.0}]})
    twice(lambda pair: pair.image * pair.gain, Pair(IMAGE, 2.0))
    twice(lambda d: d["x"] + 1, collections.OrderedDict(x=IMAGE))
    twice(lambda img: [img + 1, img + 2], IMAGE)
    twice(lambda img: (img + 1, (img + 2, 3), None, "text"), IMAGE)
    twice(lambda img: {"a": img + 1, "b": [img + 2]}, IMAGE)
    twice(lambda img: collections.OrderedDict(a=img + 1), IMAGE)
    twice(lambda img: Pair(img + 1, 2.0), IMAGE)
    twice(lambda img: img.shape, IMAGE)
    twice(lambda img: (img.max(), float(img.max()), int(img.max()), img.size, bool(img.max() > 3)), IMAGE)
    twice(lambda img: None, IMAGE)
    twice(lambda img: (), IMAGE)
    twice(lambda n: n * 2 + 1, 20)


class Mode(enum.Enum):
    ADD = 1
    SUBTRACT = 2


class Step(enum.IntEnum):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, False),
        ("add", "subtract"),
        (None, 1),
        (Mode.ADD, Mode.SUBTRACT),
        (Step.ONE, Step.TWO),
        (np.uint8, np.float64),
        (3 + 1j, 4 + 2j),
        (np.longdouble(1), np.longdouble(3)),
        (slice(0, 3), slice(1, 3)),
        (range(3), range(4)),
        (frozenset({1}), frozenset({2})),
        (b"x", b"y"),
        (np.dtype("u1"), np.dtype("u2")),
        (abs, len),
        (float("nan"), 1.0),
        (-0.0, 0.0),
    ],
)
def test_values_that_choose(a: Any, b: Any) -> None:
    p = hjit.pipeline(lambda img, x: img + 1 if repr(x) == repr(a) else img - 1, verify="off")
    for _ in range(2):
        same(p(IMAGE, a), IMAGE + 1)
        same(p(IMAGE, b), IMAGE - 1)


def test_enums_by_identity_and_equality() -> None:
    twice(lambda img, m: img + 1 if m is Mode.ADD else img - 1, IMAGE, Mode.ADD)
    twice(lambda img, m: img + 1 if m == Mode.ADD else img - 1, IMAGE, Mode.SUBTRACT)
    twice(lambda img, m: img * m, IMAGE, Step.TWO)


def test_functions_as_arguments() -> None:
    p = hjit.pipeline(lambda img, f: f(img) + 1, verify="off")
    for f in (np.sqrt, blur, lambda x: x * 2, np.sqrt):
        same(p(IMAGE, f), f(IMAGE) + 1)


# -- numbers are run-time parameters


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f2", "f4", "f8"])
def test_numbers_do_not_recompile(dtype: str) -> None:
    img = (IMAGE[:20, :20] / 8).astype(dtype)
    f = lambda img, a, b: img * a + b  # noqa: E731
    p = hjit.pipeline(f, verify="off")
    for a, b in ((2, 3), (1, 0), (3, 7)):
        same(p(img, a, b), f(img, a, b))
        made = p.stats.compilations + p.stats.cache_hits
    assert p.stats.traces == 1
    assert made <= 1
    for a, b in ((2.5, np.float32(1.5)), (-1.0, np.float32(0))):
        same(p(img, a, b), f(img, a, b))
    assert p.stats.traces == 2


def test_extreme_numbers() -> None:
    f = lambda img, s: img * s  # noqa: E731
    p = hjit.pipeline(f, verify="off")
    with np.errstate(all="ignore"):
        for s in (2.0, float("inf"), float("nan"), -0.0, 1e300, 5e-324):
            same(p(IMAGE, s), f(IMAGE, s))
    assert p.stats.traces == 1
    small = IMAGE.astype(np.uint8)
    q = hjit.pipeline(f, verify="off")
    same(q(small, 3), small * 3)
    for s in (300, -1, 10**30):
        with pytest.raises(OverflowError) as theirs:
            f(small, s)
        with pytest.raises(OverflowError) as ours:
            q(small, s)
        assert str(ours.value) == str(theirs.value)
    same(q(small, 4), small * 4)


def test_numbers_that_the_code_looks_at_are_pinned() -> None:
    def f(img: Any, sigma: float) -> Any:
        radius = int(2 * sigma)
        out = np.zeros_like(img)
        for k in range(-radius, radius + 1):
            out += np.roll(img, k, 0)
        return out

    p = hjit.pipeline(f, verify="off")
    for sigma in (1.0, 1.5, 1.0, 1.5):
        same(p(IMAGE, sigma), f(IMAGE, sigma))
    assert p.stats.traces == 2


def test_a_guard_protects_what_comes_after_it() -> None:
    f = lambda img, s: img + 1 / s if s != 0 else img  # noqa: E731
    p = hjit.pipeline(f, verify="off")
    for s in (2.0, 0.0, 4.0, 0.0):
        same(p(IMAGE, s), f(IMAGE, s))
    g = hjit.pipeline(lambda img, s: img + 1 / s, verify="off")
    same(g(IMAGE, 2.0), IMAGE + 0.5)
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        g(IMAGE, 0.0)


def test_numbers_by_keyword_and_default() -> None:
    p = twice(lambda img, gain=2.0: img * gain, IMAGE)
    for gain in (1.0, 2.5, 3.5):
        same(p(IMAGE, gain=gain), IMAGE * gain)
    assert p.stats.traces == 2


# -- dtypes and layouts


def test_other_dtypes_are_other_kernels() -> None:
    f = lambda img: img + 1  # noqa: E731
    p = hjit.pipeline(f)
    for dtype in ("u1", "i2", "f4", "f8", "f2", "i8", "u8"):
        same(p(IMAGE.astype(dtype)), f(IMAGE.astype(dtype)))
    assert p.stats.traces == 7


def _structured(a: Any) -> Any:
    s = np.zeros(a.shape, [("flag", "u1"), ("value", a.dtype)])
    s["value"] = a
    return s["value"]


def _shifted(a: Any) -> Any:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    view = raw[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


LAYOUTS = {
    "fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1, ::-1],
    "strided": lambda a: np.repeat(np.repeat(a, 3, 0), 2, 1)[::3, ::2],
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "broadcast rows": lambda a: np.broadcast_to(a[0], a.shape),
    "broadcast columns": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "broadcast": lambda a: np.broadcast_to(a[0, 0], a.shape),
    "inside": lambda a: np.pad(a, 7)[7:-7, 7:-7],
    "channel": lambda a: np.stack([a, a, a], -1)[..., 1],
    "structured": _structured,
    "shifted": _shifted,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_layouts(layout: str, dtype: str) -> None:
    a = LAYOUTS[layout](IMAGE.astype(dtype))  # type: ignore[operator]
    a.flags.writeable = False
    p = twice(lambda img: img[:, 1:] // 2 + img[:, :-1], a)
    other = IMAGE.astype(dtype)
    same(p(other), other[:, 1:] // 2 + other[:, :-1])
    same(p(a), a[:, 1:] // 2 + a[:, :-1])
    twice(lambda img: img.max(0), a)


def test_layouts_mix() -> None:
    f = lambda a, b: a * 2 + b  # noqa: E731
    for one in LAYOUTS.values():
        for other in (LAYOUTS["fortran"], LAYOUTS["structured"], LAYOUTS["broadcast"]):
            twice(f, one(IMAGE), other(IMAGE))  # type: ignore[operator]


def test_memory_mapped_files(tmp_path: Any) -> None:
    a = np.memmap(tmp_path / "image", np.float32, "w+", shape=IMAGE.shape)
    a[...] = IMAGE
    p = hjit.pipeline(blur)
    for _ in range(2):
        same(p(a), blur(IMAGE))
    assert p.stats.fallbacks == 0


def test_new_arrays_made_of_memory_mapped_files_are_no_false_alarm(tmp_path: Any) -> None:
    a = np.memmap(tmp_path / "image", np.float32, "w+", shape=IMAGE.shape)
    a[...] = IMAGE
    p = hjit.pipeline(lambda x: (x.astype(np.float64), np.zeros_like(x) + 1, x.copy(), np.asarray(x), x[1:]))
    for _ in range(2):
        for ours, numpys in zip(p(a), p.py_func(a), strict=True):
            same(np.asarray(ours), np.asarray(numpys))
            assert np.shares_memory(ours, a) == np.shares_memory(numpys, a)
    assert p.stats.verified and p.stats.fallbacks == 0


@pytest.mark.parametrize(
    "a",
    [
        IMAGE.astype(np.longdouble),
        IMAGE.astype(np.clongdouble),
        IMAGE.astype(object),
        np.zeros(3, "U5"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, [("x", "u1")]),
        IMAGE.view(np.recarray),
        np.ma.masked_array(IMAGE, IMAGE > 3),
        collections.deque([IMAGE]),
        {1, 2},
        bytearray(3),
        memoryview(b"xyz"),
    ],
    ids=lambda a: f"{type(a).__name__} {getattr(a, 'dtype', '')}",
)
def test_arguments_that_are_refused(a: Any) -> None:
    with pytest.raises(TraceError) as caught:
        hjit.pipeline(lambda a: a * 2)(a)
    assert caught.value.origin is not None
    assert caught.value.origin.filename == __file__


# -- sizes


def stencil(img: Any) -> Any:
    p = np.pad(img, 1, mode="edge")
    return np.maximum(p[:-2, 1:-1], p[2:, 1:-1]) + p[1:-1, :-2] * 2 - p[1:-1, 2:]


def test_every_small_size() -> None:
    p = hjit.pipeline(stencil, verify="off")
    for n in range(1, 41):
        a = np.arange(n * 23, dtype=np.float32).reshape(n, 23)
        same(p(a), stencil(a))
        same(p(a.T), stencil(a.T))
    assert p.stats.fallbacks == 0


def test_a_new_size_does_not_compile() -> None:
    p = hjit.pipeline(stencil, verify="off")
    same(p(np.ones((100, 100), np.float32)), stencil(np.ones((100, 100), np.float32)))
    made = p.stats.compilations + p.stats.cache_hits
    for shape in ((100, 101), (17, 300), (64, 18), (1000, 20), (20, 1000), (33, 33)):
        a = np.random.default_rng(0).random(shape, np.float32)
        same(p(a), stencil(a))
    assert p.stats.compilations + p.stats.cache_hits == made
    assert p.stats.traces == 7


def test_two_images_of_one_size_and_then_of_another() -> None:
    f = lambda a, b: a[:, :20] + b[:, :20]  # noqa: E731
    p = hjit.pipeline(f, verify="off")
    made = []
    for wide, narrow in ((50, 50), (50, 30), (30, 90)):
        a, b = np.ones((40, wide)), np.ones((40, narrow))
        same(p(a, b), f(a, b))
        made.append(p.stats.compilations + p.stats.cache_hits)
    assert made[0] == made[-1]


@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (1, 1), (0, 5), (5, 0), (20, 0, 3), (0, 20, 20), (1, 1, 1, 1), (1, 20), (20, 1)]
)
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    a = np.ones(shape, np.float32)
    twice(lambda a: a + 1, a)
    twice(lambda a: a.sum(), a)
    twice(lambda a: (a * 2, a[...], a.ravel()), a)
    twice(lambda a: np.stack([a, a + 1], -1), a)


# -- what a pipeline keeps


def test_no_call_is_kept_alive() -> None:
    class Owner:
        def __init__(self) -> None:
            self.table = IMAGE.copy()

        @hjit.pipeline(verify="off")
        def method(self, img: Any) -> Any:
            return img + self.table

    def branch(img: Any, s: float) -> Any:
        return img * s + 1 if img.max() > 1 else np.linalg.inv(img[:20, :20])

    for f in (lambda img, s: img * s, branch, lambda img, s: img[:, ::2], lambda img, s: np.take(img, int(s))):
        for make in (np.copy, _structured):
            p, image = hjit.pipeline(f), make(IMAGE)
            p(image, 2.0)
            p(image, 2.0)
            alive = weakref.ref(image)
            del image
            gc.collect()
            assert alive() is None
    owner, image = Owner(), IMAGE.copy()
    owner.method(image)
    owner.method(image)
    references = [weakref.ref(x) for x in (owner, owner.table, image)]
    del owner, image
    gc.collect()
    assert [r() for r in references] == [None] * 3


def test_objects_with_the_address_of_a_dead_one() -> None:
    class Gain:
        def __init__(self, gain: float) -> None:
            self.gain = gain

    p = hjit.pipeline(lambda img, g: img * g.gain, verify="off")
    for k in range(20):
        same(p(IMAGE, Gain(float(k))), IMAGE * float(k))


def test_many_keys_are_forgotten() -> None:
    p = hjit.pipeline(lambda img, name: img + len(name), verify="off")
    for k in range(600):
        p(IMAGE[:4, :4], "x" * (k % 3) + str(k))
    assert len(p._entries) <= 512


def test_what_cannot_be_hashed_or_compared() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]
        gain = 2.0

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not comparable")

    twice(lambda img, odd: img * odd.gain, IMAGE, Odd())
    assert issubclass(TraceError, HjitError)


# -- methods of objects, and objects that can be called


class Gain:
    default = 3.0

    def __init__(self, k: float) -> None:
        self.k, self.weights = k, np.arange(5.0)

    def applied(self, img: Any, offset: float = 1.0) -> Any:
        return img * self.k + offset + self.weights[2]

    def printed(self, img: Any) -> Any:
        img = img * 2 + self.k
        print("greatest", img.max())
        return img - img.mean()

    @classmethod
    def by_default(cls, img: Any) -> Any:
        return img * cls.default

    @staticmethod
    def one_more(img: Any) -> Any:
        return img + 1

    def __call__(self, img: Any) -> Any:
        return np.sqrt(img) * self.k


GAIN = Gain(2.0)


@pytest.mark.parametrize(
    "given",
    [
        GAIN.applied,
        Gain.by_default,
        GAIN.by_default,
        Gain.one_more,
        GAIN,
        functools.partial(GAIN.applied, offset=4.0),
        functools.partial(Gain.applied, GAIN),
    ],
)
def test_methods_and_objects_that_can_be_called(given: Any) -> None:
    img = np.random.default_rng(0).random((40, 30))
    pipe = hjit.pipeline(given, numpy_if_faster=False)
    for _ in range(3):
        np.testing.assert_array_equal(pipe(img), given(img))
    assert (pipe.stats.calls, pipe.stats.traces, pipe.stats.verified) == (3, 1, True) and pipe.stats.fallbacks <= 1
    assert "runs compiled" in pipe.explain(img) and "def " not in repr(pipe)
    out = np.empty_like(img)
    assert pipe.into(out, img) is out
    np.testing.assert_array_equal(out, given(img))
    assert pipe.py_func is given and inspect.signature(pipe) == inspect.signature(given)


def test_the_object_of_a_method_is_read_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    img, gain = np.random.default_rng(0).random((40, 30)), Gain(2.0)
    pipe = hjit.pipeline(gain.applied, numpy_if_faster=False)
    pipe(img)
    gain.k, gain.weights[2] = 5.0, 7.0
    np.testing.assert_array_equal(pipe(img), gain.applied(img))
    assert pipe.stats.fallbacks <= 1
    np.testing.assert_array_equal(copy.deepcopy(pipe)(img, offset=2.0), gain.applied(img, 2.0))
    again = pickle.loads(pickle.dumps(pipe))
    assert again.py_func.__self__ is not gain
    np.testing.assert_array_equal(again(img), gain.applied(img))
    np.testing.assert_array_equal(pipe.on("cpu")(img), gain.applied(img))
    parts = hjit.pipeline(gain.printed, on_unsupported="break")
    np.testing.assert_allclose(parts(img), gain.printed(img), rtol=1e-15)
    assert parts.stats.parts > 0 and capsys.readouterr().out.count("greatest") == 2
    assert type(hjit.pipeline(np.vectorize(np.sin))) is hjit.pipeline(np.sin).__class__  # NumPy's own stay as they are


def test_quiet_keeps_the_object_of_a_method() -> None:
    class Gain:
        def __init__(self) -> None:
            self.by = 3

        def applied(self, img: np.ndarray) -> np.ndarray:
            return img * self.by

    found = hjit.pipeline(Gain().applied).quiet()
    assert np.array_equal(found(np.ones((4, 5))), np.full((4, 5), 3.0))
