"""Objects that traced code makes: what they draw, read or change while they are made happens at every call."""

from __future__ import annotations

import abc
import collections.abc
import dataclasses
import datetime
import functools
import logging
import numbers
import os
import random
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import hjit

pytestmark = pytest.mark.filterwarnings("ignore::hjit.HjitWarning")  # that they run in Python

STREAM: Any = None


def drawn() -> int:
    return int(np.random.randint(1000))


def lazily_made() -> Any:
    global STREAM
    if STREAM is None:
        STREAM = np.random.RandomState(drawn())
    return STREAM


def counted(seen: list[int] = []) -> int:  # noqa: B006
    seen.append(1)
    return len(seen)


class Draws:
    def __init__(self) -> None:
        self.value = np.random.randint(1000)


class DrawsByAFunction:
    def __init__(self, value: int | None = None) -> None:
        self.value = drawn() if value is None else value


class DrawsByAMethod:
    value = property(lambda self: self.draw())

    def draw(self) -> int:
        return drawn()


class DrawsFromALazyStream:
    def __init__(self) -> None:
        self.value = lazily_made().randint(1000)


@dataclasses.dataclass
class DrawsADefault:
    value: int = dataclasses.field(default_factory=drawn)


class DrawsFromPython:
    def __init__(self) -> None:
        self.value = random.randrange(1000)


class Counts:
    def __init__(self) -> None:
        self.value = counted()


MADE = [Draws, DrawsByAFunction, DrawsByAMethod, DrawsFromALazyStream, DrawsADefault, DrawsFromPython, Counts]


def function_of(cls: Any) -> Callable[[Any], Any]:
    """``a * 2 + cls().value``, the class a global."""
    under = {"made": cls, "np": np}
    exec("def f(a): return np.sqrt(a) * 2 + made().value", under)
    return under["f"]  # type: ignore[return-value]


@pytest.mark.parametrize("verify", ["off", "first"])
@pytest.mark.parametrize("cls", MADE)
def test_numbers_and_streams_are_pythons(cls: Any, verify: str) -> None:
    def numbers(f: Callable[[Any], Any]) -> tuple[list[float], Any, Any]:
        global STREAM
        STREAM = None
        (counted.__defaults__ or ([],))[0].clear()
        np.random.seed(3)
        random.seed(3)
        found = [float(f(np.full(9, 4.0 * k))[0]) for k in range(4)]
        return found, np.random.get_state()[2], random.random()  # type: ignore[index]

    f = function_of(cls)
    assert numbers(hjit.pipeline(f, verify=verify, on_unsupported="break")) == numbers(f)


class Timed:
    def __init__(self) -> None:
        self.value = time.perf_counter_ns()


class Dated:
    def __init__(self) -> None:
        self.value = datetime.datetime.now().timestamp()


class Seeded:
    def __init__(self) -> None:
        self.value = np.random.default_rng().integers(1 << 40)


class Entropy:
    def __init__(self) -> None:
        self.value = int.from_bytes(os.urandom(5), "little")


@pytest.mark.parametrize("cls", [Timed, Dated, Seeded, Entropy])
def test_what_differs_from_call_to_call_does(cls: Any) -> None:
    p = hjit.pipeline(function_of(cls), verify="off", on_unsupported="break")
    found = []
    for _ in range(4):
        found.append(float(p(np.zeros(9))[0]))
        time.sleep(1e-4)
    assert len({*found}) == 4


class Asks:
    def __init__(self) -> None:
        self.value = int(os.environ.get("HJIT_TEST_VALUE", "0"))


def test_the_environment_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(function_of(Asks), verify="off", on_unsupported="break")
    for k in ("3", "4", "3"):
        monkeypatch.setenv("HJIT_TEST_VALUE", k)
        assert p(np.zeros(9))[0] == int(k)


def test_objects_that_do_none_of_it_are_compiled() -> None:
    class Window:
        def __init__(self, n: int, weights: Any = (), names: Any = {}) -> None:  # noqa: B006
            self.n, self.value = n, sum(weights, 1) + len(names)

    p = hjit.pipeline(lambda a: a * 2 + Window(3, [1, 2]).value, verify="off", on_unsupported="raise")
    np.testing.assert_array_equal(p(np.ones(9)), 6)


KINDS: Any = {np.ndarray: 2, np.float32: 3, float: 5}


class Kinds:
    """Of what its methods are given."""

    kept = type

    def __init__(self) -> None:
        self.own = type

    def of_type(self, x: Any) -> int:
        return int(KINDS.get(type(x), 1))

    def of_attribute(self, x: Any) -> int:
        return int(KINDS.get(self.kept(x), 1))

    def of_own(self, x: Any) -> int:
        return int(KINDS.get(self.own(x), 1))

    @staticmethod
    def of_static(x: Any) -> int:
        return 2 if type(x) is np.ndarray else 1


class Instances:
    """As `Kinds`, by what answers for traced arrays."""

    def of_isinstance(self, x: Any) -> int:
        return 2 if isinstance(x, np.ndarray) else 3 if isinstance(x, np.floating) else 5

    def of_abstract(self, x: Any) -> int:
        return 2 if isinstance(x, numbers.Real) else 1

    def of_class(self, x: Any) -> int:
        return int(KINDS.get(x.__class__, 1))


class Scalars:
    def of_isscalar(self, x: Any) -> int:
        return 2 if np.isscalar(x) else 1


class Abstract:
    def of_iterable(self, x: Any) -> int:
        return 2 if isinstance(x, Iterable) else 1

    def of_sized(self, x: Any) -> int:
        return 2 if isinstance(x, collections.abc.Sized) else 1


class Attributes:
    def of_hasattr(self, x: Any) -> int:
        return 2 if hasattr(x, "shape") else 1

    def of_getattr(self, x: Any) -> int:
        return len(getattr(x, "shape", "none"))


@dataclasses.dataclass
class Holds:
    x: Any

    def of_held(self) -> int:
        return int(KINDS.get(type(self.x), 1))


ASKS: dict[str, Callable[[Any], int]] = {
    "type": lambda x: Kinds().of_type(x),
    "attribute": lambda x: Kinds().of_attribute(x),
    "own": lambda x: Kinds().of_own(x),
    "static": lambda x: Kinds.of_static(x),
    "isinstance": lambda x: Instances().of_isinstance(x),
    "abstract": lambda x: Instances().of_abstract(x),
    "iterable": lambda x: Abstract().of_iterable(x),
    "sized": lambda x: Abstract().of_sized(x),
    "class": lambda x: Instances().of_class(x),
    "isscalar": lambda x: Scalars().of_isscalar(x),
    "hasattr": lambda x: Attributes().of_hasattr(x),
    "getattr": lambda x: Attributes().of_getattr(x),
    "held": lambda x: Holds(x).of_held(),
}


@pytest.mark.parametrize("given", [lambda a: a, lambda a: a[0, 0], lambda a: a.max(), lambda a: a[0, 0].item()])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_objects_ask_for_types(ask: Callable[[Any], int], given: Callable[[Any], Any]) -> None:
    def f(a: Any) -> Any:
        return a * ask(given(a))

    p, a = hjit.pipeline(f, verify="off", on_unsupported="numpy"), np.arange(600, dtype=np.float32).reshape(20, 30)
    for _ in range(2):
        assert np.array_equal(p(a), f(a))


class Itself:
    """Asks for no type but its own."""

    gain = 3

    def __init__(self, x: Any) -> None:
        self.x = x

    def doubled(self) -> Any:
        made: Any = type(self)(self.x * 2)
        if type(self) == type(made):  # noqa: E721
            made.x = made.x + 0
        return made.x * getattr(self, "gain") + hasattr(self, "none")  # noqa: B009


def test_objects_that_ask_for_their_own_type_are_traced() -> None:
    f = hjit.pipeline(lambda a: Itself(a).doubled(), on_unsupported="raise")
    a = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert np.array_equal(f(a), a * 6)


@dataclasses.dataclass
class Fields:
    """Gives its fields by name, as a mapping."""

    a: Any
    b: Any

    def __iter__(self) -> Any:
        yield from {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}.items()


def test_fields_of_an_object_are_asked_for_by_name() -> None:
    f = hjit.pipeline(lambda a: sum(x for _, x in Fields(a, a + 1)), on_unsupported="raise")
    a = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert np.array_equal(f(a), a + (a + 1))


class Step(abc.ABC):
    """Converts what it is given: its methods can be traced, and cannot run as they are."""

    bits = 8

    def __init__(self, img: Any, gain: float = 1.5) -> None:
        self.img = np.asarray(img, np.float32)
        self.rows, self.columns = img.shape
        self.gain = gain
        self.seen: list[Any] = []

    def __call__(self) -> Any:
        self.seen.append(self.name)
        return self.finished(self.run())

    @abc.abstractmethod
    def run(self) -> Any: ...

    @property
    def name(self) -> str:
        return type(self).__name__

    @functools.cached_property
    def top(self) -> Any:
        return np.float32(2**self.bits - 1)

    def finished(self, x: Any) -> Any:
        return np.uint8(np.clip(x, 0, self.top))

    @staticmethod
    def padded(x: Any) -> Any:
        out = np.zeros((x.shape[0] + 2, x.shape[1] + 2), x.dtype)
        out[1:-1, 1:-1] = x
        return out

    @classmethod
    def strong(cls, img: Any) -> Any:
        return cls(img, 3.0)


class Smooth(Step):
    def __init__(self, img: Any, gain: float = 0.25) -> None:
        super().__init__(img, gain)
        self.padding = self.padded(self.img)

    def run(self) -> Any:
        p = self.padding
        return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * self.gain

    def finished(self, x: Any) -> Any:
        return super().finished(x) | np.uint8(len(self.seen))


class Rows(Step):
    def run(self) -> Any:
        out = np.empty((self.rows, self.columns), np.float32)
        for y in range(self.rows):
            for x in range(self.columns):
                out[y, x] = self.at(y, x) if self.img[y, x] > 100 else self.img[y, 0]
        return out

    def at(self, y: Any, x: Any) -> Any:
        return self.img[y, x] * self.gain


class Counted:
    made = 0

    def __init__(self, x: Any) -> None:
        self.x = np.float32(x)

    @classmethod
    def one(cls, x: Any) -> Any:
        cls.made += 1
        return cls(x)


@dataclasses.dataclass
class Weights:
    x: Any
    table: Any = dataclasses.field(default_factory=lambda: [0.5, 0.25])

    def __post_init__(self) -> None:
        self.x = np.array(self.x, float)

    def total(self) -> Any:
        return sum(w * np.asarray(self.x) for w in self.table)


def logged(x: Any) -> Any:
    return Logs(x).run()


class Logs:
    def __init__(self, x: Any) -> None:
        self.x = x

    def run(self) -> Any:
        LOG.debug("of %s", self.x.shape)
        return np.float32(self.x) * 2


LOG = logging.getLogger(__name__)
CONVERTING: dict[str, Callable[[Any], Any]] = {
    "methods of a base": lambda a: Smooth(a)(),
    "class method": lambda a: Smooth.strong(a)(),
    "static method": lambda a: Step.padded(np.float32(a)),
    "loops": lambda a: Rows(a)(),
    "several objects": lambda a: Rows(Smooth(a)())() + Rows(a, 2.0)(),
    "equal": lambda a: Weights(1).total() * np.float32(a) * (Weights(1).table == Weights(2).table),
    "dataclass": lambda a: Weights(a).total() + Weights(a, [3.0]).total(),
    "its class": lambda a: np.float32(a) * (type(Rows(a)) is Rows) + (Rows(a).__class__ is Rows),
    "abstract": lambda a: np.float32(a) * isinstance(Rows(a), Step) + (Rows(a).name == "Rows"),
    "logs": logged,
}


@pytest.mark.parametrize("verify", ["off", "first"])
@pytest.mark.parametrize("f", CONVERTING.values(), ids=CONVERTING)
def test_methods_that_convert_arrays_are_traced(f: Callable[[Any], Any], verify: Any) -> None:
    p = hjit.pipeline(f, on_unsupported="raise", verify=verify)
    for k in range(3):
        a = np.random.default_rng(k).integers(0, 256, (20 + k, 30), np.uint8)
        ours, theirs = p(a), f(a)
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


class Levels:
    def __init__(self, x: Any) -> None:
        self.mean = np.float64(x.mean())
        self.top = float(x.max())


def test_attributes_of_classes_that_class_methods_set_are_set_at_every_call() -> None:
    p = hjit.pipeline(lambda a: Counted.one(a).x * 2, on_unsupported="numpy")
    for k in range(3):
        assert np.array_equal(p(np.ones((4, 5))), np.full((4, 5), 2)) and Counted.made == k + 1


def test_subclasses_are_the_users() -> None:
    f = lambda a: np.float32(a) * Smooth(a).top * len(Step.__subclasses__())  # noqa: E731
    p = hjit.pipeline(f, on_unsupported="numpy")
    assert np.array_equal(p(np.ones((4, 5), np.uint8)), f(np.ones((4, 5), np.uint8)))


def test_no_subclasses_are_left() -> None:
    before = Step.__subclasses__()
    hjit.pipeline(lambda a: Smooth(a)() + Rows(a)(), on_unsupported="raise")(np.ones((20, 30), np.uint8))
    assert Step.__subclasses__() == before and not Smooth.__subclasses__()


def test_numbers_that_methods_convert_are_no_decisions() -> None:
    p = hjit.pipeline(lambda a: a - Levels(a).mean * Levels(a).top, on_unsupported="raise")
    for k in range(3):
        a = np.random.default_rng(k).random((20, 30))
        np.testing.assert_allclose(p(a), a - a.mean() * a.max(), atol=1e-15)
    assert p.stats.traces == 1


def test_what_cannot_be_made_is_refused_as_python_does() -> None:
    f = lambda a: np.float32(Step(a).img)  # type: ignore[abstract] # noqa: E731
    with pytest.raises(TypeError) as theirs:
        f(np.ones((4, 5)))
    with pytest.raises(TypeError) as ours:
        hjit.pipeline(f)(np.ones((4, 5)))
    assert str(ours.value) == str(theirs.value)


class Printed(type):
    """Of classes that stand for themselves, such as for an argument that is not given."""

    def __repr__(cls) -> str:
        return f"<{cls.__name__}>"


class Missing(metaclass=Printed):
    pass


def test_a_class_of_a_users_metaclass_is_a_value() -> None:
    def f(a: Any, scale: Any = Missing) -> Any:
        given = Missing
        if scale is not Missing:
            given = scale
        return a * 2 if given is Missing else a * given

    p = hjit.pipeline(f, on_unsupported="raise")
    a = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert np.array_equal(p(a), a * 2) and np.array_equal(p(a, 3), a * 3)


class PrintsInAStaticMethod:
    @staticmethod
    def shown(a: Any) -> Any:
        print(a.shape)
        return a + 1


def test_static_methods_print_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    f = hjit.pipeline(lambda a: PrintsInAStaticMethod.shown(a), on_unsupported="numpy")
    for _ in range(3):
        f(np.ones((20, 30)))
    assert capsys.readouterr().out == "(20, 30)\n" * 3


WARNS = """
class Warns:
    def here(self, x):
        warnings.warn("here")
        return x + 1

    def above(self, x):
        warnings.warn("above", UserWarning, stacklevel=2)
        return x + 1

def f(a):
    return Warns().METHOD(a)
"""


@pytest.mark.parametrize("method", ["here", "above"])
@pytest.mark.parametrize("action", ["always", "default"])
def test_warnings_of_methods_in_cells_of_notebooks(method: str, action: Any) -> None:
    """The file of their code is of no module."""

    def seen(is_compiled: bool) -> list[tuple[str, str, int]]:
        names: dict[str, Any] = {"warnings": warnings, "__name__": "cell"}
        exec(compile(WARNS.replace("METHOD", method), f"<cell {action}>", "exec"), names)
        f = hjit.pipeline(names["f"], on_unsupported="numpy") if is_compiled else names["f"]
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter(action)
            for _ in range(3):
                f(np.ones((20, 30)))
        return [(str(w.message), w.filename, w.lineno) for w in given]

    assert seen(True) == seen(False)
