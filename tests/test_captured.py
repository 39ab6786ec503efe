"""What a function reads besides its arguments: globals, closures, defaults, attributes, helpers, random numbers, the clock."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import functools
import math
import random
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi

import hjit
from hjit import TraceError
from hjit.trace.capture import trace as tracing

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)
LUT = np.arange(10.0)
GAIN = 2.0
CONFIG: dict[str, Any] = {"gain": 2.0, "taps": [1.0, 2.0], "table": np.arange(4.0), "nested": {"on": True}}
COMPLEX = np.array([1 + 2j, 3 - 1j])
NAMES = np.array(["a", "b"])


def helper(img: Any) -> Any:
    return img + 1


KEPT: Any = None


@pytest.mark.parametrize("made", [frozenset, set, dict.fromkeys, lambda x: [frozenset(x)]])
def test_equal_numbers_of_other_types_in_sets_and_keys(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(img: Any) -> Any:
        return img + sum(KEPT[0] if type(KEPT) is list else KEPT)

    def given(img: Any, numbers: Any) -> Any:
        return img + sum(numbers)

    img = np.arange(6)
    f, g = hjit.pipeline(captured, cache="off"), hjit.pipeline(given, cache="off")
    for numbers in (made([1, 3]), made([1, 3.0]), made([True, 3])):
        monkeypatch.setattr(sys.modules[__name__], "KEPT", numbers)
        assert f(img).dtype == captured(img).dtype
        if type(numbers) in (frozenset, dict):  # of others hjit does not see when they change, or they are no numbers
            assert g(img, numbers).dtype == given(img, numbers).dtype


def checked(p: Any, *args: Any) -> None:
    """Two calls agree with the plain function."""
    for _ in range(2):
        ours, expected = p(*args), p.py_func(*args)
        assert type(ours) is type(expected)
        assert np.asarray(ours).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(ours, expected)
    assert p.stats.fallbacks == 0


def test_a_global_array_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(lambda img: img * LUT[3] + LUT[img.astype(int)])
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "LUT", LUT.copy())
    checked(p, IMAGE)
    LUT[...] = 5
    checked(p, IMAGE)
    LUT[3] = -1
    checked(p, IMAGE)
    assert p.stats.traces == 1
    monkeypatch.setitem(globals(), "LUT", np.arange(12.0)[::-1])
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "LUT", np.arange(20, dtype=np.int16))
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "LUT", list(range(20)))
    p = hjit.pipeline(lambda img: img * LUT[3])
    checked(p, IMAGE)
    LUT[3] = 7
    checked(p, IMAGE)


def test_a_global_number(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(lambda img: img * GAIN)
    for gain in (2.0, 3, np.float32(4), 2.0, True):
        monkeypatch.setitem(globals(), "GAIN", gain)
        checked(p, IMAGE)
    assert p.stats.traces == 4
    monkeypatch.delitem(globals(), "GAIN")
    with pytest.raises(NameError, match="GAIN"):
        p(IMAGE)


def test_a_closure() -> None:
    table, gain = np.arange(4.0), 2.0

    def f(img: Any) -> Any:
        return img * gain + table[1]

    p = hjit.pipeline(f)
    checked(p, IMAGE)
    table[1] = 10
    checked(p, IMAGE)
    assert p.stats.traces == 1
    gain = 3.0
    checked(p, IMAGE)
    table = np.arange(4.0) * 2
    checked(p, IMAGE)
    table = np.arange(6, dtype=np.float32)
    checked(p, IMAGE)
    assert p.stats.traces == 2


def scaled(k: Any) -> Any:
    return lambda a: a * k + k


def test_functions_of_a_factory_share_a_kernel(tmp_path: Path) -> None:
    for image in (IMAGE, IMAGE.astype(np.float32), IMAGE.astype(int)):
        for make in (scaled, lambda k: lambda a: np.where(a > k, np.clip(a, k, k + 100.0), k / 3)):
            folder = tmp_path / f"{image.dtype.name}{make is scaled}"
            for gain in (3, 5, -7, 1000):
                p = hjit.pipeline(make(gain), cache_dir=folder, verify="off")
                checked(p, image)
                assert p.stats.compilations == (gain == 3)
            assert len(list(folder.glob("*.code"))) == 1


def by_default(k: Any) -> Any:
    return lambda a, k=k: a * k + k


def by_keyword_default(k: Any) -> Any:
    def f(a: Any, *, k: Any = k) -> Any:
        return a * k + k

    return f


def by_partial(k: Any) -> Any:
    return functools.partial(lambda k, a: a * k + k, k)


def by_keyword_of_a_partial(k: Any) -> Any:
    return functools.partial(lambda a, k: a * k + k, k=k)


def by_a_helper(k: Any) -> Any:
    helper, other = by_default(k), by_keyword_of_a_partial(k)
    return lambda a: helper(a) * other(a)


@pytest.mark.parametrize("make", [by_default, by_keyword_default, by_partial, by_keyword_of_a_partial, by_a_helper])
def test_numbers_of_defaults_and_partials_are_read_at_every_call(make: Any) -> None:
    for image in (IMAGE, IMAGE.astype(np.float32), IMAGE.astype(int)):
        for gain in (3, 5, -7, 1000):
            p = hjit.pipeline(make(gain), cache="off", verify="off")
            checked(p, image)
            assert gain == 3 or p.stats.compilations == 0
        for kind in (float, np.float32, np.int16, np.bool_, bool):
            checked(hjit.pipeline(make(kind(2)), verify="off"), image)


def test_numbers_of_closures_of_other_types() -> None:
    gain: Any = 2.0
    p = hjit.pipeline(lambda img: img * gain, verify="off")
    image = IMAGE.astype(np.float32)
    for gain in (2.0, 3.5, 4, 5, np.float64(6), np.float32(7), np.float64(8), True, 2.0, -0.0, np.inf, np.nan):  # noqa: B007
        checked(p, image)
    assert p.stats.traces == 5


def test_a_number_of_a_closure_whose_value_is_needed() -> None:
    n = 2
    p = hjit.pipeline(lambda img: sum(img[k : 40 - n + k] for k in range(n)) / n)
    for n in (2, 3, 3, 2):  # noqa: B007
        checked(p, IMAGE)
    assert p.stats.traces == 2
    limit = 5
    p = hjit.pipeline(lambda img: img * limit if limit > 3 else img + limit)
    for limit in (5, 6, 7, 3, 2, 9):  # noqa: B007
        checked(p, IMAGE)
    assert p.stats.traces == 2


SMALL_IMAGE = (np.arange(2000) % 251).astype(np.uint8).reshape(40, 50)


@pytest.mark.parametrize("f", [
    lambda img, k: img // k, lambda img, k: img % k, lambda img, k: img ** k, lambda img, k: img >> k, lambda img, k: (img.astype(int) * k + 128) >> 8,
    lambda img, k: img & k, lambda img, k: np.minimum(img, k), lambda img, k: img > k - 300, lambda img, k: img < 90 * k, lambda img, k: img.astype(float) ** k,
    lambda img, k: img.astype(float) // k, lambda img, k: np.array([k, 2.5, k * 2]) + img[0, :3], lambda img, k: np.full((40, 50), k) + img,
    lambda img, k: img * (np.arange(50.0) / k), lambda img, k: np.where(img > 3, img, k), lambda img, k: np.clip(img, k, 40 * k),
    lambda img, k: np.roll(img, k, 0), lambda img, k: np.pad(img, k, constant_values=k), lambda img, k: img.reshape(k, -1), lambda img, k: img[::k],
    lambda img, k: ndi.uniform_filter(img, k), lambda img, k: ndi.gaussian_filter(img.astype(float), k / 2), lambda img, k: img.sum(axis=k // 2 - 1),
    lambda img, k: img + math.sqrt(k), lambda img, k: img * float(k) + int(k), lambda img, k: img * min(k, 3) + max(k, 1) + abs(k) + round(k),
    lambda img, k: img * np.sqrt(k), lambda img, k: img + {2: 5, 4: 6}[k], lambda img, k: img * len(f"{k}"), lambda img, k: img.astype(np.float32) * k,
    lambda img, k: cached(k) + img, lambda img, k: np.arange(k * 3)[None, :] + img[:, : 3 * k], lambda img, k: np.linspace(0, k, 50) * img,
    lambda img, k: np.convolve(img[0], np.array([1, 2, 1]) / k), lambda img, k: img * k / (k + 1.5),
    lambda img, k: stored(img, k), lambda img, k: img * (k if isinstance(k, int) else 7),
])  # fmt: skip
def test_a_number_of_a_closure_in_any_place(f: Any) -> None:
    k = 2
    p = hjit.pipeline(lambda img: f(img, k), verify="off")
    for k in (2, 4, 2):  # noqa: B007
        checked(p, SMALL_IMAGE)

    def g(img: Any, k: Any = 2) -> Any:
        return f(img, k)

    p = hjit.pipeline(g, verify="off")
    for k in (2, 4, 2):
        g.__defaults__ = (k,)
        checked(p, SMALL_IMAGE)


@functools.lru_cache(maxsize=8)
def cached(k: int) -> int:
    assert type(k) is int
    return k + 3


@functools.lru_cache(maxsize=8)
def taps(n: int) -> tuple[Any, int]:
    return np.ones(n), n


@pytest.mark.parametrize("n", [3, 4000, 9000])
def test_an_array_that_a_cached_function_keeps_is_read_at_every_call(n: int) -> None:
    p = hjit.pipeline(lambda img: img * taps(n)[0].max() + taps(n)[0][:4].sum(), verify="off")
    for value in (1, 7, 7, 2):
        taps(n)[0][:] = value
        checked(p, SMALL_IMAGE)


def stored(img: Any, k: Any) -> Any:
    out = img.copy()
    out[3] = k
    out[img > 9] = k + 1
    wide = img.astype(float)
    wide[5] = k
    return out * 1.5 + wide


def test_a_number_of_a_closure_that_does_not_fit() -> None:
    k = 7

    def add(img: Any) -> Any:
        return img + k

    def put(img: Any) -> Any:
        out = img.copy()
        out[0] = k
        return out

    for f in (add, put):
        p = hjit.pipeline(f)
        for k in (7, 300, -1, 9):  # noqa: B007
            try:
                expected = f(SMALL_IMAGE)
            except OverflowError:
                with pytest.raises(OverflowError):
                    p(SMALL_IMAGE)
            else:
                np.testing.assert_array_equal(p(SMALL_IMAGE), expected)


def test_what_a_closure_s_number_may_cost() -> None:
    """Where its value makes code faster, it is a constant: of divisions, powers, shifts, and of integers that need fewer bits than they have."""
    k = 3
    for f in (lambda img: img // k, lambda img: img**k, lambda img: img << k, lambda img: (img.astype(int) * k) >> 2):
        p = hjit.pipeline(f, verify="off")
        p(SMALL_IMAGE)
        assert "$s" not in str(p.graph(SMALL_IMAGE)), f
    p = hjit.pipeline(lambda img: img * k)
    p(IMAGE)
    assert "$s0" in str(p.graph(IMAGE))


def test_a_float_to_a_power_is_what_it_is_to_a_constant_power() -> None:
    """NumPy's operator computes some powers in other ways than `np.power` does."""
    image = np.random.default_rng(1).random((40, 50)) * 9

    def in_place(img: Any) -> Any:
        out = img.copy()
        out **= k
        return out

    for f in (lambda img: img**k, in_place):
        p = hjit.pipeline(f, verify="off")
        for k in (2, 0.5, -1):  # noqa: B007
            checked(p, image)


def test_numbers_of_closures_keep_their_types() -> None:
    small, bytes_ = IMAGE.astype(np.float32), IMAGE.astype(np.uint8)
    values = (
        3,
        2.5,
        np.float32(0.1),
        np.float64(0.1),
        np.float16(0.1),
        np.int8(-3),
        np.uint16(300),
        np.int64(5),
        np.bool_(True),
        True,
    )
    for image in (IMAGE, small, bytes_):
        for k in values:
            p = hjit.pipeline(lambda img: img * k, verify="off")
            checked(p, image)
            q = hjit.pipeline(
                lambda img: (
                    (img[0] - k, k, [k, 1 - k] if k.dtype != bool else k) if hasattr(k, "dtype") else (img + k, k)
                ),
                verify="off",
            )
            for a, b in zip(q(image), q.py_func(image), strict=True):
                assert type(a) is type(b)
                assert np.asarray(a).dtype == np.asarray(b).dtype
                np.testing.assert_array_equal(a, b)
            assert q.stats.fallbacks == 0


def test_what_is_no_number_of_a_closure() -> None:
    way: Any = None
    p = hjit.pipeline(lambda img: img if way is None else img * 2 if way == "double" else img + way, verify="off")
    for way in (None, "double", True, False, None, "other"):
        if way != "other":
            checked(p, IMAGE)
    assert p.stats.traces == 4


def test_a_counter_that_the_function_changes() -> None:
    n = 1

    def count(img: Any) -> Any:
        nonlocal n
        n += 1
        return img * n

    def bump() -> None:
        nonlocal n
        n += 1

    def through_another(img: Any) -> Any:
        bump()
        return img * n

    for f in (count, through_another):
        n = 1
        with pytest.warns(hjit.HjitWarning, match="nonlocal n"):
            p = hjit.pipeline(f, on_unsupported="numpy")
            for k in range(2, 5):
                np.testing.assert_array_equal(p(IMAGE), IMAGE * k)
                assert n == k


def test_a_counter_that_another_function_changes() -> None:
    n = 1

    def bump() -> None:
        nonlocal n
        n += 1

    p = hjit.pipeline(lambda img: img * n, verify="off")
    for _ in range(4):
        checked(p, IMAGE)
        bump()
    assert p.stats.traces == 1


def test_what_takes_no_run_time_number() -> None:
    """It has the plain number; the value is then a condition, as that of a global is."""
    k: Any = 2
    delta = hjit.pipeline(lambda img: img * datetime.timedelta(seconds=k).seconds + k)
    for k in (2, 3, 2, 3.0):  # noqa: B007
        checked(delta, IMAGE)
    assert delta.stats.traces == 3
    waves = hjit.pipeline(lambda img: img * abs((k + 1j) * (1j - k)))
    for k in (2, 3.5, 2):  # noqa: B007
        checked(waves, IMAGE)


def test_sizes_and_numbers_of_closures() -> None:
    k = 2
    p = hjit.pipeline(
        lambda img: img[: img.shape[0] // k, k * 20 - 20 : img.shape[1] - k] + (img.shape[0] % k) * (k + img.size),
        verify="off",
    )
    for image in (IMAGE, np.tile(IMAGE, (2, 2)), IMAGE[:31]):
        for k in (2, 3):  # noqa: B007
            checked(p, image)
    assert "(img.0)//(3)" in str(p.graph(np.tile(IMAGE, (2, 2))))


def test_an_inner_function_of_a_number_of_a_closure() -> None:
    gain, steps = 2.0, 3

    def outer(img: Any) -> Any:
        half = gain / 2

        def inner(a: Any) -> Any:
            return a * half + gain

        for _ in range(steps):
            img = inner(img)
        return img

    p = hjit.pipeline(outer, verify="off")
    for gain, steps in ((2.0, 3), (3.0, 3), (3.0, 2), (4.0, 2)):  # noqa: B007
        checked(p, IMAGE)
    assert p.stats.traces == 2


def test_the_numbers_of_a_closure_change_under_other_threads() -> None:
    """A call computes with one of the values that the variable has meanwhile, the same one everywhere."""
    gain: Any = 1.0
    p = hjit.pipeline(lambda img: img * gain - gain, verify="off")
    image = np.ones((20, 30))
    checked(p, image)
    gain = 2  # both types are traced before they change under the threads
    checked(p, image)
    wrong: list[Any] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            got = p(image)
            if (got != 0).any():
                wrong.append(got)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    for k in range(2000):
        gain = float(k) if k % 3 else k
        if k % 50 == 0:
            time.sleep(1e-3)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong
    assert p.stats.traces <= 2
    assert p.stats.fallbacks == 0


def test_an_emptied_cell() -> None:
    gain = 2.0

    def f(img: Any) -> Any:
        return img * gain

    p = hjit.pipeline(f)
    checked(p, IMAGE)
    del gain
    with pytest.raises(NameError):
        p(IMAGE)
    gain = 4.0
    checked(p, IMAGE)


def test_a_number_of_a_default_is_read_by_its_type() -> None:
    def f(img: Any, gain: Any = 2.0) -> Any:
        return img if gain is None else img * gain

    p = hjit.pipeline(f, verify="off")
    for gain in (2.0, 3.0, np.float32(3), 4, 5, None, 2.5, True):
        f.__defaults__ = (gain,)
        checked(p, IMAGE.astype(np.float32))
    assert p.stats.traces == 5
    checked(p, IMAGE, 7.0)
    assert p.stats.traces == 6


def test_defaults() -> None:
    def f(img: Any, table: Any = np.arange(4.0), *, gain: float = 2.0) -> Any:  # noqa: B008
        return img * gain + table[2]

    p = hjit.pipeline(f)
    checked(p, IMAGE)
    f.__defaults__[0][2] = 50  # type: ignore[index]
    checked(p, IMAGE)
    assert p.stats.traces == 1
    checked(p, IMAGE, np.arange(4.0) * 7)
    f.__kwdefaults__["gain"] = 5.0
    checked(p, IMAGE)


class Filter:
    """Attributes that change between calls."""

    def __init__(self) -> None:
        self.table = np.arange(4.0)
        self.gain = 2.0
        self.on = True
        self.offsets = [1.0, 2.0]

    @property
    def twice(self) -> float:
        return self.gain * 2

    def part(self, img: Any) -> Any:
        return img * self.gain if self.on else img

    def __call__(self, img: Any) -> Any:
        return self.part(img) + self.table[1] + self.twice + self.offsets[1]


def test_attributes_of_self() -> None:
    f = Filter()
    p = hjit.pipeline(lambda img, f: f(img))
    q = hjit.pipeline(lambda img: f(img))

    def both() -> None:
        checked(p, IMAGE, f)
        checked(q, IMAGE)

    both()
    f.table[1] = 10
    both()
    f.table = np.arange(4.0) * 3
    both()
    assert p.stats.traces == q.stats.traces == 1
    f.gain = 3.0
    both()
    f.on = False
    both()
    f.offsets[1] = 9.0
    both()
    f.offsets.append(1.0)
    both()
    f.part = lambda img: img * 100  # type: ignore[method-assign]
    both()
    del f.table
    for r in (p, q):
        with pytest.raises(AttributeError, match="table"):
            r(*(IMAGE, f)[: r.py_func.__code__.co_argcount])


def test_an_object_cannot_be_changed() -> None:
    class Counter:
        count = 0

        @hjit.pipeline
        def f(self, img: Any) -> Any:
            self.count += 1
            return img

    with pytest.raises(TraceError, match="outlives"):
        Counter().f(IMAGE)


def test_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        out = img * CONFIG["gain"] + CONFIG["taps"][1] + CONFIG["table"][2]
        return out * 2 if CONFIG["nested"]["on"] else out

    for kind in (dict, collections.OrderedDict, lambda d: collections.defaultdict(float, d)):
        config: Any = kind({**CONFIG, "taps": [1.0, 2.0], "table": np.arange(4.0), "nested": {"on": True}})  # type: ignore[operator]
        monkeypatch.setitem(globals(), "CONFIG", config)
        p = hjit.pipeline(f)
        checked(p, IMAGE)
        config["table"][2] = 30
        checked(p, IMAGE)
        assert p.stats.traces == 1
        config["gain"] = 5.0
        checked(p, IMAGE)
        config["taps"][1] = 8.0
        checked(p, IMAGE)
        config["nested"]["on"] = False
        checked(p, IMAGE)
        config["new"] = 1
        checked(p, IMAGE)
        config["table"] = np.arange(4)
        checked(p, IMAGE)


def test_namespaces_and_modules() -> None:
    space = types.SimpleNamespace(gain=2.0)
    module = types.ModuleType("settings")
    module.gain = 3.0  # type: ignore[attr-defined]
    p = hjit.pipeline(lambda img: img * space.gain + module.gain)  # type: ignore[attr-defined]
    checked(p, IMAGE)
    space.gain = 5.0
    checked(p, IMAGE)
    module.gain = 7.0  # type: ignore[attr-defined]
    checked(p, IMAGE)


def test_what_is_not_there_yet() -> None:
    space, module = types.SimpleNamespace(), types.ModuleType("settings")
    p = hjit.pipeline(
        lambda img: (
            img * getattr(space, "gain", 1.0)
            + getattr(module, "gain", 0.0)
            + (1 if "offset" in vars(space) else 0)
            + (1 if hasattr(module, "offset") else 0)
        )
    )
    for place, name in ((None, ""), (space, "gain"), (module, "gain"), (space, "offset"), (module, "offset")):
        if place is not None:
            setattr(place, name, 3.0)
        checked(p, IMAGE)
    assert p.stats.traces == 5


def gained(img: Any) -> Any:
    return img * GAIN + LUT[3]


TABLE_OF_PARTIALS = {k: functools.partial(lambda k, img, n: img * k + n[0], k, n=[k]) for k in range(3)}


def test_a_partial_in_a_table_is_looked_at_where_it_is_called() -> None:
    def f(img: Any) -> Any:
        g = TABLE_OF_PARTIALS[1]
        return copy.copy(g)(img) + g.args[0] + len(g.keywords)

    p = hjit.pipeline(f)
    np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    TABLE_OF_PARTIALS[0].keywords["n"][0] = 7  # of one that is not called
    np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.traces == 1
    TABLE_OF_PARTIALS[1].keywords["n"][0] = 7
    np.testing.assert_array_equal(p(IMAGE), f(IMAGE))


@pytest.mark.parametrize("kind", ["function", "partial", "method"])
def test_what_functions_among_the_arguments_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scale:
        gain = 2.0

        def run(self, img: Any) -> Any:
            return gained(img) * self.gain

    scale = Scale()
    by = {"function": gained, "partial": functools.partial(lambda k, img: gained(img) * k, 2.0), "method": scale.run}
    p = hjit.pipeline(lambda img, f: f(img) + 1)
    checked(p, IMAGE, by[kind])
    monkeypatch.setitem(globals(), "LUT", LUT + 1)
    checked(p, IMAGE, by[kind])
    assert p.stats.traces == 1
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    scale.gain = 5.0
    checked(p, IMAGE, by[kind])


def test_functions_of_numpy_among_the_arguments() -> None:
    p = hjit.pipeline(lambda img, f: f(img) * (2 if f is np.mean else 3), verify="off")
    for f in (np.mean, np.max, np.median, len):
        for _ in range(2):
            np.testing.assert_allclose(p(IMAGE, f), p.py_func(IMAGE, f), rtol=1e-14)


def test_arrays_that_kernels_do_not_have() -> None:
    p = hjit.pipeline(lambda img: img * COMPLEX[1].real)
    checked(p, IMAGE)
    COMPLEX[1] = 8
    checked(p, IMAGE)
    p = hjit.pipeline(lambda img: img + 1 if NAMES[0] == "a" else img - 1)
    checked(p, IMAGE)
    NAMES[0] = "c"
    checked(p, IMAGE)
    big = np.zeros(10_000, np.longdouble)
    with pytest.raises(TraceError, match=str(big.dtype)):
        hjit.pipeline(lambda img: img * float(big[0]))(IMAGE)
    masked = np.ma.masked_array(IMAGE, IMAGE > 3)
    with pytest.raises(TraceError, match=r"MaskedArray.*(?s:.*)x\.data and x\.mask"):
        hjit.pipeline(lambda img: img * masked)(IMAGE)
    queue = collections.deque([IMAGE])
    with pytest.raises(TraceError, match="deque"):
        hjit.pipeline(lambda img: img * queue[0])(IMAGE)


def test_unusual_captured_layouts() -> None:
    structured = np.zeros((40, 50), [("flag", "u1"), ("value", "f8")])
    table = structured["value"]
    table[...] = IMAGE
    p = hjit.pipeline(lambda img: img + table * 2)
    checked(p, IMAGE)
    table[3] = 7
    checked(p, IMAGE)
    assert p.stats.traces == 1


# -- helpers


def test_a_helper_is_redefined(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(lambda img: helper(img) * 2)
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "helper", lambda img: img - 1)
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "helper", np.sqrt)
    checked(p, IMAGE)
    monkeypatch.setitem(globals(), "helper", hjit.pipeline(lambda img: img * 3))
    checked(p, IMAGE)
    assert p.stats.traces == 4


def test_a_helper_in_another_module() -> None:
    module = types.ModuleType("hjit_test_helpers")
    exec("SCALE = 2.0\ndef scaled(img):\n    return img * SCALE\n", module.__dict__)
    sys.modules[module.__name__] = module

    def f(img: Any) -> Any:
        from hjit_test_helpers import scaled  # type: ignore[import-not-found]

        return scaled(img) + 1

    p = hjit.pipeline(f)
    checked(p, IMAGE)
    module.SCALE = 5.0  # type: ignore[attr-defined]
    checked(p, IMAGE)
    del sys.modules[module.__name__]


# -- random numbers


def seeded_alike(f: Any, reset: Any, after: Any) -> None:
    """The same numbers as NumPy at every call, and the stream left where NumPy leaves it."""
    for verify in ("first", "off"):
        p = hjit.pipeline(f, verify=verify)
        reset()
        ours = [p(IMAGE), p(IMAGE), p(IMAGE), after()]
        reset()
        expected = [f(IMAGE), f(IMAGE), f(IMAGE), after()]
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(a, b)
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        assert p.stats.traces == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda img: img + np.random.rand(*img.shape),
        lambda img: img + np.random.normal(0, 1, img.shape),
        lambda img: img * np.random.rand(),
        lambda img: img.astype(np.float32) * np.random.rand(),
        lambda img: img + np.random.randint(0, 5, size=3)[1] + np.random.standard_normal(),
        lambda img: np.random.poisson(img) * 2.0,
        lambda img: np.random.permutation(img) + 1,
        lambda img: img + np.random.sample(50),
    ],
)
def test_numpy_random(f: Any) -> None:
    seeded_alike(f, lambda: np.random.seed(3), np.random.rand)


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)])
def test_generators_inside_take_sizes(make: Any) -> None:
    def f(img: Any) -> Any:
        rng = make()
        places = rng.permutation(img.size), rng.choice(img.size, 9, replace=False), rng.choice(len(img))
        return [img.ravel()[k] for k in places], rng.normal(size=img.shape), img[rng.permutation(img.shape[0])]

    p = hjit.pipeline(f, on_unsupported="raise")
    for shape in ((20, 30), (23, 17)):
        img = np.random.default_rng(0).random(shape)
        for ours, theirs in zip(p(img)[0] + list(p(img)[1:]), f(img)[0] + list(f(img)[1:]), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_functions_made_at_each_call() -> None:
    """Those that a caller makes anew, of the same code, need no other trace, unless they hold something."""

    def apply(img: Any, f: Any) -> Any:
        return f(img) + 1

    def plain() -> Any:
        return lambda x: x * 2

    def holding(k: Any) -> Any:
        return lambda x: x * k

    def with_default(k: Any) -> Any:
        return lambda x, k=k: x * k

    p = hjit.pipeline(apply, on_unsupported="raise")
    img = np.random.default_rng(0).random((20, 30))
    for _ in range(3):
        np.testing.assert_array_equal(p(img, plain()), img * 2 + 1)
    assert p.stats.traces == 1
    which = hjit.pipeline(lambda x, f, g: f(x) if f is g else x, on_unsupported="raise")
    for f, g in ((plain(),) * 2, (plain(), plain()), (plain(),) * 2):
        np.testing.assert_array_equal(which(img, f, g), img * 2 if f is g else img)
    for k in (3, 4):
        np.testing.assert_array_equal(p(img, holding(k)), img * k + 1)
        np.testing.assert_array_equal(p(img, with_default(k)), img * k + 1)


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)])
def test_generators_inside_take_numbers_of_the_caller(make: Any) -> None:
    def f(img: Any, n: int) -> Any:
        rng = make()
        places = rng.permutation(n)[:5], rng.choice(n * n, 5, replace=False), rng.choice([0, n], 9)
        return [img.ravel()[k] for k in places]

    p = hjit.pipeline(f, on_unsupported="raise")
    img = np.random.default_rng(0).random((20, 30))
    for n in (20, 20, 11):
        for ours, theirs in zip(p(img, n), f(img, n), strict=True):
            np.testing.assert_array_equal(ours, theirs)


OWN_STREAM = random.Random(2)


@pytest.mark.parametrize(
    "f",
    [
        lambda img: img * random.random(),
        lambda img: img.astype(np.float32) * random.uniform(0.5, 2) + random.randint(1, 9),
        lambda img: np.clip(img * random.gauss(1, 0.1) + random.triangular(0, 3), 0, 255),
        lambda img: np.roll(img + random.randrange(0, 9, 3), 1) * random.betavariate(2, 3),
        lambda img: img * OWN_STREAM.random() + OWN_STREAM.randint(0, 3),
    ],
)
def test_python_random(f: Any) -> None:
    def reset() -> None:
        random.seed(3)
        OWN_STREAM.seed(4)

    seeded_alike(f, reset, lambda: random.random() + OWN_STREAM.random())


def test_a_seed_inside() -> None:
    def f(img: Any) -> Any:
        np.random.seed(5)
        return img + np.random.rand(50)

    seeded_alike(f, lambda: None, np.random.rand)


def test_generators() -> None:
    generator, state = np.random.default_rng(1), np.random.RandomState(1)
    start, old = generator.bit_generator.state, state.get_state()

    def reset() -> None:
        generator.bit_generator.state = start
        state.set_state(old)

    seeded_alike(lambda img: img + generator.normal(size=img.shape), reset, generator.random)
    seeded_alike(lambda img: img + state.normal(size=img.shape), reset, state.rand)
    seeded_alike(lambda img: img + np.random.default_rng(4).random(50), reset, generator.random)
    seeded_alike(lambda img: img + np.random.default_rng(generator).random(50), reset, generator.random)
    p = hjit.pipeline(lambda img, rng: img + rng.random(50))
    for seed in (1, 2, 1):
        np.testing.assert_array_equal(
            p(IMAGE, np.random.default_rng(seed)), IMAGE + np.random.default_rng(seed).random(50)
        )


def test_a_trace_that_fails_draws_nothing() -> None:
    def f(img: Any) -> Any:
        noisy = img + np.random.rand(50)
        return noisy + time.time() * 0

    p = hjit.pipeline(f, on_unsupported="numpy")
    np.random.seed(3)
    with pytest.warns(hjit.HjitWarning, match=r"time\.time"):
        ours = [p(IMAGE), p(IMAGE)]
    np.random.seed(3)
    for a in ours:
        np.testing.assert_array_equal(a, f(IMAGE))

    def shaped_wrongly(img: Any) -> Any:
        return img + np.random.rand(49)

    np.random.seed(3)
    with pytest.raises(ValueError, match="broadcast"):
        hjit.pipeline(shaped_wrongly)(IMAGE)
    ours_after = np.random.rand()
    np.random.seed(3)
    with pytest.raises(ValueError, match="broadcast"):
        shaped_wrongly(IMAGE)
    assert ours_after == np.random.rand()


# -- what changes from call to call


@pytest.mark.parametrize(
    "f",
    [
        lambda img: img + time.time(),
        lambda img: img + time.perf_counter(),
        lambda img: img + time.monotonic_ns(),
        lambda img: img + datetime.datetime.now().second,
        lambda img: img + datetime.date.today().day,
        lambda img: print("computing") or img,
        lambda img: img + random.choice([1, 2]),
        lambda img: img + random.SystemRandom().random(),
        lambda img: random.shuffle([1, 2]) or img,
        lambda img: img + np.random.default_rng().random(),
        lambda img: img + float(input()),
        lambda img: img + len(open("x").read()),
        lambda img: np.random.shuffle(img),
    ],
)
def test_impure_calls_are_refused(f: Any) -> None:
    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f)(IMAGE)
    assert caught.value.origin is not None
    assert caught.value.origin.filename == __file__
    assert caught.value.origin.line == f.__code__.co_firstlineno


def test_dates_are_still_dates() -> None:
    day = datetime.date(2020, 1, 2)
    checked(
        hjit.pipeline(lambda img: img + (datetime.datetime(2020, 1, 2).day if isinstance(day, datetime.date) else 0)),
        IMAGE,
    )


@dataclasses.dataclass(frozen=True)
class Gains:
    gain: float = 1.0
    shift: float = 0.5


class Odd:
    """An object that is empty, and true."""

    def __init__(self) -> None:
        self.weights = [1.0, 2.0]

    def __len__(self) -> int:
        return len(self.weights) - 2

    def __bool__(self) -> bool:
        return True

    def __contains__(self, x: Any) -> bool:
        return x in self.weights

    def __add__(self, other: Any) -> Any:
        return other + self.weights[0]

    __radd__ = __add__

    def __float__(self) -> float:
        return self.weights[1]


class Plain:
    pass


G1, G2, G3, ODD, PLAIN, OTHER = Gains(), Gains(), Gains(2.0), Odd(), Plain(), Plain()


@pytest.mark.parametrize("f", [
    lambda img: img + 1 if G1 == G2 else img,
    lambda img: img + 1 if G1 != G3 else img,
    lambda img: img + 1 if PLAIN == PLAIN and PLAIN != OTHER else img,
    lambda img: img + 1 if PLAIN in [OTHER, PLAIN] else img,
    lambda img: img + 1 if PLAIN and ODD and not len(ODD) else img,
    lambda img: img + 1 if 2.0 in ODD and 7 not in ODD else img,
    lambda img: (ODD + img) * float(ODD),
    lambda img: img + {G1: 3.0}[G2],
    lambda img: img + len(f"{G3}") + len(str(G1)),
])  # fmt: skip
def test_captured_objects_compare_and_count_as_they_do(f: Any) -> None:
    checked(hjit.pipeline(f), IMAGE)


def test_what_a_comparison_of_objects_reads_is_watched() -> None:
    odd = Odd()
    p = hjit.pipeline(lambda img: img + 1 if 2.0 in odd else img)
    checked(p, IMAGE)
    odd.weights[1] = 5.0
    checked(p, IMAGE)


def gained_later(img: Any) -> Any:
    try:
        return img * LATER  # type: ignore[name-defined]
    except NameError:
        return img - 1


@pytest.mark.parametrize("f", [
    gained_later,
    lambda img: img * 2 if "LATER" in globals() else img + 1,
    lambda img: img * globals().get("LATER", 7),
])  # fmt: skip
def test_a_global_that_is_defined_later_is_seen(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(f)
    checked(p, IMAGE)
    for k in (3.0, 4.0):
        monkeypatch.setitem(globals(), "LATER", k)
        checked(p, IMAGE)
        monkeypatch.delitem(globals(), "LATER")
        checked(p, IMAGE)
    assert p.stats.fallbacks == 0


def test_builtins_are_not_looked_for_at_every_call() -> None:
    p = hjit.pipeline(lambda img: abs(img) + len(img))
    checked(p, IMAGE)
    assert p.entries[0].fast is not None


def _of_mask(gain: float) -> Any:
    def f(x: Any) -> Any:
        return np.argsort(-x[x > 0.5] * gain)

    return f


def _of_list(gain: float) -> Any:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(x.shape)
        return x * gain

    return f


def _of_number(gain: float) -> Any:
    def f(x: Any) -> Any:
        return x * float(decimal.Decimal(gain))  # which takes floats only

    return f


@pytest.mark.parametrize(("make", "runs"), [(_of_mask, 1), (_of_list, 1), (_of_number, 2)])
def test_captured_numbers_become_constants_only_where_that_may_help(
    make: Any, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = []
    original = tracing._traced
    monkeypatch.setattr(tracing, "_traced", lambda rec, *args: (count.append(rec), original(rec, *args))[1])
    f = hjit.pipeline(make(2.5), on_unsupported="numpy").quiet()
    x = np.linspace(0, 1, 40 * 50).reshape(40, 50)
    np.testing.assert_array_equal(f(x), f.py_func(x))
    assert len(count) == runs and [rec.attempt.freeze_captured for rec in count] == [False, True][:runs]


WAITING: list[int] = []
COUNTS = {"calls": 0}


def test_a_global_list_that_the_function_empties_is_emptied_at_every_call() -> None:
    def f(img: Any) -> Any:
        total = 0
        while WAITING:  # each time it is asked for, it is the list that was changed
            total += WAITING.pop()
        return img * total

    pipe = hjit.pipeline(f, on_unsupported="numpy").quiet()
    for items in ([1, 2, 3], [], [5]):
        WAITING[:] = items
        np.testing.assert_array_equal(pipe(np.ones(4)), np.ones(4) * sum(items))
        assert WAITING == []


def test_a_global_dict_that_the_function_changes_counts_its_calls() -> None:
    def f(img: Any) -> Any:
        COUNTS["calls"] += 1
        COUNTS["calls"] += 1
        return img + COUNTS["calls"]

    pipe = hjit.pipeline(f, on_unsupported="numpy").quiet()
    for k in range(3):
        np.testing.assert_array_equal(pipe(np.zeros(4)), np.full(4, 2.0 * (k + 1)))
