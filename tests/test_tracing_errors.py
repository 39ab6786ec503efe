"""What a refusal says: the line, the call that asked, why it cannot have the numbers, and what to use instead."""

from __future__ import annotations

import copy
import re
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import TraceError

IMAGE = np.random.default_rng(3).random((24, 31))


class Made(type):
    """Of classes from which none is derived, so that methods run as they are."""


class Holder(metaclass=Made):
    def __init__(self, a: Any) -> None:
        self.a = np.asarray(a)


class Converts(metaclass=Made):
    """An object that converts arrays by itself."""

    def shown(self, x: Any) -> Any:
        return np.array(x)


WIDE = np.array([1, 2], np.longdouble)


def by_variable(a: Any) -> Any:
    kind = np.dtype("f8,f4")[0]
    return kind.type(a) + 1


def vectorized(a: Any) -> Any:
    return np.vectorize(np.sum, signature="(n)->()")(a)


def held(a: Any) -> Any:
    return Holder(a).a


def made_inside(a: Any) -> Any:
    inside = Converts()
    return inside.shown(a)


def wide_type(a: Any) -> Any:
    return np.longdouble(a)


def stores(a: Any) -> Any:
    WIDE[:2] = a[0, :2]
    return a


def indexes(a: Any) -> Any:
    return WIDE[(a > 2).sum(axis=0)]


CASES = [
    (stores, "WIDE[:2]", "what is assigned to is a real array", "np.empty"),
    (indexes, "WIDE[(a > 2).sum(axis=0)]", "what is indexed is a real array", "np.take"),
    (by_variable, "kind.type(a)", "numpy.float64 reached the call in a variable", r"use x\.astype\(kind.type\)"),
    (vectorized, 'np.vectorize(np.sum, signature="(n)->()")(a)', "one number after another", "whole arrays"),
    (held, "Holder(a)", "objects of the class .*Holder are made", "make the object before"),
    (made_inside, "inside.shown(a)", "shown is a method|shown runs as it is", "before or after|function of arrays"),
    (wide_type, "np.longdouble(a)", "up to 64 bits", "complex ones"),
]


@pytest.mark.parametrize(("f", "call", "reason", "advice"), CASES, ids=lambda x: getattr(x, "__name__", None))
def test_who_asks_for_the_numbers(f: Any, call: str, reason: str, advice: str) -> None:
    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f)(IMAGE)
    error = caught.value
    assert error.operation == call
    assert re.search(reason, error.reason)
    assert re.search(advice, error.advice)
    assert error.origin is not None
    assert error.origin.filename == __file__
    assert error.origin.function == f.__name__
    assert error.origin.line == f.__code__.co_firstlineno + (2 if f in (by_variable, made_inside) else 1)


def test_every_kind_of_asking_has_a_text_of_its_own() -> None:
    from hjit.trace.capture.tracing_errors import TEXTS

    assert len({reason for reason, _ in TEXTS.values()}) == len(TEXTS)


def test_a_computed_number_as_a_key_of_a_dict() -> None:
    names = dict(enumerate(range(10, 20)))

    def f(a: Any) -> Any:
        return np.vectorize(names.get)((a * 9).astype(int))

    with pytest.raises(TraceError, match=r"looked up in a dict or a set.*by table\[x\]"):
        hjit.pipeline(f)(IMAGE)


def test_an_exception_of_the_trace_alone_is_a_gap() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        return b + len(bytes(b))

    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f)(IMAGE)
    error = caught.value
    assert error.origin is not None
    assert (error.origin.filename, error.origin.line) == (__file__, f.__code__.co_firstlineno + 2)
    assert error.operation == "return b + len(bytes(b))"
    for part in ("tracing raised TypeError", "a limitation of hjit, not a fault of the code", "report"):
        assert part in str(error)
    assert "rewrite" not in str(error)


def test_a_gap_in_a_library_names_the_users_line_and_the_librarys() -> None:
    image = pytest.importorskip("PIL.Image")

    def f(a: Any) -> Any:
        return np.asarray(image.fromarray(a.astype(np.uint8))) + 1

    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f)(IMAGE)
    assert caught.value.origin is not None
    assert (caught.value.origin.filename, caught.value.origin.line) == (__file__, f.__code__.co_firstlineno + 1)
    assert "PIL" in caught.value.reason


def test_what_the_function_makes_of_a_refusal_is_reported_as_that() -> None:
    def f(a: Any) -> Any:
        try:
            found = np.unique(a)
        except Exception:
            found = None
        return found + 1

    with pytest.raises(TraceError, match=r"numpy.unique: the length of its result"):
        hjit.pipeline(f)(IMAGE)


def test_what_the_function_itself_raises_is_no_gap() -> None:
    def f(a: Any) -> Any:
        raise KeyError(f"no {a.shape}")

    with pytest.raises(KeyError, match="no"):
        hjit.pipeline(f)(IMAGE)


@pytest.mark.parametrize("name", ["tobytes", "tofile", "ctypes"])
def test_memory_is_asked_for(name: str) -> None:
    with pytest.raises(TraceError, match=f"ndarray.{name}: a traced array has no memory.*before or after"):
        hjit.pipeline(lambda a: getattr(a, name))(IMAGE)


def test_pickles_and_text() -> None:
    with pytest.raises(TraceError, match="pickling an array"):
        hjit.pipeline(lambda a: copy._reconstruct(a, None, *a.__reduce_ex__(4)))(IMAGE)  # type: ignore[attr-defined]
    with pytest.raises(TraceError, match=r"format\(\) of an array: its numbers are not known"):
        hjit.pipeline(lambda a: f"{a}")(IMAGE)
    f = hjit.pipeline(lambda a: (f"{a.max():.3f}", str(a.min())), verify="off", cache="off")
    for a in (IMAGE, IMAGE + 1, IMAGE):
        assert f(a) == (f"{a.max():.3f}", str(a.min()))


def test_objects_are_not_returned() -> None:
    def f(a: Any) -> Any:
        found = np.array([1, None], object)
        found[1] = a
        return found

    with pytest.raises(TraceError, match="return: a ndarray"):
        hjit.pipeline(f)(IMAGE)


# -- threads


def pooled(a: Any) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return np.stack(list(pool.map(lambda row: row * 2, [a, a])))


def of_numpy(a: Any) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return np.stack(list(pool.map(np.sqrt, [a, a])))


def started(a: Any) -> Any:
    out = np.zeros_like(a)

    def work(k: int) -> None:
        out[k] = a[k] * 2

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def kept_in_a_list(a: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(a.mean()))
    thread.start()
    thread.join()
    return a - found[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("f", [pooled, of_numpy, started, kept_in_a_list])
def test_threads_inside_a_traced_function(f: Any) -> None:
    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f, verify="off")(IMAGE)
    assert "thread" in caught.value.operation
    assert "traced in another thread" in caught.value.reason or caught.value.reason == "its work cannot be traced"
    assert "threads call decorated functions" in caught.value.advice
    assert caught.value.origin is not None
    assert caught.value.origin.filename == __file__


def test_threads_that_call_pipelines_are_undisturbed() -> None:
    double = hjit.pipeline(lambda row: row * 2)
    with ThreadPoolExecutor(4) as pool:
        for found, row in zip(pool.map(double, list(IMAGE)), IMAGE, strict=True):
            np.testing.assert_array_equal(found, row * 2)


def test_an_array_that_outlives_its_trace() -> None:
    kept: list[Any] = []

    def f(a: Any) -> Any:
        return a * 2

    def keep(frame: types.FrameType, event: str, result: Any) -> None:
        if event == "return" and frame.f_code.co_name == f.__name__ and frame.f_code.co_filename == __file__:
            kept.append(result)

    sys.setprofile(keep)
    try:
        hjit.pipeline(f, verify="off")(IMAGE)
    finally:
        sys.setprofile(None)
    with pytest.raises(TraceError, match="an array of a finished trace is used"):
        kept[0] + 1
