"""What outlives a trace is noted, compared and put back, by what it is and not by what its class makes of it."""

from __future__ import annotations

import array
import collections
from typing import Any

import numpy as np
import pytest

from hjit.trace.tracing.recording.state.watched import MAX_REACHED, Watched


class Odd(dict[str, Any]):
    """Says nothing of what it holds."""

    def __iter__(self) -> Any:
        return iter(())

    def __setitem__(self, key: str, value: Any) -> None:
        raise AssertionError("the user's code runs")

    clear = values = keys = None  # type: ignore[assignment]


def add(d: Any, key: str, value: Any) -> None:
    dict.__setitem__(d, key, value)


FIELDS = [("n", "i4"), ("m", "f8")]
CHANGES: dict[str, tuple[Any, Any]] = {
    "list": ([1, 2], lambda x: x.append(3)),
    "dict": ({"a": 1}, lambda x: x.update(b=2)),
    "Counter": (collections.Counter("aab"), lambda x: x.update("ab")),
    "defaultdict": (collections.defaultdict(list, a=[1]), lambda x: x["b"]),
    "OrderedDict": (collections.OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
    "dict of the user's": (Odd(a=1), lambda x: add(x, "b", 2)),
    "set": ({1, 2}, lambda x: x.add(3)),
    "deque": (collections.deque([1, 2], maxlen=2), lambda x: x.append(3)),
    "bytearray": (bytearray(b"ab"), lambda x: x.append(3)),
    "array": (array.array("d", [1.0]), lambda x: x.append(3.0)),
    "structured array": (np.zeros(2, FIELDS), lambda x: x["n"].__iadd__(1)),
    "structured scalar": (np.zeros(1, FIELDS)[0], lambda x: x.__setitem__("m", 2.0)),
    "array of objects": (np.array([None, 1], object), lambda x: x.__setitem__(0, 2)),
    "view": (np.arange(6.0)[::-2], lambda x: x.__setitem__(0, 9.0)),
}


def shown(x: Any) -> Any:
    if isinstance(x, Odd):
        return dict.items(x).__repr__()
    return x.tolist() if isinstance(x, (np.ndarray, np.void)) else repr(x)


@pytest.mark.parametrize("kind", CHANGES)
def test_it_is_noted_and_put_back(kind: str) -> None:
    x, change = CHANGES[kind]
    before, watched = shown(x), Watched()
    watched.add(x, "x")
    assert not list(watched.changes())
    change(x)
    assert shown(x) != before
    assert [name for name, _ in watched.changes()] == ["x"]
    watched.restore()
    assert shown(x) == before
    assert not list(watched.changes())


def is_own(x: Any) -> bool:
    return bool(x.__module__ == __name__)


TOTAL, HELD = 0, [0]


class Reaching:
    __slots__ = ("items",)
    counts: dict[str, int] = {}  # noqa: RUF012
    made = 0

    def __init__(self) -> None:
        global TOTAL
        TOTAL += 1
        HELD.append(TOTAL)
        Reaching.made += 1
        Reaching.counts["made"] = Reaching.made
        self.items = [1]


def test_what_code_and_objects_reach_is_watched() -> None:
    one = Reaching()
    before, watched = (TOTAL, list(HELD), Reaching.made, dict(Reaching.counts)), Watched()
    watched.add_all((one,), "one", is_own)
    Reaching()
    one.items.append(2)
    assert {name for name, _ in watched.changes()} >= {"global TOTAL", "HELD", "Reaching.made = ...", "one"}
    watched.restore()
    assert (TOTAL, HELD, Reaching.made, Reaching.counts) == before
    assert one.items == [1]


def test_each_object_is_looked_through_to_an_end() -> None:
    watched = Watched()
    far = [[k] for k in range(2 * MAX_REACHED)]
    watched.add_all(far, "far", is_own)
    near = [[1]]
    watched.add_all(near, "near", is_own)
    near[0].append(2)
    assert [name for name, _ in watched.changes()] == ["near"]


def test_equal_plain_values_are_no_change() -> None:
    watched = Watched()
    x: list[Any] = ["".join(("scale", "1")), 1000, 0.0]
    watched.add(x, "x")
    x[0], x[1] = "".join(("scale", "1")), int("1000")
    assert not list(watched.changes())
    x[2] = -0.0
    assert list(watched.changes())
