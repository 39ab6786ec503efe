"""What a function changes besides arrays changes once a call, whatever kind of object it is, and however it is reached.

A trace runs the user's code, several times perhaps, and leaves no mark on what outlives it.
"""

from __future__ import annotations

import array
import collections
import ctypes
import decimal
import fractions
import functools
import hashlib
import queue
import re
import threading
import types
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from numpy.testing import assert_equal

import hjit

IMAGE = np.arange(12.0).reshape(3, 4) + 100
HELD: Any = None  # what the functions below find under a global name
TOTAL = 0  # assigned by code that runs as it is
MADE: list[int] = []  # changed by such


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


class Counted:
    """Its classes count."""

    n = 0
    kinds: list[str] = []  # noqa: RUF012

    @classmethod
    def count(cls) -> None:
        cls.n += 1

    def count_by_type(self) -> None:
        type(self).n += 1

    def count_by_class(self) -> None:
        self.__class__.n += 1
        self.kinds.append("x")


class Box:
    """Made as it is."""

    def __init__(self) -> None:
        global TOTAL
        TOTAL += 1
        MADE.append(TOTAL)
        self.number = TOTAL


class Asking:
    """A descriptor that counts."""

    asked = 0

    def __get__(self, owner: Any, cls: type) -> int:
        self.asked += 1
        return self.asked


class Asked:
    """Answers for attributes that it has not."""

    first = Asking()

    def __init__(self) -> None:
        self.found = {"gain": 2.0}
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.names.append(name)
        return self.found[name]


class OfModule:
    """Changes another module's variable."""

    def __init__(self) -> None:
        counters.total += 1


counters: Any = types.ModuleType("counters_of_a_test")


class Listed(list[Any]):
    """A list of the user's."""


def add(x: int, k: int) -> int:
    return x + k


def add_to_counter(img: Any, o: Any) -> None:
    o["a"] += 1
    o.update("ab")


def add_to_lists(img: Any, o: Any) -> None:
    o["mean"].append(img.mean())


def add_in_place(img: Any, o: Any) -> None:
    o += [img.mean()]


def acquire(img: Any, o: Any) -> None:
    o.acquire(blocking=False)


def compress(img: Any, o: Any) -> None:
    o.compress(b"abc")


def set_attribute(img: Any, o: Any) -> None:
    o.x = getattr(o, "x", 0) + 1


def set_precision(img: Any, o: Any) -> None:
    o.prec += 1


def set_keyword(img: Any, o: Any) -> None:
    o.keywords["k"] += 1


def set_fields(img: Any, o: Any) -> None:
    o["n"] += 1
    o["m"] = img.max()


def set_first(img: Any, o: Any) -> None:
    o[0] = o[0] + 1


def set_items(img: Any, o: Any) -> None:
    o[0].append(1)
    o[1] += 1


def scale(img: Any, o: Any) -> None:
    o.data *= 2


def make_child(img: Any, o: Any) -> None:
    ElementTree.SubElement(o, "path")


def hash_more(img: Any, o: Any) -> None:
    o.update(b"a")


def put(img: Any, o: Any) -> None:
    o.put(img.mean())


def count(img: Any, o: Any) -> None:
    o.count()


def count_by_name(img: Any, o: Any) -> None:
    o.n += 1
    o.kinds.append("y")


def count_by_type(img: Any, o: Any) -> None:
    o.count_by_type()


def count_by_class(img: Any, o: Any) -> None:
    o.count_by_class()


def make(img: Any, o: Any) -> None:
    o()


def ask(img: Any, o: Any) -> None:
    img *= o.gain


def ask_first(img: Any, o: Any) -> None:
    img *= o.first


def move(img: Any, o: Any) -> None:
    o.move_to_end("a")


def append_to_one_of_many(img: Any, o: Any) -> None:
    o[3].append(1)


def one_more(img: Any, o: Any) -> None:
    o.update([3])


def with_class(make: Callable[[type[Counted]], Any]) -> Callable[[], Any]:
    """Makes an object of a class of its own."""
    return lambda: make(type("Own", (Counted,), {"kinds": []}))


def made_class() -> type:
    global TOTAL
    TOTAL = 0
    MADE.clear()
    return Box


def of_module() -> type:
    counters.total = 0
    return OfModule


def asked() -> Any:
    Asked.__dict__["first"].asked = 0
    return Asked()


def of_class(cls: Any) -> Any:
    return cls.n, list(cls.kinds)


def sent(q: Any) -> list[Any]:
    return [q.get() for _ in range(q.qsize())]


CASES: dict[str, tuple[Callable[[], Any], Callable[..., None], Callable[[Any], Any]]] = {
    "Counter": (collections.Counter, add_to_counter, dict),
    "defaultdict": (lambda: collections.defaultdict(list), add_to_lists, dict),
    "list of the user's": (Listed, add_in_place, list),
    "deque": (collections.deque, add_in_place, list),
    "array": (lambda: array.array("d", [0]), set_first, list),
    "hash": (hashlib.md5, hash_more, lambda h: h.hexdigest()),
    "ctypes": ((ctypes.c_int * 3), set_first, list),
    "queue": (queue.SimpleQueue, put, sent),
    "lock": (threading.Lock, acquire, lambda lock: lock.locked()),
    "compressor": (zlib.compressobj, compress, lambda z: z.flush()),
    "context": (decimal.Context, set_precision, lambda c: c.prec),
    "element": (lambda: ElementTree.Element("svg"), make_child, ElementTree.tostring),
    "sparse matrix": (lambda: scipy.sparse.eye(3).tocsr(), scale, lambda m: m.toarray()),
    "polynomial": (lambda: np.poly1d([1.0, 2.0]), set_first, lambda p: p.coeffs),
    "module": (lambda: types.ModuleType("of_a_test"), set_attribute, lambda m: m.x),
    "partial": (lambda: functools.partial(add, k=0), set_keyword, lambda p: p.keywords),
    "structured scalar": (lambda: np.zeros(1, [("n", "i4"), ("m", "f8")])[0], set_fields, lambda x: x.item()),
    "structured array": (lambda: np.zeros(2, [("n", "i4"), ("m", "f8")]), set_fields, lambda x: x.tolist()),
    "array of objects": (lambda: np.array([[], 0], dtype=object), set_items, lambda x: x.tolist()),
    "class": (with_class(lambda cls: cls), count_by_name, of_class),
    "class method": (with_class(lambda cls: cls), count, of_class),
    "class method of an object": (with_class(lambda cls: cls()), count, of_class),
    "type of an object": (with_class(lambda cls: cls()), count_by_type, of_class),
    "__class__ of an object": (with_class(lambda cls: cls()), count_by_class, of_class),
    "OrderedDict": (lambda: collections.OrderedDict(a=1, b=2), move, list),
    "many lists": (lambda: {k: [] for k in range(5000)}, append_to_one_of_many, lambda d: d[3]),
    "large Counter": (lambda: collections.Counter(range(5000)), one_more, lambda c: c[3]),
    "__getattr__": (asked, ask, lambda o: o.names),
    "descriptor": (asked, ask_first, lambda o: Asked.__dict__["first"].asked),
    "class that changes a module": (of_module, make, lambda cls: counters.total),
    "class that is called": (made_class, make, lambda cls: (TOTAL, list(MADE))),
}


def argument(change: Any, is_late: bool) -> Any:
    def f(img: Any, o: Any) -> Any:
        if is_late:
            img = img + np.unique(img)[0]
        change(img, o)
        return img * 2

    return f, lambda o: (o,)


def closure(change: Any, is_late: bool) -> Any:
    held: Any = None

    def f(img: Any) -> Any:
        if is_late:
            img = img + np.unique(img)[0]
        change(img, held)
        return img * 2

    def hold(o: Any) -> tuple[()]:
        nonlocal held
        held = o
        return ()

    return f, hold


def named(change: Any, is_late: bool) -> Any:
    def f(img: Any) -> Any:
        if is_late:
            img = img + np.unique(img)[0]
        change(img, HELD)
        return img * 2

    def hold(o: Any) -> tuple[()]:
        global HELD
        HELD = o
        return ()

    return f, hold


def attribute(change: Any, is_late: bool) -> Any:
    def f(img: Any, holder: Holder) -> Any:
        if is_late:
            img = img + np.unique(img)[0]
        change(img, holder.held)
        return img * 2

    return f, lambda o: (Holder(o),)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("where", [argument, closure, named, attribute])
@pytest.mark.parametrize("kind", CASES)
def test_it_changes_once_a_call(kind: str, where: Any, is_late: bool) -> None:
    new, change, shown = CASES[kind]
    found = []
    for runs in (lambda f: f, functools.partial(hjit.pipeline, on_unsupported="break", verify="off")):
        f, hold = where(change, is_late)
        f, o = runs(f), new()
        more = hold(o)
        results = [f(IMAGE.copy(), *more) for _ in range(3)]
        found.append((results, shown(o)))
    assert_equal(found[1], found[0])


# -- what the function makes itself


def counts(img: Any) -> Any:
    c: Any = collections.Counter()
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            c[int(img[y, x])] += 1
    return dict(c)


def lists(img: Any) -> Any:
    d = collections.defaultdict(list)
    u = np.unique(img)
    d["mean"].append(img.mean())
    return dict(d), u


def matrix(img: Any) -> Any:
    m = scipy.sparse.csr_matrix(img)
    m.data *= 2
    return m.toarray(), img + 1


def digest(img: Any) -> Any:
    h = hashlib.sha1()
    h.update((img * 2).tobytes())
    h.update(b"x")
    return h.hexdigest(), img + 1


def drawing(img: Any) -> Any:
    root = ElementTree.Element("svg")
    u = np.unique(img)
    ElementTree.SubElement(root, "path")
    return ElementTree.tostring(root), img + u[0]


def rows(img: Any) -> Any:
    t = np.zeros(3, [("n", "i4"), ("m", "f8")])
    for i, row in enumerate(t):
        row["n"] += i
        row["m"] = img[i].mean()
    return t


def numbered(img: Any) -> Any:
    class Own:
        made = 0

        def __init__(self, mean: Any) -> None:
            Own.made += 1
            self.number = Own.made
            self.mean = mean

    u = np.unique(img)
    return [x.number for x in (Own(img.mean()), Own(img.max()))], u


def flat(img: Any) -> Any:
    it = img.flat
    first = next(it)
    u = np.unique(img)
    return first, next(it), u


@pytest.mark.parametrize("function", [counts, lists, matrix, digest, drawing, rows, numbered, flat])
def test_what_the_function_makes_itself(function: Any) -> None:
    f = hjit.pipeline(function, on_unsupported="break", verify="off")
    for _ in range(3):
        assert_equal(f(IMAGE.copy()), function(IMAGE.copy()))


@pytest.mark.parametrize("draw", ["spawn", "Generator"])
def test_generators_that_others_are_made_of(draw: str) -> None:
    def spawned(img: Any, rng: Any) -> Any:
        return img[0, 0] + rng.spawn(1)[0].random()

    def made(img: Any, bits: Any) -> Any:
        return img[0, 0] + np.random.Generator(bits).random()

    function: Any = spawned if draw == "spawn" else made
    f = hjit.pipeline(function, on_unsupported="break", verify="off")
    ours, theirs = (np.random.default_rng(1) if draw == "spawn" else np.random.PCG64(1) for _ in range(2))
    for _ in range(3):
        assert f(IMAGE, ours) == function(IMAGE, theirs)


# -- what is read


class Settings:
    gain = 2.0
    table: Any = np.arange(4.0)
    taps: list[float] = [1.0, 2.0]  # noqa: RUF012


def test_attributes_of_classes_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Settings):
        pass

    def function(img: Any) -> Any:
        return img * Own.gain + Own.table + Own.taps[1] + getattr(Own, "offset", 0)

    f = hjit.pipeline(function)
    for change in (
        lambda: None,
        lambda: setattr(Settings, "gain", 3.0),
        lambda: setattr(Own, "gain", 4.0),
        lambda: Settings.table.__setitem__(1, 9.0),
        lambda: Settings.taps.__setitem__(1, 5.0),
        lambda: setattr(Own, "offset", 1.0),
    ):
        change()
        for _ in range(2):
            assert_equal(f(IMAGE), function(IMAGE))
    monkeypatch.setattr(Settings, "gain", 2.0)
    assert f.stats.traces == 6


def test_a_class_that_counts_its_objects_is_traced_once() -> None:
    class Frame:
        made = 0

        def __init__(self) -> None:
            Frame.made += 1

    f = hjit.pipeline(lambda img, n: img * n if issubclass(Frame, object) else img)
    for k in range(3):
        Frame()
        assert_equal(f(IMAGE, k), IMAGE * k)
    assert f.stats.traces == 1


def test_descriptors_are_seen_through() -> None:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, owner: Any, cls: type) -> Any:
            return getattr(owner, self.name)

        def __set__(self, owner: Any, value: Any) -> None:
            setattr(owner, self.name, value)

    class Config:
        gain, table = Field(), Field()

    config: Any = Config()
    f = hjit.pipeline(lambda img: img * config.gain + config.table)
    for k in (2.0, 3.0):
        config.gain, config.table = k, np.arange(4) * k
        assert_equal(f(IMAGE), IMAGE * k + config.table)


POLY, LEGENDRE = np.poly1d([1.0, 2.0, 3.0]), np.polynomial.Legendre([1.0, 2.0])
FIXED = types.MappingProxyType({"gain": 2.0, "table": np.arange(4.0)})


@pytest.mark.parametrize(
    "function",
    [
        lambda img: POLY(img),
        lambda img: LEGENDRE(img),
        lambda img: img * FIXED["gain"] + FIXED["table"],
        lambda img: img * float(fractions.Fraction(1, 2)) * len(re.compile("a").sub("bb", "aa")),
    ],
)
def test_what_is_known_is_no_break(function: Any) -> None:
    f = hjit.pipeline(function)
    for _ in range(2):
        assert_equal(f(IMAGE), function(IMAGE))
        POLY[0] += 1.0
    assert f.stats.parts == 0
    assert f.stats.fallbacks == 0


def test_draws_of_distributions_are_made_at_every_call() -> None:
    f = hjit.pipeline(lambda img: img * scipy.stats.norm.rvs(size=4), on_unsupported="break", verify="off")
    np.random.seed(0)
    theirs = [f.py_func(IMAGE) for _ in range(3)]
    np.random.seed(0)
    assert_equal([f(IMAGE) for _ in range(3)], theirs)


def test_attributes_of_functions_are_guarded() -> None:
    def helper(img: Any) -> Any:
        return img * helper.gain  # type: ignore[attr-defined]

    helper.gain = 2.0  # type: ignore[attr-defined]
    f = hjit.pipeline(lambda img: helper(img) + 1)
    assert_equal(f(IMAGE), IMAGE * 2 + 1)
    helper.gain = 3.0  # type: ignore[attr-defined]
    assert_equal(f(IMAGE), IMAGE * 3 + 1)


def test_what_is_only_passed_on_or_asked_for_its_class_is_no_break() -> None:
    def helper(img: Any, lock: Any, matrix: Any) -> Any:
        return img * 2 if lock is not None and isinstance(matrix, scipy.sparse.csr_matrix) else img

    f = hjit.pipeline(lambda img, lock: helper(img, lock, matrix) + callable(lock))
    matrix = scipy.sparse.csr_matrix(np.eye(2))
    assert_equal(f(IMAGE, threading.Lock()), IMAGE * 2)
    assert f.stats.parts == 0


def test_an_object_that_may_change_is_said() -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    f = hjit.pipeline(lambda img: img + matrix.sum())
    with pytest.raises(hjit.TraceError, match=r"matrix\.sum: hjit does not know whether this changes the csr_matrix"):
        f(IMAGE)


def test_lists_and_dicts_that_are_given_are_returned_themselves() -> None:
    def function(img: Any, meta: Any, log: Any) -> Any:
        x = img * 2
        log = log or meta["log"]
        return x + 1, meta, [log]

    f = hjit.pipeline(function, on_unsupported="break", verify="off")
    meta: Any = {"log": [1]}
    for _ in range(3):
        found, same, [log] = f(IMAGE, meta, [])
        assert_equal(found, IMAGE * 2 + 1)
        assert same is meta and log is meta["log"]


def test_lists_of_the_users_classes_are_guarded() -> None:
    taps = Listed([1.0, 2.0])
    f = hjit.pipeline(lambda img: img * len(taps) + sum(taps))
    for _ in range(3):
        assert_equal(f(IMAGE), IMAGE * len(taps) + sum(taps))
        taps.append(3.0)


def test_what_is_asked_of_an_objects_items_runs_as_it_does_in_python() -> None:
    class Table:
        asked = 0

        def __getitem__(self, key: int) -> float:
            self.asked += 1
            if key > 2:
                raise IndexError
            return key * 2.0

    def function(img: Any, table: Any) -> Any:
        return img * table[1] + sum(table)

    f = hjit.pipeline(function, on_unsupported="break", verify="off")
    ours, theirs = Table(), Table()
    for _ in range(3):
        assert_equal(f(IMAGE, ours), function(IMAGE, theirs))
        assert ours.asked == theirs.asked


class Counting(list[int]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Any:
        Counting.times += 1
        return super().__iter__()


def test_arguments_that_nothing_asks_for_are_not_gone_through() -> None:
    f = hjit.pipeline(lambda img, options: img * 2, cache="off")
    np.testing.assert_array_equal(f(np.ones((9, 8)), Counting([1, 2])), np.full((9, 8), 2.0))
    assert Counting.times == 0 and f.stats.traces == 1
