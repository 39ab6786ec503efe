"""Objects that traced code makes: what they draw, read or change while they are made happens at every call."""

from __future__ import annotations

import dataclasses
import datetime
import os
import random
import time
from collections.abc import Callable
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
